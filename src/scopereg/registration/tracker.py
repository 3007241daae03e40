"""Tracker: successive frames of a sweep, each found by itself and by the motion so far; lost, and found again."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose, rotation_from_vector, vector_from_rotation
from scopereg.images import Frame
from scopereg.registration.locator import Locator
from scopereg.registration.result import Result
from scopereg.registration.settings import MotionSettings, TrackSettings

Array = npt.NDArray[np.float64]
State = Literal["found", "followed", "carried", "lost"]
_WITHIN_MM, _ACROSS_MM = 10.0, 4.0  # errors of where a new picture lies about the old one: in its plane, and out of it


class Tracked(NamedTuple):
    """A frame's pose in the course of its sweep."""

    result: Result  # drawn towards the motion; what was found by itself is in `alone`
    state: State
    alone: Result | None  # None: it could not be located by itself
    time_s: float
    motion_error_mm: float = math.nan  # usual error of where the motion puts it; only where that is all there is


class Tracker:
    """Follows a probe. The search of the locator has no start, so that whatever was lost can be found again.

    Far from the middle of the volume, where a network finds nothing by itself, it also begins where the motion puts the
    frame. With refinement each frame is also refined from there. The most similar of these poses counts. A locator that
    looks widely does so as long as there is no motion. Where depth, size or spacing of the pictures change, the motion
    goes on from rest: the place that the probe touches stays where it was.
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
        self._latest: Frame | None = None  # that the motion is of

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
        self._see_anew(frame, time_s)
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

    def _see_anew(self, frame: Frame, time_s: float) -> None:
        """Where the picture is another one than before, the motion is that of the new one."""
        before, self._latest = self._latest, frame
        if self._motion is None or before is None or same_grid(before, frame):
            return
        self._motion = self._motion.seen_anew(before, frame, time_s)
        self._other, self._agreeing, self._missed = None, 0, 0

    def _begin(self, result: Result, alone: Result, frame: Frame, time_s: float) -> Tracked:
        """A new motion, unless the frame is none of the volume's."""
        self._forget()
        self._latest = frame
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
            return Tracked(carried, "carried", alone, time_s, ahead.error_mm)
        self._forget()
        lost = alone or self._placed(None, ahead, frame, "")
        return Tracked(lost if lost.reason else replace(lost, ok=False, reason=f"lost: {why}"), "lost", alone, time_s)

    def _placed(self, alone: Result | None, motion: Motion, frame: Frame, reason: str) -> Result:
        """The result that says where the motion is, and no more."""
        return replace(
            alone or Result(motion.pose, "motion", 0.0, math.nan, frame=frame, volume=self.locator.volume),
            pose=motion.pose,
            expected_mm=math.nan,  # that of a calibration was for the pose that was found
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
    """Whether the motion takes the pose: one that may be wrong is weighed by its expected error, a foreign one is not.

    The confidence does not tell: it is 0 for the volume's own frames too, once their expected error is large.
    """
    return result.belongs is not False


@dataclass(frozen=True, eq=False)
class Motion:
    """A pose at a time, with velocity and covariance. Immutable: steps give new ones."""

    time_s: float
    pose: Pose
    middle_mm: tuple[float, float]  # of the frame
    velocity: Array  # (6,), mm/s
    covariance: Array  # (12, 12), of the pose's change and the velocity
    settings: MotionSettings

    @classmethod
    def begin(
        cls, pose: Pose, time_s: float, error_mm: float, middle_mm: tuple[float, float], settings: MotionSettings
    ) -> Motion:
        """At rest at a measured pose."""
        spread = np.r_[np.full(6, error_mm), np.full(6, settings.first_velocity_mm_s)]
        return cls(time_s, pose, middle_mm, np.zeros(6), np.diag(spread**2), settings)

    def seen_anew(self, before: Frame, now: Frame, time_s: float) -> Motion:
        """At rest, of a picture with another depth or size: where the probe touches, the frame lies as it did.

        How the new picture lies about that place is known less surely, most of all within its plane.
        """
        shift = self.pose.rotation @ (contact_mm(before) - contact_mm(now))
        pose = Pose(self.pose.rotation, self.pose.translation_mm + shift, self.pose.source, self.pose.target)
        x, y, _ = now.centre_mm
        spread = np.r_[np.full(2, _WITHIN_MM), np.full(4, _ACROSS_MM), np.full(6, self.settings.first_velocity_mm_s)]
        covariance = np.diag(spread**2)
        covariance[:6, :6] += self.covariance[:6, :6]
        return Motion(time_s, pose, (float(x), float(y)), np.zeros(6), covariance, self.settings)

    def predicted(self, time_s: float) -> Motion:
        """Where it is at a later time if it goes on as it went."""
        step = time_s - self.time_s
        shift, unit = np.eye(6) * step, np.eye(6)
        onward = np.block([[unit, shift], [np.zeros((6, 6)), unit]])
        # A push of random strength all the while: the pose has half of what the velocity has, times the step.
        push = np.r_[np.full(6, step**2 / 2), np.full(6, step)] * self.settings.acceleration_mm_s2
        pushed = np.zeros((12, 12))
        for axis in range(6):
            part = [axis, axis + 6]
            pushed[np.ix_(part, part)] = np.outer(push[part], push[part])
        covariance = onward @ self.covariance @ onward.T + pushed
        return replace(self, time_s=time_s, pose=self.moved(self.velocity * step), covariance=covariance)

    def distance(self, measured: Pose, error_mm: float) -> float:
        """Squared distance of a measurement in standard deviations of both: some six where it belongs to the motion."""
        away = self.away(measured)
        return float(away @ np.linalg.solve(self._spread(error_mm), away))

    def updated(self, measured: Pose, error_mm: float) -> Motion:
        """Drawn towards a measurement, the more so the surer it is."""
        gain = self.covariance[:, :6] @ np.linalg.inv(self._spread(error_mm))
        change = gain @ self.away(measured)
        covariance = self.covariance - gain @ self.covariance[:6]
        return replace(
            self,
            pose=self.moved(change[:6]),
            velocity=self.velocity + change[6:],
            covariance=(covariance + covariance.T) / 2,
        )

    @property
    def error_mm(self) -> float:
        """Usual error of the pose, of shift and turn together."""
        return float(np.sqrt(np.trace(self.covariance[:6, :6])))

    def away(self, other: Pose) -> Array:
        """Shift and turn (6,) that lead from this pose to another."""
        back = self.pose.rotation.T
        shift = back @ (self._middle(other) - self._middle(self.pose))
        turn = vector_from_rotation(torch.from_numpy(back @ other.rotation)).numpy()
        return np.r_[shift, turn * self.settings.lever_mm]

    def moved(self, change: Array) -> Pose:
        """This pose after a shift and a turn (6,)."""
        turn = rotation_from_vector(torch.from_numpy(change[3:] / self.settings.lever_mm)).numpy()
        rotation = self.pose.rotation @ turn
        middle = self._middle(self.pose) + self.pose.rotation @ change[:3]
        translation = middle - rotation @ np.r_[self.middle_mm, 0.0]
        return Pose(rotation, translation, self.pose.source, self.pose.target)

    def _middle(self, pose: Pose) -> Array:
        return np.asarray(pose.apply(np.r_[self.middle_mm, 0.0]))

    def _spread(self, error_mm: float) -> Array:
        return self.covariance[:6, :6] + np.eye(6) * error_mm**2


def same_grid(one: Frame, other: Frame) -> bool:
    """Whether the pixels of two frames lie at the same places."""
    return (one.shape, one.spacing_mm, one.origin_mm) == (other.shape, other.spacing_mm, other.origin_mm)


def contact_mm(frame: Frame) -> Array:
    """Where the probe touches, in the frame's own mm: in the middle of the upper edge of what is seen."""
    rows, columns = (frame.seen.any(axis).nonzero().flatten().tolist() for axis in (1, 0))
    width, _ = frame.size
    across = (columns[0] + columns[-1]) / 2 if columns else (width - 1) / 2
    down = rows[0] if rows else 0
    place = np.asarray(frame.origin_mm) + np.array([across, down]) * frame.spacing_mm
    return np.append(place, 0.0)
