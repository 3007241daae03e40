"""Preparation: what frames of a new field of view need is made beside the stream, one at a time and never in a rush."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Protocol

from scopereg.errors import ScopeRegError
from scopereg.images import Frame
from scopereg.registration.format import Format
from scopereg.registration.result import WaitingError

_AFTER_A_FAULT_S = 10.0  # before what failed is tried again
_STOP_S = 10.0


class Preparable(Protocol):
    """What must be prepared, such as a locator."""

    def is_ready(self, frame: Frame) -> bool: ...

    def get_ready(self, frame: Frame) -> None: ...


class Preparation:
    """Says of each frame whether it can be located now, and prepares for those that cannot.

    For the very first frame everybody waits: there is nothing to go on with meanwhile. Where fields of view change all
    the time, it rests as long after each as that one took.
    """

    def __init__(self, target: Preparable) -> None:
        self.done: Callable[[], None] = lambda: None  # called when frames that had to wait need not any more
        self._target = target
        self._lock = threading.Condition()
        self._first = threading.Lock()
        self._began = self._stopped = False
        self._wanted: Frame | None = None  # the newest that had to wait
        self._thread: threading.Thread | None = None
        self._fault: tuple[Format, ScopeRegError] | None = None
        self._rest_until_s = -math.inf

    def check(self, frame: Frame) -> None:
        """A WaitingError for a frame that has to wait, or the error for one that nothing can be prepared for."""
        if not self._began:
            with self._first:
                if not self._began and not self._target.is_ready(frame):
                    self._target.get_ready(frame)
                    self._began = True
        if self._target.is_ready(frame):
            with self._lock:
                self._wanted = None
                self._lock.notify_all()
            return
        wanted = Format.of(frame)
        with self._lock:
            if self._fault is not None and self._fault[0].is_like(wanted) and time.monotonic() < self._rest_until_s:
                raise self._fault[1]
            self._wanted = frame
            if self._thread is None and not self._stopped:
                self._thread = threading.Thread(target=self._run, name="scopereg-live-preparing", daemon=True)
                self._thread.start()
        raise WaitingError(
            f"preparing the volume for pictures of {wanted}", where="live", fix="wait some seconds: it is under way"
        )

    def close(self) -> None:
        """Begin nothing more, and wait for what has begun."""
        with self._lock:
            self._stopped = True
            self._lock.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(_STOP_S)

    def _run(self) -> None:
        while (frame := self._next()) is not None:
            begin_s = time.monotonic()
            fault: ScopeRegError | None = None
            try:
                self._target.get_ready(frame)
            except ScopeRegError as error:
                fault = error
            except Exception as error:  # out of memory, such as for a huge picture: the stream goes on
                what = f"the volume cannot be prepared for it: {type(error).__name__}: {error}"
                fault = ScopeRegError(what, where="live", fix="send pictures of a usual size")
            now_s = time.monotonic()
            with self._lock:
                self._fault = None if fault is None else (Format.of(frame), fault)
                self._rest_until_s = now_s + (now_s - begin_s if fault is None else _AFTER_A_FAULT_S)
                if self._wanted is frame:
                    self._wanted = None
            self.done()

    def _next(self) -> Frame | None:
        """The newest frame that waits, after a rest; None where none does any more, and this thread ends."""
        with self._lock:
            while self._wanted is not None and not self._stopped:
                rest_s = self._rest_until_s - time.monotonic()
                if rest_s <= 0 and not self._target.is_ready(self._wanted):
                    return self._wanted
                if rest_s <= 0:
                    self._wanted = None
                else:
                    self._lock.wait(rest_s)
            self._thread = None
            return None
