"""Scene: a volume with the method that finds frames in it, made ready before the loop is given to it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame, Volume
from scopereg.live.preparation import Preparation
from scopereg.registration.diagnosis import fitting_pixels
from scopereg.registration.format import PixelSize
from scopereg.registration.locator import Locator
from scopereg.registration.method import parse
from scopereg.registration.register import Start
from scopereg.registration.result import RegistrationError, Result, apart_mm
from scopereg.registration.settings import DEFAULT
from scopereg.registration.tracker import Tracker


@dataclass(frozen=True)
class Plan:
    """How frames are found, in whichever volume."""

    method: str = DEFAULT
    refine: bool = False
    follow: bool = False  # weigh each frame against the motion so far
    wide: bool = False  # look all over the volume while there is no motion
    device: str = "auto"
    thickness_mm: str | None = None  # of frames, beyond that of the volume


class Scene:
    """Finds frames in one volume; `register` is what a loop wants. Threads may share it if it `may_overlap`.

    Where depth or size of the frames change, the volume is prepared for the new field of view beside the stream; until
    then such frames get a WaitingError.
    """

    def __init__(self, volume: Volume, name: str, plan: Plan, truth: Start | None = None) -> None:
        """`truth` tells how to get at the poses that the frames' own file gives them, where that holds here."""
        self.name, self.volume, self._plan, self._truth = name, volume, plan, truth
        how: dict[str, Any] = {"refine": plan.refine, "wide": plan.wide, "thickness_mm": plan.thickness_mm}
        found = Locator(volume, plan.method, **how, device=plan.device)
        self.locator = found if plan.follow else found.narrow()  # no time to look all over the volume for every frame
        self._tracker = Tracker(self.locator) if plan.follow else None
        self.preparation = Preparation(self.locator)
        self._good: Pose | None = None  # the last that was ok

    @property
    def method(self) -> str:
        """In words."""
        words = [Path(parse(self._plan.method).first).stem]
        words += ["refined"] if self.locator.refines else []
        words += ["followed"] if self._plan.follow else []
        return ", ".join(words)

    @property
    def may_overlap(self) -> bool:
        """Whether several frames may be located at once: by a network on the CPU that keeps nothing between them."""
        return self._tracker is None and self.locator.prepared.may_overlap

    def register(self, frame: Frame) -> Result:
        """The pose of the next frame."""
        self.preparation.check(frame)
        result = self._follow(frame) if self._tracker is not None else self.locator.locate(frame)
        self._good = result.pose if result.ok else self._good
        return result

    def fitting_pixels(self, frame: Frame, result: Result) -> PixelSize | None:
        """The size of pixels that fits a frame clearly better than its own, near where the last good one was."""
        return fitting_pixels(self.locator, frame, result, self._good)

    def _follow(self, frame: Frame) -> Result:
        assert self._tracker is not None
        # By our own clock: those of scanners and files may stand still or jump, and a pause is one.
        tracked = self._tracker.follow(frame, time.perf_counter())
        if tracked.state == "lost" and tracked.alone is None:
            raise RegistrationError(tracked.result.reason, where="live", fix="wait for frames that show the volume")
        return tracked.result

    def error_mm(self, frame: Frame, result: Result | None) -> float:
        """Against where the frame's own file puts it; NaN where nobody knows."""
        if self._truth is None or result is None:
            return math.nan
        try:
            return apart_mm(frame, result.pose, self._truth.of(frame, self.volume))
        except ScopeRegError:  # the tracker lost this frame
            return math.nan
