"""Volumes from tracked sweeps, told how they were made and how well the poses of their frames hold."""
