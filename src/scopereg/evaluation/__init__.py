"""Metrics, statistics and reports."""
