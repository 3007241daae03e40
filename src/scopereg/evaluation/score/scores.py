"""Scores: the error of each pose against the truth, what they come to, and their table."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from scopereg.errors import ScopeRegError
from scopereg.evaluation.score.hints import Placed, hints_of
from scopereg.evaluation.score.pairing import Pairs, pair_frames
from scopereg.evaluation.score.posed import (
    UNJUDGED,
    Place,
    PosedFrame,
    PosedFrames,
    Size,
    Target,
    Verdict,
    target_of,
)
from scopereg.evaluation.score.states import FORMAT, NO_POSE, NO_TRUTH, NOT_LOCATED, SCORED
from scopereg.evaluation.statistics import Interval, success_rate, tail
from scopereg.geometry import (
    SUCCESS_MM,
    Pose,
    VoxelPoses,
    geodesic_error_deg,
    rotation_error_deg,
    target_points,
    translation_error_mm,
)
from scopereg.geometry.pose import Array
from scopereg.io.files import sheet_text, write_text
from scopereg.registration.result import POSE, YES_NO, pose_cells

_TRUE = tuple(f"true_{name}" for name in POSE)
_ERRORS = ("error_mm", "translation_mm", "rotation_deg", "geodesic_deg")
_TOLD = ("confidence", "expected_mm", "bound_mm")
COLUMNS = (
    *("file", "index", "point", "state", *_ERRORS),
    *("ok", *_TOLD, "method", "reason", *POSE, *_TRUE),
)


@dataclass(frozen=True)
class FrameScore:
    """One frame, or one landmark: how far its pose is off; NaN where there is nothing to compare."""

    file: str
    index: int
    state: str
    error_mm: float = math.nan  # mTRE of the five target points; at a landmark its distance
    translation_mm: float = math.nan  # between the middles of the image
    rotation_deg: float = math.nan  # of the Euler angles, as published
    geodesic_deg: float = math.nan
    verdict: Verdict = UNJUDGED
    reason: str = ""
    pose: Pose | None = None  # both of the same frame mm, those of the truth
    truth: Pose | None = None
    point: str = ""  # name of the landmark
    numbered: bool = False  # whether its file has several frames

    @property
    def frame_label(self) -> str:
        return f"{self.file} frame {self.index}" if self.numbered or self.index else self.file

    @property
    def label(self) -> str:
        return f"{self.frame_label}: {self.point}" if self.point else self.frame_label

    @property
    def counts(self) -> bool:
        """Whether it is one of the frames that a share is of: those with a truth that the poses speak of."""
        return self.state in (SCORED, NOT_LOCATED)

    @property
    def is_wrong(self) -> bool:
        return not self.error_mm <= SUCCESS_MM  # NaN too


class Summary(NamedTuple):
    """What some scores come to. Means, median and tail are of what was located; shares are of all."""

    frames: int  # with a truth, that the poses speak of
    located: int
    mean_mm: float
    median_mm: float
    p95_mm: float
    max_mm: float
    within: int  # located within 3 mm
    within_share: float
    within_interval: Interval
    translation_mm: float  # means
    rotation_deg: float
    geodesic_deg: float
    ok: int | None  # poses that were called reliable; None where nothing was said of any
    ok_wrong: int  # of these, those that are off by more than 3 mm
    refused: int
    refused_right: int
    below_bound: float  # share of errors below the bound that was told
    expected_mm: float  # mean of what was expected

    @classmethod
    def of(cls, scores: Sequence[FrameScore]) -> Summary:
        """Of the scores that count, at least one."""
        counted = [score for score in scores if score.counts]
        errors = np.array([score.error_mm for score in counted])
        good = errors[np.isfinite(errors)]
        rate, far = success_rate(errors), tail(errors)
        ok, refused = ([score for score in counted if score.verdict.ok is told] for told in (True, False))
        bounded = [score for score in counted if math.isfinite(score.verdict.bound_mm + score.error_mm)]
        return cls(
            frames=len(counted),
            located=len(good),
            mean_mm=mean_known(good),
            median_mm=float(np.median(good)) if len(good) else math.nan,
            p95_mm=far.p95,
            max_mm=far.maximum,
            within=rate.successes,
            within_share=rate.fraction,
            within_interval=rate.interval,
            translation_mm=mean_known([score.translation_mm for score in counted]),
            rotation_deg=mean_known([score.rotation_deg for score in counted]),
            geodesic_deg=mean_known([score.geodesic_deg for score in counted]),
            ok=len(ok) if ok or refused else None,
            ok_wrong=sum(score.is_wrong for score in ok),
            refused=len(refused),
            refused_right=sum(not score.is_wrong for score in refused),
            below_bound=mean_known([score.error_mm <= score.verdict.bound_mm for score in bounded]),
            expected_mm=mean_known([score.verdict.expected_mm for score in counted]),
        )


@dataclass(frozen=True)
class Scores:
    """The scores of some poses, and what is to be said of them."""

    name: str  # of the poses
    against: str  # what they are compared with
    rows: tuple[FrameScore, ...]
    hints: tuple[str, ...] = ()  # what would explain the errors
    notes: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def counted(self) -> list[FrameScore]:
        return [row for row in self.rows if row.counts]

    @property
    def summary(self) -> Summary:
        return Summary.of(self.rows)

    @property
    def of_landmarks(self) -> bool:
        return any(row.point for row in self.rows)

    def of_state(self, state: str) -> list[FrameScore]:
        return [row for row in self.rows if row.state == state]

    def worst(self, count: int) -> list[FrameScore]:
        """The largest errors first; what was not located before all."""
        order = sorted(self.counted, key=lambda row: -row.error_mm if math.isfinite(row.error_mm) else -math.inf)
        return order[:count]

    def write(self, path: Path | str, provenance: dict[str, Any]) -> Path:
        """A row for each frame or landmark; the first line tells, behind a #, how it was made."""
        told = {"format": FORMAT, "name": self.name, "against": self.against, **self.facts, "provenance": provenance}
        cells = sheet_text(map(_cells, self.rows), COLUMNS)
        return write_text(path, f"# {json.dumps(told, sort_keys=True)}\n{cells}")


