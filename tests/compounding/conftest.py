"""Sweeps over a made-up object, whose every point is known."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # swept.py, which is no test
from swept import sweep_of

from scopereg.io.sweeps import TrackedSweep


@pytest.fixture(scope="session")
def sweep() -> TrackedSweep:
    return sweep_of()
