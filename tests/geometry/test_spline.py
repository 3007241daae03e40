"""The B-spline over a plane against the recursion that defines it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scopereg.geometry.spline import PlaneSpline

SPLINE = PlaneSpline.over((-3.0, 2.0), (21.0, 13.0), 5.0)


def recursion(x: float, first: int, degree: int) -> float:
    """Cox and de Boor: the B-spline of a degree that begins at knot `first` of 0, 1, 2 ..."""
    if degree == 0:
        return float(first <= x < first + 1)
    rising = (x - first) / degree * recursion(x, first, degree - 1)
    return rising + (first + degree + 1 - x) / degree * recursion(x, first + 1, degree - 1)


def points(count: int) -> torch.Tensor:
    low, high = torch.tensor([-3.0, 2.0]), torch.tensor([21.0, 13.0])
    return (low + (high - low) * torch.rand(count, 2, generator=torch.Generator().manual_seed(1))).double()


def test_each_knot_has_what_the_recursion_says() -> None:
    some = points(7)
    (left, top), step, (columns, rows) = SPLINE
    for (x, y), found in zip(some.tolist(), SPLINE.basis(some), strict=True):
        across = [recursion((x - left) / step + 2 - knot, 0, 3) for knot in range(columns)]
        down = [recursion((y - top) / step + 2 - knot, 0, 3) for knot in range(rows)]
        assert found.numpy() == pytest.approx(np.outer(down, across).ravel(), abs=1e-12)


def test_knots_cover_the_box() -> None:
    (left, top), (right, bottom) = SPLINE.box_mm
    assert left <= -3
    assert top <= 2
    assert right >= 21
    assert bottom >= 13
    assert SPLINE.basis(points(50)).sum(1).numpy() == pytest.approx(1)


@pytest.mark.parametrize("axis", [0, 1])
def test_derivatives_are_those_of_the_spline(axis: int) -> None:
    some, step = points(9), 1e-6
    beside = torch.zeros(2, dtype=torch.float64)
    beside[axis] = step
    slopes = (SPLINE.basis(some + beside) - SPLINE.basis(some - beside)) / (2 * step)
    along = (1, 0) if axis == 0 else (0, 1)
    assert SPLINE.basis(some, along).numpy() == pytest.approx(slopes.numpy(), abs=1e-8)
