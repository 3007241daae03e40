"""Losses and the trainer."""
