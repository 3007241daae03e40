"""Finished registrations: what `scopereg register`, `track` and `live` wrote, and their images."""

from __future__ import annotations

import csv
import glob
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame, Volume
from scopereg.io.cine import Cine
from scopereg.io.files import is_here
from scopereg.io.frames import read_cine
from scopereg.io.plus_sequence import PlusSequence, read_plus_cine
from scopereg.io.records import Record, read_json
from scopereg.io.stored import pixels_sha256
from scopereg.io.transforms import JSON_FORMAT, read_pose
from scopereg.io.volumes import read_volume
from scopereg.registration.batch import read_table
from scopereg.registration.inputs import Inputs, Known, read_inputs
from scopereg.registration.reading import LeftOpen
from scopereg.registration.recorded import told_of, volume_of
from scopereg.registration.result import TRUTH, Result, hints_of
from scopereg.viewer.path import Step

VOLUME = "Volume"  # the world of poses that were found
_TABLES = ("poses.csv", "track.csv")
_SEQUENCES = (".igs.mha", ".mha")
_PASS = "pass a file that scopereg register or track wrote, or a recording of scopereg live"
_MOST_FRAMES = 2**31
_LONGEST_NAME = 1000
_WORDS = ("method", "reason", "calibrated_on")
_NUMBERS = ("confidence", "expected_mm", "bound_mm", "similarity", "time_ms")


@dataclass(frozen=True)
class Images(LeftOpen):
    """Where images are, and what their files leave open."""

    folders: tuple[Path, ...] = ()  # or the files themselves, looked at first to last
    volume: Path | None = None

    def or_else(self, told: LeftOpen) -> Images:
        """With what was told when the results were made, where nobody tells it now."""
        own = {each.name: getattr(self, each.name) for each in fields(LeftOpen)}
        given = {name: getattr(told, name) for name, value in own.items() if value is None}
        return replace(self, **given)

    def find(self, name: str, beside: Path, *, known: Known | None = None, then: Path | None = None) -> Path:
        """A file by its name, or by its path below one of the folders; a name that leads elsewhere is none.

        Where nobody tells a folder that has it, `known` is where it was, if that holds the same; `then` comes last, for
        who compares the pixels.
        """
        if not _is_below(name):
            raise ScopeRegError(
                f"{name[:100]!r} is no name of a file below a folder",
                where=str(beside),
                fix="write the name alone, and tell its folder: data=FOLDER",
            )
        found = next(self._given(name), None) or (None if known is None else known.found())
        for path in (found, beside / name, Path(name), then):
            if path is not None and path.exists():
                return path
        changed = known is not None and known.path.exists()
        raise ScopeRegError(
            f"{name} {'is another file than it was' if changed else 'is not found'}",
            where=str(known.path if known is not None and changed else beside),
            fix="tell the folder of the right one: data=FOLDER",
        )

    def _given(self, name: str) -> Iterator[Path]:
        """In the folders that were told, or those files themselves."""
        for place in self.folders:
            if place.is_file() and place.name == Path(name).name:
                yield place
            if (place / name).exists():
                yield place / name
        for place in self.folders:
            yield from sorted(place.rglob(glob.escape(Path(name).name))) if place.is_dir() else ()


