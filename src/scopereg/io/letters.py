"""Letters: lines of text that a scanner drew into a grey picture.

Their strokes are thin, much brighter than what lies around them, and of one brightness: white, or one that occurs far
more often than those beside it. At least three of one height stand side by side on one line. Tissue has bright thin
spots too, but none that do all of this.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from scopereg.io.components import Part, components
from scopereg.io.morphology import Bits, Bytes, ground, grown

_STROKE = 3  # pixels: half of the widest stroke, with its soft edges
_CONTRAST = 64  # steps of grey by which strokes are brighter than the ground beneath them
_WHITE, _LEAST_PEAK = 0.97, 204  # share of the brightest that counts as white, of pictures as bright as that at least
_LEVELS, _DARKEST, _COUNT, _SPIKE = 6, 110, 30, 4.0  # brightnesses looked at besides: how many, how dark, how common,
_AROUND = 12  # and how much more so than those up to so many steps away
_LETTER, _LEAST_TALLEST, _SHORTEST = 0.06, 14, 6  # height: of the picture's at most, in pixels at most and at least
_OWN = 0.12  # share of a letter that has the brightness
_FILLED = 0.9  # of a letter's box, at most
_APART = 77  # steps of grey between letters and the ground around them
_MOST = 4000  # parts of a picture: more are noise
_FEW = 10  # pixels that are no text


def text(levels: Bytes) -> Bits:
    """Where letters are drawn into a picture of bytes (H, W), with their borders."""
    none = np.zeros(levels.shape, bool)
    strokes = (levels.astype(np.int16) - ground(levels, _STROKE)) >= _CONTRAST
    tallest = max(round(_LETTER * levels.shape[0]), _LEAST_TALLEST)
    for level, seeds in _brightnesses(levels, strokes):
        if int(seeds.sum()) >= _FEW:
            near = strokes & (levels >= level / 2) & (levels <= level + _STROKE) & grown(seeds, tallest)
            none |= _letters(levels, near, seeds, tallest)
    return grown(none, 2) if none.any() else none


def _brightnesses(levels: Bytes, strokes: Bits) -> Iterator[tuple[int, Bits]]:
    """What letters may be drawn with, and the strokes that are: white, and what is far more common than its like."""
    white = _WHITE * max(int(levels.max()), _LEAST_PEAK)
    yield int(levels.max()), strokes & (levels >= white)
    counts = np.bincount(levels[strokes], minlength=256)
    for level in np.argsort(-counts)[:_LEVELS].tolist():
        around = counts[max(level - _AROUND, 0) : level + _AROUND + 1]
        usual = float(np.median(around[around > 0])) if counts[level] else 0.0
        if _DARKEST <= level < white and counts[level] >= max(_COUNT, _SPIKE * usual):
            yield level, strokes & (levels == level)


def _letters(levels: Bytes, strokes: Bits, seeds: Bits, tallest: int) -> Bits:
    """Those parts of the strokes that are letters in lines."""
    found = np.zeros(strokes.shape, bool)
    labels, parts = components(strokes)
    if not parts or len(parts) > _MOST:
        return found
    own = np.bincount(labels[seeds & strokes], minlength=len(parts) + 1)[1:]
    rows = [
        (row, part)
        for row, part in enumerate(parts)
        if _SHORTEST <= part.height <= tallest
        and part.width <= 1.6 * tallest
        and part.area >= _SHORTEST
        and own[row] >= max(2, _OWN * part.area)
        and part.filled < _FILLED
    ]
    for line in lines(rows):
        drawn = np.isin(labels, [row + 1 for row in line])
        ring = grown(drawn, 3) & ~grown(drawn, 1)
        if ring.any() and float(levels[drawn].mean()) - float(levels[ring].mean()) >= _APART:
            found |= drawn
    return found


def lines(letters: Sequence[tuple[int, Part]]) -> list[list[int]]:
    """Letters of nearly one height, side by side on one line: at least three of them."""
    left, found = sorted(letters, key=lambda entry: entry[1].left), []
    while left:
        row, part = left.pop(0)
        line, last = [row], part
        for entry in list(left):
            other = entry[1]
            level = abs(other.bottom - last.bottom) <= 0.25 * last.height
            size = 0.7 <= other.height / last.height <= 1.4
            near = 0 <= other.left - last.right <= 1.5 * last.height
            if level and size and near:
                line.append(entry[0])
                left.remove(entry)
                last = other
        if len(line) >= 3:
            found.append(line)
    return found
