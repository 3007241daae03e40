"""The scans as fused Triton kernels with a backward pass: float32 state, any length, the four directions at once.

When batch x directions x channel blocks do not fill the GPU, the length is split into segments in three launches:
every segment's end state from zero, the chain of these ends, every segment again from the state it truly begins in.
The backward pass splits in the same way, from the end. Sums over programs go through buffers, not atomics: results
are the same in every run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from scopereg.errors import ScopeRegError
from scopereg.ops.scan import torch_backend
from scopereg.ops.scan import triton_kernels as kernels
from scopereg.ops.scan.layout import coordinates_by

# Tokens between saved states: memory for them falls with it, scratch of the backward pass grows with it.
SAVE_EVERY = 16
# State elements of a program, and of one of its warps, in the forward and in the backward pass.
FORWARD_TILE, BACKWARD_TILE = 1024, 1024
WARP_ELEMENTS = 1024
# Warps that a multiprocessor should have in flight before the length is left in one piece.
WARPS_PER_PROCESSOR = 32
# Widest tile side that the kernels take.
LIMIT = 64


@dataclass(frozen=True)
class Plan:
    """How a scan is laid over programs: tile sizes (powers of two), channel blocks, segments of the length."""

    planes: int
    channels: int
    states: int
    warps: int
    blocks: int
    segments: int
    tokens: int

    @property
    def tile(self) -> dict[str, int]:
        return {"BP": self.planes, "BC": self.channels, "BS": self.states, "num_warps": self.warps}


def directional(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None, order: Tensor) -> Tensor:
    if A.shape[2] > LIMIT:
        raise ScopeRegError(
            f"{A.shape[2]} states, more than {LIMIT}", where="states", fix='use backend="torch", which has no limit'
        )
    if u.shape[1] > LIMIT:
        return torch.cat([directional(part, delta, A, B, C, D, order) for part in u.split(LIMIT, 1)], 1)
    u, delta, A, B, C = (_flat(x) for x in (u, delta, A, B, C))
    D, order = None if D is None else _flat(D), order.contiguous()
    if not (torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (u, delta, A, B, C, D))):
        return _forward(u, delta, A, B, C, D, order, None)
    y: Tensor = _DirectionalScan.apply(u, delta, A, B, C, D, order)
    return y


def coordinate(values: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, order: Tensor) -> Tensor:
    return coordinates_by(directional, values, delta, A, B, C, order)


states = torch_backend.states


class _DirectionalScan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None, order: Tensor
    ) -> Tensor:
        saved = _save_buffer(u, A)
        y = _forward(u, delta, A, B, C, D, order, saved)
        ctx.save_for_backward(u, delta, A, B, C, D, order, saved)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        gradients = _backward(dy.float().contiguous(), *ctx.saved_tensors)
        inputs = ctx.saved_tensors
        cast = [g if g is None else g.to(x.dtype) for g, x in zip(gradients, inputs, strict=False)]
        return (*cast, None)


def _forward(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None, order: Tensor, saved: Tensor | None
) -> Tensor:
    (batch, planes, length, channels), (directions, _, states) = u.shape, A.shape
    plan = make_plan(u, A, FORWARD_TILE)
    sizes = (directions, planes, length, channels, states, plan.tokens)
    y = u.new_empty(batch, directions, planes, length, channels, dtype=torch.float32)
    begins = None if plan.segments == 1 else _received(u, delta, A, B, order, plan, reverse=False)
    with on_device(u):
        kernels.launch(
            kernels.forward_kernel, (batch * directions, plan.blocks, plan.segments),
            u, delta, A, B, C, D if D is not None else A, order, y,
            begins if begins is not None else y, saved if saved is not None else y, *sizes,
            HAS_D=D is not None, SAVE=saved is not None, T=SAVE_EVERY, **plan.tile,
        )  # fmt: skip
    return y.sum(1) if directions > 1 else y.squeeze(1)


def _backward(
    dy: Tensor,
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    order: Tensor,
    saved: Tensor,
) -> tuple[Tensor | None, ...]:
    (batch, planes, length, channels), (directions, _, states) = u.shape, A.shape
    plan = make_plan(u, A, BACKWARD_TILE)
    sizes = (directions, planes, length, channels, states, plan.tokens)
    carries = None if plan.segments == 1 else _received(dy, delta, A, C, order, plan, reverse=True)

    def buffer(*shape: int) -> Tensor:
        return torch.empty(batch, directions, *shape, device=u.device, dtype=torch.float32)

    tile = plan.planes * plan.channels * plan.states
    scratch = buffer(plan.segments, plan.blocks, SAVE_EVERY * tile)
    du, ddelta = buffer(planes, length, channels), buffer(length, channels)
    dA, dD = buffer(plan.segments, channels, states), buffer(plan.segments, channels)
    dB, dC = buffer(plan.blocks, length, states), buffer(plan.blocks, length, states)
    with on_device(u):
        kernels.launch(
            kernels.backward_kernel, (batch * directions, plan.blocks, plan.segments),
            u, delta, A, B, C, D if D is not None else A, order, dy, saved, carries if carries is not None else saved,
            scratch, du, ddelta, dA, dB, dC, dD, *sizes,
            HAS_D=D is not None, T=SAVE_EVERY, **plan.tile,
        )  # fmt: skip
    return du.sum(1), ddelta, dA.sum((0, 2)), dB.sum(2), dC.sum(2), None if D is None else dD.sum((0, 2))


def _received(x: Tensor, delta: Tensor, A: Tensor, gate: Tensor, order: Tensor, plan: Plan, *, reverse: bool) -> Tensor:
    """A state buffer of what every segment receives from those before it, or in reverse from those after it."""
    (batch, planes, length, channels), (directions, _, states) = x.shape, A.shape
    rows = batch * directions
    options: dict[str, Any] = {"device": x.device, "dtype": torch.float32}
    ends = torch.empty(rows, plan.segments, channels, states, plan.planes, **options)
    elapsed = torch.empty(rows, plan.segments, channels, **options)
    tile = {"REVERSE": reverse, **plan.tile}
    with on_device(x):
        kernels.launch(
            kernels.ends_kernel, (rows, plan.blocks, plan.segments),
            x, delta, A, gate, order, ends, elapsed,
            directions, planes, length, channels, states, plan.tokens, **tile,
        )  # fmt: skip
        kernels.launch(
            kernels.chain_kernel, (rows, plan.blocks),
            ends, elapsed, A, directions, plan.segments, channels, states, **tile,
        )  # fmt: skip
    return ends


def make_plan(u: Tensor, A: Tensor, tile: int) -> Plan:
    (batch, planes, length, channels), (directions, _, states) = u.shape, A.shape
    wide_planes, wide_states = _power_of_two(planes), _power_of_two(states)
    block = max(1, min(tile // (wide_planes * wide_states), _power_of_two(channels)))
    warps = max(1, min(8, wide_planes * block * wide_states // WARP_ELEMENTS))
    blocks = -(-channels // block)
    in_flight = _processors(u.device) * WARPS_PER_PROCESSOR // warps
    # Walking a segment and chaining the segments take alike when both counts are near the root of the length.
    segments = min(in_flight // (batch * directions * blocks), math.isqrt(length), -(-length // SAVE_EVERY))
    # Splitting walks the length twice: two segments would gain nothing.
    segments = segments if segments > 2 else 1
    tokens = -(-length // (segments * SAVE_EVERY)) * SAVE_EVERY
    return Plan(wide_planes, block, wide_states, warps, blocks, -(-length // tokens), tokens)


def _save_buffer(u: Tensor, A: Tensor) -> Tensor:
    """Room for the state before every SAVE_EVERY-th token."""
    (batch, planes, length, channels), (directions, _, states) = u.shape, A.shape
    shape = (batch * directions, -(-length // SAVE_EVERY), channels, states, _power_of_two(planes))
    return torch.empty(shape, device=u.device, dtype=torch.float32)


def _flat(x: Tensor) -> Tensor:
    """Contiguous, in a type the kernels read; they compute in float32 whatever it is."""
    return (x.float() if x.dtype == torch.float64 else x).contiguous()


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


@cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def on_device(x: Tensor) -> Any:
    """Kernels launch on the current device: make it the tensor's."""
    return torch.cuda.device(x.device) if x.device.type == "cuda" else torch.no_grad()
