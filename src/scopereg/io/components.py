"""Components: which pixels of a picture of two values hang together, by runs along its rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Part(NamedTuple):
    """Pixels that hang together, and the box around them."""

    area: int
    left: int
    top: int
    right: int  # after the last column
    bottom: int

    @property
    def width(self) -> int:
        return self.right - self.left

    @property
    def height(self) -> int:
        return self.bottom - self.top

    @property
    def filled(self) -> float:
        """Share of its box."""
        return self.area / (self.width * self.height)

    @property
    def elongation(self) -> float:
        return max(self.width, self.height) / min(self.width, self.height)


def components(bits: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.int32], list[Part]]:
    """Numbers (H, W) of the parts of a picture, from 1 on, and the parts; a corner is enough to hang together."""
    rows, first, last = _runs(bits)
    if not len(rows):
        return np.zeros(bits.shape, np.int32), []
    roots = _roots(len(rows), *_touching(rows, first, last, bits.shape[1]))
    _, numbers = np.unique(roots, return_inverse=True)
    count, lengths = int(numbers.max()) + 1, last - first
    area = np.bincount(numbers, lengths, count).astype(int)
    edges = [np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).max)]
    ends = [np.zeros(count, np.int64), np.zeros(count, np.int64)]
    for edge, values in zip(edges, (first, rows), strict=True):
        np.minimum.at(edge, numbers, values)
    for end, values in zip(ends, (last, rows + 1), strict=True):
        np.maximum.at(end, numbers, values)
    labels = np.zeros(bits.shape, np.int32)
    labels[bits] = np.repeat(numbers + 1, lengths)  # runs are in the order of the pixels
    boxes = zip(area, *edges, *ends, strict=True)
    return labels, [Part(*map(int, box)) for box in boxes]


def _runs(bits: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Row, first column and column after the last of each stretch of true pixels."""
    steps = np.diff(np.pad(bits.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    rows, first = np.nonzero(steps == 1)
    _, last = np.nonzero(steps == -1)
    return rows, first, last


def _touching(
    rows: npt.NDArray[np.int64], first: npt.NDArray[np.int64], last: npt.NDArray[np.int64], width: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Pairs of runs that touch, of rows that follow each other."""
    stride = width + 2
    # As places on one long line; those of the row below that end after and begin before a run touch it.
    begin = np.searchsorted(rows * stride + last, (rows + 1) * stride + first, side="left")
    end = np.searchsorted(rows * stride + first, (rows + 1) * stride + last, side="right")
    counts = np.maximum(end - begin, 0)
    one = np.repeat(np.arange(len(rows)), counts)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return one, np.repeat(begin, counts) + within


def _roots(count: int, one: npt.NDArray[np.int64], other: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The smallest number among those that each of `count` things is joined with, over all pairs."""
    roots = np.arange(count)
    while True:
        lowest = np.minimum(roots[one], roots[other])
        after = roots.copy()
        np.minimum.at(after, roots[one], lowest)
        np.minimum.at(after, roots[other], lowest)
        after = after[after]  # shorter ways: a long chain takes few rounds
        if np.array_equal(after, roots):
            return roots
        roots = after
