"""The scans as fused Triton kernels with a backward pass: float32 state, any length, the four directions at once.

When batch x directions x blocks of the tile do not fill the GPU, the length is split into segments in three launches:
every segment's end state from zero, the chain of these ends, every segment again from the state it truly begins in.
The backward pass splits in the same way, from the end. Sums over programs go through buffers, not atomics: results
are the same in every run. docs/kernels.md tells how the kernels go.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from scopereg.errors import ScopeRegError
from scopereg.ops.scan import torch_backend
from scopereg.ops.scan import triton_gradients as gradients
from scopereg.ops.scan import triton_kernels as kernels
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
)

# States of a program, which is one warp: 64 a thread, twice as many numbers where derivatives are carried along.
FORWARD_TILE, RECALL_TILE, ADJOINT_TILE = 2048, 2048, 2048
# Planes of a tile: they share its decays. More come as further programs.
PLANES = 4
# Warps that a multiprocessor should have in flight before the length is left in one piece.
WARPS_PER_PROCESSOR = 16
# The most states that the kernels take.
LIMIT = 64
_SUMMED = 1024  # numbers that a program of `sum_kernel` sums up


class Inputs(NamedTuple):
    """A scan as the kernels see it; coordinate scans have values for planes and planes for channels."""

    u: Tensor  # (batch, planes, length, channels)
    delta: Tensor  # (batch, directions, length, channels)
    A: Tensor  # (directions, channels, states)
    B: Tensor  # (batch, directions, length, channels or 1, states)
    C: Tensor  # (batch, directions, length, states)
    D: Tensor | None  # (directions, channels)
    order: Tensor  # (directions, length)

    @property
    def wide(self) -> bool:
        """Whether channels have write gates of their own."""
        return self.B.shape[3] != 1

    @property
    def sizes(self) -> tuple[int, int, int, int, int]:
        """Directions, planes, length, channels, states."""
        return len(self.A), *self.u.shape[1:], self.A.shape[2]

    @property
    def flags(self) -> dict[str, bool]:
        return {"WIDE": self.wide}

    def gates(self) -> tuple[Any, ...]:
        """What the state is made of, as kernels take it."""
        return *placed(self.u), *placed(self.delta), *placed(self.A), *placed(self.B)


@dataclass(frozen=True)
class Plan:
    """How a scan is laid over programs: tile sizes (powers of two), plane blocks, segments of the length."""

    rows: int  # batch times directions
    planes: int
    states: int
    plane_blocks: int
    channels: int  # of the scan
    segments: int
    tokens: int  # of a segment

    def tile(self, size: int) -> dict[str, int]:
        """Sides of a tile of about `size` states, and that it is one warp's."""
        return {"BP": self.planes, "BS": self.states, "BC": self._block(size), "num_warps": 1}

    def blocks(self, size: int) -> int:
        """Programs side by side: blocks of channels times those of planes."""
        return self.plane_blocks * -(-self.channels // self._block(size))

    def grid(self, size: int) -> tuple[int, int, int]:
        return self.rows, self.blocks(size), self.segments

    def _block(self, size: int) -> int:
        return max(1, min(size // (self.planes * self.states), _power_of_two(self.channels)))


def directional(u: Values, delta: Steps, A: Rates, B: Gates, C: Gates, D: Skip | None, order: Order) -> Values:
    return _scan(Inputs(u, delta, A, B.unsqueeze(3), C, D, order))


def coordinate(values: Grid, delta: PlaneSteps, A: SharedRates, B: PlaneGates, C: Gates, order: Order) -> Moments:
    """All values share the decay, as planes do there, and planes have steps of their own, as channels do there."""
    u = values.permute(2, 1, 0).expand(len(delta), -1, -1, -1)  # (batch, P, length, planes)
    rate = A.unsqueeze(1).expand(-1, len(values), -1)
    inputs = Inputs(u, delta.transpose(2, 3), rate, B.transpose(2, 3), C, None, order)
    return _scan(inputs).permute(0, 3, 2, 1)  # (batch, planes, length, P)


states = torch_backend.states


def _scan(inputs: Inputs) -> Tensor:
    """y (batch, planes, length, channels), directions summed."""
    if inputs.A.shape[2] > LIMIT:
        raise ScopeRegError(
            f"{inputs.A.shape[2]} states, more than {LIMIT}",
            where="states",
            fix='use backend="torch", which has no limit',
        )
    given = inputs._replace(
        A=_readable(inputs.A), B=_readable(inputs.B), C=_readable(inputs.C), order=inputs.order.contiguous()
    )
    if not (torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in given[:6])):
        return _forward(given)[0]
    y: Tensor = _Scan.apply(*given)  # type: ignore[no-untyped-call]
    return y


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        inputs = Inputs(*arguments)
        y, begins = _forward(inputs)
        ctx.save_for_backward(*inputs, begins)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, begins = ctx.saved_tensors
        return (*_backward(Inputs(*inputs), begins, dy), None)


def _forward(inputs: Inputs) -> tuple[Tensor, Tensor | None]:
    """y in the type of u, and what every segment begins in where there are several."""
    u, plan = inputs.u, make_plan(inputs)
    y = _buffer(u, len(inputs.A), *u.shape)
    begins = None if plan.segments == 1 else _begins(inputs, plan)
    with on_device(u):
        kernels.launch(
            kernels.forward_kernel, plan.grid(FORWARD_TILE),
            *inputs.gates(), *placed(inputs.C), u if inputs.D is None else inputs.D.contiguous(), inputs.order,
            y, y.stride(), y if begins is None else begins, *inputs.sizes, plan.tokens,
            HAS_D=inputs.D is not None, **inputs.flags, **plan.tile(FORWARD_TILE),
        )  # fmt: skip
    return sum_first(y, u.dtype), begins


def _backward(inputs: Inputs, begins: Tensor | None, dy: Tensor) -> tuple[Tensor | None, ...]:
    plan = make_plan(inputs)
    carries = None if plan.segments == 1 else _carries(inputs, plan, dy)
    left = _Left(
        _buffer(dy, plan.rows, plan.plane_blocks, *dy.shape[2:]),
        _buffer(dy, plan.rows, plan.segments, plan.plane_blocks, plan.channels),
    )
    dA, dC = _recall(inputs, plan, dy, begins, carries, left)
    du, ddelta, dB, dD = _adjoint(inputs, plan, dy, carries, left)
    return du, ddelta, dA, dB, dC, dD


class _Left(NamedTuple):
    """What the first sweep leaves to the second, as the steps ask for it: q where segments end, and how it changes."""

    recalled: Tensor  # (rows, plane blocks, length, channels)
    handed: Tensor  # (rows, segments, plane blocks, channels)


def _recall(
    inputs: Inputs, plan: Plan, dy: Tensor, begins: Tensor | None, carries: Tensor | None, left: _Left
) -> tuple[Tensor, Tensor]:
    """dA and dC."""
    u, A = inputs.u, inputs.A
    batch, (directions, _, length, channels, states) = len(u), inputs.sizes
    dA = _buffer(u, batch, directions, plan.segments * plan.plane_blocks, states, channels)
    dC = _buffer(u, plan.blocks(RECALL_TILE), batch, length, directions, states)
    with on_device(u):
        kernels.launch(
            gradients.recall_kernel, plan.grid(RECALL_TILE),
            *inputs.gates(), *placed(inputs.C), *placed(dy), inputs.order,
            u if begins is None else begins, u if carries is None else carries, *left, dA, dC, _steps(dC, 0, 1, 3, 2),
            *inputs.sizes, plan.tokens, **inputs.flags, **plan.tile(RECALL_TILE),
        )  # fmt: skip
    return dA.sum((0, 2)).transpose(1, 2).to(A.dtype), sum_first(dC, inputs.C.dtype).transpose(1, 2)


def _adjoint(
    inputs: Inputs, plan: Plan, dy: Tensor, carries: Tensor | None, left: _Left
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """du, ddelta, dB and dD."""
    u, D = inputs.u, inputs.D
    batch, (directions, _, length, channels, states) = len(u), inputs.sizes
    du = _buffer(u, directions, *u.shape)
    # Alone, blocks write what is wanted; partial sums of several are in float32.
    kind = inputs.delta.dtype if plan.plane_blocks == 1 else torch.float32
    ddelta = _buffer(u, plan.plane_blocks, batch, length, directions, channels, dtype=kind)
    width, parts = (channels, plan.plane_blocks) if inputs.wide else (1, plan.blocks(ADJOINT_TILE))
    dB = _buffer(u, parts, batch, width, length, directions, states)
    dD = _buffer(u, batch, directions, plan.segments * plan.plane_blocks, channels)
    with on_device(u):
        kernels.launch(
            gradients.adjoint_kernel, plan.grid(ADJOINT_TILE),
            *inputs.gates(), *placed(inputs.C), u if D is None else D.contiguous(), *placed(dy), inputs.order,
            u if carries is None else carries, *left, *placed(du),
            ddelta, _steps(ddelta, 0, 1, 3, 2, 4), dB, _steps(dB, 0, 1, 4, 3, 2), dD,
            *inputs.sizes, plan.tokens, HAS_D=D is not None, **inputs.flags, **plan.tile(ADJOINT_TILE),
        )  # fmt: skip
    return (
        sum_first(du, u.dtype),
        sum_first(ddelta, inputs.delta.dtype).transpose(1, 2),
        sum_first(dB, inputs.B.dtype).permute(0, 3, 2, 1, 4),
        None if D is None else dD.sum((0, 2)).to(D.dtype),
    )


def _begins(inputs: Inputs, plan: Plan) -> Tensor:
    """A state buffer of what every segment receives from those before it."""
    ends, elapsed = _segment_buffers(inputs, plan)
    with on_device(ends):
        kernels.launch(
            kernels.ends_kernel, plan.grid(FORWARD_TILE), *inputs.gates(), inputs.order, ends, elapsed,
            *inputs.sizes, plan.tokens, **inputs.flags, **plan.tile(FORWARD_TILE),
        )  # fmt: skip
    return _chain(inputs, plan, ends, elapsed, reverse=False)


def _carries(inputs: Inputs, plan: Plan, dy: Tensor) -> Tensor:
    """A state buffer of the adjoints that every segment receives from those after it."""
    starts, elapsed = _segment_buffers(inputs, plan)
    with on_device(starts):
        kernels.launch(
            gradients.starts_kernel, plan.grid(FORWARD_TILE),
            *placed(inputs.delta), *placed(inputs.A), *placed(inputs.C), *placed(dy), inputs.order,
            starts, elapsed, *inputs.sizes, plan.tokens, **plan.tile(FORWARD_TILE),
        )  # fmt: skip
    return _chain(inputs, plan, starts, elapsed, reverse=True)


def _segment_buffers(inputs: Inputs, plan: Plan) -> tuple[Tensor, Tensor]:
    """Room for what segments hand on, and for their sums of steps."""
    slots = plan.rows * plan.segments
    groups = -(-plan.channels // kernels.VECTOR.value)
    ends = _buffer(inputs.u, slots, plan.plane_blocks, groups, plan.states, plan.planes, kernels.VECTOR.value)
    return ends, _buffer(inputs.u, slots, plan.channels)


def _chain(inputs: Inputs, plan: Plan, ends: Tensor, elapsed: Tensor, *, reverse: bool) -> Tensor:
    directions, planes, _, channels, states = inputs.sizes
    with on_device(ends):
        kernels.launch(
            kernels.chain_kernel, plan.grid(FORWARD_TILE)[:2], ends, elapsed, *placed(inputs.A),
            directions, plan.segments, planes, channels, states, REVERSE=reverse, **plan.tile(FORWARD_TILE),
        )  # fmt: skip
    return ends


def make_plan(inputs: Inputs) -> Plan:
    directions, planes, length, channels, states = inputs.sizes
    wide_planes, wide_states = min(PLANES, _power_of_two(planes)), _power_of_two(states)
    whole = Plan(
        len(inputs.u) * directions,
        wide_planes,
        wide_states,
        -(-planes // wide_planes),
        channels,
        segments=1,
        tokens=length,
    )
    in_flight = _processors(inputs.u.device) * WARPS_PER_PROCESSOR
    # Walking a segment and chaining the segments take alike when both counts are near the root of the length.
    segments = min(in_flight // (whole.rows * whole.blocks(FORWARD_TILE)), math.isqrt(length))
    if segments <= 2:  # splitting walks the length twice: two segments would gain nothing
        return whole
    tokens = -(-length // segments)
    return replace(whole, segments=-(-length // tokens), tokens=tokens)


def sum_first(parts: Tensor, dtype: torch.dtype) -> Tensor:
    """The sum over the first axis, in a type: one launch, always in the same order."""
    if len(parts) == 1:
        return parts[0].to(dtype)
    total = torch.empty(parts.shape[1:], device=parts.device, dtype=dtype)
    with on_device(parts):
        grid = (-(-total.numel() // _SUMMED),)
        kernels.launch(kernels.sum_kernel, grid, parts, total, len(parts), total.numel(), BLOCK=_SUMMED)
    return total


def placed(x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """A tensor and its strides, as kernels take both."""
    return x, x.stride()


def _steps(x: Tensor, *axes: int) -> tuple[int, ...]:
    return tuple(x.stride(axis) for axis in axes)


def _buffer(like: Tensor, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
    return torch.empty(shape, device=like.device, dtype=dtype or torch.float32)


def _readable(x: Tensor) -> Tensor:
    """The last axis together, as kernels expect the states of gates and decays."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


@cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def on_device(x: Tensor) -> Any:
    """Kernels launch on the current device: make it the tensor's."""
    return torch.cuda.device(x.device) if x.device.type == "cuda" else torch.no_grad()
