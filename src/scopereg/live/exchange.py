"""Exchange between threads: a mailbox with one slot, where the latest wins, and counters of what happened."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Mailbox(Generic[Item]):
    """Holds the newest item until somebody takes it.

    `arrived` is always the sum of `taken`, `dropped` and what still lies in it.
    """

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._item: Item | None = None
        self._closed = False
        self.arrived = self.taken = self.dropped = 0

    def put(self, item: Item) -> bool:
        """Leave an item; whether one that nobody took was dropped for it. A closed mailbox takes nothing."""
        with self._change:
            if self._closed:
                return False
            drops = self._item is not None
            self.arrived += 1
            self.dropped += drops
            self._item = item
            self._change.notify()
            return drops

    def take(self, timeout_s: float | None = None) -> Item | None:
        """The newest item, waited for; None when there is none in time, or the mailbox is closed and empty."""
        with self._change:
            self._change.wait_for(lambda: self._item is not None or self._closed, timeout_s)
            item, self._item = self._item, None
            self.taken += item is not None
            return item

    def close(self) -> None:
        """Let everybody go who waits; what lies in it can still be taken."""
        with self._change:
            self._closed = True
            self._change.notify_all()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to take."""
        with self._change:
            return self._item is None

    def counters(self) -> dict[str, int]:
        """Items that arrived, were taken, were dropped."""
        with self._change:
            return {"arrived": self.arrived, "taken": self.taken, "dropped": self.dropped}


class Counters:
    """Numbers by name, which only grow, and the last fault in words."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[str, int] = {}
        self._last_fault = ""

    def add(self, name: str, fault: object = None) -> None:
        """Count one; a fault is remembered in words."""
        with self._lock:
            self._numbers[name] = self._numbers.get(name, 0) + 1
            if fault is not None:
                self._last_fault = " ".join(str(getattr(fault, "what", fault)).split()) or type(fault).__name__

    def __getitem__(self, name: str) -> int:
        with self._lock:
            return self._numbers.get(name, 0)

    def snapshot(self) -> dict[str, int]:
        """All numbers as they are now."""
        with self._lock:
            return dict(self._numbers)

    @property
    def last_fault(self) -> str:
        """What went wrong last; empty while nothing did."""
        with self._lock:
            return self._last_fault
