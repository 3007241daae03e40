"""TogetherFiles: frames of one body from files, with the places that their tracker, a table or a track gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame
from scopereg.registration.batch import Job, Row, Task, cine_of, gather, read_table, write_result
from scopereg.registration.body import BODY
from scopereg.registration.reading import reader_notes, reason_of
from scopereg.registration.register import Start
from scopereg.registration.together import Together
from scopereg.registration.track import is_track, read_track

BODY_STEM = "body"  # of the file with the pose of all
Places = Mapping[tuple[str, int], Pose]


@dataclass(frozen=True, eq=False)
class PlacedFrames:
    """Frames, where they lie in one world, and what was left out."""

    tasks: tuple[Task, ...]
    frames: tuple[Frame, ...]
    image_to_world: tuple[Pose, ...]
    bad: tuple[Row, ...]  # files and frames that cannot be read
    notes: tuple[str, ...]


def placed_frames(sources: Sequence[Path], job: Job, table: Path | None, most: int) -> PlacedFrames:
    """At most so many frames of files and folders, evenly from all that are placed.

    Places are those of `table` (poses.csv of `register`, track.csv of `track`), else those that the files themselves
    give.
    """
    if most < 2:
        raise ScopeRegError(f"{most} frames", where="most=", fix="take two or more")
    listed = [gather(source, job) for source in sources]
    tasks = [task for some, _ in listed for task in some]
    bad = [row for _, some in listed for row in some]
    places = None if table is None else read_places(table)
    known = [(task, pose) for task in tasks if (pose := _place_of(task, job, places)) is not None]
    _check_places(known, tasks, table)
    rows = dict.fromkeys(np.linspace(0, len(known) - 1, min(most, len(known))).round().astype(int).tolist())
    chosen, frames = list[tuple[Task, Pose]](), list[Frame]()
    for task, pose in (known[row] for row in rows):
        try:
            frames.append(cine_of(job.reading, task.path)[task.index])
            chosen.append((task, pose))
        except Exception as error:  # one damaged frame must not end it
            bad.append(Row(task, error=reason_of(error)))
    notes = []
    if len(known) < len(tasks):
        notes.append(f"{len(tasks) - len(known)} of {len(tasks)} frames have no place and are left out")
    if len(chosen) < len(known):
        notes.append(f"{len(chosen)} of {len(known)} frames are taken, evenly from all")
    image_to_world = tuple(pose for _, pose in chosen)
    return PlacedFrames(tuple(task for task, _ in chosen), tuple(frames), image_to_world, tuple(bad), tuple(notes))


def read_places(table: Path) -> dict[tuple[str, int], Pose]:
    """Poses by file and number of the frame; of a track those alone that a picture stands behind."""
    if is_track(table):
        steps = [step for step in read_track(table) if step.is_placed]
        return {(step.file, step.index): step.pose for step in steps if step.pose is not None}
    return {(file, index): pose for file, index, pose in read_table(table) if pose is not None}


def _place_of(task: Task, job: Job, places: Places | None) -> Pose | None:
    if places is not None:
        return places.get((task.shown, task.index)) or places.get((task.path.name, task.index))
    cine = cine_of(job.reading, task.path)
    return None if cine.poses is None or task.index in cine.faults else cine.poses[task.index]


def _check_places(known: Sequence[tuple[Task, Pose]], tasks: Sequence[Task], table: Path | None) -> None:
    if len(known) < 2:
        raise ScopeRegError(
            f"{len(known)} of {len(tasks)} frames are placed, and two are needed",
            where=str(table) if table is not None else "together=",
            fix="pass a tracked sequence (PLUS and its calibration=, or .npz), or a table of poses: poses=",
        )
    worlds = list(dict.fromkeys(pose.target for _, pose in known))
    if len(worlds) > 1:
        raise ScopeRegError(
            f"the frames are placed in different worlds: {', '.join(worlds)}",
            where="together=",
            fix="pass frames of one recording, or a table with poses in one world: poses=",
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
