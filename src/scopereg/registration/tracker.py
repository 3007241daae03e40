"""Tracker: successive frames of a sweep, each found by itself and by the motion so far; lost, and found again."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal, NamedTuple

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame
from scopereg.registration.locator import Locator
from scopereg.registration.motion import Motion
from scopereg.registration.result import Result
from scopereg.registration.track_settings import TrackSettings

State = Literal["found", "followed", "carried", "lost"]


class Tracked(NamedTuple):
    """A frame's pose in the course of its sweep."""

    result: Result  # drawn towards the motion; what was found by itself is in `alone`
    state: State
    alone: Result | None  # None: it could not be located by itself
    time_s: float


class Tracker:
    """Follows a probe. The search of the locator has no start, so that whatever was lost can be found again.

    Far from the middle of the volume, where a network finds nothing by itself, it also begins where the motion puts the
    frame. With refinement each frame is also refined from there. The most similar of these poses counts. A locator that
    looks widely does so as long as there is no motion.
    """

    def __init__(self, locator: Locator, settings: TrackSettings | None = None) -> None:
        self.locator, self.settings = locator, settings or TrackSettings()
        self._near = locator.narrow()
        self.reset()

    def reset(self) -> None:
        """Forget the motion, and the time: another sweep begins."""
        self._time_s = -math.inf
        self._forget()

    def _forget(self) -> None:
        self._motion: Motion | None = None
        self._other: Motion | None = None  # what poses away from the motion would make of it
        self._agreeing = self._missed = 0

    def follow(self, frame: Frame, time_s: float) -> Tracked:
        """The pose of the next frame. Times must rise.

        A frame that cannot be located is carried on by the motion; while there is none, its error is raised.
        """
        if not self._time_s < time_s < math.inf:
            raise ScopeRegError(
                f"a frame of {time_s:g} s follows one of {self._time_s:g} s",
                where="Tracker.follow(time_s)",
                fix="pass frames in the order of their times, or reset() between sweeps",
            )
        self._time_s = time_s
        try:
            alone: Result | None = (self.locator if self._motion is None else self._near).locate(frame)
        except ScopeRegError as error:
            if self._motion is None:
                raise
            return self._carry(None, frame, time_s, error.what)
        assert alone is not None
        if self._motion is None:
            return self._begin(alone, alone, frame, time_s)
        ahead = self._motion.predicted(time_s)
        best = self._more_similar(frame, alone, ahead.pose)
        error_mm = self._error_mm(best)
        known = _counts(best)
        if known and ahead.distance(best.pose, error_mm) <= self.settings.gate:
            self._motion, self._missed, self._other = ahead.updated(best.pose, error_mm), 0, None
            return self._tracked(best, alone, "followed", time_s)
        if known and self._agrees(best, frame, time_s):
            return self._begin(best, alone, frame, time_s)
        return self._carry(alone, frame, time_s, "away from the motion so far" if known else best.reason)

    def _begin(self, result: Result, alone: Result, frame: Frame, time_s: float) -> Tracked:
        """A new motion, unless the frame is none of the volume's."""
        self._forget()
        if not _counts(result):
            return Tracked(result, "lost", alone, time_s)
        self._motion = self._started(result, frame, time_s)
        return Tracked(result, "found", alone, time_s)

    def _carry(self, alone: Result | None, frame: Frame, time_s: float, why: str) -> Tracked:
        """Where the motion puts the frame, while there is hope."""
        assert self._motion is not None
        ahead = self._motion.predicted(time_s)
        self._missed += 1
        if self._missed <= self.settings.patience:
            self._motion = ahead
            carried = self._placed(alone, ahead, frame, f"carried on by the motion before: {why}")
            return Tracked(carried, "carried", alone, time_s)
        self._forget()
        lost = alone or self._placed(None, ahead, frame, "")
        return Tracked(lost if lost.reason else replace(lost, ok=False, reason=f"lost: {why}"), "lost", alone, time_s)

    def _placed(self, alone: Result | None, motion: Motion, frame: Frame, reason: str) -> Result:
        """The result that says where the motion is, and no more."""
        return replace(
            alone or Result(motion.pose, "motion", 0.0, math.nan, frame=frame, volume=self.locator.volume),
            pose=motion.pose,
            expected_mm=motion.error_mm,
            bound_mm=math.nan,
            confidence=math.nan,
            ok=False,
            reason=reason,
        )

    def _more_similar(self, frame: Frame, alone: Result, predicted: Pose) -> Result:
        """The frame as found from where the motion puts it, if that is more similar."""
        best = alone
        if not self._near.reaches(frame, predicted):
            best = _better(best, self._found_from(frame, predicted))
        return _better(best, self._near.refine_from(frame, replace(best, pose=predicted)))

    def _found_from(self, frame: Frame, predicted: Pose) -> Result | None:
        try:
            return self._near.locate(frame, predicted)
        except ScopeRegError:  # the volume has nothing there
            return None

    def _agrees(self, result: Result, frame: Frame, time_s: float) -> bool:
        """Whether the last poses away from the motion go along with one another."""
        error_mm = self._error_mm(result)
        if self._other is not None:
            ahead = self._other.predicted(time_s)
            if ahead.distance(result.pose, error_mm) <= self.settings.gate:
                self._agreeing += 1
                self._other = ahead.updated(result.pose, error_mm)
                return self._agreeing >= self.settings.agreeing
        self._other, self._agreeing = self._started(result, frame, time_s), 1
        return self._agreeing >= self.settings.agreeing

    def _started(self, result: Result, frame: Frame, time_s: float) -> Motion:
        x, y, _ = frame.centre_mm
        return Motion.begin(result.pose, time_s, self._error_mm(result), (float(x), float(y)), self.settings)

    def _tracked(self, best: Result, alone: Result, state: State, time_s: float) -> Tracked:
        assert self._motion is not None
        return Tracked(replace(best, pose=self._motion.pose), state, alone, time_s)

    def _error_mm(self, result: Result) -> float:
        """Of one of the six numbers of a pose: what is expected of all six together is some two and a half times it."""
        if math.isfinite(result.expected_mm):
            return max(result.expected_mm / math.sqrt(6), 0.05)
        refined = self.locator.refines
        return (self.settings.refined_error_mm if refined else self.settings.network_error_mm) / math.sqrt(6)


def _better(one: Result, other: Result | None) -> Result:
    return other if other is not None and other.similarity > one.similarity else one


def _counts(result: Result) -> bool:
    """Whether the motion takes the pose: one that may be wrong is weighed by its expected error, a stranger's is not.

    The confidence does not tell: it is 0 for the volume's own frames too, once their expected error is large.
    """
    return result.belongs is not False