@dataclass(frozen=True)
class Finished:
    """One result as it was written; `open` gets its images."""

    name: str
    source: Path  # file that tells it
    pose: Pose
    frame_file: str
    facts: Mapping[str, Any]
    index: int | None = None  # of the frame in its file
    frame: Mapping[str, Any] = field(default_factory=dict)  # what was written of the images
    volume: Mapping[str, Any] = field(default_factory=dict)
    inputs: Inputs = field(default_factory=Inputs)  # told beside a table
    notes: tuple[str, ...] = ()  # that a recording holds

    def result(self) -> Result:
        """What was found, without images."""
        numbers: dict[str, Any] = {name: _float(self.facts.get(name)) for name in _NUMBERS}
        ok, belongs = _truth(self.facts.get("ok")), _truth(self.facts.get("belongs"))
        if belongs is None and self.facts.get("state") == "lost":
            belongs = False  # it could not be located at all, and is shown like a frame of something else
        words: dict[str, Any] = {name: str(self.facts.get(name) or "") for name in _WORDS}
        return Result(self.pose, belongs=belongs, ok=ok, hints=hints_of(self.facts.get("hints")), **words, **numbers)

    @property
    def error_mm(self) -> float:
        """Against a tracker, where one was compared with."""
        return _float(self.facts.get("error_mm"))

    @property
    def time_s(self) -> float:
        """Of its frame, where the recording has times."""
        return _float(self.facts.get("time_s"))

    @property
    def step(self) -> Step:
        """As a step of a path."""
        volume = self.inputs.volume
        told = str(volume.sha256 if volume is not None else self.volume.get("pixels_sha256") or self.volume.get("file"))
        return Step(self.pose, self.frame_file, self.index or 0, self.time_s, told)

    def open(self, images: Images) -> Result:
        """With its frame and its volume."""
        images = images.or_else(self.inputs)
        frame = self._frame(images)
        volume = self._volume(images)
        return replace(self.result(), frame=frame, volume=volume)

    def _frame(self, images: Images) -> Frame:
        known = self.inputs.frames.get(self.frame_file)
        path = images.find(self.frame_file, self.source.parent, known=known, then=_then(self.frame))
        spacing = images.spacing_mm or _given_spacing(self.frame)
        region = images.region if images.region is not None else self.frame.get("region")
        frame: Frame = _cine(path, spacing, region, images.calibration)[self.index or 0]
        if not self.frame:
            return frame
        _check_same(frame, self.frame, path)
        # The pose holds for the millimetres that the frame had then.
        return replace(frame, spacing_mm=tuple(self.frame["spacing_mm"]), origin_mm=tuple(self.frame["origin_mm"]))

    def _volume(self, images: Images) -> Volume:
        path = images.volume or self._volume_file(images)
        spacing = images.volume_spacing_mm or _given_spacing(self.volume)
        volume = _read_volume(path, spacing, images.volume_index, images.series)
        if images.volume is None:
            _check_same(volume, self.volume, path)
        return volume

    def _volume_file(self, images: Images) -> Path:
        known = self.inputs.volume
        name = known.path.name if known is not None else self.volume.get("file")
        if not name:
            raise ScopeRegError(
                f"{self.source.name} does not name its volume", where=str(self.source), fix="tell it: volume=FILE"
            )
        return images.find(str(name), self.source.parent, known=known, then=_then(self.volume))


def read_results(paths: Sequence[Path]) -> list[Finished]:
    """The results of files and folders, in order."""
    found = [result for path in paths for result in _of_path(path)]
    if not found:
        raise ScopeRegError(
            "there is no result with a pose",
            where=" ".join(map(str, paths)) or "scopereg view",
            fix="pass pose.json or poses.csv of scopereg register, track.csv of scopereg track, or a folder of them",
        )
    return found


def _of_path(path: Path) -> Iterator[Finished]:
    if path.is_dir():
        tables = [path / name for name in _TABLES if (path / name).is_file()]
        poses = [] if tables else [file for file in sorted(path.glob("*.json")) if _is_pose(file)]
        for file in tables or poses or sorted(path.glob(f"*{_SEQUENCES[0]}")):
            yield from _of_path(file)
    elif path.suffix.lower() == ".csv":
        yield from _of_table(path)
    elif path.name.lower().endswith(_SEQUENCES):
        yield from _of_recording(path)
    else:
        yield _of_json(path)


def _is_pose(path: Path) -> bool:
    try:
        content = read_json(path, _PASS, finite=False)
    except ScopeRegError:
        return False
    return isinstance(content, dict) and content.get("format") == JSON_FORMAT


def _of_json(path: Path) -> Finished:
    if path.suffix.lower() != ".json":
        raise ScopeRegError(
            f"a {path.suffix or 'file without ending'} does not name its images",
            where=str(path),
            fix="pass JSON: scopereg register ... -o pose.json",
        )
    pose = read_pose(path)
    record = Record.of(read_json(path, _PASS), str(path), _PASS)
    frame, volume, facts = (
        record.record(key) if record.has(key) else Record({}, f"{path}: {key}", _PASS)
        for key in ("frame", "volume", "result")
    )
    if not frame.has("file"):
        raise ScopeRegError("it does not name its frame", where=str(path), fix=_PASS)
    _check_image(frame, 2)
    _check_image(volume, 3)
    index = frame.whole("index", high=_MOST_FRAMES) if frame.has("index") else None
    several = frame.has("frames_in_file") and frame.whole("frames_in_file", 1, _MOST_FRAMES) > 1
    file = frame.text("file")
    name = f"{file} frame {index}" if several else file
    return Finished(name, path, pose, file, facts.values, index, frame.values, volume.values)


