"""Elasticity: what it costs a displacement to be no elastic body at rest, and to bend at all."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from scopereg.geometry.elastic import POISSON_RATIO, navier_cauchy
from scopereg.geometry.spline import PlaneSpline

_CELLS = 4  # between knots, that the equation is looked at on


def lattice_mm(spline: PlaneSpline) -> tuple[Float[Tensor, "n 2"], tuple[int, int]]:
    """The places that a displacement is judged at, rows after one another, and how many rows and columns."""
    (left, top), (right, bottom) = spline.box_mm
    columns, rows = ((n - 3) * _CELLS + 1 for n in spline.size)
    y, x = torch.meshgrid(
        torch.linspace(top, bottom, rows, dtype=torch.float64),
        torch.linspace(left, right, columns, dtype=torch.float64),
        indexing="ij",
    )
    return torch.stack([x, y], -1).flatten(0, 1), (rows, columns)


def elastic_energy(
    spline: PlaneSpline, length_mm: float, poisson_ratio: float = POISSON_RATIO
) -> Float[Tensor, "k3 k3"]:
    """The matrix Q of an energy c'Qc of displacements whose numbers at the knots are c (knots by x, y, z).

    The sum of the loss that networks are trained with (`training.losses.elasticity_loss`: the Navier-Cauchy equation,
    squared) and of squared slopes, without which nothing would hold the even stretches that this equation allows. In
    squared mm of displacements over a `length_mm`, for each square of that length that the knots cover.
    """
    points, (rows, columns) = lattice_mm(spline)
    basis = spline.basis(points)  # (N, K)
    fields = torch.zeros(spline.knots, 3, 3, len(points), dtype=points.dtype)
    for axis in range(3):
        fields[:, axis, axis] = basis.T
    residual = navier_cauchy(fields.reshape(-1, 3, rows, columns), poisson_ratio).flatten(1)
    unrest = residual @ residual.T * (3 / residual.shape[1])
    slopes = torch.cat([spline.basis(points, along) for along in ((1, 0), (0, 1))])
    bent = torch.kron(slopes.T @ slopes / len(points), torch.eye(3, dtype=points.dtype))
    cells = length_mm / (spline.step_mm / _CELLS)
    (left, top), (right, bottom) = spline.box_mm
    squares = (right - left) * (bottom - top) / length_mm**2
    return squares * (unrest * cells**4 + bent * length_mm**2)
