"""The batch of `scopereg register`: a folder of transforms with a table, a page and PLUS sequences."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from scopereg.data.workers import in_parallel, usable_cores
from scopereg.devices import resolve_device
from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.io.files import output_folder
from scopereg.io.metaimage import is_sequence
from scopereg.io.plus_writing import add_poses
from scopereg.options.registration import RegisterOptions
from scopereg.progress import counting, say
from scopereg.registration.batch import Job, Reading, Row, Task, cine_of, do_chunk, find_files, in_chunks, list_tasks
from scopereg.registration.command import open_workshop, print_notes, volume_notes
from scopereg.registration.notes import image_line
from scopereg.registration.poses_table import write_table

TABLE, PAGE = "poses.csv", "report.html"
SEQUENCE = ".igs.mha"
_MOST_WORKERS = 8  # each holds torch, the volume and the network
_MOST_NAMED = 20  # frames not to believe, one line each
_NOT_DONE = "not done: the batch was interrupted"


def run_batch(options: RegisterOptions, job: Job) -> int:
    """Locate all frames, write everything, name what failed; 1 if anything did."""
    assert options.frame is not None
    _check_workers(options)
    output_folder(job.folder)
    tasks, bad = gather(options.frame, job)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    ready = open_workshop(job)
    notes = volume_notes(ready.locator.volume, ready.locator.notes, options)
    console.print(f"volume  {image_line(ready.locator.volume)}")
    print_notes(console, notes)
    _forget([*tasks, *(row.task for row in bad)], job)
    chunks = in_chunks(tasks, ready.locator.search.together)
    rows = locate_tasks(job, chunks, bad, _workers(options, len(tasks), ready.locator.search.worth))
    sequences = write_sequences(rows, job)
    _summarise(console, rows, [job.folder / TABLE, *sequences])
    if options.report:
        from scopereg.registration.batch_page import make_page

        page = make_page(rows, ready.locator.volume, job, notes).save(job.folder / PAGE)
        console.print(f"report  {page}")
    return 1 if any(row.error for row in rows) else 0


def _check_workers(options: RegisterOptions) -> None:
    if options.workers is not None and options.workers < 1:
        raise ScopeRegError(f"{options.workers} processes", where="--workers", fix="use at least one")


def _workers(options: RegisterOptions, frames: int, worth: int) -> int:
    """As many as asked for; else as many as there are cores, and frames that make up for starting them."""
    if options.workers is not None:
        return options.workers
    if resolve_device(options.device).type != "cpu":
        return 1
    return max(min(usable_cores(), _MOST_WORKERS, frames // worth), 1)


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


def _forget(tasks: Sequence[Task], job: Job) -> None:
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
    found = any(row.pose is not None for row in rows if row.task.path == path)
    return found and is_sequence(path)


def _write_sequence(path: Path, rows: Sequence[Row], folder: Path, reading: Reading) -> Path:
    cine = cine_of(reading, path)
    poses: list[Pose | None] = [None] * len(cine)
    for row in rows:
        poses[row.task.index] = row.pose
    target = folder / f"{rows[0].task.stem}{SEQUENCE}"
    return add_poses(path, poses, target, spacing_mm=cine.spacing_mm, origin_mm=cine.origin_mm)


def _summarise(console: Console, rows: Sequence[Row], written: Sequence[Path]) -> None:
    failed = [row for row in rows if row.error]
    console.print(f"{len(rows) - len(failed)} of {len(rows)} frames located")
    for row in failed:
        console.print(f"failed  {row.task.label}: {row.error}")
    doubtful = [row for row in rows if row.ok is False]
    for row in doubtful[:_MOST_NAMED]:
        console.print(f"not ok  {row.task.label}: {row.reason}")
    if len(doubtful) > _MOST_NAMED:
        console.print(f"not ok  {len(doubtful) - _MOST_NAMED} more, see {TABLE}")
    for path in written:
        console.print(f"wrote   {path}")