def _check_image(record: Record, axes: int) -> None:
    """What is used later of what was written of a frame or a volume."""
    for key in ("file", "path", "pixels_sha256", "spacing_from"):
        if record.has(key):
            record.text(key, most=1000)
    if record.has("region"):
        record.whole("region", high=_MOST_FRAMES)
    if axes == 2 or record.values.get("spacing_from") == "given":
        if min(record.numbers("spacing_mm", axes)) <= 0:
            raise record.wrong("spacing_mm", "sizes above 0")
        record.numbers("origin_mm", axes)


def _of_table(path: Path) -> Iterator[Finished]:
    table = read_table(path)  # tells what is wrong with it
    inputs = read_inputs(path.parent)
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    counts: dict[str, int] = {}
    for name, _, _ in table:
        counts[name] = counts.get(name, 0) + 1
    for (name, index, pose), row in zip(table, rows, strict=True):
        if not 0 <= index <= _MOST_FRAMES:
            raise ScopeRegError(f"there is no frame {index} of {name[:100]!r}", where=str(path), fix=_PASS)
        if pose is not None:
            shown = f"{name} frame {index}" if counts[name] > 1 else name
            yield Finished(shown, path, pose, name, row, index, inputs=inputs)


def _of_recording(path: Path) -> Iterator[Finished]:
    """The frames of a PLUS sequence that have a place in the volume, with what was said and noted of them."""
    sequence = PlusSequence.open(path)
    if sequence.way_to(VOLUME) is None:
        raise ScopeRegError(
            "its frames have no place in a volume",
            where=str(path),
            fix="find them first: scopereg track SWEEP VOLUME, then scopereg view out/track",
        )
    cine = read_plus_cine(path, world=VOLUME)
    volume = volume_of(sequence.stored.fields, str(path))
    waiting: list[str] = []  # notes of frames that have no place: they are told at the next one that has
    last: Finished | None = None
    for row, pose in enumerate(cine.poses or ()):
        told = told_of(sequence.stored.frames[row], f"{path}, frame {row}")
        if pose is None:
            waiting += [f"frame {row}, which has no place: {note}" for note in told.notes]
            continue
        if last is not None:
            yield last
        facts = {**told.cells, **({"time_s": str(cine.times_s[row])} if cine.times_s else {})}
        notes = (*waiting, *told.notes)
        last = Finished(f"{path.name} frame {row}", path, pose, path.name, facts, row, volume=volume, notes=notes)
        waiting = []
    if last is not None:
        yield replace(last, notes=(*last.notes, *waiting))


@lru_cache(maxsize=4)
def _cine(path: Path, spacing_mm: tuple[float, ...] | None, region: int | None, calibration: Path | None) -> Cine:
    return read_cine(path, spacing_mm=spacing_mm, region=region, calibration=calibration)


@lru_cache(maxsize=2)
def _read_volume(path: Path, spacing_mm: tuple[float, ...] | None, index: int | None, series: str | None) -> Volume:
    return read_volume(path, spacing_mm=spacing_mm, index=index, series=series)


def _given_spacing(record: Mapping[str, Any]) -> tuple[float, ...] | None:
    """The size of pixels that somebody told when it was registered: files do not."""
    return tuple(record["spacing_mm"]) if record.get("spacing_from") == "given" else None


def _then(record: Mapping[str, Any]) -> Path | None:
    """Where an image was when it was registered; None unless its pixels can be compared."""
    path, name = str(record.get("path") or ""), str(record.get("file"))
    told = record.get("pixels_sha256") and is_here(path) and Path(path).name == Path(name).name
    return Path(path) if told else None


def _check_same(image: Frame | Volume, record: Mapping[str, Any], path: Path) -> None:
    wanted = record.get("pixels_sha256")
    if wanted is not None and pixels_sha256(image) != wanted:
        raise ScopeRegError(
            "it holds other pixels than what was registered",
            where=str(path),
            fix="tell where the right one is: data=FOLDER",
        )


def _truth(value: object) -> bool | None:
    """Of JSON or of a table; None where nothing is said."""
    if isinstance(value, bool):
        return value
    return TRUTH.get(str(value))


def _float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _is_below(name: str) -> bool:
    """Whether a name is that of a file in a folder, or below it, on any system; and short enough to be one."""
    parts = name.replace("\\", "/").split("/")
    short = len(name) <= _LONGEST_NAME and all(len(part.encode(errors="replace")) <= 255 for part in parts)
    elsewhere = {"", ".", ".."} & set(parts) or re.match("[A-Za-z]:", name) or "\x00" in name
    return short and not elsewhere
