"""Equations: what every point of a frame says of its displacement, as equations of the numbers at the knots."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

_TINY = 1e-12  # of the mean energy: rounding errors


class Points(NamedTuple):
    """Points that are compared: what each says of its own shift, in mm along the frame's axes."""

    basis: Float[Tensor, "n k"]  # of the knots
    turns: Float[Tensor, "n 3 6"]  # how each moves with the six rigid steps
    matrix: Float[Tensor, "n 3 3"]  # information
    slope: Float[Tensor, "n 3"]  # of what falls when frame and volume become more alike


class Equations(NamedTuple):
    """The sums over all points: of displacements c (knots by x, y, z) and rigid steps."""

    matrix: Float[Tensor, "k3 k3"]
    slope: Float[Tensor, "k3"]
    between: Float[Tensor, "6 k3"]  # steps and displacements
    steps: Float[Tensor, "6 6"]
    steps_slope: Float[Tensor, "6"]


class Solution(NamedTuple):
    """Displacement and rigid step that are most probable, and what speaks for a displacement."""

    values: Float[Tensor, "k3"]
    step: Float[Tensor, "6"]
    spread_mm: float
    significance: float


def rigid_moves(points_mm: Float[Tensor, "n 2"], lever_mm: float) -> Float[Tensor, "n 3 6"]:
    """How points move with three shifts and three turns, these as the way of a point at the lever."""
    x, y = (points_mm / lever_mm).unbind(1)
    zero, one = torch.zeros_like(x), torch.ones_like(x)
    columns = (
        (one, zero, zero),
        (zero, one, zero),
        (zero, zero, one),
        (zero, zero, y),
        (zero, zero, -x),
        (-y, x, zero),
    )
    return torch.stack([torch.stack(column, 1) for column in columns], 2)


def summed(points: Points) -> Equations:
    """The sums, by products of matrices; `plain_sums` of the tests says the same point by point."""
    basis, turns, matrix, slope = points
    knots = basis.shape[1]
    total = torch.zeros(knots, 3, knots, 3, dtype=basis.dtype)
    for one in range(3):
        for other in range(one, 3):
            part = basis.T @ (matrix[:, one, other, None] * basis)
            total[:, one, :, other] = part
            total[:, other, :, one] = part.T
    turned = matrix @ turns  # (N, 3, 6)
    return Equations(
        total.reshape(3 * knots, 3 * knots),
        (basis.T @ slope).flatten(),
        torch.einsum("nim,nk->mki", turned, basis).flatten(1),
        torch.einsum("nil,nim->lm", turns, turned),
        torch.einsum("nim,ni->m", turns, slope),
    )


def added(parts: list[Equations]) -> Equations:
    """What several likenesses say together."""
    return Equations(*(torch.stack(part).sum(0) for part in zip(*parts, strict=True)))


class Elastic:
    """Displacements without a rigid part, as probable as their elastic energy is small."""

    def __init__(
        self, energy: Float[Tensor, "k3 k3"], basis: Float[Tensor, "n k"], turns: Float[Tensor, "n 3 6"]
    ) -> None:
        """Of the points that a frame shows: no rigid move brings these nearer to where they were."""
        rigid = torch.einsum("nk,nim->mki", basis, turns).flatten(1)  # (6, K3)
        self.free = torch.linalg.svd(rigid).Vh[6:].T  # (K3, K3 - 6)
        held = self.free.T @ energy @ self.free
        steady = _TINY * held.diagonal().mean() * torch.eye(len(held), dtype=held.dtype)
        self.factor = torch.linalg.cholesky(held + steady)

    def whitened(self, matrix: Float[Tensor, "k k"]) -> Float[Tensor, "k k"]:
        """A matrix in coordinates in which all displacements of one energy are equally probable."""
        half = torch.linalg.solve_triangular(self.factor, matrix, upper=False)
        white = torch.linalg.solve_triangular(self.factor, half.T, upper=False)
        return (white + white.T) / 2

    def solve(
        self,
        equations: Equations,
        values: Float[Tensor, "k3"],
        step: Float[Tensor, "6"],
        spreads_mm: Float[Tensor, "s"],
        step_mm: float,
    ) -> Solution:
        """The most probable displacement and step, by equations at the present ones.

        Displacements have a usual size, of `spreads_mm` the one that what is seen makes most probable, steps `step_mm`.
        Rigid steps are summed out, so that no displacement is made of what a step explains.
        """
        held = torch.eye(6, dtype=values.dtype) / step_mm**2
        steps = torch.linalg.inv(equations.steps + held)
        steps_slope = equations.steps_slope + held @ step
        between = equations.between @ self.free  # (6, k)
        matrix = self.free.T @ equations.matrix @ self.free - between.T @ steps @ between
        now = self.free.T @ values
        right = matrix @ now - (self.free.T @ equations.slope - between.T @ steps @ steps_slope)
        told, axes = torch.linalg.eigh(self.whitened(matrix))
        told = told.clamp_min(0)
        seen = axes.T @ torch.linalg.solve_triangular(self.factor, right[:, None], upper=False)[:, 0]
        power = spreads_mm[:, None].square()
        evidence = ((power * seen.square() / (1 + power * told)) - torch.log1p(power * told)).sum(1) / 2
        best = int(evidence.argmax())
        white = power[best] * seen / (1 + power[best] * told)
        found = torch.linalg.solve_triangular(self.factor.T, (axes @ white)[:, None], upper=True)[:, 0]
        stepped = step - steps @ (steps_slope + between @ (found - now))
        return Solution(self.free @ found, stepped, float(spreads_mm[best]), float(evidence[best]))
