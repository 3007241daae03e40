"""PlaneSpline: a uniform cubic B-spline over a plane, which is smooth and has few numbers."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

REACH = 2  # steps to both sides of its knot that a cubic B-spline is not 0 on


class PlaneSpline(NamedTuple):
    """Where the knots lie; the numbers at them make a field."""

    first_mm: tuple[float, float]  # x, y of the first knot
    step_mm: float
    size: tuple[int, int]  # knots along x, y

    @classmethod
    def over(cls, low_mm: tuple[float, float], high_mm: tuple[float, float], step_mm: float) -> PlaneSpline:
        """Knots about a box, as many beyond its border as have a part in it; its middle lies in theirs."""
        spans = [max(math.ceil((high - low) / step_mm - 1e-9), 1) for low, high in zip(low_mm, high_mm, strict=True)]
        first = [
            (low + high) / 2 - (span / 2 + 1) * step_mm for low, high, span in zip(low_mm, high_mm, spans, strict=True)
        ]
        return cls((first[0], first[1]), step_mm, (spans[0] + 3, spans[1] + 3))

    @property
    def knots(self) -> int:
        """How many there are."""
        return self.size[0] * self.size[1]

    @property
    def box_mm(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """The first and the last corner of what all knots together cover."""
        (x, y), step = self.first_mm, self.step_mm
        return (x + step, y + step), (x + (self.size[0] - 2) * step, y + (self.size[1] - 2) * step)

    def basis(self, points_mm: Float[Tensor, "n 2"], along: tuple[int, int] = (0, 0)) -> Float[Tensor, "n k"]:
        """What each knot has of points, rows of knots after one another; or the derivatives `along` x and y."""
        x, y = (
            _cubic(self._steps(points_mm[:, axis], axis), along[axis]) / self.step_mm ** along[axis] for axis in (0, 1)
        )
        return (y.unsqueeze(2) * x.unsqueeze(1)).flatten(1)

    def _steps(self, places_mm: Float[Tensor, "n"], axis: int) -> Float[Tensor, "n k"]:
        """How many steps places lie from each knot of an axis."""
        knots = torch.arange(self.size[axis], dtype=places_mm.dtype, device=places_mm.device)
        return (places_mm[:, None] - self.first_mm[axis]) / self.step_mm - knots


def _cubic(steps: Tensor, derivative: int) -> Tensor:
    """The cubic B-spline about 0, or its first derivative."""
    away = steps.abs()
    near, far = away < 1, away < REACH
    rest = (REACH - away).clamp_min(0)
    if derivative == 0:
        return torch.where(near, 2 / 3 - away.square() * (1 - away / 2), rest**3 / 6 * far)
    return torch.where(near, away * (1.5 * away - 2), -(rest**2) / 2 * far) * steps.sign()