def score_poses(
    poses: PosedFrames,
    truth: PosedFrames,
    *,
    name: str = "",
    size: Size | None = None,
    spacing_mm: Place | None = None,
    world: Pose | None = None,
    same_world: bool = False,
) -> Scores:
    """The error of each pose against that of the same frame which counts as true.

    `size` and `spacing_mm` (x before y) are of frames whose files tell neither. `world` takes the world of the truth to
    that of the poses; `same_world` says that two names mean one world.
    """
    truth = _in_world(poses, truth, world, same_world)
    pairs = pair_frames(poses, truth)
    located = [(one, other) for one, other in pairs.both if one.pose is not None]
    if not located:
        raise ScopeRegError(
            f"none of the {len(pairs.both)} frames that have a truth was located",
            where=str(poses.source),
            fix="there is nothing to score: pass poses that were found",
        )
    targets = [target_of(one, other, size, spacing_mm) for one, other in located]
    scores = _errors(located, targets)
    rows = [
        *(scores.get(id(one)) or replace(_bare(one, NOT_LOCATED), truth=other.pose) for one, other in pairs.both),
        *(_bare(frame, NO_TRUTH) for frame in pairs.poses_alone),
        *(replace(_bare(frame, NO_POSE), verdict=UNJUDGED) for frame in pairs.truth_alone),
    ]
    return Scores(
        name or poses.name,
        truth.source.name,
        with_numbers(rows),
        tuple(_hints(located, targets)),
        (*poses.notes, *truth.notes, *pairs.notes, *_notes(pairs)),
        {"poses": poses.source.name, "truth": truth.source.name, "world": poses.world or truth.world},
    )


def _in_world(poses: PosedFrames, truth: PosedFrames, world: Pose | None, same_world: bool) -> PosedFrames:
    """The truth in the world of the poses."""
    starts = {frame.pose.source for frame in (*poses.placed, *truth.placed) if frame.pose is not None}
    if len(starts) > 1:
        raise ScopeRegError(
            f"they place different things: {', '.join(sorted(starts))}",
            where=f"{poses.source} and {truth.source}",
            fix="pass poses of the same frame of reference, such as Image",
        )
    if world is not None:
        if (world.source, world.target) == (poses.world, truth.world) and poses.world != truth.world:
            raise ScopeRegError(f"it is {world.name}, the other way", where="world=", fix="invert it")
        moved = [replace(frame, pose=_moved(world, frame.pose)) for frame in truth.placed]
        return replace(truth, frames=tuple(moved), world=poses.world)
    if not same_world and poses.world and truth.world and poses.world != truth.world:
        raise ScopeRegError(
            f"it leads to {truth.world}, the poses lead to {poses.world}",
            where=str(truth.source),
            fix="tell the pose from the one world to the other (world=), or that they are one (same_world=True)",
        )
    return truth


def _moved(world: Pose, pose: Pose | None) -> Pose | None:
    """A pose after another one, whose file need not name what it joins."""
    return pose and Pose(world.rotation, world.translation_mm, pose.target, world.target) @ pose


