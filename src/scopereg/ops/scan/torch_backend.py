"""The scans in plain PyTorch, for any device; `recorded` has them for export.

The length is cut into chunks that advance side by side, one token of each at a time, from a zero state; then the
chunks' end states are chained, and what each chunk inherits is added to its outputs. The decay from a chunk's start to
a token is exp(A sum of delta): nothing is ever divided by a decay, and only non-positive numbers are exponentiated.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

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
from scopereg.ops.scan.layout import coordinates_by, directional_by, inverse_order

# State elements advanced per step. A CPU core wants them in its cache: there the chunks only cost.
_CPU_ELEMENTS = 2**18
_GPU_ELEMENTS = 2**24
# State elements that the backward pass of one segment may keep; segments are recomputed one after another.
_KEPT_ELEMENTS = 2**26


def directional(u: Values, delta: Steps, A: Rates, B: Gates, C: Gates, D: Skip | None, order: Order) -> Values:
    return directional_by(_scan, u, delta, A, B, C, D, order)


def coordinate(values: Grid, delta: PlaneSteps, A: SharedRates, B: PlaneGates, C: Gates, order: Order) -> Moments:
    return coordinates_by(directional, values, delta, A, B, C, order)


def states(values: Grid, delta: PlaneSteps, A: SharedRates, B: PlaneGates, order: Order) -> States:
    """All states at once, in log2(length) doublings: the table is the output, so its memory is spent anyway."""
    dtype = compute_dtype(values, delta, A, B)
    values, A = values.to(dtype), A.to(dtype)
    rows = order[:, None, :]  # the same order on every plane
    step = delta.to(dtype).gather(3, rows.expand_as(delta))  # (batch, directions, planes, length)
    write = B.to(dtype).gather(3, rows.unsqueeze(-1).expand_as(B))
    grid = torch.stack([values.index_select(1, row) for row in order.unbind(0)])  # (directions, planes, length, P)
    decay = torch.exp(step.unsqueeze(-1) * A[:, None, None]).unsqueeze(-1)  # (..., length, states, 1)
    h = (step.unsqueeze(-1) * write).unsqueeze(-1) * grid.unsqueeze(-2)  # (..., length, states, P)
    reach = 1
    while reach < order.shape[1]:
        h = torch.cat(
            [
                h[..., :reach, :, :],
                torch.addcmul(h[..., reach:, :, :], decay[..., reach:, :, :], h[..., :-reach, :, :]),
            ],
            -3,
        )
        decay = torch.cat([decay[..., :reach, :, :], decay[..., reach:, :, :] * decay[..., :-reach, :, :]], -3)
        reach *= 2
    back = inverse_order(order)
    return torch.stack([x.index_select(2, row) for x, row in zip(h.unbind(1), back.unbind(0), strict=True)], 1)


def _scan(pushed: Tensor, step: Tensor, A: Tensor, write: Tensor, read: Tensor) -> Tensor:
    """Outputs (batch, directions, planes, length, channels), all arguments in scan order, `pushed` = delta u."""
    batch, directions, planes, length, channels = pushed.shape
    start = pushed.new_zeros(batch, directions, planes, channels, A.shape[-1])
    if torch.jit.is_tracing():
        # The batch may be a symbol, and the graph should stay short: sqrt(length) chunks of sqrt(length) steps.
        return _segment(start, pushed, step, A, write, read, math.isqrt(length))[0]
    elements = start.numel()
    lanes = (_CPU_ELEMENTS if pushed.device.type == "cpu" else _GPU_ELEMENTS) // elements
    if not (torch.is_grad_enabled() and any(x.requires_grad for x in (pushed, step, A, write, read))):
        return _segment(start, pushed, step, A, write, read, min(lanes, math.isqrt(length)))[0]
    size = max(8, min(256, _KEPT_ELEMENTS // elements))
    if length <= size:
        # One segment: recomputing it would keep as much in the end, and walk it twice.
        return _segment(start, pushed, step, A, write, read, min(lanes, math.isqrt(length)))[0]
    parts = []
    for first in range(0, length, size):
        part = slice(first, first + size)
        chunks = min(lanes, math.isqrt(min(size, length - first)))
        inputs = (pushed[:, :, :, part], step[:, :, part], A, write[:, :, part], read[:, :, part])
        y, start = checkpoint(_segment, start, *inputs, chunks, use_reentrant=False, preserve_rng_state=False)
        parts.append(y)
    return torch.cat(parts, 3)


def _segment(
    start: Tensor, pushed: Tensor, step: Tensor, A: Tensor, write: Tensor, read: Tensor, chunks: int
) -> tuple[Tensor, Tensor]:
    """Outputs of a stretch of tokens that begins in state `start`, and the state it ends in."""
    length = step.shape[2]
    step, write, read, pushed = in_chunks(max(chunks, 1), step, write, read, pushed)
    chunks = step.shape[2]
    rate = A.unsqueeze(1)  # (directions, 1, channels, states)
    gates = read.unsqueeze(2).unsqueeze(-2).unbind(4)  # per token (batch, directions, 1, chunks, 1, states)
    h = start.unsqueeze(3) if chunks == 1 else torch.zeros_like(start).unsqueeze(3)
    y = []
    for delta_t, pushed_t, B_t, C_t in zip(step.unbind(3), pushed.unbind(4), write.unbind(3), gates, strict=True):
        decay = torch.exp(delta_t.unsqueeze(-1) * rate)  # (batch, directions, chunks, channels, states)
        increment = pushed_t.unsqueeze(-1) * B_t[:, :, None, :, None]
        h = torch.addcmul(increment, decay.unsqueeze(2), h)  # (batch, directions, planes, chunks, channels, states)
        y.append((h * C_t).sum(-1))
    if chunks > 1:
        elapsed = step.cumsum(3).unbind(3)  # per token (batch, directions, chunks, channels)
        inherited, end = chain(start, h, torch.exp(elapsed[-1].unsqueeze(-1) * rate))
        for t, since in enumerate(elapsed):
            gate = torch.exp(since.unsqueeze(-1) * rate).unsqueeze(2) * gates[t]
            y[t] = y[t] + (gate * inherited).sum(-1)
    else:
        end = h.squeeze(3)
    return torch.stack(y, 4).flatten(3, 4)[:, :, :, :length], end


def in_chunks(wanted: int, *tensors: Tensor) -> list[Tensor]:
    """(..., length, F) -> (..., chunks, tokens, F), with at most as many chunks as wanted."""
    length = tensors[0].shape[-2]
    tokens = -(-length // wanted)
    chunks = -(-length // tokens)
    # A padded token has delta = 0: its decay is one and it pushes nothing, so that it changes no state.
    pad = (0, 0, 0, tokens * chunks - length)
    return [functional.pad(x, pad).unflatten(-2, (chunks, tokens)) for x in tensors]


def chain(start: Tensor, ends: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
    """States in which the chunks begin, from the end states they reach alone and their total decays; and the last end.

    `start` (batch, directions, planes, channels, states); `ends` has the chunks at dimension 3, `decay` at 2.
    """
    begins = []
    for alone, passed in zip(ends.unbind(3), decay.unbind(2), strict=True):
        begins.append(start)
        start = torch.addcmul(alone, passed.unsqueeze(2), start)
    return torch.stack(begins, 3), start
