"""Morphology: pictures grown, shrunk, opened and closed by squares, of bits and of bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Bits = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]


def grown(bits: Bits, radius: int) -> Bits:
    """With all within a square around each true pixel."""
    found: Bits = _over_squares(bits, radius, np.logical_or, False)
    return found


def shrunk(bits: Bits, radius: int) -> Bits:
    return ~grown(~bits, radius)  # what lies beyond the border takes nothing away


def closed(bits: Bits, radius: int) -> Bits:
    return shrunk(grown(bits, radius), radius)


def opened(bits: Bits, radius: int) -> Bits:
    return grown(shrunk(bits, radius), radius)


def spanned(bits: Bits) -> Bits:
    """What lies between true pixels of its row or of its column."""
    field = torch.from_numpy(bits)
    spans = []
    for axis in (0, 1):
        before, after = field.cummax(axis).values, field.flip(axis).cummax(axis).values.flip(axis)
        spans.append(before & after)
    return (spans[0] | spans[1]).numpy()


def ground(values: Bytes, radius: int) -> Bytes:
    """What is left of a picture without bright things that are narrower than a square: its grey opening."""
    darkest = _over_squares(values, radius, np.minimum, 255)
    found: Bytes = _over_squares(darkest, radius, np.maximum, 0)
    return found


def _over_squares(
    values: npt.NDArray[Any], radius: int, join: Callable[[Any, Any], npt.NDArray[Any]], outside: int
) -> npt.NDArray[Any]:
    """All pixels of a square joined at its middle; steps double, so that large ones cost little."""
    for axis in (0, 1):
        pads = [(radius, radius) if own == axis else (0, 0) for own in (0, 1)]
        wide = np.pad(values, pads, constant_values=outside)
        reached = 1
        while reached < 2 * radius + 1:
            step = min(reached, 2 * radius + 1 - reached)
            wide = join(wide[:-step], wide[step:]) if axis == 0 else join(wide[:, :-step], wide[:, step:])
            reached += step
        values = wide
    return values
