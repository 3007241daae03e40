"""Batch: the frames of a cine or a folder located in one volume by several processes; their transforms and table."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from scopereg.data.workers import in_parallel
from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame
from scopereg.io.cine import Cine
from scopereg.io.files import write_sheet
from scopereg.io.metaimage import is_sequence
from scopereg.io.placement import write_placed_frame, write_resliced
from scopereg.io.plus_sequence import add_poses
from scopereg.io.stored import GIVEN, StoredFrame
from scopereg.io.transforms import Convention
from scopereg.progress import counting, say
from scopereg.registration.diagnosis import MOST_FRAMES, with_hints
from scopereg.registration.locator import Locator
from scopereg.registration.reading import Reading, find_files, frame_endings, reader_notes, reason_of
from scopereg.registration.register import Start
from scopereg.registration.result import POSE, VERDICT, Result, pose_of_cells

TABLE, PAGE = "poses.csv", "report.html"
SEQUENCE = ".igs.mha"
_NOT_DONE = "not done: the batch was interrupted"
COLUMNS = (
    *("file", "index", "output", *POSE, "similarity", *VERDICT),
    *("time_ms", "method", "note", "error"),
)
_MOST_SIZES = 4  # of pictures that are named
_PLUS = ".igs"  # what PLUS puts before .mha
Taken = TypeVar("Taken")


def deformation_beside(pose: Path) -> Path:
    """The file of the deformation that belongs to the file of a pose."""
    return pose.with_name(f"{pose.stem}.deformation.h5")


@dataclass(frozen=True)
class Job:
    """What is done to every frame, and what is written of it."""

    reading: Reading
    method: str  # with all that follows, see `method.MethodName.persistent`
    start: Path | str | None
    world: Path | None
    device: str
    folder: Path
    ending: str  # of the transforms
    convention: Convention
    placed: str | None  # endings of images, None for no such image
    resliced: str | None
    wide: bool = False
    seconds: float | None = None  # after which neither a search nor a fallback begins anything new
    any_angle: bool = False
    thickness_mm: str | None = None  # of frames, beyond that of the volume
    deformable: bool = False  # whether the deformation that the pose leaves is sought, and written beside it

    def targets(self, name: str) -> dict[str, Path]:
        """Files of a frame by kind."""
        wanted = {"pose": self.ending, "placed": self.placed, "resliced": self.resliced}
        middle = {"pose": "", "placed": ".placed", "resliced": ".resliced"}
        files = {kind: self.folder / f"{name}{middle[kind]}{ending}" for kind, ending in wanted.items() if ending}
        return {**files, **({"deformation": deformation_beside(files["pose"])} if self.deformable else {})}


@dataclass(frozen=True)
class Task:
    """A frame to locate."""

    path: Path
    shown: str  # the file's name below the folder that was asked for
    stem: str  # of what is written of the file, without an ending
    index: int = 0
    count: int = 1  # frames in the file

    @property
    def name(self) -> str:
        """Of what is written of the frame, without an ending."""
        digits = max(len(str(self.count - 1)), 3)
        return self.stem if self.count == 1 else f"{self.stem}_{self.index:0{digits}d}"

    @property
    def label(self) -> str:
        """The frame in words."""
        return self.shown if self.count == 1 else f"{self.shown} frame {self.index}"


class Row(NamedTuple):
    """What became of a frame."""

    task: Task
    result: Result | None = None  # without images: rows go between processes, and there may be thousands
    notes: tuple[str, ...] = ()  # of reading the frame, and those of the result
    error: str = ""  # why there is no result
    told_for: tuple[int, ...] = ()  # size of a picture whose pixels have the size that a person told

    @property
    def found(self) -> Result:
        """The result of a frame that was located."""
        assert self.result is not None
        return self.result


class Tally(NamedTuple):
    """How many frames of a batch may be relied on, and what of the others."""

    frames: int
    ok: int
    refused: int
    silent: int  # not judged
    failed: int  # no pose

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Tally:
        said = [row.result.ok for row in rows if row.result is not None]
        ok, refused, silent = (sum(each is value for each in said) for value in (True, False, None))
        return cls(len(rows), ok, refused, silent, len(rows) - len(said))

    def __str__(self) -> str:
        others = {"refused": self.refused, "not judged": self.silent, "failed": self.failed}
        counted = [f"{count} {name}" for name, count in others.items() if count]
        return ", ".join([f"{self.ok} of {self.frames} may be relied on", *counted])


def list_tasks(files: Sequence[Path], root: Path, reading: Reading) -> tuple[list[Task], list[Row]]:
    """The frames of files, and rows for the files that cannot be read."""
    tasks: list[Task] = []
    bad: list[Row] = []
    taken: set[str] = set()
    for path in files:
        shown = path.relative_to(root).as_posix() if path != root else path.name
        stem = plain_name(shown)
        stem = stem if stem.lower() not in taken else shown.replace(".", "_")  # a.png beside a.dcm
        taken.add(stem.lower())
        try:
            cine = reading.open_cine(path)
        except Exception as error:  # a damaged file may fail anywhere in a reader
            bad.append(Row(Task(path, shown, stem), error=reason_of(error)))
            continue
        tasks += [Task(path, shown, stem, index, len(cine)) for index in range(len(cine))]
    return tasks, bad


def plain_name(shown: str) -> str:
    """The name of a file with frames, without its ending."""
    ending = next((ending for ending in frame_endings() if shown.lower().endswith(ending)), "")
    name = shown[: len(shown) - len(ending)]
    return name[: -len(_PLUS)] if name.lower().endswith(_PLUS) else name


def in_chunks(tasks: Sequence[Task], size: int) -> list[list[Task]]:
    """Tasks that are done in one go."""
    return [list(tasks[first : first + size]) for first in range(0, len(tasks), size)]


class Worker(NamedTuple):
    """What a process has ready for every frame."""

    locator: Locator
    start: Start


@lru_cache(maxsize=1)
def worker(job: Job) -> Worker:
    """Volume, method and start of a job, made once in each process."""
    start = Start.read(job.start, job.world)
    volume = job.reading.open_volume()
    how: dict[str, Any] = {"wide": job.wide, "any_angle": job.any_angle, "thickness_mm": job.thickness_mm}
    how |= {"seconds": job.seconds, "deformable": job.deformable}
    return Worker(Locator(volume, job.method, device=job.device, **how), start)


@lru_cache(maxsize=1)
def cine_of(reading: Reading, path: Path) -> Cine:
    """The frames of a file: opened once while one of its frames after the other is asked for.

    To open a sequence is to decode all of it.
    """
    return reading.open_cine(path)


def do_chunk(job: Job, tasks: Sequence[Task]) -> list[Row]:
    """Locate some frames and write their files; errors become rows."""
    locator, start = worker(job)
    rows: dict[Task, Row] = {}
    ready: list[tuple[Task, Frame, Pose | None]] = []
    for task in tasks:
        try:
            frame = cine_of(job.reading, task.path)[task.index]
            ready.append((task, frame, start.of(frame, locator.volume)))
        except Exception as error:  # one frame must not end a batch
            rows[task] = Row(task, error=reason_of(error))
    for (task, image, _), found in zip(ready, _locate(locator, ready), strict=True):
        rows[task] = _finish(job, task, image, found)
    return [rows[task] for task in tasks]


def _locate(locator: Locator, ready: Sequence[tuple[Task, Frame, Pose | None]]) -> Iterator[Result | Exception]:
    """Frames together; if that fails for a reason that is no one frame's, one by one."""
    try:
        yield from locator.locate_all([frame for _, frame, _ in ready], [pose for _, _, pose in ready])
        return
    except Exception as error:
        if len(ready) < 2:
            yield error
            return
    for one in ready:
        yield from _locate(locator, [one])


