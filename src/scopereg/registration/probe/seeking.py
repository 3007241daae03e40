"""Seeking: where frames lie in a volume: a few of them anywhere in it, the others near where those say."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame, Volume
from scopereg.progress import counting
from scopereg.registration.locator import Locator
from scopereg.registration.method import parse
from scopereg.registration.model import Registrar
from scopereg.registration.prepared import Found
from scopereg.registration.probe.chain import Array
from scopereg.registration.probe.views import VIEWS, view_of
from scopereg.registration.result import Result

_SURE_OF_A_VIEW = 2  # frames that one showed best, after which others are not looked at
_MOST = 12  # frames that are sought anywhere
_ALIKE = 0.4  # similarity from which a pose seems right, whatever is amiss with the frame
_SOME = 4  # frames that are located at once, between two words of progress


class Seeker:
    """A volume that frames are sought in."""

    def __init__(self, volume: Volume, method: str | Path | Registrar, device: str = "auto") -> None:
        """Poses are refined by what the name of the method says, else by grey values."""
        named = not isinstance(method, Registrar)
        self.method = method if isinstance(method, Registrar) else str(parse(str(method)).persistent(fallback=False))
        self.volume, self.device, self._refine = volume, device, not named
        self._wide: dict[int, Locator] = {}
        self._best = [0] * len(VIEWS)  # frames that a view showed best
        self._worth = [0.0] * len(VIEWS)

    @property
    def locator(self) -> Locator:
        """The volume in the view that frames were found in, to look near a start."""
        return self._in_view(self._views()[0]).narrow()

    def _in_view(self, number: int) -> Locator:
        if number not in self._wide:
            self._wide[number] = self._opened(view_of(self.volume, number))
        return self._wide[number]

    def _opened(self, volume: Volume) -> Locator:
        """To look as far as the method can."""
        for how in ({"any_angle": True}, {"wide": True}):
            try:
                return Locator(volume, self.method, refine=self._refine, device=self.device, **how)
            except ScopeRegError as error:
                if error.where not in ("any_angle=", "wide="):
                    raise
        return Locator(volume, self.method, refine=self._refine, device=self.device)

    def _views(self) -> list[int]:
        """The best first."""
        return sorted(range(len(VIEWS)), key=lambda view: (-self._best[view], -self._worth[view], view))

    def anywhere(
        self, frames: Sequence[Frame], apart: Array, enough: Callable[[dict[int, Result]], bool]
    ) -> dict[int, Result]:
        """Poses of some of the frames, in order, until those found are enough; some may not be ok.

        `apart` (N, N) tells how far the probe moved from one to another: a frame is first looked for where the nearest
        one was found that seems right, which takes a part of the time.
        """
        found: dict[int, Result] = {}
        with counting("seeking the first frames", even=False) as count:
            for number, frame in enumerate(frames[:_MOST]):
                count(number, min(len(frames), _MOST))
                right = [other for other, one in found.items() if seems_right(one)]
                beside = found[min(right, key=lambda other: apart[number, other])] if right else None
                one = self._beside(frame, beside) or self._sought(frame)
                if one is not None:
                    found[number] = one
                if enough(found):
                    break
            count(min(len(frames), _MOST), min(len(frames), _MOST))
        self._wide = {view: located for view, located in self._wide.items() if view == self._views()[0]}  # large
        return found

    def _beside(self, frame: Frame, other: Result | None) -> Result | None:
        """A frame where another one was found, if it is right there."""
        if other is None:
            return None
        (one,) = self.locator.locate_all([frame], [other.pose])
        return one if isinstance(one, Result) and is_good(one) else None

    def _sought(self, frame: Frame) -> Result | None:
        """The best of what the views show of a frame."""
        views, best, where = self._views(), None, 0
        for view in views[:1] if self._best[views[0]] >= _SURE_OF_A_VIEW else views:
            (one,) = self._in_view(view).locate_all([frame])
            if isinstance(one, ScopeRegError):
                continue
            self._worth[view] += _worth(one)
            if best is None or _worth(one) > _worth(best):
                best, where = one, view
            if is_good(one):
                break
        self._best[where] += best is not None
        return best

    def near(self, frames: Sequence[Frame], image_to_volume: Array) -> list[Found]:
        """Poses of frames, sought near where they are expected (N, 4, 4)."""
        locator, found = self.locator, list[Found]()
        target = self.volume.frame_of_reference
        rows = zip(frames, image_to_volume, strict=True)
        starts = [Pose.from_matrix(each, frame.frame_of_reference, target) for frame, each in rows]
        with counting("locating frames") as count:
            count(0, len(frames))
            for first in range(0, len(frames), _SOME):
                part = slice(first, first + _SOME)
                found += locator.locate_all(frames[part], starts[part])
                count(len(found), len(frames))
        return found


def is_good(result: Result) -> bool:
    """Whether a pose is reliable; where nobody judges, whether it stands out."""
    return result.ok is True or (result.ok is None and result.stands_out > 0)


def seems_right(result: Result) -> bool:
    """Whether a pose is reliable, or of a frame that is like the volume there though something is amiss with it.

    Such as the size of its pixels: then it is judged to be of another place.
    """
    return is_good(result) or math.isfinite(result.confidence) or result.similarity >= _ALIKE


def _worth(result: Result) -> float:
    told = (result.confidence, result.stands_out, result.similarity)
    return is_good(result) + sum(value for value in told if math.isfinite(value))


def in_turn(count: int) -> list[int]:
    """Numbers from 0, such that any first few of them lie all over: the ends, the middle, what lies between."""
    order = list(dict.fromkeys([0, count - 1][:count]))
    while len(order) < count:
        gaps = np.diff(np.sort(order))
        at = int(gaps.argmax())
        order.append(int(np.sort(order)[at] + gaps[at] // 2))
    return order
