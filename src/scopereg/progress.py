"""Progress of work that can be counted: a bar with the time left on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def counting(label: str, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """A function to call with what is done and what there is in all."""
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
    print(line, file=sys.stderr, flush=True)


_LISTENER: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


def tell(line: str) -> None:
    """How something that takes long stands, to whoever listens."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(line)


@contextmanager
def listening(listener: Callable[[str], None]) -> Iterator[None]:
    """All that is told within goes to a listener."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)
