"""Interruption: the first Ctrl-C asks a run to end in good order, the second ends it at once. SIGTERM asks too."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


class Terminated(KeyboardInterrupt):
    """The system wants the process to end (SIGTERM), and it ends as with Ctrl-C."""


@dataclass
class Stop:
    """What asked a run to stop, if anything did."""

    signal: int | None = None

    @property
    def asked(self) -> bool:
        return self.signal is not None

    @property
    def name(self) -> str | None:
        """SIGINT (Ctrl-C) or SIGTERM."""
        return None if self.signal is None else signal.Signals(self.signal).name


def name_of(stop: KeyboardInterrupt) -> str:
    """SIGINT or SIGTERM: which of them was raised."""
    return "SIGTERM" if isinstance(stop, Terminated) else "SIGINT"


def status_of(name: str | None) -> int:
    """What a shell reports of a process that such a signal ended: 130 after Ctrl-C, 143 after SIGTERM."""
    return 128 + (signal.SIGINT if name is None else signal.Signals[name])


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Note down the first Ctrl-C or SIGTERM instead of ending at once; the second is a KeyboardInterrupt as ever."""
    stop = Stop()

    def ask(number: int, frame: Any) -> None:
        if stop.asked:
            raise Terminated if number == signal.SIGTERM else KeyboardInterrupt
        stop.signal = number

    with _handling(signal.SIGINT, ask), _handling(signal.SIGTERM, ask):
        yield stop


@contextmanager
def interruptible(ask: Callable[[], None]) -> Iterator[None]:
    """Call `ask` at the first Ctrl-C; the second is a KeyboardInterrupt as ever."""

    def first(*_: Any) -> None:
        ask()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    with _handling(signal.SIGINT, first):
        yield


@contextmanager
def terminable(ask: Callable[[], None]) -> Iterator[None]:
    """Call `ask` when the system wants the process to end (SIGTERM)."""
    with _handling(signal.SIGTERM, lambda *_: ask()):
        yield


@contextmanager
def termination() -> Iterator[None]:
    """SIGTERM is raised as `Terminated`: work that ends in good order with Ctrl-C does so then too."""
    process = os.getpid()

    def end(*_: Any) -> None:
        if os.getpid() == process:
            raise Terminated
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a worker, which came by fork: nobody waits for its word
        os.kill(os.getpid(), signal.SIGTERM)

    with _handling(signal.SIGTERM, end):
        yield


@contextmanager
def _handling(number: int, handler: Callable[..., Any]) -> Iterator[None]:
    """While this lasts a signal calls the handler; nothing changes outside of the main thread, where none arrives."""
    try:
        before = signal.signal(number, handler)
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        signal.signal(number, before)
