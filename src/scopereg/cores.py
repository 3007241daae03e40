"""Cores: how many this process may use, and what others leave of them."""

from __future__ import annotations

import os
import threading
import time
from functools import cache
from pathlib import Path

LEAST_SECONDS, _OLDEST_SECONDS = (
    0.25,
    30.0,
)  # over which others are counted: ticks are coarse, and old counts tell nothing


class Load:
    """What other processes leave of the cores that this one may use, from the counters of Linux."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: float | None = None
        self._last = self._count()

    def free(self) -> float | None:
        """Cores that nobody else used of late; None where nothing tells."""
        with self._lock:
            now = self._count()
            if now is None or self._last is None:
                return None
            seconds, busy, own = (new - old for new, old in zip(now, self._last, strict=True))
            if seconds >= LEAST_SECONDS:
                others = max(busy - own, 0.0) / seconds
                self._last, self._free = now, usable_cores() - others if seconds < _OLDEST_SECONDS else None
            return self._free

    @staticmethod
    def _count() -> tuple[float, float, float] | None:
        """Time, what all processes used of our cores, and what this one did of any, in seconds."""
        try:
            lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
            cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
            ticks_per_second = os.sysconf("SC_CLK_TCK")
            niced = os.nice(0) > 0
        except (OSError, AttributeError, ValueError):  # not Linux, or it keeps that to itself
            return None
        ticks = 0
        for name, *counts in map(str.split, lines):
            if name in cores:
                user, nice, system, _, _, interrupts, soft, stolen = map(int, counts[:8])
                # Whoever asked to come last takes nothing from those who did not.
                ticks += user + system + interrupts + soft + stolen + (nice if niced else 0)
        return time.monotonic(), ticks / ticks_per_second, time.process_time()


def usable_cores() -> int:
    """Processor cores that this process may use: those of its affinity, and no more than the quota of its container."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        cores = os.cpu_count() or 1
    quota = _quota()
    return cores if quota is None else max(min(cores, round(quota)), 1)


@cache
def _quota(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> float | None:
    """Cores' worth of time that control groups allow; None without a limit."""
    found = []
    try:
        path = next(line[3:] for line in own.read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        path = "/"
    group = root / path.strip("/")
    for folder in (group, *group.parents):
        found.append(_ratio(_words(folder / "cpu.max")))
        if folder == root:
            break
    for name in ("cpu", "cpu,cpuacct"):  # version 1
        files = (root / name / "cpu.cfs_quota_us", root / name / "cpu.cfs_period_us")
        found.append(_ratio([word for file in files for word in _words(file)]))
    return min((quota for quota in found if quota is not None), default=None)


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []


def _ratio(words: list[str]) -> float | None:
    """Quota over period; None for `max`, for -1 and for what is not there."""
    if len(words) != 2 or not words[0].isdigit() or not words[1].isdigit() or int(words[1]) == 0:
        return None
    return int(words[0]) / int(words[1])


LOAD = Load()
