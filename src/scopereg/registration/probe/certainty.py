"""Certainty: how well a calibration is known, and what the motion of the probe does not determine.

What frames say of a step, each for itself, differs: that tells how far noise moves the whole (the sandwich of the
curvature). What all of them get wrong alike it cannot tell; for that a tenth of a millimetre is assumed, as phantoms
have it (benchmarks/probe_calibration.py). Where the motion is poor, a change of X is answered by one of Z and frames
hardly move: then either grows without bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from scopereg.registration.probe.chain import OF_X, STRETCHES, Array, Rows
from scopereg.registration.probe.likeness import Equations

LIMIT_MM, LIMIT_DEG, LIMIT_PERCENT = 3.0, 3.0, 3.0  # half of a 95 % interval, up to which something is determined
FARTHEST = 1000.0  # from there on an interval is as good as none
_TWO_SIDED = 1.96  # standard deviations to either side that hold 95 %
_COMMON_MM, _COMMON_SIZE = 0.1, 0.006  # standard deviations of what all frames get wrong alike: places, pixels
_LEAST = 1e-9  # share of the largest curvature below which there is none
_AXES = ("across the image (x)", "along its depth (y)", "through its plane (z)")
_TURNS = ("the tilt about the image's x axis", "the tilt about its y axis", "the turn in its plane")


@dataclass(frozen=True, eq=False)
class Certainty:
    """Half widths of 95 % intervals; of shifts of the middle of the image and turns about it, in its axes."""

    offset_mm: tuple[float, float, float]
    turn_deg: tuple[float, float, float]
    pixels_percent: tuple[float, float]  # NaN where their size was not sought
    worst_offset_mm: float  # in the direction that is known least
    worst_turn_deg: float
    undetermined: tuple[str, ...]  # in words

    @property
    def determined(self) -> bool:
        return not self.undetermined


def certainty_of(equations: Equations, weights: Array, free: Rows, lever_mm: float) -> Certainty:
    """What the equations of all frames at their best tell; `free` are the numbers of a step that were sought."""
    _, curvature, _ = equations.total(weights)
    design = equations.design[weights > 0][:, :, free]
    said = equations.slopes(weights)[:, free]
    used = int((weights > 0).sum())
    spread = said.T @ said * used / max(used - len(free) / OF_X, 1)
    inner = _inverse(curvature[np.ix_(free, free)])
    moving = np.einsum("nki,nkj->ij", design, design) / max(used, 1)
    covariance = inner @ spread @ inner + _COMMON_MM**2 * _inverse(moving)
    whole = np.full((equations.design.shape[2],) * 2, np.nan)
    whole[np.ix_(free, free)] = covariance
    whole[range(-STRETCHES, 0), range(-STRETCHES, 0)] += (_COMMON_SIZE * lever_mm) ** 2
    return _told(whole, lever_mm)


def _inverse(matrix: Array) -> Array:
    """Of a positive matrix; where it has no curvature at all the inverse is large, but a number."""
    values, vectors = np.linalg.eigh(matrix)
    kept = np.maximum(values, _LEAST * max(float(values.max()), 1e-30))
    inverse: Array = vectors / kept @ vectors.T
    return inverse


def _told(covariance: Array, lever_mm: float) -> Certainty:
    shifts, turns = covariance[:3, :3], covariance[3:OF_X, 3:OF_X] * (math.degrees(1) / lever_mm) ** 2
    pixels = np.sqrt(np.diag(covariance)[-STRETCHES:]) / lever_mm * 100 * _TWO_SIDED
    half = [_TWO_SIDED * np.sqrt(np.diag(part)) for part in (shifts, turns)]
    offset, turn = [_TWO_SIDED * math.sqrt(float(np.linalg.eigvalsh(part)[-1])) for part in (shifts, turns)]
    words = [
        *_directions(shifts, LIMIT_MM, "mm", [f"the offset {axis}" for axis in _AXES]),
        *_directions(turns, LIMIT_DEG, "degrees", _TURNS),
    ]
    for axis, own in zip("xy", pixels, strict=True):
        words += [f"the size of pixels along {axis} (± {own:.1f} %)"] if own > LIMIT_PERCENT else []
    return Certainty(_three(half[0]), _three(half[1]), (float(pixels[0]), float(pixels[1])), offset, turn, tuple(words))


def _three(numbers: Array) -> tuple[float, float, float]:
    x, y, z = map(float, numbers)
    return x, y, z


def _directions(covariance: Array, limit: float, unit: str, names: Sequence[str]) -> Iterator[str]:
    """The directions that are not determined, the worst first, by the axis nearest to each."""
    values, vectors = np.linalg.eigh(covariance)
    for value, vector in sorted(zip(values, vectors.T, strict=True), key=lambda pair: -pair[0]):
        half = _TWO_SIDED * math.sqrt(max(float(value), 0.0))
        if half > limit:
            known = f" (± {half:.0f} {unit})" if half < FARTHEST else ""
            yield f"{names[int(np.abs(vector).argmax())]}{known}"
