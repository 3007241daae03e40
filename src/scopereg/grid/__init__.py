"""The grid: methods x folds x magnitudes x protocols x resolutions as runs, done here or on Ray, and collected."""
