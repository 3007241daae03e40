"""Reading: frames and volumes from files, what is to be known of them, and recordings in the order of their times."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from scopereg.errors import ScopeRegError
from scopereg.images import Frame, Volume
from scopereg.io.cine import Cine
from scopereg.io.dicom.header import DICOM_ENDINGS, is_dicom
from scopereg.io.frames import PICTURES, read_cine
from scopereg.io.metaimage import is_sequence
from scopereg.io.modality import AUTO, words_of
from scopereg.io.read_image import endings
from scopereg.io.stored import StoredFrame, StoredVolume
from scopereg.io.videos import VIDEOS
from scopereg.io.volumes import read_volume

_DIRECTORY = "DICOMDIR"  # DICOM's own list of contents
_WORTH_A_WORD_MM = 0.1
_GIVE_RATE = "give the frames per second: rate="


@dataclass(frozen=True, kw_only=True)
class LeftOpen:
    """What files of images may leave open, and somebody has told."""

    volume_spacing_mm: tuple[float, ...] | None = None
    volume_index: int | None = None
    series: str | None = None
    spacing_mm: tuple[float, ...] | None = None
    region: int | None = None
    calibration: Path | None = None
    frame_mask: Path | None = None
    volume_mask: Path | None = None


@dataclass(frozen=True)
class Reading(LeftOpen):
    """How files are read; hashable, so that a process opens a volume once."""

    volume: Path
    modality: str = AUTO  # of the volume; by default what its file tells

    @property
    def masks(self) -> tuple[Path, ...]:
        """Files and folders of masks, which are no frames."""
        return tuple(path for path in (self.frame_mask, self.volume_mask) if path is not None)

    def open_cine(self, path: Path) -> Cine:
        how: dict[str, Any] = {"spacing_mm": self.spacing_mm, "region": self.region, "calibration": self.calibration}
        return read_cine(path, **how, frame_mask=self.frame_mask)

    def open_volume(self) -> Volume:
        how: dict[str, Any] = {"spacing_mm": self.volume_spacing_mm, "index": self.volume_index, "series": self.series}
        return read_volume(self.volume, **how, volume_mask=self.volume_mask, modality=self.modality)


def frame_endings() -> tuple[str, ...]:
    """Endings of files that may hold frames, longer ones first."""
    return tuple(sorted({*PICTURES, *VIDEOS, *DICOM_ENDINGS, *endings()}, key=len, reverse=True))


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
        known = path.name != _DIRECTORY and (path.name.lower().endswith(frame_endings()) or is_dicom(path))
        (frames if known else others).append(path)
    return frames, others


def reason_of(error: Exception) -> str:
    """Why a frame failed, in one line, and how to fix it."""
    if isinstance(error, ScopeRegError):
        return " ".join(f"{error.what} (to fix it: {error.fix})".split())
    words: list[Any] = [type(error).__name__, *map(str, error.args[:1])]
    return " ".join(": ".join(words).split())


def reader_notes(image: Frame | Volume) -> tuple[str, ...]:
    """Notes of the reader; nothing for an image that comes from no file."""
    if not isinstance(image, StoredFrame | StoredVolume):
        return ()
    facts = image.facts
    notes = [str(note) for note in facts.get("notes", ())]
    moved = float(facts.get("calibration_moved_mm", 0.0))
    if moved > _WORTH_A_WORD_MM:
        skew = float(facts.get("calibration_skew", 0.0))
        notes.append(f"the calibration's axes are not square (cosine {skew:.3f}): a corner moves by {moved:.1f} mm")
    return tuple(notes)


def image_line(image: Frame | Volume) -> str:
    """Name, size and spacing of an image, in one line."""
    name = image.path.name if isinstance(image, StoredFrame | StoredVolume) else "in memory"
    facts = image.facts if isinstance(image, StoredFrame | StoredVolume) else {}
    if facts.get("frames_in_file", 1) > 1:
        name = f"{name} frame {facts['index']}"
    unit = "pixels" if isinstance(image, Frame) else "voxels"
    size, spacing = (" x ".join(f"{n:.4g}" for n in values) for values in (image.size, image.spacing_mm))
    source = f" ({facts['spacing_from']})" if "spacing_from" in facts else ""
    if isinstance(image, StoredVolume):
        source += f"; {words_of(facts, image.modality)}"
    return f"{name}: {size} {unit} of {spacing} mm{source}"


@dataclass(frozen=True, eq=False)
class Recording:
    """Frames counted from 0, each read when it is asked for, and their times."""

    source: Path
    reading: Reading
    cine: Cine | None  # of a file
    files: tuple[Path, ...]  # of a folder: one frame each
    times_s: tuple[float, ...]
    clock: str  # where the times come from, in words

    def __len__(self) -> int:
        return len(self.times_s)

    @property
    def is_plus(self) -> bool:
        return self.cine is not None and is_sequence(self.cine.path)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be known of how its frames are read, by the first that can be."""
        for row in range(len(self)):
            try:
                return reader_notes(self.frame(row))
            except Exception:  # it is told where it is asked for
                continue
        return ()

    def place(self, row: int) -> tuple[str, int]:
        """File and number in it of a frame."""
        return (self.cine.path.name, row) if self.cine is not None else (self.files[row].name, 0)

    def label(self, row: int) -> str:
        """A frame in words."""
        name, index = self.place(row)
        return f"{name} frame {index}" if self.cine is not None else name

    def frame(self, row: int) -> StoredFrame:
        """A frame of the recording; an error tells why it cannot be had."""
        if self.cine is not None:
            return self.cine[row]
        cine = self.reading.open_cine(self.files[row])
        if len(cine) != 1:
            raise ScopeRegError(
                f"it holds {len(cine)} frames", where=str(self.files[row]), fix="pass the file alone, it is a sequence"
            )
        return cine[0]


