"""The verbs of the command line, one file each: the options in a dataclass, and `run`, which gets them filled.

The command line, YAML files and docs/cli.md derive from these dataclasses. Settings that Python code takes too stand
beside that code, and the options of a verb derive from them: train from training/settings.py, track from
registration/settings.py, adapt from training/settings.py.

Functions import the library where they use it: parsing a verb must not load torch, so that `scopereg VERB --help`
answers at once.
"""
