"""The scans on the meta device, where tensors have a shape and no memory: each is one operation that gives a shape.

So a counter of operations (`torch.utils.flop_counter`) meets a scan as such, with its number of steps, however the
backends compute it.
"""

from __future__ import annotations

import torch
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
    States,
    Steps,
    Values,
    compute_dtype,
)

_LIBRARY = torch.library.Library("scopereg", "DEF")
# `steps`: one per token, channel, state and direction. The result is like `y`.
_LIBRARY.define("scan(Tensor y, int steps) -> Tensor")


@torch.library.impl(_LIBRARY, "scan", "Meta")
def _scan(y: Tensor, steps: int) -> Tensor:
    return torch.empty_like(y)


def scanned(y: Tensor, steps: int) -> Tensor:
    """The result of a scan of so many steps: no more than its shape, which is that of `y`."""
    result: Tensor = torch.ops.scopereg.scan(y, steps)
    return result


def directional(u: Values, delta: Steps, A: Rates, B: Gates, C: Gates, D: Skip | None, order: Order) -> Values:
    y = torch.empty_like(u, dtype=compute_dtype(u, delta, A, B, C, D))
    return scanned(y, y.numel() * A.shape[-1] * len(order))


def coordinate(values: Grid, delta: PlaneSteps, A: SharedRates, B: PlaneGates, C: Gates, order: Order) -> Moments:
    z = values.new_empty(len(C), *values.shape, dtype=compute_dtype(values, delta, A, B, C))
    return scanned(z, z.numel() * A.shape[-1] * len(order))


def states(values: Grid, delta: PlaneSteps, A: SharedRates, B: PlaneGates, order: Order) -> States:
    dtype = compute_dtype(values, delta, A, B)
    h = values.new_empty(*delta.shape, A.shape[-1], values.shape[-1], dtype=dtype)  # delta has the directions already
    return scanned(h, h.numel())
