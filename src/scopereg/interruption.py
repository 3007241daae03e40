"""Interruption: the first Ctrl-C asks a run to end in good order, the second ends it at once. SIGTERM asks too."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def interruptible(ask: Callable[[], None]) -> Iterator[None]:
    """Call `ask` at the first Ctrl-C; the second is a KeyboardInterrupt as ever."""

    def first(*_: Any) -> None:
        ask()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    try:
        before = signal.signal(signal.SIGINT, first)
    except ValueError:  # not the main thread: nobody presses Ctrl-C there
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def terminable(ask: Callable[[], None]) -> Iterator[None]:
    """Call `ask` when the system wants the process to end (SIGTERM)."""
    try:
        before = signal.signal(signal.SIGTERM, lambda *_: ask())
    except ValueError:  # not the main thread: no signal arrives there
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
