"""Recording: the frames of a file or a folder in the order of their times."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from scopereg.errors import ScopeRegError
from scopereg.io.cine import Cine
from scopereg.io.metaimage import is_sequence
from scopereg.io.stored import StoredFrame
from scopereg.registration.batch import Reading, find_files
from scopereg.registration.notes import reader_notes

_GIVE_RATE = "give the frames per second: rate="


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
    if rate is not None and not 0 < rate < math.inf:
        raise ScopeRegError(f"{rate:g} frames a second", where="rate=", fix="pass a positive number")
    if not source.exists():
        raise ScopeRegError("there is no such file or folder", where=str(source), fix="check the name")
    files = _in_order(find_files(source, left_out)[0]) if source.is_dir() else [source]
    if not files:
        raise ScopeRegError("it holds no file with frames", where=str(source), fix="pass the folder with the frames")
    cine = reading.open_cine(files[0]) if len(files) == 1 else None
    times, clock = _times(source, cine.count if cine else len(files), cine.times_s if cine else None, rate)
    return Recording(source, reading, cine, tuple(files), times, clock)


def _in_order(files: Sequence[Path]) -> list[Path]:
    """By name, numbers in it as numbers: frame 10 comes after frame 9."""

    def key(path: Path) -> list[tuple[int, str]]:
        words = [word for word in re.split(r"(\d+)", path.as_posix().lower()) if word]
        return [(int(word), "") if word.isdecimal() else (-1, word) for word in words]

    return sorted(files, key=key)


def _times(
    source: Path, count: int, stored: tuple[float, ...] | None, rate: float | None
) -> tuple[tuple[float, ...], str]:
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
