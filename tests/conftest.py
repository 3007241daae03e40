"""One thread for all tests, and an order for those that run in several processes (`make test`)."""

from __future__ import annotations

import os
import signal

import pytest

# Before torch and numpy are imported, and inherited by the processes that tests start: threads of several processes
# on the same cores wait for each other, and sums in one order let runs be compared bit by bit.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

# Jobs in the background of a shell ignore Ctrl-C, and so do all processes that they start: tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first: none of them is left to one process when the others have nothing to do."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
