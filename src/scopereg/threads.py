"""Threads: how many of PyTorch's compute on the CPU, as many as cores are free, watched while work runs.

Two things make a busy machine slow. Threads that wait for each other at every small step wait for the one that has to
share its core: so there are no more of them than cores are free. And OpenMP's threads spin while they wait, which takes
the core from those that they wait for: so they are made to sleep. Numbers that a user chose stay as they are.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import torch

from scopereg.cores import LOAD, usable_cores

CHOSEN_BY = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
_WAITS_CHOSEN_BY = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
_SECONDS_BETWEEN_LOOKS = 0.5
_POOR_SHARE, _FAIR_SHARE = 0.6, 0.8  # of a core, that a thread gets while it has something to do
_LEAST_MEASURED_SECONDS = 0.02
_FIRST_HOLD_SECONDS, _LONGEST_HOLD_SECONDS = 2.0, 64.0


@contextmanager
def watched(steady: bool = False) -> Iterator[None]:
    """Meanwhile this thread computes with as many threads as are free; afterwards with as many as before.

    `steady` stays at what the machine allows: results of reductions depend on the number of threads in their last
    bits, and a training would not be the same twice. Works as a decorator too; inside of another one it only looks.
    """
    if getattr(_here, "watch", None) is not None:
        look()
        yield
        return
    before = torch.get_num_threads()
    if before > 1:
        _let_waits_sleep()
    most = _most(before)
    if most is None:
        yield
        return
    watch = _watch_of(most, steady)
    me = threading.get_ident()
    _applied[me] = watch.threads
    _here.watch = watch
    watch.apply()
    try:
        yield
    finally:
        _here.watch = None
        _applied.pop(me, None)
        if torch.get_num_threads() == watch.threads:
            torch.set_num_threads(_default or before)


def look() -> None:
    """Take more or fewer threads if that is due; for the inside of long work, and nearly free."""
    watch = getattr(_here, "watch", None)
    if watch is not None and time.monotonic() >= watch.next_look:
        own = torch.get_num_threads() == watch.threads  # else somebody has chosen meanwhile
        watch.look()
        if own:
            watch.apply()
            _applied[threading.get_ident()] = watch.threads


def took(wall_seconds: float, cpu_seconds: float) -> None:
    """What a parallel section took, of all its threads together, and what they had of their cores in that time."""
    watch = getattr(_here, "watch", None)
    if watch is not None:
        watch.wall_seconds += wall_seconds
        watch.cpu_seconds += cpu_seconds


def in_words() -> str:
    """How many threads would compute now, of how many cores, and who chose that."""
    before = torch.get_num_threads()
    if chosen_by_user(before):
        names = [name for name in CHOSEN_BY if os.environ.get(name)]
        return f"{before} of {usable_cores()} cores, as set by {' and '.join(names) or 'torch.set_num_threads'}"
    free = LOAD.free()
    now = min(before, usable_cores(), _whole(free))
    seen = "" if free is None else f", {max(free, 0.0):.1f} of them free now"
    return f"{now} of {usable_cores()} cores{seen}"


class Watch:
    """The number of threads of one thread's work, and what it goes by."""

    def __init__(self, most: int, steady: bool = False) -> None:
        self.most, self.steady = most, steady
        self.threads = self.cap = most
        self.wall_seconds = self.cpu_seconds = 0.0
        self.next_look = time.monotonic() + _SECONDS_BETWEEN_LOOKS
        self._poor = 0  # measurements in a row in which threads got too little of their cores
        self._hold_seconds = _FIRST_HOLD_SECONDS
        self._more_from = 0.0
        if not steady:
            self.threads = min(most, _whole(LOAD.free()))

    def apply(self) -> None:
        """Tell PyTorch, for this thread."""
        if torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)

    def look(self) -> None:
        """Go by what other processes leave free and by how much of a core each thread got of late."""
        now = time.monotonic()
        self.next_look = now + _SECONDS_BETWEEN_LOOKS
        if self.steady:
            return
        self._measure(now)
        wanted = min(self.most, self.cap, _whole(LOAD.free()))
        # Down at once, up by half of the way: who comes back takes turns with others that do the same.
        self.threads = wanted if wanted <= self.threads else -(-(wanted + self.threads) // 2)

    def _measure(self, now: float) -> None:
        """Half of the threads where two measurements in a row were poor, and more again after a while."""
        if self.wall_seconds < _LEAST_MEASURED_SECONDS:
            return
        share = self.cpu_seconds / self.wall_seconds
        self.wall_seconds = self.cpu_seconds = 0.0
        self._poor = self._poor + 1 if share < _POOR_SHARE and self.threads > 1 else 0
        if self._poor >= 2:
            self.cap, self._poor = max(self.threads // 2, 1), 0
            self._more_from = now + self._hold_seconds
            self._hold_seconds = min(2 * self._hold_seconds, _LONGEST_HOLD_SECONDS)
        elif share > _FAIR_SHARE and now >= self._more_from:
            self._hold_seconds = self._hold_seconds if self.cap < self.most else _FIRST_HOLD_SECONDS
            self.cap = min(2 * self.cap, self.most)


def _watch_of(most: int, steady: bool) -> Watch:
    """That of this thread's last work, since frames are short and what was measured still holds."""
    kept: Watch | None = getattr(_here, "kept", None)
    if steady or kept is None or kept.most != most:
        kept = Watch(most, steady)
    if not steady:
        _here.kept = kept
        if time.monotonic() >= kept.next_look:
            kept.look()
    return kept


def _whole(free: float | None) -> int:
    return 1 << 30 if free is None else max(int(free + 0.5), 1)


def _most(before: int) -> int | None:
    """The most threads to take; None where there is nothing to choose or somebody has chosen."""
    global _default
    if before in _applied.values() and _default is not None:
        before = _default  # as another thread of this process is at it
    elif chosen_by_user(before):
        return None
    else:
        _default = before
    most = min(before, usable_cores())
    return most if before > 1 else None


def chosen_by_user(threads: int) -> bool:
    """Whether a number of threads is one that PyTorch would not have taken by itself."""
    if any(os.environ.get(name) for name in CHOSEN_BY):
        return True
    try:
        affine = len(os.sched_getaffinity(0))
    except AttributeError:
        affine = 0
    every = {cores for cores in (affine, os.cpu_count() or 1) if cores}
    return threads not in every | {cores // 2 for cores in every}  # with and without second threads of a core


def _let_waits_sleep() -> None:
    """Make OpenMP's threads sleep while they wait, as OMP_WAIT_POLICY=passive does before it is loaded."""
    if any(os.environ.get(name) for name in _WAITS_CHOSEN_BY):
        return
    library = _openmp()
    if library is None:
        return
    if hasattr(library, "kmp_set_blocktime"):  # LLVM's and Intel's, for each thread by itself
        library.kmp_set_blocktime(0)
    else:
        _keep_sleepers()


@cache
def _keep_sleepers() -> None:
    """Threads of GNU's OpenMP that do nothing: where it has more of them than cores, none of them spins for long."""
    library, ready = _openmp(), threading.Event()
    nothing = ctypes.cast(ctypes.CDLL(None).free, ctypes.c_void_p)  # of NULL: a function of C that does nothing

    def keep() -> None:
        assert library is not None
        library.GOMP_parallel(nothing, None, library.omp_get_num_procs() + 1, 0)
        ready.set()
        threading.Event().wait()  # they end with the thread that made them

    threading.Thread(target=keep, name="scopereg-sleepers", daemon=True).start()
    ready.wait(5.0)


@cache
def _openmp() -> ctypes.CDLL | None:
    """The OpenMP library that PyTorch has loaded, of LLVM, Intel or GNU; None where it cannot be found."""
    try:
        maps = [line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines()]
    except OSError:
        maps = []
    inside = Path(torch.__file__).parent / "lib"
    files = {Path(words[5]) for words in maps if len(words) == 6}
    files |= {inside / name for name in ("libomp.dylib", "libiomp5.dylib", "libiomp5md.dll")}
    for stem in ("libomp", "libiomp", "libgomp"):
        for file in sorted(file for file in files if file.name.startswith(stem) and file.exists()):
            with suppress(OSError):
                library = ctypes.CDLL(str(file))
                if hasattr(library, "kmp_set_blocktime") or hasattr(library, "GOMP_parallel"):
                    return library
    return None


_here = threading.local()
_applied: dict[int, int] = {}  # thread to the number that it takes now
_default: int | None = None  # what PyTorch takes by itself
