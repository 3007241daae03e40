"""Progress of work that can be counted: a bar with the time left on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

_SECONDS_BETWEEN_LINES = 10.0
_LONG_S = 20.0  # work that takes so long tells
_LEAST_SEEN_S, _FEW_UNITS = 1.0, 3  # before it tells
Item = TypeVar("Item")
_hush = [False]
_LOGGER = logging.getLogger("scopereg")


@contextmanager
def hushed(quiet: bool = True) -> Iterator[None]:
    """Neither bars nor lines while this lasts."""
    before, _hush[0] = _hush[0], _hush[0] or quiet
    try:
        yield
    finally:
        _hush[0] = before


@contextmanager
def timed(what: str) -> Iterator[None]:
    """What was done and how long it took, for `-v` and `--log`."""
    begin = time.perf_counter()
    yield
    _LOGGER.info("%s: %.2f s", what, time.perf_counter() - begin)


def is_hushed() -> bool:
    """Whether somebody asked for neither progress nor notes."""
    return _hush[0]


@contextmanager
def counting(label: str, quiet: bool = False, *, even: bool = True) -> Iterator[Callable[[int, int], None]]:
    """A function to call with what is done and what there is in all.

    Work that takes long tells so once, from the time of its first units; not where these are not `even`.
    """
    quiet = quiet or is_hushed()
    if quiet or not sys.stderr.isatty():
        yield _Lines(label, quiet, even)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    last = TimeRemainingColumn() if even else TimeElapsedColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), last)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task, pace = bar.add_task(label, total=None), Pace()

        def count(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)
            words = pace.forecast(done, total) if even else ""
            if words:
                bar.console.print(f"{label}: {words}", highlight=False, markup=False)

        yield count


def counted(items: Sequence[Item], label: str, *, even: bool = True) -> Iterator[Item]:
    """The items, counted as they are done."""
    with counting(label, even=even) as count:
        count(0, len(items))
        for done, item in enumerate(items, start=1):
            yield item
            count(done, len(items))


class Pace:
    """How long counted work takes, from its first units."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._told = False

    def left_s(self, done: int, total: int) -> float:
        """Seconds that are left if it goes on so."""
        return (time.monotonic() - self._begin) * (total - done) / done if done else float("nan")

    def forecast(self, done: int, total: int) -> str:
        """Once, when units enough are done to tell, and only of what takes long: words; else none."""
        spent_s = time.monotonic() - self._begin
        if self._told or not 0 < done < total or spent_s < _LEAST_SEEN_S:
            return ""
        left_s = self.left_s(done, total)
        if done < _FEW_UNITS and spent_s + left_s < _LONG_S * _FEW_UNITS:
            return ""  # the first sets libraries up, and counts for too much
        self._told = True
        return f"about {duration(spent_s + left_s)} in all" if spent_s + left_s >= _LONG_S else ""


class _Lines:
    """A line where it will take long, one now and then, and one at the end."""

    def __init__(self, label: str, quiet: bool, even: bool) -> None:
        self.label, self.quiet, self.even = label, quiet, even
        self.shown = time.monotonic()
        self.pace = Pace()

    def __call__(self, done: int, total: int) -> None:
        if self.quiet:
            return
        words = self.pace.forecast(done, total) if self.even else ""
        now = time.monotonic()
        if words or done == total or now - self.shown >= _SECONDS_BETWEEN_LINES:
            self.shown = now
            left = f", {duration(self.pace.left_s(done, total))} left" if self.even and 0 < done < total else ""
            say(f"{self.label}: {done} of {total}{', ' + words if words else ''}{left}")


def say(line: str) -> None:
    """A line for people, beside what the program itself writes."""
    if not is_hushed():
        print(line, file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """Hours, minutes and seconds as h:mm:ss or m:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


_LISTENER: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


def announce(line: str) -> None:
    """How something that takes long stands, to whoever listens."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(line)


@contextmanager
def listening(listener: Callable[[str], None]) -> Iterator[None]:
    """All that is announced within goes to a listener."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)
