"""The equations of a deformation point by point, as a reader would write them down."""

from __future__ import annotations

import torch
from torch import Tensor

from scopereg.registration.deformable.equations import Equations, Points


def plain_sums(points: Points) -> Equations:
    """Every point's shift is its row of the basis times the numbers at the knots, and its turns times the step."""
    count, knots = points.basis.shape
    matrix, slope = torch.zeros(3 * knots, 3 * knots).double(), torch.zeros(3 * knots).double()
    between, steps, steps_slope = (
        torch.zeros(6, 3 * knots).double(),
        torch.zeros(6, 6).double(),
        torch.zeros(6).double(),
    )
    for n in range(count):
        moves = torch.zeros(3, 3 * knots, dtype=torch.float64)
        for knot in range(knots):
            for axis in range(3):
                moves[axis, 3 * knot + axis] = points.basis[n, knot]
        matrix += moves.T @ points.matrix[n] @ moves
        slope += moves.T @ points.slope[n]
        between += points.turns[n].T @ points.matrix[n] @ moves
        steps += points.turns[n].T @ points.matrix[n] @ points.turns[n]
        steps_slope += points.turns[n].T @ points.slope[n]
    return Equations(matrix, slope, between, steps, steps_slope)


def most_probable(equations: Equations, free: Tensor, energy: Tensor, spread_mm: float, step_mm: float) -> Tensor:
    """Displacement and step that make least of misfit and energy together, from 0, by one large system."""
    wanted = free.T @ energy @ free / spread_mm**2
    upper = torch.cat([free.T @ equations.matrix @ free + wanted, (equations.between @ free).T], 1)
    lower = torch.cat([equations.between @ free, equations.steps + torch.eye(6).double() / step_mm**2], 1)
    right = -torch.cat([free.T @ equations.slope, equations.steps_slope])
    found = torch.linalg.solve(torch.cat([upper, lower]), right)
    return torch.cat([free @ found[:-6], found[-6:]])
