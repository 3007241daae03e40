"""Tokens in natural and in scan order; directional scans made of scans in order, coordinate scans of directional."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Num
from torch import Tensor

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
    Steps,
    Values,
    compute_dtype,
)


def values_in_order(u: Num[Tensor, "b p l f"], order: Order) -> Num[Tensor, "b k p l f"]:
    """Tokens in the order of each direction."""
    return torch.stack([u.index_select(2, row) for row in order.unbind(0)], 1)


def gates_in_order(gate: Num[Tensor, "b k l f"], order: Order) -> Num[Tensor, "b k l f"]:
    """From natural order, each direction in its own order."""
    rows = zip(gate.unbind(1), order.unbind(0), strict=True)
    return torch.stack([x.index_select(1, row) for x, row in rows], 1)


def inverse_order(order: Order) -> Order:
    """inverse[k, order[k, n]] = n."""
    steps = torch.arange(order.shape[1], device=order.device).expand_as(order)
    return torch.zeros_like(order).scatter(1, order, steps)


def sum_in_natural_order(y: Num[Tensor, "b k p l f"], order: Order) -> Num[Tensor, "b p l f"]:
    """From scan order, directions summed."""
    total = None
    for part, row in zip(y.unbind(1), inverse_order(order).unbind(0), strict=True):
        natural = part.index_select(2, row)
        total = natural if total is None else total + natural
    assert total is not None  # the checks refuse an empty `order`
    return total


def directional_by(
    scan: Callable[..., Tensor],
    u: Values,
    delta: Steps,
    A: Rates,
    B: Gates,
    C: Gates,
    D: Skip | None,
    order: Order,
) -> Values:
    """A directional scan by a backend's `scan(delta u, delta, A, B, C)` of arguments that are in scan order already."""
    dtype = compute_dtype(u, delta, A, B, C, D)
    u, A = u.to(dtype), A.to(dtype)
    step, write, read = (gates_in_order(x.to(dtype), order) for x in (delta, B, C))
    pushed = step.unsqueeze(2) * values_in_order(u, order)  # (batch, directions, planes, length, channels)
    y = sum_in_natural_order(scan(pushed, step, A, write, read), order)
    if D is not None:
        y = y + D.to(dtype).sum(0) * u
    return y


def fold_coordinates(
    values: Grid, delta: PlaneSteps, A: SharedRates, B: PlaneGates, C: Gates
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """A coordinate scan's arguments as (u, delta, A, B, C) of a directional scan.

    All P channels share the decay, as planes do there: so P becomes the planes, planes join the batch, and one channel
    is left.
    """
    batch, directions, planes, length, states = B.shape
    u = values.transpose(1, 2).unsqueeze(-1).unsqueeze(0)  # (1, planes, P, length, 1)
    u = u.expand(batch, -1, -1, -1, -1).reshape(batch * planes, -1, length, 1)
    step = delta.transpose(1, 2).reshape(batch * planes, directions, length, 1)
    write = B.transpose(1, 2).reshape(batch * planes, directions, length, states)
    read = C.unsqueeze(1).expand(-1, planes, -1, -1, -1).reshape(batch * planes, directions, length, states)
    return u, step, A.unsqueeze(1), write, read


def coordinates_by(
    directional: Callable[..., Tensor],
    values: Grid,
    delta: PlaneSteps,
    A: SharedRates,
    B: PlaneGates,
    C: Gates,
    order: Order,
) -> Moments:
    """A coordinate scan run by a backend's directional scan."""
    y = directional(*fold_coordinates(values, delta, A, B, C), None, order)  # (batch * planes, P, length, 1)
    return y.reshape(delta.shape[0], values.shape[0], values.shape[2], values.shape[1]).transpose(2, 3)


def needs_gradient(*inputs: Tensor | None) -> bool:
    """Whether something will ask for the gradient of one of them."""
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)
