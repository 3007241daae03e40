"""`python -m scopereg` is the same as `scopereg`."""

import sys

from scopereg.cli import main

if __name__ == "__main__":
    sys.exit(main())
