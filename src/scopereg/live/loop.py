"""Loop: takes the newest frame of a source, has it located, tells everybody; over and over, whatever goes wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from scopereg.errors import ScopeRegError
from scopereg.images import Frame
from scopereg.live.counters import Counters
from scopereg.live.pace import Pace, Rates
from scopereg.live.recorder import Recorder
from scopereg.live.replay import Arrival
from scopereg.live.sources import Source
from scopereg.registration.result import Result

Register = Callable[[Frame], Result]
_TICK_S = 0.25  # after which a loop that waits looks whether it should end


@dataclass(frozen=True)
class Update:
    """What became of a frame: a result or an error, and how the loop is doing."""

    number: int  # of updates, from 1
    frame: Frame
    result: Result | None
    error: ScopeRegError | None
    frame_number: int  # by the source; numbers that are missing were dropped
    time_s: float  # of the frame, by its source
    arrived_s: float  # time.perf_counter() when the frame was there
    done_s: float  # and when it was located
    register_ms: float
    rates: Rates
    counters: dict[str, int] = field(default_factory=dict)

    @property
    def latency_ms(self) -> float:
        """From the arrival of the frame to its result, the time it waited included."""
        return (self.done_s - self.arrived_s) * 1e3


Listener = Callable[[Update], None]


class Loop:
    """Runs in a thread of its own; all methods may be called from any other.

    `register` finds the pose of a frame; what it raises is counted and told, and the next frame is taken. Listeners are
    called in this thread, one after the other, and should be quick; what they raise is counted. The loop starts the
    source and closes it.
    """

    def __init__(
        self, source: Source, register: Register, listeners: Iterable[Listener] = (), *, paused: bool = False
    ) -> None:
        self.source = source
        self._register = register
        self._listeners = tuple(listeners)
        self._counters = Counters()
        self._pace = Pace()
        self._change = threading.Condition()
        self._paused, self._steps, self._stopped = paused, 0, False
        self._recorder: Recorder | None = None
        self._thread = threading.Thread(target=self._run, name="scopereg-live-loop", daemon=True)

    def start(self) -> Loop:
        if self._paused:
            self.source.pause()
        self.source.start()
        self._thread.start()
        return self

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    @property
    def paused(self) -> bool:
        return self._paused

    def counters(self) -> dict[str, int]:
        """Of the source and of the loop: `registered`, `failed`, `listener_errors`, `source_errors`."""
        return {**self.source.counters(), **self._counters.snapshot()}

    @property
    def last_fault(self) -> str:
        """What went wrong last, in the loop or else in the source."""
        return self._counters.last_fault or self.source.last_fault

    def pause(self) -> None:
        """Take no more frames; one that is being located is finished."""
        with self._change:
            self._paused = True
        self.source.pause()

    def resume(self) -> None:
        with self._change:
            self._paused, self._steps = False, 0
            self._change.notify()
        self.source.resume()

    def step(self) -> None:
        """While paused: locate one more frame, the next of a recording or the newest of a scanner."""
        with self._change:
            self._steps += 1
            self._change.notify()
        self.source.step()

    def use(self, register: Register) -> None:
        """Locate from the next frame on with this, such as in another volume."""
        self._register = register

    def listen(self, listener: Listener) -> None:
        """Tell one more listener, from the next frame on."""
        with self._change:
            self._listeners = (*self._listeners, listener)

    def forget(self, listener: Listener) -> None:
        with self._change:
            self._listeners = tuple(other for other in self._listeners if other != listener)

    def record(self, path: Path | str) -> Recorder:
        """Record from the next frame on; a recording that runs must be ended before."""
        with self._change:
            if self._recorder is not None:
                raise ScopeRegError(
                    f"{self._recorder.path.name} is being recorded", where=str(path), fix="end that recording first"
                )
            self._recorder = Recorder(path)
            self._listeners = (*self._listeners, self._recorder)
            return self._recorder

    def end_recording(self) -> Path | None:
        """Write the recording; None if there was none, or no frame came."""
        with self._change:
            recorder, self._recorder = self._recorder, None
        if recorder is None:
            return None
        self.forget(recorder)
        return recorder.finish()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the source has no more frames or the loop is stopped; whether that came in time."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def stop(self, timeout_s: float = 10.0) -> None:
        """End the loop, close the source, write a recording that runs."""
        with self._change:
            self._stopped = True
            self._change.notify()
        self.source.close()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        self.end_recording()
        if self._thread.is_alive():
            raise ScopeRegError(
                f"the registration of a frame takes longer than {timeout_s:g} s",
                where="Loop.stop",
                fix="wait for it, or end the process; no more frames are taken",
            )

    def __enter__(self) -> Loop:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        number = 0
        while self._may_go_on():
            try:
                arrival = self.source.latest(_TICK_S)
                ended = arrival is None and self.source.finished
            except Exception as error:  # sources count their own; this one did not
                self._counters.add("source_errors", error)
                time.sleep(_TICK_S)
                continue
            if ended:
                return
            if arrival is not None:
                number += 1
                with self._change:
                    self._steps = max(self._steps - 1, 0)
                self._tell(self._locate(arrival, number))

    def _may_go_on(self) -> bool:
        """Wait while paused; False when the loop is to end."""
        with self._change:
            self._change.wait_for(lambda: self._stopped or not self._paused or self._steps > 0)
            return not self._stopped

    def _locate(self, arrival: Arrival, number: int) -> Update:
        result: Result | None = None
        error: ScopeRegError | None = None
        begin_s = time.perf_counter()
        try:
            result = self._register(arrival.frame)
        except ScopeRegError as fault:
            error = fault
        except Exception as fault:  # one frame must not end the loop
            error = ScopeRegError(
                f"{type(fault).__name__}: {fault}", where="registration", fix="report it with the frame that caused it"
            )
        done_s = time.perf_counter()
        self._counters.add("registered" if error is None else "failed", error)
        return Update(
            number,
            arrival.frame,
            result,
            error,
            frame_number=arrival.number,
            time_s=arrival.time_s,
            arrived_s=arrival.arrived_s,
            done_s=done_s,
            register_ms=(done_s - begin_s) * 1e3,
            rates=self._pace.add((done_s - arrival.arrived_s) * 1e3, done_s),
            counters=self.counters(),
        )

    def _tell(self, update: Update) -> None:
        for listener in self._listeners:
            try:
                listener(update)
            except Exception as error:  # one listener must not stop the others
                self._counters.add("listener_errors", error)
