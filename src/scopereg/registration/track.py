"""Track: the frames of a recording followed one after the other, a step for each, and their table `track.csv`."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from scopereg.errors import ScopeRegError
from scopereg.geometry import SUCCESS_MM, Pose
from scopereg.images import Frame
from scopereg.io.files import write_sheet
from scopereg.registration.batch import ANGLES, TRANSLATION
from scopereg.registration.reading import Recording, reason_of
from scopereg.registration.register import Start
from scopereg.registration.result import TRUTH, YES_NO, apart_mm
from scopereg.registration.tracker import Tracked, Tracker

STATES = ("found", "followed", "carried", "lost", "unreadable")  # those of a tracker, and of files
_POSE = (*TRANSLATION, *ANGLES)
_ALONE = tuple(f"alone_{name}" for name in _POSE)
_LENGTHS = ("expected_mm", "apart_mm", "error_mm", "alone_error_mm")
COLUMNS = (
    *("frame", "file", "index", "time_s", "state", *_POSE, "expected_mm", "ok", "belongs", "reason"),
    *("apart_mm", *_ALONE, "error_mm", "alone_error_mm", "similarity", "time_ms", "method"),
)


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


def write_track(steps: Sequence[Step], path: Path) -> Path:
    """Write the steps. Poses are ImageToVolume in LPS: translation, and angles about x, y, z with R = Rz Ry Rx."""
    return write_sheet(path, map(_cells, steps), COLUMNS)


def is_track(path: Path | str) -> bool:
    """Whether a file is such a table, by its first line."""
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            return tuple(next(csv.reader(file), [])) == COLUMNS
    except (OSError, UnicodeDecodeError, csv.Error):
        return False


def read_track(path: Path | str) -> list[Step]:
    """The steps of a table, as they were written."""
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            return [_from_row(row) for row in csv.DictReader(file)]
    except (OSError, UnicodeDecodeError, csv.Error, KeyError, ValueError, TypeError) as error:
        raise ScopeRegError(
            f"it is no whole table of a track: {error!r}", where=str(path), fix="pass track.csv of scopereg track"
        ) from None


def _from_row(row: dict[str, str]) -> Step:
    numbers: dict[str, Any] = {
        name: float(row[name]) if row[name] else math.nan for name in (*_LENGTHS, "similarity", "time_ms")
    }
    pose, alone = (_pose([row[name] for name in names]) for names in (_POSE, _ALONE))
    place = (int(row["frame"]), row["file"], int(row["index"]), float(row["time_s"]), row["state"], row["reason"])
    if row["state"] not in STATES:
        raise ValueError(f"state {row['state']!r}")
    ok, belongs = (TRUTH[row[name]] for name in ("ok", "belongs"))
    return Step(*place, pose=pose, alone=alone, ok=ok, belongs=belongs, method=row["method"], **numbers)


def _pose(words: list[str]) -> Pose | None:
    if not words[0]:
        return None
    numbers = [float(word) for word in words]
    return Pose.from_euler_deg(numbers[3:], numbers[:3])


def _cells(step: Step) -> dict[str, str]:
    cells = {"frame": str(step.row), "file": step.file, "index": str(step.index), "time_s": f"{step.time_s:.6f}"}
    cells |= {"state": step.state, "reason": step.reason, "method": step.method}
    cells |= {"ok": YES_NO[step.ok], "belongs": YES_NO[step.belongs]}
    for names, pose in ((_POSE, step.pose), (_ALONE, step.alone)):
        cells |= dict(zip(names, _numbers(pose), strict=False))
    cells |= {name: _number(getattr(step, name), 3) for name in _LENGTHS}
    return cells | {"similarity": _number(step.similarity, 6), "time_ms": _number(step.time_ms, 1)}


def _numbers(pose: Pose | None) -> list[str]:
    return [] if pose is None else [f"{number:.9f}" for number in (*pose.translation_mm, *pose.euler_deg)]


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else ""
