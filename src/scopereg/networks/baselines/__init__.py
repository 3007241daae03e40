"""The four networks that the paper compares with, one file each: network, loss and how it was trained.

What was decided where the papers are silent, and why: docs/baselines.md.
"""
