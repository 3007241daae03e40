"""Track: the frames of a recording followed one after the other; one step for each, also for those that are bad."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from scopereg.errors import ScopeRegError
from scopereg.geometry import SUCCESS_MM, Pose
from scopereg.images import Frame
from scopereg.registration.batch import reason_of
from scopereg.registration.distance import apart_mm
from scopereg.registration.recording import Recording
from scopereg.registration.start import Start
from scopereg.registration.tracker import Tracked, Tracker

STATES = ("found", "followed", "carried", "lost", "unreadable")  # those of a tracker, and of files


@dataclass(frozen=True)
class Step:
    """What became of a frame. It holds no image: recordings are long."""

    row: int
    file: str
    index: int  # in the file
    time_s: float
    state: str
    reason: str = ""
    pose: Pose | None = None
    alone: Pose | None = None  # as found by itself
    expected_mm: float = math.nan
    ok: bool | None = None
    similarity: float = math.nan
    time_ms: float = math.nan
    method: str = ""
    apart_mm: float = math.nan  # between both poses
    error_mm: float = math.nan  # against the tracker's pose, where there is one
    alone_error_mm: float = math.nan
    belongs: bool | None = None  # whether the frame is one of the volume; None where nobody can tell

    @property
    def is_placed(self) -> bool:
        """Whether a picture stands behind the pose."""
        return self.state in ("found", "followed")


def follow(recording: Recording, tracker: Tracker, truth: Start | None = None) -> Iterator[Step]:
    """Each frame of a recording in turn. `truth` tells how to get at the poses that its own file gives."""
    latest_s = -math.inf
    for row, time_s in enumerate(recording.times_s):
        base = Step(row, *recording.place(row), time_s, "unreadable")
        try:
            frame = recording.frame(row)
        except Exception as error:  # a damaged file may fail anywhere in a reader
            yield replace(base, reason=reason_of(error))
            continue
        if not latest_s < time_s < math.inf:
            yield replace(base, reason=f"its time, {time_s:g} s, is not after {latest_s:g} s of a frame before")
            continue
        latest_s = time_s
        try:
            tracked = tracker.follow(frame, time_s)
        except ScopeRegError as error:  # no motion carries it yet
            yield replace(base, state="lost", reason=error.what)
            continue
        yield _step(base, tracked, frame, _true_pose(frame, tracker, truth))


def _true_pose(frame: Frame, tracker: Tracker, truth: Start | None) -> Pose | None:
    if truth is None:
        return None
    try:
        return truth.of(frame, tracker.locator.volume)
    except ScopeRegError:  # the tracker lost this frame
        return None


def _step(base: Step, tracked: Tracked, frame: Frame, truth: Pose | None) -> Step:
    result, alone = tracked.result, tracked.alone
    return replace(
        base,
        state=tracked.state,
        reason=result.reason,
        pose=result.pose,
        alone=alone.pose if alone else None,
        expected_mm=result.expected_mm,
        ok=result.ok,
        belongs=result.belongs,
        similarity=result.similarity,
        time_ms=result.time_ms,
        method=result.method,
        apart_mm=apart_mm(frame, result.pose, alone.pose if alone else None),
        error_mm=apart_mm(frame, result.pose, truth),
        alone_error_mm=apart_mm(frame, alone.pose if alone else None, truth),
    )


def compared(steps: Sequence[Step]) -> dict[str, list[float]]:
    """Errors against the tracker, of frames that have both poses; empty where there are none."""
    both = [step for step in steps if math.isfinite(step.error_mm) and math.isfinite(step.alone_error_mm)]
    if not both:
        return {}
    return {"frame by frame": [step.alone_error_mm for step in both], "tracked": [step.error_mm for step in both]}


def in_words(errors: Sequence[float]) -> str:
    """Mean, median and share of small errors."""
    near = sum(error <= SUCCESS_MM for error in errors)
    mean = sum(errors) / len(errors)
    return f"mean {mean:.2f} mm, median {median(errors):.2f} mm, {near} of {len(errors)} within {SUCCESS_MM:g} mm"
