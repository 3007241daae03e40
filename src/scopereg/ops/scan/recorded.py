"""The scans as graphs of few nodes, for programs that are recorded: torch.export, ONNX, torch.compile.

A recorded loop is written out turn by turn, and exporters take their time over every node. Chunks of sqrt(length)
tokens advance side by side, as in `torch_backend`; what they inherit is read by one product for all tokens, which there
would only cost memory. The batch may be a symbol.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from scopereg.ops.scan import torch_backend
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
from scopereg.ops.scan.layout import directional_by
from scopereg.ops.scan.torch_backend import chain, in_chunks

states = torch_backend.states


def recording() -> bool:
    """Whether what is computed now is written down rather than done; not by `torch.jit.trace`."""
    return torch.compiler.is_compiling()


def directional(u: Values, delta: Steps, A: Rates, B: Gates, C: Gates, D: Skip | None, order: Order) -> Values:
    return directional_by(_scan, u, delta, A, B, C, D, order)


def coordinate(values: Grid, delta: PlaneSteps, A: SharedRates, B: PlaneGates, C: Gates, order: Order) -> Moments:
    """From the table of all states: few doublings make it, and with one kernel for all channels it is small."""
    table = states(values, delta, A, B, order)
    read = C.to(compute_dtype(values, delta, A, B, C))[:, :, None, :, None] @ table
    return read.squeeze(-2).sum(1)  # (batch, directions, planes, length, 1, P) before


def _scan(
    pushed: Float[Tensor, "b k p l c"], step: Steps, A: Rates, write: Gates, read: Gates
) -> Float[Tensor, "b k p l c"]:
    """Outputs, all arguments in scan order, `pushed` = delta u."""
    length, rate = step.shape[2], A.unsqueeze(1)  # (directions, 1, channels, states)
    step, write, read, pushed = in_chunks(math.isqrt(length), step, write, read, pushed)
    y, ends = _alone(pushed, step, rate, write, read)
    if step.shape[2] > 1:
        y = y + _inherited(ends, step.cumsum(3), rate, read)
    return y.flatten(3, 4)[:, :, :, :length]


def _alone(pushed: Tensor, step: Tensor, rate: Tensor, write: Tensor, read: Tensor) -> tuple[Tensor, Tensor]:
    """Chunks from a zero state: outputs (batch, directions, planes, chunks, tokens, channels), and their end states."""
    steps = step[:, :, None, ..., None].unbind(4)  # per token (batch, directions, 1, chunks, channels, 1)
    writes = write[:, :, None, :, :, None].unbind(4)  # per token (batch, directions, 1, chunks, 1, states)
    reads = read[:, :, None, ..., None].unbind(4)  # per token (batch, directions, 1, chunks, states, 1)
    h, y = None, []
    for step_t, pushed_t, write_t, read_t in zip(steps, pushed.unsqueeze(-1).unbind(4), writes, reads, strict=True):
        increment = pushed_t * write_t  # (batch, directions, planes, chunks, channels, states)
        h = increment if h is None else increment + torch.exp(step_t * rate.unsqueeze(1)) * h
        y.append(h @ read_t)
    assert h is not None  # the checks refuse a scan of no tokens
    return torch.stack(y, 4).squeeze(-1), h


def _inherited(ends: Tensor, elapsed: Tensor, rate: Tensor, read: Tensor) -> Tensor:
    """What tokens read of the chunks before theirs: (batch, directions, planes, chunks, tokens, channels)."""
    passed = torch.exp(elapsed[:, :, :, -1].unsqueeze(-1) * rate)  # (batch, directions, chunks, channels, states)
    begins, _ = chain(torch.zeros_like(ends[:, :, :, 0]), ends, passed)
    # Channels before tokens, so that one product over the states serves all tokens and planes.
    gate = torch.exp(elapsed.transpose(3, 4).unsqueeze(-1) * rate.unsqueeze(-2)) * read.unsqueeze(3)
    seen = gate @ begins.movedim(2, -1)  # (batch, directions, chunks, channels, tokens, planes)
    return seen.permute(0, 1, 5, 2, 4, 3)
