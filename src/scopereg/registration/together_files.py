"""TogetherFiles: frames of one body from files, with the places that their tracker, a table or a track gives them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame
from scopereg.registration.batch import Job, Row, Task, cine_of, gather, write_result
from scopereg.registration.body import BODY
from scopereg.registration.reading import reader_notes, reason_of
from scopereg.registration.register import Start
from scopereg.registration.together import Together

BODY_STEM = "body"  # of the file with the pose of all
_SAME_MM, _SAME_DEG = 1e-6, 1e-6  # poses that differ by less are one pose
Placing = Callable[[Frame], Pose]  # where a frame lies in the body, once it is read
FindPlaces = Callable[[Sequence[Task]], tuple[Mapping[Task, Placing], Sequence[str]]]  # with notes


@dataclass(frozen=True, eq=False)
class PlacedFrames:
    """Frames, where they lie in one world, and what was left out."""

    tasks: tuple[Task, ...]
    frames: tuple[Frame, ...]
    image_to_world: tuple[Pose, ...]
    bad: tuple[Row, ...]  # files and frames that cannot be read
    notes: tuple[str, ...]


def placed_frames(sources: Sequence[Path], job: Job, most: int, find: FindPlaces | None = None) -> PlacedFrames:
    """At most so many frames of files and folders, evenly from all that are placed.

    Places are those that `find` tells, such as those of a table; else those that the files themselves give.
    """
    if most < 2:
        raise ScopeRegError(f"{most} frames", where="most=", fix="take two or more")
    tasks, bad = _gathered(sources, job)
    places, told = (_own_places(tasks, job), ()) if find is None else find(tasks)
    known = [task for task in tasks if task in places]
    _check_count(known, tasks)
    rows = dict.fromkeys(np.linspace(0, len(known) - 1, min(most, len(known))).round().astype(int).tolist())
    chosen, frames, poses = list[Task](), list[Frame](), list[Pose]()
    for task in (known[row] for row in rows):
        try:
            frame = cine_of(job.reading, task.path)[task.index]
            poses.append(places[task](frame))
            frames.append(frame)
            chosen.append(task)
        except Exception as error:  # one damaged frame must not end it
            bad.append(Row(task, error=reason_of(error)))
    _check_count(chosen, tasks)
    _check_worlds(poses)
    _check_motion(poses, frames)
    notes = list(told)
    if len(known) < len(tasks):
        notes.append(f"{len(tasks) - len(known)} of {len(tasks)} frames have no place and are left out")
    if len(chosen) < len(known):
        notes.append(f"{len(chosen)} of {len(known)} frames are taken, evenly from all")
    return PlacedFrames(tuple(chosen), tuple(frames), tuple(poses), tuple(bad), tuple(notes))


def _gathered(sources: Sequence[Path], job: Job) -> tuple[list[Task], list[Row]]:
    """The frames of all sources; an error where one is named twice, or what is written would share a name."""
    twice = [path for path, count in Counter(path.resolve() for path in sources).items() if count > 1]
    if twice:
        raise ScopeRegError("it is named twice", where=str(twice[0]), fix="name each file or folder of frames once")
    listed = [gather(source, job) for source in sources]
    tasks = [task for some, _ in listed for task in some]
    bad = [row for _, some in listed for row in some]
    names = [name for name, count in Counter(task.name for task in tasks).items() if count > 1]
    if names:
        raise ScopeRegError(
            f"{len(names)} frames would be written under a name that stands twice, first {names[0]}",
            where="together=",
            fix="put the files into one folder and pass that, or rename one of them",
        )
    return tasks, bad


def _own_places(tasks: Sequence[Task], job: Job) -> dict[Task, Placing]:
    """As the files themselves place their frames."""

    def pose_of(task: Task) -> Pose | None:
        cine = cine_of(job.reading, task.path)
        return None if cine.poses is None or task.index in cine.faults else cine.poses[task.index]

    return {task: partial(_constant, pose) for task in tasks if (pose := pose_of(task)) is not None}


def _constant(pose: Pose, frame: Frame) -> Pose:
    return pose


def _check_count(known: Sequence[Task], tasks: Sequence[Task]) -> None:
    if len(known) < 2:
        raise ScopeRegError(
            f"{len(known)} of {len(tasks)} frames are placed, and two are needed",
            where="together=",
            fix="pass a tracked sequence (PLUS and its calibration=, or .npz), or a table of poses: poses=",
        )


def _check_worlds(poses: Sequence[Pose]) -> None:
    worlds = list(dict.fromkeys(pose.target for pose in poses))
    if len(worlds) > 1:
        raise ScopeRegError(
            f"the frames are placed in different worlds: {', '.join(worlds)}",
            where="together=",
            fix="pass frames of one recording, or a table with poses in one world: poses=",
        )


def _check_motion(poses: Sequence[Pose], frames: Sequence[Frame]) -> None:
    """An error where all frames are said to lie at one place."""
    if all(pose.is_close(poses[0], mm=_SAME_MM, deg=_SAME_DEG) for pose in poses[1:]):
        raise ScopeRegError(
            f"all {len(frames)} frames have the same pose",
            where="together=",
            fix="pass frames between which the probe moved; check that the tracker saw it, and the rows of a table",
        )


def start_of(start: Path | str | None, world: Path | None) -> Pose | None:
    """Where a body is looked for: by `tracker` its world is the volume's, or lies there as `world` says."""
    told = Start.read(start, world)
    if not told.tracked:
        return told.pose
    return told.world_to_volume or Pose.identity(BODY, "Volume")


def write_together(placed: PlacedFrames, together: Together, job: Job) -> tuple[list[Row], Path]:
    """The pose of the body and files of each frame, with a row for each; and where the body's pose is."""
    path = together.whole.save(job.folder / f"{BODY_STEM}{job.ending}", convention=job.convention)
    rows = []
    for task, frame, result in zip(placed.tasks, placed.frames, together.frames, strict=True):
        write_result(result, job.targets(task.name), job.convention)
        rows.append(Row(task, result.without_images(), (*reader_notes(frame), *result.notes)))
    return [*rows, *placed.bad], path
