"""A network made better at one volume: every volume is its own training set."""
