"""The scans as callers see them: shapes checked, backend chosen, output in the caller's type.

Autocast is off: the states of a scan do not survive half precision.

The recurrence, per channel and state: h_n = exp(delta_n A) h_(n-1) + delta_n B_n u_n, y_n = C_n . h_n + D u_n, h_0 = 0.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from scopereg.devices import full_precision
from scopereg.ops.scan import checks, dispatch, meta
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
)


def selective_scan(
    u: Float[Tensor, "b l c"],
    delta: Float[Tensor, "b l c"],
    A: Float[Tensor, "c s"],
    B: Float[Tensor, "b l s"],
    C: Float[Tensor, "b l s"],
    D: Float[Tensor, " c"] | None = None,
    *,
    backend: str = "auto",
) -> Float[Tensor, "b l c"]:
    """One causal selective scan of batch, length, channels with so many states; `A` is the negative matrix itself.

    `delta` must not be negative, so that every decay exp(delta A) is at most one.
    """
    checks.selective(u, delta, A, B, C, D)
    order = torch.arange(u.shape[1], device=u.device).unsqueeze(0)
    u, delta, B, C = (x.unsqueeze(1) for x in (u, delta, B, C))  # one plane, one direction
    skip = None if D is None else D.unsqueeze(0)
    return directional_scan(u, delta, A.unsqueeze(0), B, C, skip, order, backend=backend).squeeze(1)


def directional_scan(
    u: Values,
    delta: Steps,
    A: Rates,
    B: Gates,
    C: Gates,
    D: Skip | None,
    order: Order,
    *,
    backend: str = "auto",
) -> Values:
    """Sum over directions of scans along `order`, with gates shared by all planes.

    Each row of `order` is a permutation: step n of direction k visits token order[k, n]. Everything else, y included,
    is in natural token order.
    """
    checks.directional(u, delta, A, B, C, D, order)
    inputs = [x for x in (u, delta, A, B, C, D) if x is not None]
    with full_precision(u.device):
        y = dispatch.resolve(backend, inputs).directional(u, delta, A, B, C, D, order)
    return y.to(u.dtype)


def coordinate_scan(
    values: Grid,
    delta: PlaneSteps,
    A: SharedRates,
    B: PlaneGates,
    C: Gates,
    order: Order,
    *,
    backend: str = "auto",
) -> Moments:
    """Scan of a fixed grid whose channels all share one kernel, summed over directions.

    `C` is the same for all planes; there is no skip.
    """
    checks.coordinate(values, delta, A, B, C, order)
    with full_precision(delta.device):
        z = dispatch.resolve(backend, [values, delta, A, B, C]).coordinate(values, delta, A, B, C, order)
    return z.to(delta.dtype)


def coordinate_states(
    values: Grid, delta: PlaneSteps, A: SharedRates, B: PlaneGates, order: Order, *, backend: str = "auto"
) -> States:
    """The states of `coordinate_scan`, in natural token order.

    They do not depend on the readout C, hence not on the frame: one table serves every frame of a volume.
    Triton has no kernel of its own for this once-per-volume table and uses `torch`.
    """
    checks.coordinate(values, delta, A, B, None, order)
    with full_precision(delta.device):
        h = dispatch.resolve(backend, [values, delta, A, B]).states(values, delta, A, B, order)
    return h.to(delta.dtype)


def coordinate_readout(h: Float[Tensor, "#b k p l s q"], C: Gates) -> Moments:
    """Read a state table with the frame's gate: sum over directions and states.

    `h` comes from `coordinate_states`, with its own batch or a batch of one for many frames.
    """
    checks.readout(h, C)
    with full_precision(h.device):
        dtype = checks.compute_dtype(h, C)
        table, gate = h.to(dtype), C.to(dtype)
        # The product would copy a shared table for every frame; the contraction of a single frame would permute it.
        if h.shape[0] == 1 and not (isinstance(C.shape[0], int) and C.shape[0] == 1):
            return torch.einsum("kplsq,bkls->bplq", table.squeeze(0), gate).to(C.dtype)
        read = gate[:, :, None, :, None] @ table  # (batch, directions, planes, length, 1, P)
        return read.squeeze(-2).sum(1).to(C.dtype)


def bidirectional_mass(
    delta: Float[Tensor, "b l"], A: Float[Tensor, " s"], B: Float[Tensor, "b l s"], C: Float[Tensor, "b l s"]
) -> Float[Tensor, "b l"]:
    """Mass that a unit stream leaves at each token, forward pass plus backward pass.

    Each pass counts its own diagonal. Made for the few tokens along depth: both passes advance together, one step per
    token, in plain PyTorch.
    """
    checks.mass(delta, A, B, C)
    if dispatch.fastest([delta, A, B, C]) == "meta":
        return meta.scanned(delta, 2 * B.numel())
    with full_precision(delta.device):
        dtype = checks.compute_dtype(delta, A, B, C)
        step = delta.to(dtype).unsqueeze(-1)  # (batch, length, 1)
        decay, increment = torch.exp(step * A.to(dtype)), step * B.to(dtype)  # (batch, length, states)
        decay, increment = (torch.stack([x, x.flip(1)]) for x in (decay, increment))  # (2, batch, length, states)
        states = [increment[:, :, 0]]
        for n in range(1, delta.shape[1]):
            states.append(torch.addcmul(increment[:, :, n], decay[:, :, n], states[-1]))
        h = torch.stack(states, 2)  # (2, batch, length, states)
        g = ((h[0] + h[1].flip(1)) * C.to(dtype)).sum(-1)
    return g.to(delta.dtype)
