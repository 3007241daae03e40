"""Track: the frames of a recording followed one after the other, a step for each, and their table `track.csv`."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from scopereg.errors import ScopeRegError
from scopereg.geometry import SUCCESS_MM, Pose
from scopereg.images import Frame
from scopereg.io.files import write_sheet
from scopereg.io.stored import GIVEN, StoredFrame
from scopereg.registration.against_tracker import MotionCheck, check_motion
from scopereg.registration.format import Format
from scopereg.registration.reading import Recording, reason_of
from scopereg.registration.register import Start
from scopereg.registration.result import POSE, Result, apart_mm, pose_cells, pose_of_cells
from scopereg.registration.tracker import Tracked, Tracker

STATES = ("found", "followed", "carried", "lost", "unreadable")  # those of a tracker, and of files
_ALONE = tuple(f"alone_{name}" for name in POSE)
_LENGTHS = ("apart_mm", "error_mm", "alone_error_mm")
COLUMNS = (
    *("frame", "file", "index", "time_s", "state", *POSE, "expected_mm", "ok", "belongs", "reason"),
    *("apart_mm", *_ALONE, "error_mm", "alone_error_mm", "similarity", "time_ms", "method"),
    *("bound_mm", "confidence", "hints", "calibrated_on"),
)
_FORMER_COLUMNS = COLUMNS[: COLUMNS.index("bound_mm")]  # of tables from before these were told


@dataclass(frozen=True)
class Step:
    """What became of a frame. It holds no image: recordings are long."""

    row: int
    file: str
    index: int  # in the file
    time_s: float
    state: str
    reason: str = ""
    result: Result | None = None  # drawn towards the motion; None where there is no pose
    alone: Pose | None = None  # as found by itself
    apart_mm: float = math.nan  # between both poses
    error_mm: float = math.nan  # against the tracker's pose, where there is one
    alone_error_mm: float = math.nan
    tracked: Pose | None = None  # where the frame's own file puts it, in the tracker's world
    centre_mm: tuple[float, ...] = ()  # the middle of the frame in its own mm
    changed: str = ""  # how its picture differs from those before, in size or pixels

    @property
    def pose(self) -> Pose | None:
        return None if self.result is None else self.result.pose

    @property
    def expected_mm(self) -> float:
        return math.nan if self.result is None else self.result.expected_mm

    @property
    def ok(self) -> bool | None:
        return None if self.result is None else self.result.ok

    @property
    def time_ms(self) -> float:
        return math.nan if self.result is None else self.result.time_ms

    @property
    def method(self) -> str:
        return "" if self.result is None else self.result.method

    @property
    def is_placed(self) -> bool:
        """Whether a picture stands behind the pose."""
        return self.state in ("found", "followed")


def follow(recording: Recording, tracker: Tracker, truth: Start | None = None) -> Iterator[Step]:
    """Each frame of a recording in turn. `truth` tells how to get at the poses that its own file gives."""
    latest_s, before = -math.inf, None
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
        base, before = replace(base, changed=_change(before, frame)), Format.of(frame)
        try:
            tracked = tracker.follow(frame, time_s)
        except ScopeRegError as error:  # no motion carries it yet
            yield replace(base, state="lost", reason=error.what)
            continue
        yield _step(base, tracked, frame, _true_pose(frame, tracker, truth))


def _change(before: Format | None, frame: StoredFrame) -> str:
    now = Format.of(frame)
    if before is None or now.is_like(before):
        return ""
    told = frame.facts.get("spacing_from") == GIVEN and now.size != before.size
    return now.after(before) + ("; the size of a pixel that was told is taken for both" if told else "")


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
        result=result.without_images(),
        alone=alone.pose if alone else None,
        apart_mm=apart_mm(frame, result.pose, alone.pose if alone else None),
        error_mm=apart_mm(frame, result.pose, truth),
        alone_error_mm=apart_mm(frame, alone.pose if alone else None, truth),
        tracked=frame.pose if isinstance(frame, StoredFrame) else None,
        centre_mm=tuple(frame.centre_mm.tolist()),
    )


def motion_check(steps: Sequence[Step]) -> MotionCheck | None:
    """How what was found moves beside the poses that the files hold; None where they hold none, or nothing moved."""
    both = [step for step in steps if step.is_placed and step.pose is not None and step.tracked is not None]
    if not both:
        return None
    poses = [step.pose for step in both if step.pose is not None]
    return check_motion(poses, [step.tracked for step in both if step.tracked is not None], both[0].centre_mm)


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
            return tuple(next(csv.reader(file), [])) in (COLUMNS, _FORMER_COLUMNS)
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
    if row["state"] not in STATES:
        raise ValueError(f"state {row['state']!r}")
    apart, error, alone_error = (float(row[name]) if row[name] else math.nan for name in _LENGTHS)
    place = (int(row["frame"]), row["file"], int(row["index"]), float(row["time_s"]), row["state"], row["reason"])
    return Step(*place, Result.from_row(row), pose_of_cells(row, _ALONE), apart, error, alone_error)


def _cells(step: Step) -> dict[str, str]:
    cells = {} if step.result is None else step.result.row(digits=3)
    cells |= {} if step.alone is None else pose_cells(step.alone, _ALONE)
    cells |= {"frame": str(step.row), "file": step.file, "index": str(step.index), "time_s": f"{step.time_s:.6f}"}
    cells |= {"state": step.state, "reason": step.reason}
    cells |= {name: "" if math.isnan(getattr(step, name)) else f"{getattr(step, name):.3f}" for name in _LENGTHS}
    return {name: cells.get(name, "") for name in COLUMNS}
