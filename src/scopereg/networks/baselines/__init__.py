"""The four networks that the paper compares with, one file each; docs/baselines.md tells what was decided and why."""
