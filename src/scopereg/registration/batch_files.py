"""The files of a batch: frames gathered, located by several processes, their table and PLUS sequences written."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from scopereg.data.workers import in_parallel
from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.io.metaimage import is_sequence
from scopereg.io.plus_sequence import add_poses
from scopereg.progress import counting, say
from scopereg.registration.batch import Job, Reading, Row, Task, cine_of, do_chunk, find_files, list_tasks
from scopereg.registration.poses_table import write_table

TABLE, PAGE = "poses.csv", "report.html"
SEQUENCE = ".igs.mha"
_NOT_DONE = "not done: the batch was interrupted"


def gather(source: Path, job: Job) -> tuple[list[Task], list[Row]]:
    """The frames of a file or a folder, and rows of files that cannot be read."""
    files: list[Path] = [source]
    others: list[Path] = []
    if source.is_dir():
        files, others = find_files(source, [job.folder, job.reading.volume])
    if not files:
        raise ScopeRegError("it holds no file with frames", where=str(source), fix="pass the folder with the frames")
    if others:
        names = ", ".join(sorted({path.suffix or path.name for path in others})[:6])
        say(f"{len(others)} files of other kinds are left out ({names})")
    return list_tasks(files, source, job.reading)


def forget(tasks: Sequence[Task], job: Job) -> None:
    """Remove what an earlier run wrote of the same frames: a pose of a frame that fails now would look new."""
    for name in (TABLE, PAGE):
        (job.folder / name).unlink(missing_ok=True)
    for task in tasks:
        for path in job.targets(task.name).values():
            path.unlink(missing_ok=True)


def locate_tasks(job: Job, chunks: Sequence[Sequence[Task]], bad: Sequence[Row], workers: int) -> list[Row]:
    """Every frame's row, in order; the table is written however this ends, so that it tells what was not done."""
    tasks = [task for chunk in chunks for task in chunk]
    rows = {task: Row(task, error=_NOT_DONE) for task in tasks}
    done = 0

    def ordered() -> list[Row]:
        return sorted([*rows.values(), *bad], key=lambda row: (row.task.shown, row.task.index))

    try:
        with counting("registering") as count:
            for chunk, found in in_parallel(partial(do_chunk, job), chunks, workers):
                rows.update(zip(chunk, found, strict=True))
                done += len(chunk)
                count(done, len(tasks))
    except BaseException:
        say(f"{done} of {len(tasks)} frames are done; their poses are in {job.folder}, {TABLE} tells which")
        raise
    finally:
        write_table(ordered(), job.folder / TABLE, job.ending)
    return ordered()


def write_sequences(rows: Sequence[Row], job: Job) -> list[Path]:
    """Each PLUS sequence again, with the poses found; frames that failed are INVALID in it."""
    files = dict.fromkeys(row.task.path for row in rows)
    return [
        _write_sequence(path, [row for row in rows if row.task.path == path], job.folder, job.reading)
        for path in files
        if _is_good_sequence(path, rows)
    ]


def _is_good_sequence(path: Path, rows: Sequence[Row]) -> bool:
    found = any(row.result is not None for row in rows if row.task.path == path)
    return found and is_sequence(path)


def _write_sequence(path: Path, rows: Sequence[Row], folder: Path, reading: Reading) -> Path:
    cine = cine_of(reading, path)
    poses: list[Pose | None] = [None] * len(cine)
    for row in rows:
        poses[row.task.index] = None if row.result is None else row.result.pose
    target = folder / f"{rows[0].task.stem}{SEQUENCE}"
    return add_poses(path, poses, target, spacing_mm=cine.spacing_mm, origin_mm=cine.origin_mm)
