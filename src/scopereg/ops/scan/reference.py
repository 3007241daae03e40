"""The scans as a loop over tokens that anyone can check; autograd does the backward pass."""

from __future__ import annotations

import torch

from scopereg.ops.scan.checks import (
    Gates,
    Grid,
    Moments,
    Order,
    PlaneGates,
    PlaneSteps,
    Rates,
    SharedRates,
    Skip,
    States,
    Steps,
    Values,
    compute_dtype,
)
from scopereg.ops.scan.layout import (
    coordinates_by,
    gates_in_order,
    inverse_order,
    sum_in_natural_order,
    values_in_order,
)


def directional(u: Values, delta: Steps, A: Rates, B: Gates, C: Gates, D: Skip | None, order: Order) -> Values:
    dtype = compute_dtype(u, delta, A, B, C, D)
    values = values_in_order(u.to(dtype), order)  # (batch, directions, planes, length, channels)
    step, write, read = (gates_in_order(x.to(dtype), order) for x in (delta, B, C))
    A = A.to(dtype)
    h = values.new_zeros(())
    y = []
    # One unbind for all tokens: the backward of indexing each token would fill a whole tensor with zeros every time.
    tokens = zip(values.unbind(3), step.unbind(2), write.unbind(2), read.unbind(2), strict=True)
    for u_n, delta_n, B_n, C_n in tokens:
        decay = torch.exp(delta_n.unsqueeze(-1) * A)  # (batch, directions, channels, states)
        pushed = delta_n.unsqueeze(2) * u_n  # (batch, directions, planes, channels)
        h = decay.unsqueeze(2) * h + pushed.unsqueeze(-1) * B_n[:, :, None, None]
        y.append((h * C_n[:, :, None, None]).sum(-1))
    out = torch.stack(y, 3)  # (batch, directions, planes, length, channels)
    if D is not None:
        out = out + D.to(dtype)[:, None, None] * values
    return sum_in_natural_order(out, order)


def coordinate(values: Grid, delta: PlaneSteps, A: SharedRates, B: PlaneGates, C: Gates, order: Order) -> Moments:
    return coordinates_by(directional, values, delta, A, B, C, order)


def states(values: Grid, delta: PlaneSteps, A: SharedRates, B: PlaneGates, order: Order) -> States:
    dtype = compute_dtype(values, delta, A, B)
    tables = []
    for k, row in enumerate(order.unbind(0)):
        grid = values.to(dtype).index_select(1, row)  # (planes, length, P)
        step = delta[:, k].to(dtype).index_select(2, row)  # (batch, planes, length)
        write = B[:, k].to(dtype).index_select(2, row)  # (batch, planes, length, states)
        h = step.new_zeros(())
        visited = []
        for value, delta_n, B_n in zip(grid.unbind(1), step.unbind(2), write.unbind(2), strict=True):
            decay = torch.exp(delta_n.unsqueeze(-1) * A[k].to(dtype))  # (batch, planes, states)
            pushed = (delta_n.unsqueeze(-1) * B_n).unsqueeze(-1) * value.unsqueeze(1)
            h = decay.unsqueeze(-1) * h + pushed  # (batch, planes, states, P)
            visited.append(h)
        tables.append(torch.stack(visited, 2).index_select(2, inverse_order(order)[k]))
    return torch.stack(tables, 1)
