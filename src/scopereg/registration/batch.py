"""Batch: the frames of a cine or a folder located in one volume, by several processes, one transform each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame, Volume
from scopereg.io.cine import Cine
from scopereg.io.dicom.header import DICOM_ENDINGS, is_dicom
from scopereg.io.frames import PICTURES, read_cine
from scopereg.io.placement import write_placed_frame, write_resliced
from scopereg.io.read_image import FORMATS
from scopereg.io.transforms import Convention
from scopereg.io.volumes import read_volume
from scopereg.registration.locator import Locator
from scopereg.registration.notes import reader_notes
from scopereg.registration.result import Result
from scopereg.registration.start import Start

_ENDINGS = tuple(sorted({*PICTURES, *DICOM_ENDINGS, *FORMATS}, key=len, reverse=True))
_PLUS = ".igs"  # what PLUS puts before .mha
_DIRECTORY = "DICOMDIR"  # DICOM's own list of contents


@dataclass(frozen=True, kw_only=True)
class LeftOpen:
    """What files of images may leave open, and somebody has told."""

    volume_spacing_mm: tuple[float, ...] | None = None
    volume_index: int | None = None
    series: str | None = None
    spacing_mm: tuple[float, ...] | None = None
    region: int | None = None
    calibration: Path | None = None


@dataclass(frozen=True)
class Reading(LeftOpen):
    """How files are read; hashable, so that a process opens a volume once."""

    volume: Path

    def open_cine(self, path: Path) -> Cine:
        return read_cine(path, spacing_mm=self.spacing_mm, region=self.region, calibration=self.calibration)

    def open_volume(self) -> Volume:
        return read_volume(self.volume, spacing_mm=self.volume_spacing_mm, index=self.volume_index, series=self.series)


@dataclass(frozen=True)
class Job:
    """What is done to every frame, and what is written of it."""

    reading: Reading
    method: str
    refine: bool
    start: Path | str | None
    world: Path | None
    device: str
    folder: Path
    ending: str  # of the transforms
    convention: Convention
    placed: str | None  # endings of images, None for no such image
    resliced: str | None
    agreement: bool = False
    wide: bool = False

    def targets(self, name: str) -> dict[str, Path]:
        """Files of a frame by kind."""
        wanted = {"pose": self.ending, "placed": self.placed, "resliced": self.resliced}
        middle = {"pose": "", "placed": ".placed", "resliced": ".resliced"}
        return {kind: self.folder / f"{name}{middle[kind]}{ending}" for kind, ending in wanted.items() if ending}


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

    @property
    def found(self) -> Result:
        """The result of a frame that was located."""
        assert self.result is not None
        return self.result


def find_files(folder: Path, left_out: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Files with frames below a folder, in order, and the other files; hidden ones and those `left_out` are neither."""
    excluded = [path.resolve() for path in left_out]
    frames: list[Path] = []
    others: list[Path] = []
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder).parts
        own = path.resolve()
        if not path.is_file() or any(part.startswith(".") for part in inside):
            continue
        if any(own == other or other in own.parents for other in excluded):
            continue
        known = path.name != _DIRECTORY and (path.name.lower().endswith(_ENDINGS) or is_dicom(path))
        (frames if known else others).append(path)
    return frames, others


def list_tasks(files: Sequence[Path], root: Path, reading: Reading) -> tuple[list[Task], list[Row]]:
    """The frames of files, and rows for the files that cannot be read."""
    tasks: list[Task] = []
    bad: list[Row] = []
    taken: set[str] = set()
    for path in files:
        shown = path.relative_to(root).as_posix() if path != root else path.name
        stem = _plain_name(shown)
        stem = stem if stem.lower() not in taken else shown.replace(".", "_")  # a.png beside a.dcm
        taken.add(stem.lower())
        try:
            cine = reading.open_cine(path)
        except Exception as error:  # a damaged file may fail anywhere in a reader
            bad.append(Row(Task(path, shown, stem), error=reason_of(error)))
            continue
        tasks += [Task(path, shown, stem, index, len(cine)) for index in range(len(cine))]
    return tasks, bad


def _plain_name(shown: str) -> str:
    ending = next((ending for ending in _ENDINGS if shown.lower().endswith(ending)), "")
    name = shown[: len(shown) - len(ending)]
    return name[: -len(_PLUS)] if name.lower().endswith(_PLUS) else name


def in_chunks(tasks: Sequence[Task], size: int) -> list[list[Task]]:
    """Tasks that are done in one go."""
    return [list(tasks[first : first + size]) for first in range(0, len(tasks), size)]


class Workshop(NamedTuple):
    """What a process has ready for every frame."""

    locator: Locator
    start: Start


@lru_cache(maxsize=1)
def workshop(job: Job) -> Workshop:
    """Volume, method and start of a job, made once in each process."""
    start = Start.read(job.start, job.world)
    volume = job.reading.open_volume()
    how = {"refine": job.refine, "agreement": job.agreement, "wide": job.wide}
    return Workshop(Locator(volume, job.method, device=job.device, **how), start)


@lru_cache(maxsize=1)
def cine_of(reading: Reading, path: Path) -> Cine:
    """The frames of a file: opened once while one of its frames after the other is asked for.

    To open a sequence is to decode all of it.
    """
    return reading.open_cine(path)


def do_chunk(job: Job, tasks: Sequence[Task]) -> list[Row]:
    """Locate some frames and write their files; errors become rows."""
    locator, start = workshop(job)
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
    return Row(task, found.without_images(), (*notes, *found.notes))


def write_result(result: Result, targets: dict[str, Path], convention: Convention) -> list[Path]:
    """Write what was asked for of a result: its pose, the frame in place, the volume cut at the pose."""
    assert result.frame is not None
    assert result.volume is not None
    written = []
    if path := targets.get("pose"):
        written.append(result.save(path, convention=convention))
    if path := targets.get("placed"):
        written.append(write_placed_frame(result.frame, result.pose, path))
    if path := targets.get("resliced"):
        written.append(write_resliced(result.volume, result.frame, result.pose, path))
    return written


def reason_of(error: Exception) -> str:
    """Why a frame failed, in one line, and how to fix it."""
    if isinstance(error, ScopeRegError):
        return " ".join(f"{error.what} (to fix it: {error.fix})".split())
    words: list[Any] = [type(error).__name__, *map(str, error.args[:1])]
    return " ".join(": ".join(words).split())
