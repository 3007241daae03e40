"""FrameGrid: the pixels of a frame as files with its pose tell them, a line in .tfm and .txt, a mapping in JSON.

A pose alone does not say from where the millimetres of its frame are counted, nor how far its corners lie from there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from scopereg.images import Frame
from scopereg.io.records import DIGITS, SMALL, Record, read_json, read_within

_NUMBER = rf"(-?\d[\d.e+-]{{0,{DIGITS}}})"
_LINE = re.compile(
    rf"# scopereg: a frame of (\d{{1,6}}) x (\d{{1,6}}) pixels of {_NUMBER} x {_NUMBER} mm, "
    rf"the first at {_NUMBER} {_NUMBER} mm"
)
_FIX = "pass a file that scopereg wrote"
_MOST_PIXELS = 10**6


@dataclass(frozen=True)
class FrameGrid:
    """Size and pixels of a frame, x before y, and where its first pixel lies in the millimetres that a pose takes."""

    size: tuple[int, int]
    spacing_mm: tuple[float, float]
    origin_mm: tuple[float, float]

    @classmethod
    def of(cls, frame: Frame) -> FrameGrid:
        (width, height), (x, y), (left, top) = frame.size, frame.spacing_mm, frame.origin_mm
        return cls((width, height), (x, y), (left, top))

    @property
    def line(self) -> str:
        """A comment for files of text."""
        (width, height), (x, y), (left, top) = self.size, self.spacing_mm, self.origin_mm
        pixels = f"{width} x {height} pixels of {x:.12g} x {y:.12g} mm"
        return f"# scopereg: a frame of {pixels}, the first at {left:.12g} {top:.12g} mm"


def read_frame_grid(path: Path | str) -> FrameGrid | None:
    """What a file with a pose tells of its frame; None where it tells nothing."""
    path = Path(path)
    ending = path.suffix.lower()
    if ending == ".json":
        return _of_record(path)
    if ending not in (".tfm", ".txt"):
        return None
    text = read_within(path, _FIX, SMALL).decode(errors="replace")
    found = next((found for line in text.split("\n") if (found := _LINE.fullmatch(line.rstrip()))), None)
    if found is None:
        return None
    try:
        x, y, left, top = map(float, found.groups()[2:])
    except ValueError:
        return None  # a comment of somebody else
    return FrameGrid((int(found[1]), int(found[2])), (x, y), (left, top)) if min(x, y) > 0 else None


def _of_record(path: Path) -> FrameGrid | None:
    record = Record.of(read_json(path, _FIX, limits=SMALL), str(path), _FIX)
    frame = record.record("frame") if record.has("frame") else Record({}, record.where, _FIX)
    if not all(map(frame.has, ("size", "spacing_mm", "origin_mm"))):
        return None
    size, spacing = frame.numbers("size", 2), frame.numbers("spacing_mm", 2)
    if not all(number == int(number) and 0 < number <= _MOST_PIXELS for number in size):
        raise frame.wrong("size", "two numbers of pixels")
    if min(spacing) <= 0:
        raise frame.wrong("spacing_mm", "sizes above 0")
    left, top = frame.numbers("origin_mm", 2)
    return FrameGrid((int(size[0]), int(size[1])), (spacing[0], spacing[1]), (left, top))