def open_recording(
    source: Path, reading: Reading, *, rate: float | None = None, left_out: Sequence[Path] = ()
) -> Recording:
    """The frames of a file, with its own times or `rate` frames a second, or of the pictures of a folder by name.

    Of the files in a folder those `left_out` are no frames. A folder with a single file is that file.
    """
    _check_rate(rate)
    if not source.exists():
        raise ScopeRegError("there is no such file or folder", where=str(source), fix="check the name")
    files = in_order(find_files(source, left_out)[0]) if source.is_dir() else [source]
    if not files:
        raise ScopeRegError("it holds no file with frames", where=str(source), fix="pass the folder with the frames")
    cine = reading.open_cine(files[0]) if len(files) == 1 else None
    times, clock = frame_times(source, cine.count if cine else len(files), cine.times_s if cine else None, rate)
    return Recording(source, reading, cine, tuple(files), times, clock)


def in_order(files: Sequence[Path]) -> list[Path]:
    """By name, numbers in it as numbers: frame 10 comes after frame 9."""

    def key(path: Path) -> list[tuple[int, str]]:
        words = [word for word in re.split(r"(\d+)", path.as_posix().lower()) if word]
        return [(int(word), "") if word.isdecimal() else (-1, word) for word in words]

    return sorted(files, key=key)


def _check_rate(rate: float | None) -> None:
    if rate is not None and not 0 < rate < math.inf:
        raise ScopeRegError(f"{rate:g} frames a second", where="rate=", fix="pass a positive number")


def frame_times(
    source: Path, count: int, stored: tuple[float, ...] | None, rate: float | None
) -> tuple[tuple[float, ...], str]:
    """Times of frames in seconds, and where they are from in words: `rate` a second, else as stored, else an error."""
    _check_rate(rate)
    if rate is not None:
        instead = ", in place of those that the file holds" if stored is not None else ""
        return tuple(row / rate for row in range(count)), f"as given: {rate:g} frames a second{instead}"
    if stored is None:
        raise ScopeRegError("it does not say when its frames were taken", where=str(source), fix=_GIVE_RATE)
    steps = [after - before for before, after in pairwise(stored) if after > before]
    if count > 1 and not steps:
        raise ScopeRegError("the times of its frames do not rise", where=str(source), fix=_GIVE_RATE)
    usual = f", {1 / median(steps):.3g} frames a second" if steps else ""
    return stored, f"as stored in the file: {stored[-1] - stored[0]:.3g} s{usual}"
