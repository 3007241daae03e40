"""Counters: what happened how often, and what went wrong last; any thread may count."""

from __future__ import annotations

import threading


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