def _finish(job: Job, task: Task, frame: Frame, found: Result | Exception) -> Row:
    notes = reader_notes(frame)
    if isinstance(found, Exception):
        return Row(task, notes=notes, error=reason_of(found))
    try:
        write_result(found, job.targets(task.name), job.convention)
    except Exception as error:
        return Row(task, notes=notes, error=reason_of(error))
    told = isinstance(frame, StoredFrame) and frame.facts.get("spacing_from") == GIVEN
    return Row(task, found.without_images(), (*notes, *found.notes), told_for=frame.size if told else ())


def size_notes(rows: Sequence[Row]) -> list[str]:
    """A word where one size of pixels was told for pictures of several sizes: it may hold for some of them alone."""
    sizes = Counter(row.told_for for row in rows if row.told_for)
    if len(sizes) < 2:
        return []
    named = [f"{count} of {' x '.join(map(str, size))}" for size, count in sizes.most_common(_MOST_SIZES)]
    more = [f"{len(sizes) - _MOST_SIZES} more sizes"] if len(sizes) > _MOST_SIZES else []
    differ = f"pictures differ in size ({', '.join([*named, *more])})"
    return [f"{differ}: the size of a pixel that was told is taken for all"]


def write_result(result: Result, targets: dict[str, Path], convention: Convention) -> list[Path]:
    """Write what was asked for of a result: its pose, the frame in place, the volume cut at the pose."""
    assert result.frame is not None
    assert result.volume is not None
    written = []
    if path := targets.get("pose"):
        written.append(result.save(path, convention=convention))
        deformation_beside(path).unlink(missing_ok=True)  # that of another pose
    if (path := targets.get("deformation")) and result.deformation is not None:
        written.append(result.deformation.save(path, convention=convention))
    if path := targets.get("placed"):
        written.append(write_placed_frame(result.frame, result.pose, path))
    if path := targets.get("resliced"):
        written.append(write_resliced(result.volume, result.frame, result.pose, path))
    return written


