"""Elastic: what an elastic body at rest makes zero, of fields of displacements that live on a plane."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

POISSON_RATIO = 0.45  # soft tissue is nearly incompressible


def navier_cauchy(
    field: Float[Tensor, "b 3 h w"], poisson_ratio: float = POISSON_RATIO
) -> Float[Tensor, "b 3 h-2 w-2"]:
    """Residual of the Navier-Cauchy equation of fields x, y, z on a lattice, inside of its border.

    In units of the field for a squared step of the lattice. Derivatives are those along x and y.
    """
    inner = field[..., 1:-1, 1:-1]
    xx = field[..., 1:-1, 2:] - 2 * inner + field[..., 1:-1, :-2]
    yy = field[..., 2:, 1:-1] - 2 * inner + field[..., :-2, 1:-1]
    xy = (field[..., 2:, 2:] - field[..., 2:, :-2] - field[..., :-2, 2:] + field[..., :-2, :-2]) / 4
    # Gradient of the divergence d u_x/dx + d u_y/dy; nothing changes along z.
    along_x = xx[:, 0] + xy[:, 1]
    along_y = xy[:, 0] + yy[:, 1]
    divergence = torch.stack([along_x, along_y, torch.zeros_like(along_x)], 1)
    return xx + yy + divergence / (1 - 2 * poisson_ratio)
