"""Parts of ScopeRegLive. Those that import no slicer are plain Python 3.9 and numpy, and run without it."""
