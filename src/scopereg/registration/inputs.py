"""Inputs: the files that a folder of results was made of, told beside its table so that others find them again.

It decides no result. A file counts as the one of then by its hash alone: files move, and results are passed on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from scopereg.errors import ScopeRegError
from scopereg.io.files import is_here, write_text
from scopereg.io.read_image import content_sha256
from scopereg.io.records import Record, read_json
from scopereg.registration.reading import LeftOpen, Reading

FILE = "inputs.json"
_FORMAT = "scopereg-inputs-1"
_FIX = "remove it, and tell where the images are: data=FOLDER, volume=FILE"
_SIZES = ("volume_spacing_mm", "spacing_mm")
_NUMBERS = ("volume_index", "region")
_FILES = ("calibration", "frame_mask", "volume_mask")


class Known(NamedTuple):
    """A file, or the folder of a DICOM series: where it lay, and how many bytes of what hash it held."""

    path: Path
    size: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> Known:
        files = _files(path)
        return cls(path.resolve(), sum(file.stat().st_size for file in files), content_sha256(files))

    def found(self) -> Path | None:
        """Where it still lies; None where nothing does, or something else, which is not read for its size alone."""
        try:
            if not is_here(str(self.path)) or sum(file.stat().st_size for file in _files(self.path)) != self.size:
                return None
            return self.path if self.size and content_sha256(_files(self.path)) == self.sha256 else None
        except OSError:
            return None


@dataclass(frozen=True, kw_only=True)
class Inputs(LeftOpen):
    """The volume and the frames by the names that the table gives them, and what was told of their files."""

    volume: Known | None = None
    frames: Mapping[str, Known] = field(default_factory=dict)


def write_inputs(folder: Path, reading: Reading, frames: Mapping[str, Path]) -> Path:
    """Tell the volume and the frames of results in a folder."""
    told: dict[str, Any] = {each.name: getattr(reading, each.name) for each in fields(LeftOpen)}
    for name in _FILES:
        if told[name] is not None:
            told[name] = str(told[name].resolve())
    record = {
        "format": _FORMAT,
        "volume": _told(Known.of(reading.volume)),
        "frames": {name: _told(Known.of(path)) for name, path in frames.items()},
        **{name: value for name, value in told.items() if value is not None},
    }
    return write_text(folder / FILE, json.dumps(record, indent=1))


def read_inputs(folder: Path) -> Inputs:
    """What is told beside the results of a folder; nothing where it was not told."""
    path = folder / FILE
    if not path.is_file():
        return Inputs()
    record = Record.of(read_json(path, _FIX), str(path), _FIX)
    if not record.has("format") or record.text("format") != _FORMAT:
        raise ScopeRegError(f"it is no {FILE} of scopereg", where=str(path), fix=_FIX)
    frames = record.record("frames")
    left_open: dict[str, Any] = {name: record.numbers(name, most=3) for name in _SIZES if record.has(name)}
    left_open |= {name: record.whole(name) for name in _NUMBERS if record.has(name)}
    if record.has("series"):
        left_open["series"] = record.text("series")
    for name in _FILES:
        if record.has(name) and is_here(record.text(name)):
            left_open[name] = Path(record.text(name))
    known = {name: _known(frames.record(name)) for name in frames.values}
    return Inputs(volume=_known(record.record("volume")), frames=known, **left_open)


def _told(known: Known) -> dict[str, Any]:
    return {**known._asdict(), "path": str(known.path)}


def _known(record: Record) -> Known:
    return Known(Path(record.text("path")), record.whole("size"), record.text("sha256"))


def _files(path: Path) -> list[Path]:
    """The file itself, or the files that lie in a folder, by their names."""
    return sorted(file for file in (path.iterdir() if path.is_dir() else [path]) if file.is_file())
