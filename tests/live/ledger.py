"""What `soak.py` remembers of frames and updates, in the same room however many they are; and what the process uses."""

from __future__ import annotations

import gc
import os
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np

from scopereg.live.loop import Update

MOST_NUMBERS = 2**20  # frames that can be remembered: six hours at 50 in a second


class Numbers:
    """A set of frame numbers that takes the same room however many are in it."""

    def __init__(self) -> None:
        self._flags = np.zeros(MOST_NUMBERS, bool)
        self._flags[:] = False  # the system gives the room now and not page by page

    def add(self, number: int) -> None:
        self._flags[number] = True

    def __len__(self) -> int:
        return int(self._flags.sum())

    def found_in(self, other: Numbers) -> int:
        return int((self._flags & other._flags).sum())

    def missing_in(self, other: Numbers) -> int:
        return int((self._flags & ~other._flags).sum())


class Told:
    """A listener that sees whether updates come one after the other."""

    def __init__(self) -> None:
        self.count, self.in_order = 0, True

    def __call__(self, update: Update) -> None:
        self.count += 1
        self.in_order &= update.number == self.count


def resources() -> dict[str, float]:
    """Threads, open files and memory of this process; nothing of what the system does not tell."""
    gc.collect()
    found: dict[str, float] = {"threads": threading.active_count()}
    with suppress(OSError):
        found["files"] = len(os.listdir("/proc/self/fd"))
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        found["memory_mb"] = round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)
    return found
