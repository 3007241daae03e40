"""Replay: recorded frames as if they came from a scanner, in the time of the recording or at a given rate."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from scopereg.errors import ScopeRegError
from scopereg.images import Frame
from scopereg.io.cine import Cine
from scopereg.io.stored import StoredFrame
from scopereg.live.exchange import Counters, Mailbox
from scopereg.live.pixel_sizes import PixelSizes

USUAL_RATE_HZ = 25.0  # of frames whose file tells no times
LONGEST_GAP_S = 2.0  # between two times of a file; a longer one is an interruption that nobody wants to sit through


class Arrival(NamedTuple):
    """A frame from a source."""

    frame: Frame
    number: int  # of this source, from 1; those that were dropped count too
    arrived_s: float  # time.perf_counter() when it was there
    time_s: float  # since 1970, or by the clock of the scanner
    fault: ScopeRegError | None = None  # why it can be shown, and not be located


class Replay:
    """The frames of some cines, one after the other; a source (see `scopereg.live.sources`).

    Times of the files are kept unless there is a `rate_hz`. Frames that cannot be read are counted as `bad_frames` and
    left out. A replay that is paused goes on by single steps; one that was paused before `start` begins with a step.
    """

    def __init__(
        self,
        name: str,
        cines: Sequence[Callable[[], Cine]],
        *,
        rate_hz: float | None = None,
        loop: bool = False,
        sizes: PixelSizes | None = None,
    ) -> None:
        """`sizes` decide how large pixels are."""
        if rate_hz is not None and not 0 < rate_hz <= 1000:
            raise ScopeRegError(f"the rate is {rate_hz:g}", where=name, fix="choose up to 1000 frames per second")
        self.name = name
        self._cines, self._rate_hz, self._loop, self._sizes = cines, rate_hz, loop, sizes
        self._counters = Counters()
        self._mailbox: Mailbox[Arrival] = Mailbox()
        self._change = threading.Condition()
        self._paused, self._steps, self._stopped = False, 0, False
        self._due_s: float | None = None  # when the next frame is
        self._thread = threading.Thread(target=self._run, name=f"scopereg-live-replay-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def latest(self, timeout_s: float) -> Arrival | None:
        """The newest frame that was not taken yet; None if there is none in time, or no more to come."""
        arrival = self._mailbox.take(timeout_s)
        if arrival is None or self._sizes is None or not isinstance(arrival.frame, StoredFrame):
            return arrival
        return arrival._replace(frame=self._sizes.settled(arrival.frame))

    @property
    def finished(self) -> bool:
        """Whether all frames were shown, and the last one taken or dropped."""
        ended = self._thread.ident is not None and not self._thread.is_alive()
        return ended and self._mailbox.empty

    @property
    def status(self) -> str:
        """In words: where it stands."""
        state = "ended" if self.finished else "paused" if self._paused else "replaying"
        return f"{state} {self.name}"

    def counters(self) -> dict[str, int]:
        return {**self._mailbox.counters(), **self._counters.snapshot()}

    @property
    def last_fault(self) -> str:
        return self._counters.last_fault

    def pause(self) -> None:
        with self._change:
            self._paused = True
            self._change.notify()

    def resume(self) -> None:
        with self._change:
            self._paused, self._steps = False, 0
            self._change.notify()

    def step(self) -> None:
        """Show the next frame at once, also while it is paused."""
        with self._change:
            self._steps += 1
            self._change.notify()

    def close(self) -> None:
        with self._change:
            self._stopped = True
            self._change.notify()
        self._mailbox.close()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        gap_s = 0.0
        for number, (frame, next_gap_s) in enumerate(self._frames(), 1):
            if number == 1 and self._sizes is not None and isinstance(frame, StoredFrame):
                self._sizes.settled(frame)  # what was told is told for the first, whichever is taken first
            if not self._wait(gap_s):
                return
            self._mailbox.put(Arrival(frame, number, time.perf_counter(), time.time()))
            gap_s = next_gap_s
        self._mailbox.close()  # nobody need wait for more

    def _wait(self, gap_s: float) -> bool:
        """Wait until the next frame is due, so long after the last; False when the replay is closed."""
        with self._change:
            if self._due_s is not None:
                # Time that was lost is not made up for by frames in a rush.
                self._due_s = max(self._due_s + gap_s, time.monotonic())
            while not self._stopped and not self._steps:
                if self._paused:
                    self._change.wait()
                    continue
                now_s = time.monotonic()
                self._due_s = now_s if self._due_s is None else self._due_s
                if self._due_s <= now_s:
                    break
                self._change.wait(self._due_s - now_s)
            self._steps = max(self._steps - 1, 0)
            return not self._stopped

    def _frames(self) -> Iterator[tuple[Frame, float]]:
        """Frames, and the seconds from each to the next; ends when a whole round gave none."""
        shown = True
        while shown:
            shown = False
            for open_cine in self._cines:
                for frame, gap_s in self._of_cine(open_cine):
                    shown = True
                    yield frame, gap_s
            shown = shown and self._loop

    def _of_cine(self, open_cine: Callable[[], Cine]) -> Iterator[tuple[Frame, float]]:
        try:
            cine = open_cine()
        except Exception as error:  # a damaged file may fail anywhere in a reader
            self._counters.add("bad_frames", error)
            return
        gaps_s = self._gaps_s(cine)
        for index in range(len(cine)):
            try:
                frame = cine[index]
            except Exception as error:
                self._counters.add("bad_frames", error)
                continue
            yield frame, gaps_s[index]

    def _gaps_s(self, cine: Cine) -> list[float]:
        """Seconds from each frame to the next; the usual ones after the last, and where times make no sense."""
        if self._rate_hz is not None or cine.times_s is None:
            return [1 / (self._rate_hz or USUAL_RATE_HZ)] * len(cine)
        times_s = cine.times_s
        gaps = [after - before for before, after in pairwise(times_s)]
        sound = sorted(gap for gap in gaps if 0 < gap <= LONGEST_GAP_S)
        usual = sound[len(sound) // 2] if sound else 1 / USUAL_RATE_HZ
        return [gap if 0 < gap <= LONGEST_GAP_S else usual for gap in [*gaps, usual]]
