# mypy: disable-error-code="no-untyped-def"
# Kernel arguments are pointers and integers of the device language, which Python types do not describe.
"""Triton kernels of the scans: the forward pass, and what splits a length into segments; docs/kernels.md explains them.

A program is one warp. It owns a tile (states, planes, channels) of the state of one (batch, direction), in registers,
and walks the tokens of one segment. Inputs are read where they lie, by their strides; all are in natural token order,
`order` tells which token a step visits. `WIDE` says that channels have write gates of their own (coordinate scans).

State buffers are (slots, plane blocks, states, planes of a block, channels). This decides how Triton lays a tile over
the warp: a thread holds all planes of some channels and states. It computes a decay once for all planes, finds sums
over planes in its own registers, and sums over states and channels in a few exchanges with its neighbours.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
VECTOR = tl.constexpr(2)  # channels side by side in a thread
_LARGE = tl.constexpr(20.0)  # where softplus is its argument, as PyTorch has it


@triton.jit
def place(channels, BP: tl.constexpr, BS: tl.constexpr, BC: tl.constexpr):
    """Planes, states, channels of this program's tile: program 1 counts blocks of channels within those of planes."""
    blocks = (channels + BC - 1) // BC
    block = tl.program_id(1)
    return (block // blocks) * BP + tl.arange(0, BP), tl.arange(0, BS), (block % blocks) * BC + tl.arange(0, BC)


@triton.jit
def cells(slot, p, s, c, planes, channels, BP: tl.constexpr, BS: tl.constexpr):
    """Where the tile (BS, BP, BC) lies in slot `slot` of a state buffer, and which of it is there."""
    blocks, groups = tl.cdiv(planes, BP), tl.cdiv(channels, VECTOR)
    block = tl.program_id(1) // tl.cdiv(channels, c.shape[0])
    row = (slot * blocks + block) * groups + c[None, None, :] // VECTOR
    at = ((row * BS + s[:, None, None]) * BP + (p % BP)[None, :, None]) * VECTOR + c[None, None, :] % VECTOR
    return at, (c < channels)[None, None, :]


@triton.jit
def received(states, slot, live, p, s, c, planes, channels, BP: tl.constexpr, BS: tl.constexpr):
    """This program's tile in slot `slot` of a state buffer, zero when not live. It settles the layout of the tile."""
    at, inside = cells(slot, p, s, c, planes, channels, BP, BS)
    return tl.load(states + at, mask=inside & live, other=0.0).to(tl.float32)


@triton.jit
def rates(A, steps, k, s, c, states, channels):
    """A log2(e), (BS, BC), so that a decay is exp2(delta rate); zero outside."""
    inside = (s < states)[:, None] & (c < channels)[None, :]
    a = tl.load(A + k * steps[0] + c[None, :] * steps[1] + s[:, None], mask=inside, other=0.0)
    return a.to(tl.float32) * LOG2E


@triton.jit
def values(x, steps, b, token, live, p, c, planes, channels):
    """One token of a value array (BP, BC), in float32, zero outside or when not live."""
    inside = (p < planes)[:, None] & (c < channels)[None, :] & live
    at = b * steps[0] + token * steps[2] + p[:, None] * steps[1] + c[None, :] * steps[3]
    return tl.load(x + at, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def step_of(delta, steps, b, k, token, live, c, channels):
    """One token's steps (BC,), in float32, zero outside or when not live."""
    at = b * steps[0] + k * steps[1] + token * steps[2] + c * steps[3]
    return tl.load(delta + at, mask=(c < channels) & live, other=0.0).to(tl.float32)


@triton.jit
def gate(x, steps, b, k, token, live, s, states):
    """One token of a gate (BS,), in float32, zero outside or when not live."""
    at = b * steps[0] + k * steps[1] + token * steps[2]
    return tl.load(x + at + s, mask=(s < states) & live, other=0.0).to(tl.float32)


@triton.jit
def write_gate(x, steps, b, k, token, live, s, c, states, channels, WIDE: tl.constexpr):
    """One token of the write gate: (BS,), the same for all channels, or (BS, BC)."""
    if WIDE:
        inside = (s < states)[:, None] & (c < channels)[None, :] & live
        at = b * steps[0] + k * steps[1] + token * steps[2] + c[None, :] * steps[3] + s[:, None]
        found = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    else:
        found = gate(x, steps, b, k, token, live, s, states)
    return found


@triton.jit
def forward_kernel(
    u, u_steps, delta, delta_steps, A, A_steps, B, B_steps, C, C_steps, D, order, y, y_steps, begins,
    directions, planes, length, channels, states, tokens,
    HAS_D: tl.constexpr, WIDE: tl.constexpr,
    BP: tl.constexpr, BS: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Outputs of one segment from the state it begins in."""
    bk = tl.program_id(0).to(tl.int64)
    b, k, segment = bk // directions, bk % directions, tl.program_id(2)
    p, s, c = place(channels, BP, BS, BC)
    rate = rates(A, A_steps, k, s, c, states, channels)
    first = segment * tokens
    stop = tl.minimum(first + tokens, length)
    # The first segment begins at zero: its masked load reads nothing, yet settles the layout of the tile.
    h = received(begins, bk * tl.num_programs(2) + segment, segment > 0, p, s, c, planes, channels, BP, BS)
    if HAS_D:
        skip = tl.load(D + k * channels + c, mask=c < channels, other=0.0).to(tl.float32)
    visits = order + k * length
    here = (p < planes)[:, None] & (c < channels)[None, :]
    out = y + k * y_steps[0] + b * y_steps[1] + p[:, None] * y_steps[2] + c[None, :] * y_steps[4]
    # The recurrence waits for nothing but memory: a token's inputs are fetched one step ahead, its index two.
    token = tl.load(visits + first)
    token_next = tl.load(visits + first + 1, mask=first + 1 < stop, other=0)
    u_n = values(u, u_steps, b, token, True, p, c, planes, channels)
    delta_n = step_of(delta, delta_steps, b, k, token, True, c, channels)
    B_n = write_gate(B, B_steps, b, k, token, True, s, c, states, channels, WIDE)
    C_n = gate(C, C_steps, b, k, token, True, s, states)
    for n in range(first, stop):
        live = n + 1 < stop
        u_next = values(u, u_steps, b, token_next, live, p, c, planes, channels)
        delta_next = step_of(delta, delta_steps, b, k, token_next, live, c, channels)
        B_next = write_gate(B, B_steps, b, k, token_next, live, s, c, states, channels, WIDE)
        C_next = gate(C, C_steps, b, k, token_next, live, s, states)
        token_after = tl.load(visits + n + 2, mask=n + 2 < stop, other=0)
        h = advance(h, u_n, delta_n, B_n, rate, WIDE)
        y_n = tl.sum(h * C_n[:, None, None], axis=0)  # (BP, BC)
        if HAS_D:
            y_n += skip[None, :] * u_n
        tl.store(out + token * y_steps[3], y_n, mask=here)
        token, token_next = token_next, token_after
        u_n, delta_n, B_n, C_n = u_next, delta_next, B_next, C_next


@triton.jit
def over_planes(gate_n, WIDE: tl.constexpr):
    """A write gate as wide as a tile (BS, BP, BC)."""
    return gate_n[:, None, :] if WIDE else gate_n[:, None, None]


@triton.jit
def advance(h, u_n, delta_n, B_n, rate, WIDE: tl.constexpr):
    """The state (BS, BP, BC) after one more token."""
    decay = tl.exp2(rate * delta_n[None, :])  # (BS, BC), once for all planes
    return decay[:, None, :] * h + (delta_n[None, :] * u_n)[None, :, :] * over_planes(B_n, WIDE)


@triton.jit
def ends_kernel(
    u, u_steps, delta, delta_steps, A, A_steps, B, B_steps, order, ends, elapsed,
    directions, planes, length, channels, states, tokens,
    WIDE: tl.constexpr, BP: tl.constexpr, BS: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """What one segment alone hands on, its state at the end; and its sum of steps."""
    bk = tl.program_id(0).to(tl.int64)
    b, k, segment = bk // directions, bk % directions, tl.program_id(2)
    p, s, c = place(channels, BP, BS, BC)
    rate = rates(A, A_steps, k, s, c, states, channels)
    first = segment * tokens
    h = tl.zeros((BS, BP, BC), tl.float32)
    total = tl.zeros((BC,), tl.float32)
    for n in range(first, tl.minimum(first + tokens, length)):
        token = tl.load(order + k * length + n)
        u_n = values(u, u_steps, b, token, True, p, c, planes, channels)
        delta_n = step_of(delta, delta_steps, b, k, token, True, c, channels)
        B_n = write_gate(B, B_steps, b, k, token, True, s, c, states, channels, WIDE)
        total += delta_n
        h = advance(h, u_n, delta_n, B_n, rate, WIDE)
    slot = bk * tl.num_programs(2) + segment
    at, inside = cells(slot, p, s, c, planes, channels, BP, BS)
    tl.store(ends + at, h, mask=inside)
    tl.store(elapsed + slot * channels + c, total, mask=c < channels)


@triton.jit
def chain_kernel(
    ends, elapsed, A, A_steps, directions, segments, planes, channels, states,
    REVERSE: tl.constexpr, BP: tl.constexpr, BS: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Turn what each segment hands on into what each receives, in place, one segment after another."""
    bk = tl.program_id(0).to(tl.int64)
    p, s, c = place(channels, BP, BS, BC)
    rate = rates(A, A_steps, bk % directions, s, c, states, channels)
    h = tl.zeros((BS, BP, BC), tl.float32)
    for i in range(segments):
        segment = i
        if REVERSE:
            segment = segments - 1 - i
        slot = bk * segments + segment
        at, inside = cells(slot, p, s, c, planes, channels, BP, BS)
        alone = tl.load(ends + at, mask=inside, other=0.0)
        total = tl.load(elapsed + slot * channels + c, mask=c < channels, other=0.0)
        tl.store(ends + at, h, mask=inside)
        h = tl.exp2(rate * total[None, :])[:, None, :] * h + alone


@triton.jit
def sum_kernel(parts, total, count, width: tl.int64, BLOCK: tl.constexpr):
    """The sum of `count` arrays of `width` numbers, added up in float32 in their order, in the type of `total`."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    found = tl.zeros((BLOCK,), tl.float32)
    for part in range(count):
        found += tl.load(parts + part * width + at, mask=inside, other=0.0)
    tl.store(total + at, found.to(total.dtype.element_ty), mask=inside)


def launch(kernel: Any, grid: tuple[int, ...], *args: Any, **options: Any) -> None:
    kernel[grid](*args, **options)