def _errors(located: Sequence[tuple[PosedFrame, PosedFrame]], targets: Sequence[Target]) -> dict[int, FrameScore]:
    """Scores by the identity of the frame of the poses; both poses are taken from the middle of the image."""
    placed, true = (
        [_from_middle(pair[side], target) for pair, target in zip(located, targets, strict=True)] for side in (0, 1)
    )
    one, other = _batch(placed), _batch(true)
    numbers = zip(
        translation_error_mm(one, other, 1.0).tolist(),
        rotation_error_deg(one, other).tolist(),
        geodesic_error_deg(one, other).tolist(),
        strict=True,
    )
    found = {}
    for (mine, theirs), target, pose, truth, errors in zip(located, targets, placed, true, numbers, strict=True):
        points = target_points_mm(target)
        error = float(np.linalg.norm(pose.apply(points) - truth.apply(points), axis=1).mean())
        both = _counted_as(pose, theirs, target), theirs.pose
        found[id(mine)] = FrameScore(mine.file, mine.index, SCORED, error, *errors, mine.verdict, "", *both)
    return found


def target_points_mm(target: Target) -> Array:
    """The five points of mTRE in mm from the middle of an image."""
    width, height = target.size
    points: Array = target_points((height, width), dtype=torch.float64).numpy() * (*target.spacing_mm, 0.0)
    return points


def _middle_mm(frame: PosedFrame, target: Target) -> Array:
    """The middle of the image in the millimetres that a frame's pose takes."""
    middle: Array = target.origin_mm(frame.origin) + target.half_mm
    return middle


def _from_middle(frame: PosedFrame, target: Target) -> Pose:
    """The pose of a frame whose millimetres are counted from its middle."""
    assert frame.pose is not None
    pose = frame.pose
    return Pose(pose.rotation, pose.apply(_middle_mm(frame, target)))


def _counted_as(pose: Pose, frame: PosedFrame, target: Target) -> Pose:
    """A pose from the middle, as one of the millimetres of `frame`."""
    return Pose(pose.rotation, pose.apply(-_middle_mm(frame, target)))


def _batch(poses: Sequence[Pose]) -> VoxelPoses:
    """Poses in mm as those of voxels of 1 mm."""
    return VoxelPoses(
        torch.from_numpy(np.stack([pose.rotation for pose in poses])),
        torch.from_numpy(np.stack([pose.translation_mm for pose in poses])),
    )


def _hints(located: Sequence[tuple[PosedFrame, PosedFrame]], targets: Sequence[Target]) -> list[str]:
    placed, truth = [], []
    for (mine, theirs), target in zip(located, targets, strict=True):
        assert mine.pose is not None
        points, true = target_points_mm(target), _from_middle(theirs, target)
        middle = _middle_mm(mine, target)
        placed.append(Placed(mine.pose.matrix, points + middle, true.apply(points), target.half_mm))
        truth.append(_counted_as(true, mine, target))
    return hints_of(placed, truth)


def _bare(frame: PosedFrame, state: str) -> FrameScore:
    """Of a frame that has nothing to be compared with."""
    return FrameScore(frame.file, frame.index, state, verdict=frame.verdict, reason=frame.reason)


def _notes(pairs: Pairs) -> list[str]:
    told = {"frames have no truth": pairs.poses_alone, "frames of the truth have no pose": pairs.truth_alone}
    return [f"{len(alone)} {what}, first {alone[0].label}" for what, alone in told.items() if alone]


def with_numbers(rows: Sequence[FrameScore]) -> tuple[FrameScore, ...]:
    """Rows that are called by their numbers where their files have several frames."""
    several = {row.file for row in rows if row.index}
    return tuple(replace(row, numbered=row.file in several) for row in rows)


def mean_known(values: Sequence[float] | Array) -> float:
    """The mean of what is known; NaN of nothing."""
    known = [float(value) for value in values if math.isfinite(value)]
    return sum(known) / len(known) if known else math.nan


def _cells(row: FrameScore) -> dict[str, str]:
    cells = dict.fromkeys(COLUMNS, "")
    cells |= {"file": row.file, "index": str(row.index), "point": row.point, "state": row.state, "reason": row.reason}
    numbers = {name: getattr(row, name) for name in _ERRORS} | {name: getattr(row.verdict, name) for name in _TOLD}
    cells |= {name: f"{number:.6g}" for name, number in numbers.items() if math.isfinite(number)}
    cells |= {"ok": YES_NO[row.verdict.ok], "method": row.verdict.method}
    for pose, names in ((row.pose, POSE), (row.truth, _TRUE)):
        cells |= {} if pose is None else pose_cells(pose, names)
    return cells
