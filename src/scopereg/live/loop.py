"""Loop: takes the newest frame of a source, has it located, tells everybody; over and over, whatever goes wrong."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from scopereg.errors import ScopeRegError
from scopereg.images import Frame
from scopereg.live.depth_watch import DepthWatch, Measure
from scopereg.live.exchange import Counters
from scopereg.live.pixel_sizes import PixelSizes, unknown_size
from scopereg.live.recorder import Recorder
from scopereg.live.replay import Arrival
from scopereg.live.sources import Source
from scopereg.registration.format import Changes, Format
from scopereg.registration.result import Assessment, Result, WaitingError

WINDOW = 250  # frames that percentiles are taken over
RATE_S, LEAST_RATE_S = 3.0, 1.0  # seconds that frames are counted over: at most, at least

Register = Callable[[Frame], Result]
_TICK_S = 0.25  # after which a loop that waits looks whether it should end


class Rates(NamedTuple):
    """Of the last frames."""

    frames_per_s: float  # NaN as long as nobody can tell
    p50_ms: float  # of the latency
    p95_ms: float


class Pace:
    """Latencies and times of the last frames."""

    def __init__(self) -> None:
        self._latencies_ms: deque[float] = deque(maxlen=WINDOW)
        self._done_s: deque[float] = deque()

    def add(self, latency_ms: float, done_s: float) -> Rates:
        """Count a frame that was done at a time of one steady clock; the rates with it."""
        self._latencies_ms.append(latency_ms)
        self._done_s.append(done_s)
        window_s = max(RATE_S, 3e-3 * latency_ms)  # a method may take longer than that for one frame
        while self._done_s[0] < done_s - window_s:
            self._done_s.popleft()
        # Two workers may be done at once, and a first frame tells nothing of the next: only a span of time does.
        span_s = done_s - self._done_s[0]
        frames_per_s = (len(self._done_s) - 1) / span_s if span_s >= LEAST_RATE_S else math.nan
        p50_ms, p95_ms = np.percentile(self._latencies_ms, (50, 95))
        return Rates(frames_per_s, float(p50_ms), float(p95_ms))


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
    notice: str = ""  # what has changed since the frame before, to be told once
    asks: str = ""  # what a person is asked

    @property
    def format(self) -> Format:
        """How large the picture and its pixels are."""
        return Format.of(self.frame)

    @property
    def assessment(self) -> Assessment:
        """What a person is told of it."""
        return Assessment.of(self.result, self.error)

    @property
    def latency_ms(self) -> float:
        """From the arrival of the frame to its result, the time it waited included."""
        return (self.done_s - self.arrived_s) * 1e3


Listener = Callable[[Update], None]


class Loop:
    """Runs in threads of its own; all methods may be called from any other.

    `register` finds the pose of a frame; what it raises is counted and told, and the next frame is taken. With several
    `workers` it is called for as many frames at once, from as many threads: more frames per second where one frame
    cannot use all cores. Updates come in the order of the frames all the same. Listeners are called one after the
    other, never two at once, and should be quick; what they raise is counted. The loop starts the source and closes it.
    """

    def __init__(
        self,
        source: Source,
        register: Register,
        listeners: Iterable[Listener] = (),
        *,
        paused: bool = False,
        workers: int = 1,
        sizes: PixelSizes | None = None,
        measure: Measure | None = None,
    ) -> None:
        """`sizes` are those that decide how large the pixels of the source's frames are, where somebody is asked.

        With `measure`, as `Scene.fitting_pixels` is one, somebody is also asked where the depth seems to have changed.
        """
        self.source, self.sizes = source, sizes or PixelSizes()
        self._watch = None if measure is None else DepthWatch(self.sizes, measure)
        self._register = register
        self._listeners = tuple(listeners)
        self._counters = Counters()
        self._pace = Pace()
        self._changes = Changes()
        self._change = threading.Condition()
        self._paused, self._steps, self._stopped = paused, 0, False
        self._recorder: Recorder | None = None
        self._taking = threading.Lock()  # who holds it waits for the next frame
        self._taken = 0
        self._told = 0  # number of the last update; guarded by `_turn`, as the pace is
        self._turn = threading.Condition()
        self._threads = [
            threading.Thread(target=self._run, name=f"scopereg-live-loop-{worker}", daemon=True)
            for worker in range(workers)
        ]

    def start(self) -> Loop:
        if self._paused:
            self.source.pause()
        self.source.start()
        for thread in self._threads:
            thread.start()
        return self

    @property
    def running(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    @property
    def finished(self) -> bool:
        """Whether it ran, and takes no more frames."""
        return all(thread.ident is not None and not thread.is_alive() for thread in self._threads)

    @property
    def paused(self) -> bool:
        return self._paused

    def counters(self) -> dict[str, int]:
        """Of the source and of the loop: `registered`, `failed`, `listener_errors`, `source_errors`.

        Where there were any, also frames `waiting` for what they need, and `changes` of size or depth.
        """
        changes = {"changes": self._changes.count} if self._changes.count else {}
        return {**self.source.counters(), **self._counters.snapshot(), **changes}

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
            self._change.notify_all()
        self.source.resume()

    def step(self) -> None:
        """While paused: locate one more frame, the next of a recording or the newest of a scanner."""
        with self._change:
            self._steps += 1
            self._change.notify_all()
        self.source.step()

    def use(self, register: Register, measure: Measure | None = None) -> None:
        """Locate from the next frame on with this, such as in another volume, and measure pixels with that."""
        self._register = register
        if self._watch is not None and measure is not None:
            self._watch.measure = measure

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

    def end_recording(self) -> tuple[Path, ...]:
        """Write the recording: a file for each size of its frames; none if nothing was recorded, or no frame came."""
        with self._change:
            recorder, self._recorder = self._recorder, None
        if recorder is None:
            return ()
        self.forget(recorder)
        return recorder.finish()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the source has no more frames or the loop is stopped; whether that came in time."""
        self._join(timeout_s)
        return not self.running

    def stop(self, timeout_s: float = 10.0) -> None:
        """End the loop, close the source, write a recording that runs."""
        with self._change:
            self._stopped = True
            self._change.notify_all()
        self.source.close()
        self._join(timeout_s)
        if self._watch is not None:
            self._watch.close()
        self.end_recording()
        if self.running:
            raise ScopeRegError(
                f"the registration of a frame takes longer than {timeout_s:g} s",
                where="Loop.stop",
                fix="wait for it, or end the process; no more frames are taken",
            )

    def __enter__(self) -> Loop:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _join(self, timeout_s: float | None) -> None:
        """Wait for all threads, no longer than that in all."""
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(None if end_s is None else max(end_s - time.monotonic(), 0.0))

    def _run(self) -> None:
        while self._may_go_on():
            with self._taking:
                number, arrival = self._take()
            if number < 0:
                return
            if arrival is not None:
                self._finish(arrival, number, self._locate(arrival))

    def _take(self) -> tuple[int, Arrival | None]:
        """The next frame and its number; no frame if none came yet, a negative number if none will."""
        with self._change:
            if self._stopped or (self._paused and not self._steps):
                return 0, None  # another thread took the one that was asked for
        try:
            arrival = self.source.latest(_TICK_S)
            ended = arrival is None and self.source.finished
        except Exception as error:  # sources count their own; this one did not
            self._counters.add("source_errors", error)
            time.sleep(_TICK_S)
            return 0, None
        if arrival is None:
            return (-1 if ended else 0), None
        with self._change:
            self._steps = max(self._steps - 1, 0)
        self._taken += 1
        return self._taken, arrival

    def _may_go_on(self) -> bool:
        """Wait while paused; False when the loop is to end."""
        with self._change:
            self._change.wait_for(lambda: self._stopped or not self._paused or self._steps > 0)
            return not self._stopped

    def _locate(self, arrival: Arrival) -> tuple[Result | None, ScopeRegError | None, float]:
        """What was found, or why nothing was, and how many ms it took."""
        result: Result | None = None
        error: ScopeRegError | None = arrival.fault or unknown_size(arrival.frame)
        if error is not None:
            return None, error, 0.0
        begin_s = time.perf_counter()
        try:
            result = self._register(arrival.frame)
        except ScopeRegError as fault:
            error = fault
        except Exception as fault:  # one frame must not end the loop
            error = ScopeRegError(
                f"{type(fault).__name__}: {fault}", where="registration", fix="report it with the frame that caused it"
            )
        return result, error, (time.perf_counter() - begin_s) * 1e3

    def _finish(
        self, arrival: Arrival, number: int, located: tuple[Result | None, ScopeRegError | None, float]
    ) -> None:
        """Tell what became of a frame, after those before it."""
        with self._turn:
            self._turn.wait_for(lambda: self._told == number - 1)
            update = self._update_of(arrival, number, *located)
            if self._watch is not None:
                try:
                    self._watch.look(update)
                except Exception as error:  # what it sees is not worth the stream
                    self._counters.add("watch_errors", error)
            self._tell(update)
            self._told = number
            self._turn.notify_all()

    def _update_of(
        self, arrival: Arrival, number: int, result: Result | None, error: ScopeRegError | None, register_ms: float
    ) -> Update:
        done_s = time.perf_counter()
        if isinstance(error, WaitingError):
            self._counters.add("waiting")
        else:
            self._counters.add("registered" if error is None else "failed", error)
        now, question = Format.of(arrival.frame), self.sizes.question
        doubted = self.sizes.doubted(now.size)
        if doubted is not None and result is not None:
            result = result.without_verdict(doubted.why)  # until a person has said whether the scale is right
        return Update(
            number,
            arrival.frame,
            result,
            error,
            frame_number=arrival.number,
            time_s=arrival.time_s,
            arrived_s=arrival.arrived_s,
            done_s=done_s,
            register_ms=register_ms,
            rates=self._pace.add((done_s - arrival.arrived_s) * 1e3, done_s),
            notice=self._changes.tell(now, done_s),
            counters=self.counters(),
            asks="" if question is None else question.text,
        )

    def _tell(self, update: Update) -> None:
        for listener in self._listeners:
            try:
                listener(update)
            except Exception as error:  # one listener must not stop the others
                self._counters.add("listener_errors", error)
