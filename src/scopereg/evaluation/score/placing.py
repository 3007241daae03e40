"""Placing: where a table, a tracked sequence or a folder of transforms puts frames that are read from files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scopereg.errors import ScopeRegError
from scopereg.evaluation.score.pairing import pair_frames
from scopereg.evaluation.score.posed import FIRST, Counting, PosedFrame, PosedFrames
from scopereg.evaluation.score.reading import read_posed
from scopereg.geometry import Pose
from scopereg.images import Frame
from scopereg.registration.batch import Task

NOTHING_ASKED = Counting()


@dataclass(frozen=True)
class Placings:
    """Poses of frames by their task, made for a frame once it is read; and what was left out."""

    of: Mapping[Task, Callable[[Frame], Pose]]
    notes: tuple[str, ...]


def placings(
    source: Path, tasks: Sequence[Task], *, calibration: Path | None = None, counting: Counting = NOTHING_ASKED
) -> Placings:
    """Where `source` puts frames; those whose pose was found and may not be relied on are left out."""
    posed = read_posed(source, counting, calibration=calibration)
    named = [PosedFrame(task.shown, task.index, None, FIRST) for task in tasks]
    known = {id(frame): task for frame, task in zip(named, tasks, strict=True)}
    pairs = pair_frames(PosedFrames(tasks[0].path, tuple(named), None), posed)
    dropped = Counter(told.verdict.ok is False for _, told in pairs.both)
    kept = [(known[id(frame)], told) for frame, told in pairs.both if told.verdict.ok is not False]
    if not kept:
        raise ScopeRegError(
            f"none of its {len(pairs.both)} poses may be relied on",
            where=str(source),
            fix="pass poses of a tracker, or of a track that was followed",
        )
    refused = [f"{dropped[True]} frames have a pose that may not be relied on"] if dropped[True] else []
    return Placings({task: _placer(told) for task, told in kept}, (*posed.notes, *pairs.notes, *refused))


def _placer(told: PosedFrame) -> Callable[[Frame], Pose]:
    pose = told.pose
    assert pose is not None

    def place(frame: Frame) -> Pose:
        """The pose of the frame's own mm."""
        if told.origin == FIRST:
            return pose
        shift = -frame.centre_mm if told.origin == "centre" else np.array([*told.origin, 0.0]) - [*frame.origin_mm, 0.0]
        return Pose(pose.rotation, pose.apply(shift), pose.source, pose.target)

    return place
