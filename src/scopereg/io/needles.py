"""Needles: thin bright straight lines with their echoes beneath them, which a frame shows and a volume does not.

A needle in the plane is a line that is brighter than what lies on both of its sides, straight to less than a pixel of a
reduced picture, and inclined; sound that goes to and fro in it draws the same line again, some millimetres deeper.
Layers of tissue are bent, or lie along the face of the probe; straight ones, such as the falx, have no echoes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from scopereg.io.components import components
from scopereg.io.morphology import Bits, Bytes, ground, grown, shrunk, spanned

Points = npt.NDArray[np.float64]  # (N, 2), x and y
Grey = npt.NDArray[np.float32]

_SIDE = 360  # pixels along the longer side of the picture that is looked at, about
_LEAST_SIDE = 48  # pixels of a picture that may show one
_HEIGHT, _WIDE = 26, 3  # steps of grey of a ridge above its ground; pixels: half of the widest line
_BLACK, _BORDER = 5, 4  # what is no picture; pixels inside of its border, which is a line too
_PIECE, _SEED, _GAP = 0.04, 0.07, 0.08  # of the longer side: shortest pieces of a line, one to begin with, gap between
_BENT, _OFF = 0.9, 2.3  # pixels about a line: its pieces, and what joins them
_TURN_DEG, _SHORT = 5.0, 0.08  # between pieces of one line; three times as much for those shorter than that share
_FAINT, _SPARSE, _CURVED = 0.04, 0.4, 1.0  # an echo: brightness above its sides, share of its length, pixels of bend
_LENGTH, _FILLED, _CURVE = 0.2, 0.55, 0.6  # a needle: of the longer side, the same, and the bend
_BRIGHT, _ABOVE, _ABOVE_ONE = 0.4, 0.1, 0.2  # of the brightest; above its brighter side, and above the other one
_INCLINED_DEG = 8.0, 82.0
_PARALLEL_DEG, _DEEPER, _OVERLAP = 4.0, (0.012, 0.09), 0.35  # an echo: how far beneath, of that side; of the needle
_LONG, _STRAIGHT, _UNBENT, _WHITE, _STARK = 0.3, 0.55, 0.3, 0.8, 0.3  # of a needle that needs none
_MARGIN = 3  # pixels about a line that go with it


class _Line(NamedTuple):
    """A straight line of a reduced picture; lengths in its pixels, brightness as a share of the brightest."""

    middle: Points  # (2,)
    along: Points  # (2,), of length 1, to the right
    first: float  # from the middle
    last: float
    filled: float
    spread: float  # about the line
    bend: float  # of its middle third out of the outer ones
    bright: float
    sides: tuple[float, float]

    @property
    def length(self) -> float:
        return self.last - self.first

    @property
    def inclined_deg(self) -> float:
        return math.degrees(math.asin(min(abs(float(self.along[1])), 1.0)))


def needles(levels: Bytes) -> Bits:
    """Where needles and their echoes are in a picture of bytes (H, W), with their borders."""
    none = np.zeros(levels.shape, bool)
    if min(levels.shape) < _LEAST_SIDE:
        return none
    picture, times = _reduced(levels)
    side = max(picture.shape)
    lines = list(_lines_of(picture))
    kept: list[_Line] = []
    for line in lines:
        if _is_needle(line, side):
            echoes = [other for other in lines if _is_echo(other, line, side)]
            kept += [line, *echoes] if echoes or _needs_no_echo(line, side) else []
    if not kept:
        return none
    drawn = np.zeros(picture.shape, bool)
    for line in kept:
        reach = np.arange(line.first, line.last + 0.5, 0.5)
        columns, rows = np.rint(line.middle[:, None] + line.along[:, None] * reach).astype(int)
        inside = (columns >= 0) & (rows >= 0) & (columns < picture.shape[1]) & (rows < picture.shape[0])
        drawn[rows[inside], columns[inside]] = True
    large = grown(drawn, _MARGIN).repeat(times, 0).repeat(times, 1)
    none[: large.shape[0], : large.shape[1]] = large
    return none


def _reduced(levels: Bytes) -> tuple[Grey, int]:
    """The picture with pixels that are means of squares, and how many pixels these are wide."""
    times = max(1, round(max(levels.shape) / _SIDE))
    height, width = (n // times * times for n in levels.shape)
    squares = levels[:height, :width].reshape(height // times, times, width // times, times)
    return squares.mean((1, 3), dtype=np.float32), times


def _lines_of(picture: Grey) -> Iterator[_Line]:
    """Straight lines that are brighter than what is beside them, flat ones and steep ones."""
    smooth = _smooth(picture)
    above = smooth - ground(np.rint(smooth).astype(np.uint8), _WIDE)
    wanted = (above >= _HEIGHT) & shrunk(spanned(picture > _BLACK), _BORDER)
    peak = max(float(np.quantile(picture, 0.999)), 1.0)
    side = max(picture.shape)
    for axis in (0, 1):
        pieces = list(_pieces(wanted & _is_ridge(smooth, axis), side, steep=axis == 1))
        pieces.sort(key=len, reverse=True)
        used: set[int] = set()
        for row, piece in enumerate(pieces):
            if row not in used and len(piece) >= _SEED * side:
                rows = _joined(row, pieces, used, side)
                line = _line(np.concatenate([pieces[each] for each in rows]), picture, peak)
                if line.length >= 0.4 * _LENGTH * side and _may_be_echo(line):
                    used.update(rows)
                    yield line


def _smooth(picture: Grey) -> Grey:
    """Means of three by three pixels."""
    wide = np.pad(picture, 1, mode="edge")
    rows = wide[:-2] + wide[1:-1] + wide[2:]
    smooth: Grey = (rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]) / 9
    return smooth


def _is_ridge(smooth: Grey, axis: int) -> Bits:
    """Pixels that are the brightest of five along an axis."""
    ridge = np.ones(smooth.shape, bool)
    for step in (1, 2):
        ridge &= (smooth >= np.roll(smooth, step, axis)) & (smooth >= np.roll(smooth, -step, axis))
    return ridge


def _pieces(ridge: Bits, side: int, *, steep: bool) -> Iterator[Points]:
    """The pixels of parts that are long and straight."""
    labels, parts = components(ridge)
    for row, part in enumerate(parts):
        if math.hypot(part.width, part.height) < _PIECE * side or (part.height > part.width) != steep:
            continue
        y, x = np.nonzero(labels[part.top : part.bottom, part.left : part.right] == row + 1)
        points = np.stack([x + part.left, y + part.top], 1).astype(float)
        if _frame_of(points)[3].std() <= _BENT:
            yield points


def _frame_of(points: Points) -> tuple[Points, Points, Points, Points]:
    """Middle and direction of the line through points, to the right, and how far they lie along it and off it."""
    middle = points.mean(0)
    apart = points - middle
    along: Points = np.linalg.svd(apart, full_matrices=False)[2][0]
    along = -along if along[0] < 0 else along
    return middle, along, apart @ along, apart @ np.array([-along[1], along[0]])


def _joined(first: int, pieces: Sequence[Points], used: set[int], side: int) -> list[int]:
    """The piece and those that go on from it on both sides, one after the other."""
    rows, points = [first], pieces[first]
    middle, along, *_ = _frame_of(points)
    others = [row for row in range(len(pieces)) if row != first and row not in used]
    for row in sorted(others, key=lambda row: abs(float((pieces[row].mean(0) - middle) @ along))):
        own, piece = _frame_of(points), pieces[row]
        turn = math.degrees(math.acos(min(abs(float(own[1] @ _frame_of(piece)[1])), 1.0)))
        apart = piece - own[0]
        reach, off = apart @ own[1], apart @ np.array([-own[1][1], own[1][0]])
        gap = max(float(reach.min() - own[2].max()), float(own[2].min() - reach.max()))
        most = _TURN_DEG * (3 if len(piece) < _SHORT * side else 1)
        if turn <= most and float(np.abs(off).max()) <= _OFF and -2 <= gap <= _GAP * side:
            rows.append(row)
            points = np.concatenate([points, piece])
    return rows


def _line(points: Points, picture: Grey, peak: float) -> _Line:
    middle, along, reach, off = _frame_of(points)
    normal = np.array([-along[1], along[0]])
    ends = np.quantile(reach, (0, 1 / 3, 2 / 3, 1))
    thirds = [float(np.median(off[(reach >= low) & (reach <= high)])) for low, high in pairwise(ends)]
    length = max(float(np.ptp(reach)), 1.0)

    def brightness(shift: float) -> float:
        columns, rows = np.rint(points + shift * normal).astype(int).T
        limits: Any = picture.shape
        return float(picture[rows.clip(0, limits[0] - 1), columns.clip(0, limits[1] - 1)].mean()) / peak

    return _Line(
        middle,
        along,
        float(reach.min()),
        float(reach.max()),
        len(np.unique(np.rint(reach))) / length,
        float(off.std()),
        abs(thirds[1] - (thirds[0] + thirds[2]) / 2),
        brightness(0),
        (brightness(-_MARGIN - 1), brightness(_MARGIN + 1)),
    )


def _may_be_echo(line: _Line) -> bool:
    return line.filled >= _SPARSE and line.bend <= _CURVED and line.bright - max(line.sides) >= _FAINT


def _is_needle(line: _Line, side: int) -> bool:
    least, most = _INCLINED_DEG
    straight = line.filled >= _FILLED and line.spread <= _BENT and line.bend <= _CURVE
    stands_out = line.bright - max(line.sides) >= _ABOVE and line.bright - min(line.sides) >= _ABOVE_ONE
    inclined = least <= line.inclined_deg <= most
    return line.length >= _LENGTH * side and straight and inclined and line.bright >= _BRIGHT and stands_out


def _needs_no_echo(line: _Line, side: int) -> bool:
    """Whether it is longer, straighter and starker than tissue is."""
    stark = line.bright >= _WHITE and line.bright - max(line.sides) >= _STARK
    return line.length >= _LONG * side and line.spread <= _STRAIGHT and line.bend <= _UNBENT and stark


def _is_echo(other: _Line, line: _Line, side: int) -> bool:
    """Whether another line is the same one again, deeper."""
    if other is line or abs(float(line.along @ other.along)) < math.cos(math.radians(_PARALLEL_DEG)):
        return False
    apart = other.middle - line.middle
    drop = float(apart[1] - apart[0] * line.along[1] / line.along[0])
    at, half = float(apart @ line.along), other.length / 2
    shared = min(at + half, line.last) - max(at - half, line.first)
    return _DEEPER[0] * side <= drop <= _DEEPER[1] * side and shared >= _OVERLAP * line.length