def gather(source: Path, job: Job) -> tuple[list[Task], list[Row]]:
    """The frames of a file or a folder, and rows of files that cannot be read."""
    files: list[Path] = [source]
    others: list[Path] = []
    if source.is_dir():
        files, others = find_files(source, [job.folder, job.reading.volume, *job.reading.masks])
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
        targets = job.targets(task.name)
        for path in (*targets.values(), deformation_beside(targets["pose"])):
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
        rows.update(diagnosed(job, [row for row in ordered() if row.result is not None and not row.result.ok]))
    except BaseException:
        say(f"{done} of {len(tasks)} frames are done; their poses are in {job.folder}, {TABLE} tells which")
        raise
    finally:
        write_table(ordered(), job.folder / TABLE, job.ending)
    return ordered()


def diagnosed(job: Job, refused: Sequence[Row]) -> dict[Task, Row]:
    """The first few frames that are not ok, with what is wrong with them: to find out takes longer than to locate."""
    if len(refused) > MOST_FRAMES:
        say(f"what is wrong is looked for in the first {MOST_FRAMES} of {len(refused)} frames that are not ok")
    rows = {}
    for row in refused[:MOST_FRAMES]:
        locator, start = worker(job)
        try:
            frame = cine_of(job.reading, row.task.path)[row.task.index]
            result = replace(row.found, frame=frame, volume=locator.volume)
            told = with_hints(locator, frame, result, start.of(frame, locator.volume))
            rows[row.task] = _finish(job, row.task, frame, told)
        except Exception:  # what was found stays as it is
            continue
    return rows


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
    return add_poses(
        path, poses, target, spacing_mm=cine.spacing_mm, origin_mm=cine.origin_mm, spacings_mm=cine.spacings_mm
    )


def write_table(rows: Sequence[Row], path: Path, ending: str) -> Path:
    """Write the rows. A pose is ImageToVolume in LPS: translation, and angles about x, y, z with R = Rz Ry Rx."""
    return write_sheet(path, (_cells(row, ending) for row in rows), COLUMNS)


def _cells(row: Row, ending: str) -> dict[str, str]:
    cells = {"file": row.task.shown, "index": str(row.task.index), "method": ""}
    cells |= {"note": "; ".join(row.notes), "error": row.error}
    return cells if row.result is None else {**cells, **row.result.row(), "output": f"{row.task.name}{ending}"}


def read_table(path: Path | str) -> list[tuple[str, int, Pose | None]]:
    """File, number of the frame and pose (None where it was not found) of every row of a table."""
    return _each_row(path, lambda row: pose_of_cells(row, POSE))


def read_table_results(path: Path | str) -> list[tuple[str, int, Result | None, str]]:
    """The same with all that was told of each pose, and why there is none."""
    told = _each_row(path, lambda row: (Result.from_row(row), row.get("error") or ""))
    return [(file, index, *each) for file, index, each in told]


def _each_row(path: Path | str, take: Callable[[dict[str, str]], Taken]) -> list[tuple[str, int, Taken]]:
    """File, number of the frame, and what is taken of each row."""
    line = 1
    found: list[tuple[str, int, Taken]] = []
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            for row in reader:
                line = reader.line_num
                found.append((row["file"], int(row["index"]), take(row)))
    except OSError as error:
        raise ScopeRegError(
            f"it cannot be read: {error.strerror or error}", where=str(path), fix="check the name and the folder"
        ) from None
    except (UnicodeDecodeError, csv.Error, KeyError, ValueError, TypeError) as error:
        raise ScopeRegError(
            f"it is no table of poses: {error!r}", where=str(path), fix="pass poses.csv of scopereg register"
        ) from None
    except ScopeRegError as error:  # numbers that are no pose
        raise ScopeRegError(error.what, where=f"{path}, line {line}", fix=error.fix) from None
    return found
