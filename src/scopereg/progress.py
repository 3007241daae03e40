"""Progress of work that can be counted: a bar with the time left on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_SECONDS_BETWEEN_LINES = 10.0
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
def counting(label: str, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """A function to call with what is done and what there is in all."""
    quiet = quiet or is_hushed()
    if quiet or not sys.stderr.isatty():
        yield _Lines(label, quiet)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class _Lines:
    """A line now and then, and one at the end."""

    def __init__(self, label: str, quiet: bool) -> None:
        self.label, self.quiet = label, quiet
        self.shown = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if not self.quiet and (done == total or now - self.shown >= _SECONDS_BETWEEN_LINES):
            self.shown = now
            say(f"{self.label}: {done} of {total}")


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
