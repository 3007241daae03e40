"""Ultrasound to train and test on: phantoms that anyone can generate, and loaders."""
