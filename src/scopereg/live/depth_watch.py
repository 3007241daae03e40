"""DepthWatch: sees that the depth has changed where the sender states the same size of pixels, as frame grabbers do.

Two things show it: the outline of the picture becomes another one, and frames fit better with pixels of another size.
Either is looked into beside the stream, by the sizes that fit some frames best. Nothing is switched: a person is asked.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING

from scopereg.errors import ScopeRegError
from scopereg.images import Frame
from scopereg.live.outline import Outline
from scopereg.live.pixel_sizes import PixelSizes
from scopereg.registration.confidence import stretch_of
from scopereg.registration.diagnosis import without_structure
from scopereg.registration.format import Format, PixelSize, in_mm
from scopereg.registration.result import Result

if TYPE_CHECKING:
    from scopereg.live.loop import Update

Measure = Callable[[Frame, Result], PixelSize | None]
OFF = 0.04  # share by which the pixels that fit best differ from those told, from which on somebody is asked
_IN_A_ROW, _ONCE = 5, 2  # frames that tell what is, and that tell that all was well before
_FITS = 0.03  # share of a frame that fits as it is
_AGREEING, _LOOKED_AT = 3, 4  # measured sizes that must agree, of the latest
_AGREE = 0.03  # share by which they may differ
_FIRST_REST_S, _LONGEST_REST_S = 0.5, 60.0  # after a look that found nothing; twice as long each time
_STOP_S = 10.0
_LOST_AFTER = 3  # looks that found nothing, after which a person is asked all the same if the outline has changed


class DepthWatch:
    """Takes the updates of a loop in their order; `look` never waits. `measure` takes seconds, in a thread of its own.

    `measure` gives the size of pixels that fits a frame clearly better than its own, if one does.
    """

    def __init__(self, sizes: PixelSizes, measure: Measure) -> None:
        self.measure = measure
        self._sizes = sizes
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._declined: list[PixelSize] = []  # a person did not want them
        self._asked: tuple[int, PixelSize | None] | None = None  # number of the open question, and what it suggests
        self._format: Format | None = None
        self._sizes_found: deque[PixelSize] = deque(maxlen=_LOOKED_AT)
        self._start_anew()

    def look(self, update: Update) -> None:
        """Take one more update."""
        now = update.format
        with self._lock:
            if self._format is None or not now.is_like(self._format):
                self._format = now
                self._declined = []
                self._start_anew()
            if now.pixel_mm is None or self._is_asked():
                return
            if self._outline.changed(update.frame):
                self._suspicious, self._failed = True, 0
                self._sizes_found.clear()
                self._rest_until_s, self._declined = -math.inf, []
            if update.result is not None:
                self._take(update.result)
            if self._is_worth_a_look(update) and self._thread is None and not self._stopped:
                assert update.result is not None
                looked_at = (update.frame, update.result, now, update.done_s)
                self._thread = threading.Thread(
                    target=self._look_into, args=looked_at, name="scopereg-live-depth", daemon=True
                )
                self._thread.start()

    def close(self) -> None:
        """Begin nothing more, and wait for what has begun."""
        with self._lock:
            self._stopped, thread = True, self._thread
        if thread is not None:
            thread.join(_STOP_S)

    def _start_anew(self) -> None:
        self._outline = Outline()
        self._suspicious = False  # the outline has changed, and nobody knows yet what that means
        self._once_fitted = False
        self._fit, self._misfit = 0, 0  # frames in a row
        self._sizes_found.clear()
        self._failed = 0  # looks in a row that found nothing
        self._rest_until_s = -math.inf

    def _is_asked(self) -> bool:
        """Whether a question of ours is open; one that was turned down is not asked again."""
        if self._asked is None:
            return False
        number, suggestion = self._asked
        question = self._sizes.question
        if question is not None and question.number == number:
            return True
        self._asked = None
        self._declined += [] if suggestion is None else [suggestion]
        self._start_anew()
        return False

    def _take(self, result: Result) -> None:
        stretch = stretch_of(result.features)
        tells = not math.isnan(stretch)
        fits = stretch <= _FITS and result.belongs is not False if tells else result.ok is True
        misfits = stretch > OFF if tells else not fits
        self._fit, self._misfit = (self._fit + 1 if fits else 0), (self._misfit + 1 if misfits else 0)
        self._once_fitted = self._once_fitted or self._fit >= _ONCE
        if self._fit >= _IN_A_ROW:
            self._suspicious, self._failed = False, 0
            self._sizes_found.clear()

    def _is_worth_a_look(self, update: Update) -> bool:
        """Whether the size of the pixels is to be measured in this frame."""
        if update.result is None or update.done_s < self._rest_until_s:
            return False
        tells = not math.isnan(stretch_of(update.result.features))
        return self._misfit >= _IN_A_ROW and (tells or self._suspicious)

    def _look_into(self, frame: Frame, result: Result, now: Format, done_s: float) -> None:
        found: PixelSize | None = None
        shows = False
        try:
            found = self.measure(frame, result)
            shows = not without_structure(frame.for_registration())
        except ScopeRegError:
            pass  # it says nothing
        finally:
            with self._lock:
                self._thread = None
                if self._format is not None and self._format.is_like(now) and not self._stopped:
                    self._conclude(found, now, done_s, shows=shows)

    def _conclude(self, found: PixelSize | None, now: Format, done_s: float, *, shows: bool) -> None:
        assert now.pixel_mm is not None
        off = found is not None and _apart(found, now.pixel_mm) > OFF
        if found is None or not off or any(_apart(found, other) <= OFF for other in self._declined):
            self._failed += 1
            rest_s = min(_FIRST_REST_S * 2.0 ** min(self._failed - 1, 16), _LONGEST_REST_S)
            self._rest_until_s = done_s + rest_s
            if self._suspicious and self._failed >= _LOST_AFTER and shows and not self._declined:
                self._ask(now, None)
            return
        self._failed = 0
        self._sizes_found.append(found)
        if (agreed := agreed_size(tuple(self._sizes_found))) is not None:
            self._ask(now, agreed)

    def _ask(self, now: Format, suggestion: PixelSize | None) -> None:
        assert now.pixel_mm is not None
        changed = self._suspicious or self._once_fitted
        why = "the depth seems to have changed" if changed else "pixels seem to have another size"
        if suggestion is None:
            why += ": the outline of the picture is another one"
        else:
            why += f": {in_mm(suggestion)} a pixel fits best, {in_mm(now.pixel_mm)} is told"
        if self._sizes.doubt(now.size, now.pixel_mm, why, suggestion):
            question = self._sizes.question
            self._asked = None if question is None else (question.number, suggestion)


def agreed_size(found: tuple[PixelSize, ...]) -> PixelSize | None:
    """The size that enough of the measured ones agree on; a square one where both sides are hardly different."""
    if len(found) < _AGREEING:
        return None
    x, y = (median(sizes) for sizes in zip(*found, strict=True))
    near = [size for size in found if _apart(size, (x, y)) <= _AGREE]
    if len(near) < _AGREEING:
        return None
    x, y = (sum(sizes) / len(near) for sizes in zip(*near, strict=True))
    if abs(math.log(x / y)) <= _AGREE:
        x = y = math.sqrt(x * y)
    return float(f"{x:.3g}"), float(f"{y:.3g}")


def _apart(one: PixelSize, other: PixelSize) -> float:
    """Largest difference of two sizes of pixels, as a share."""
    return max(abs(math.log(a / b)) for a, b in zip(one, other, strict=True))
