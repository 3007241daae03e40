# mypy: disable-error-code="no-untyped-def"
# Kernel arguments are pointers and integers of the device language, which Python types do not describe.
"""Triton kernels of the scans, forward and backward; imported by `triton_backend` alone.

A program owns a tile (planes, channels, states) of the state of one (batch, direction) and walks the tokens of one
segment. Values (u, y and their gradients) are (batch, planes, length, channels), outputs with directions beside the
batch; gates are (batch * directions, length, ...). All in natural token order: `order` tells which token a step visits.

State buffers are (batch * directions, slots, channels, states, BP), planes padded and last. This decides how Triton
lays the tile over a warp: a thread holds all planes of one channel and of some states, so that it computes a decay
once for all planes and finds most of the sum over states in its own registers.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

_LOG2E = tl.constexpr(1.4426950408889634)
_LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _coordinates(BP: tl.constexpr, BC: tl.constexpr, BS: tl.constexpr):
    """Indices of the tile: planes, this program's block of channels, states."""
    return tl.arange(0, BP), tl.program_id(1) * BC + tl.arange(0, BC), tl.arange(0, BS)


@triton.jit
def _rate(A, k, c, s, channels, states):
    """A log2(e), (BC, BS), so that a decay is exp2(delta rate); zero outside."""
    inside = (c < channels)[:, None] & (s < states)[None, :]
    a = tl.load(A + (k * channels + c[:, None]) * states + s[None, :], mask=inside, other=0.0)
    return a.to(tl.float32) * _LOG2E


@triton.jit
def _state_tile(slot, p, c, s, channels, states, BP: tl.constexpr):
    """Offsets and mask of a state tile (BP, BC, BS) in slot `slot` of a state buffer."""
    offsets = ((slot * channels + c[None, :, None]) * states + s[None, None, :]) * BP + p[:, None, None]
    inside = (c < channels)[None, :, None] & (s < states)[None, None, :] & (p < BP)[:, None, None]
    return offsets, inside


@triton.jit
def _values(x, b, token, live, p, c, planes, length, channels):
    """One token of a value array (BP, BC), in float32, zero outside or when not live."""
    inside = (p < planes)[:, None] & (c < channels)[None, :] & live
    return tl.load(x + _value_offsets(b, token, p, c, planes, length, channels), mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _value_offsets(b, token, p, c, planes, length, channels):
    return ((b * planes + p[:, None]) * length + token) * channels + c[None, :]


@triton.jit
def _row(x, row, i, width, live):
    """One row of a gate array (rows, width), in float32, zero outside or when not live."""
    return tl.load(x + row * width + i, mask=(i < width) & live, other=0.0).to(tl.float32)


@triton.jit
def forward_kernel(
    u, delta, A, B, C, D, order, y, begins, saved, directions, planes, length, channels, states, tokens,
    HAS_D: tl.constexpr, SAVE: tl.constexpr, T: tl.constexpr,
    BP: tl.constexpr, BC: tl.constexpr, BS: tl.constexpr,
):  # fmt: skip
    """Outputs of one segment from the state it begins in; every T tokens the state is saved for the backward pass."""
    bk = tl.program_id(0).to(tl.int64)
    b, k, segment = bk // directions, bk % directions, tl.program_id(2)
    p, c, s = _coordinates(BP, BC, BS)
    rate = _rate(A, k, c, s, channels, states)
    first = segment * tokens
    stop = tl.minimum(first + tokens, length)
    # The first segment begins at zero: its masked load reads nothing, yet settles the layout of the tile.
    offsets, inside = _state_tile(bk * tl.num_programs(2) + segment, p, c, s, channels, states, BP)
    h = tl.load(begins + offsets, mask=inside & (segment > 0), other=0.0)
    if HAS_D:
        skip = tl.load(D + k * channels + c, mask=c < channels, other=0.0).to(tl.float32)
    visits = order + k * length
    slots = (length + T - 1) // T
    here = (p < planes)[:, None] & (c < channels)[None, :]
    # The recurrence waits for nothing but memory: a token's inputs are fetched one step ahead, its index two.
    token = tl.load(visits + first)
    token_next = tl.load(visits + first + 1, mask=first + 1 < stop, other=0)
    row = bk * length + token
    u_n = _values(u, b, token, True, p, c, planes, length, channels)
    delta_n, B_n, C_n = (
        _row(delta, row, c, channels, True),
        _row(B, row, s, states, True),
        _row(C, row, s, states, True),
    )
    for n in range(first, stop):
        live = n + 1 < stop
        row = bk * length + token_next
        u_next = _values(u, b, token_next, live, p, c, planes, length, channels)
        delta_next = _row(delta, row, c, channels, live)
        B_next = _row(B, row, s, states, live)
        C_next = _row(C, row, s, states, live)
        token_after = tl.load(visits + n + 2, mask=n + 2 < stop, other=0)
        if SAVE:  # noqa: SIM102 (SAVE is known to the compiler, n is not)
            if n % T == 0:
                offsets, inside = _state_tile(bk * slots + n // T, p, c, s, channels, states, BP)
                tl.store(saved + offsets, h, mask=inside)
        decay = tl.exp2(delta_n[:, None] * rate)  # (BC, BS), once for all planes
        h = decay[None, :, :] * h + (delta_n[None, :] * u_n)[:, :, None] * B_n[None, None, :]
        y_n = tl.sum(h * C_n[None, None, :], axis=2)  # (BP, BC)
        if HAS_D:
            y_n += skip[None, :] * u_n
        tl.store(y + _value_offsets(bk, token, p, c, planes, length, channels), y_n, mask=here)
        token, token_next = token_next, token_after
        u_n, delta_n, B_n, C_n = u_next, delta_next, B_next, C_next


@triton.jit
def ends_kernel(
    x, delta, A, gate, order, ends, elapsed, directions, planes, length, channels, states, tokens,
    REVERSE: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr, BS: tl.constexpr,
):  # fmt: skip
    """What one segment alone hands on: its state at the end, or in reverse its adjoint at the start; and sum of delta.

    Forward (x = u, gate = B): h = decay h + delta u B. Reverse (x = dy, gate = C): r = decay (r + dy C).
    """
    bk = tl.program_id(0).to(tl.int64)
    b, k, segment = bk // directions, bk % directions, tl.program_id(2)
    p, c, s = _coordinates(BP, BC, BS)
    rate = _rate(A, k, c, s, channels, states)
    first = segment * tokens
    count = tl.minimum(tokens, length - first)
    visits = order + k * length + first
    h = tl.zeros((BP, BC, BS), tl.float32)
    total = tl.zeros((BC,), tl.float32)
    for i in range(count):
        n = i
        if REVERSE:
            n = count - 1 - i
        token = tl.load(visits + n)
        row = bk * length + token
        x_n = _values(x, b, token, True, p, c, planes, length, channels)
        delta_n = _row(delta, row, c, channels, True)
        gate_n = _row(gate, row, s, states, True)
        total += delta_n
        decay = tl.exp2(delta_n[:, None] * rate)
        if REVERSE:
            h = decay[None, :, :] * (h + x_n[:, :, None] * gate_n[None, None, :])
        else:
            h = decay[None, :, :] * h + (delta_n[None, :] * x_n)[:, :, None] * gate_n[None, None, :]
    slot = bk * tl.num_programs(2) + segment
    offsets, inside = _state_tile(slot, p, c, s, channels, states, BP)
    tl.store(ends + offsets, h, mask=inside)
    tl.store(elapsed + slot * channels + c, total, mask=c < channels)


@triton.jit
def chain_kernel(
    ends, elapsed, A, directions, segments, channels, states,
    REVERSE: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr, BS: tl.constexpr,
):  # fmt: skip
    """Turn what each segment hands on into what each receives, in place, one segment after another."""
    bk = tl.program_id(0).to(tl.int64)
    p, c, s = _coordinates(BP, BC, BS)
    rate = _rate(A, bk % directions, c, s, channels, states)
    h = tl.zeros((BP, BC, BS), tl.float32)
    for i in range(segments):
        segment = i
        if REVERSE:
            segment = segments - 1 - i
        slot = bk * segments + segment
        offsets, inside = _state_tile(slot, p, c, s, channels, states, BP)
        alone = tl.load(ends + offsets, mask=inside, other=0.0)
        total = tl.load(elapsed + slot * channels + c, mask=c < channels, other=0.0)
        tl.store(ends + offsets, h, mask=inside)
        h = tl.exp2(total[:, None] * rate)[None, :, :] * h + alone


@triton.jit
def backward_kernel(
    u, delta, A, B, C, D, order, dy, saved, carries, scratch, du, ddelta, dA, dB, dC, dD,
    directions, planes, length, channels, states, tokens,
    HAS_D: tl.constexpr, T: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr, BS: tl.constexpr,
):  # fmt: skip
    """Gradients of one segment, T tokens at a time from its end: states are recomputed, never divided back.

    With g_n the adjoint of h_n and r_n = decay_n g_n what the token before receives: g_n = C_n dy_n + r_(n+1). dB and
    dC are partial per channel block, dA and dD per batch and segment, du per direction: summed outside, so that the
    result does not depend on which program ran first.
    """
    bk = tl.program_id(0).to(tl.int64)
    b, k, block, segment = bk // directions, bk % directions, tl.program_id(1), tl.program_id(2)
    slot = bk * tl.num_programs(2) + segment
    p, c, s = _coordinates(BP, BC, BS)
    rate = _rate(A, k, c, s, channels, states)
    first = segment * tokens
    stop = tl.minimum(first + tokens, length)
    visits = order + k * length
    here = (p < planes)[:, None] & (c < channels)[None, :]
    offsets, inside = _state_tile(slot, p, c, s, channels, states, BP)
    r = tl.load(carries + offsets, mask=inside & (segment + 1 < tl.num_programs(2)), other=0.0)
    dA_sum = tl.zeros((BC, BS), tl.float32)
    dD_sum = tl.zeros((BC,), tl.float32)
    if HAS_D:
        skip = tl.load(D + k * channels + c, mask=c < channels, other=0.0).to(tl.float32)
    # This program's scratch: T state tiles, written and read back by the same program.
    own = (slot * tl.num_programs(1) + block) * T * BP * BC * BS
    cell = (tl.arange(0, BC)[None, :, None] * BS + s[None, None, :]) * BP + p[:, None, None]
    partial = (bk * tl.num_programs(1) + block) * length
    pieces = (stop - first + T - 1) // T
    for i in range(pieces):
        start = first + (pieces - 1 - i) * T
        count = tl.minimum(T, stop - start)
        offsets, inside = _state_tile(bk * ((length + T - 1) // T) + start // T, p, c, s, channels, states, BP)
        h = tl.load(saved + offsets, mask=inside, other=0.0)
        # As in the forward pass, a token's inputs are fetched one step ahead and its index two.
        token = tl.load(visits + start)
        token_next = tl.load(visits + start + 1, mask=count > 1, other=0)
        row = bk * length + token
        u_n = _values(u, b, token, True, p, c, planes, length, channels)
        delta_n, B_n = _row(delta, row, c, channels, True), _row(B, row, s, states, True)
        for t in range(count):
            live = t + 1 < count
            row = bk * length + token_next
            u_next = _values(u, b, token_next, live, p, c, planes, length, channels)
            delta_next, B_next = _row(delta, row, c, channels, live), _row(B, row, s, states, live)
            token_next = tl.load(visits + start + t + 2, mask=t + 2 < count, other=0)
            tl.store(scratch + own + t * BP * BC * BS + cell, h)
            decay = tl.exp2(delta_n[:, None] * rate)
            h = decay[None, :, :] * h + (delta_n[None, :] * u_n)[:, :, None] * B_n[None, None, :]
            u_n, delta_n, B_n = u_next, delta_next, B_next
        tl.debug_barrier()
        token = tl.load(visits + start + count - 1)
        token_next = tl.load(visits + start + count - 2, mask=count > 1, other=0)
        row = bk * length + token
        u_n = _values(u, b, token, True, p, c, planes, length, channels)
        dy_n = _values(dy, b, token, True, p, c, planes, length, channels)
        delta_n, B_n, C_n = (
            _row(delta, row, c, channels, True),
            _row(B, row, s, states, True),
            _row(C, row, s, states, True),
        )
        h_n = tl.load(scratch + own + (count - 1) * BP * BC * BS + cell)  # h_(n-1)
        for t in range(count):
            n = count - 1 - t
            live = n > 0
            row_next = bk * length + token_next
            u_next = _values(u, b, token_next, live, p, c, planes, length, channels)
            dy_next = _values(dy, b, token_next, live, p, c, planes, length, channels)
            delta_next = _row(delta, row_next, c, channels, live)
            B_next, C_next = _row(B, row_next, s, states, live), _row(C, row_next, s, states, live)
            h_next = tl.load(scratch + own + tl.maximum(n - 1, 0) * BP * BC * BS + cell)
            token_after = tl.load(visits + start + n - 2, mask=n > 1, other=0)
            decay = tl.exp2(delta_n[:, None] * rate)
            kept = decay[None, :, :] * h_n  # decay_n h_(n-1)
            pushed = delta_n[None, :] * u_n  # (BP, BC)
            g = C_n[None, None, :] * dy_n[:, :, None] + r
            h = kept + pushed[:, :, None] * B_n[None, None, :]
            dC_n = tl.sum(tl.sum(h * dy_n[:, :, None], axis=0), axis=0)
            dB_n = tl.sum(tl.sum(g * pushed[:, :, None], axis=0), axis=0)
            into = tl.sum(g * B_n[None, None, :], axis=2)  # (BP, BC)
            held = tl.sum(g * kept, axis=0)  # (BC, BS)
            ddelta_n = tl.sum(held * rate, axis=1) * _LN2 + tl.sum(into * u_n, axis=0)
            dA_sum += held * delta_n[:, None]
            du_n = into * delta_n[None, :]
            if HAS_D:
                du_n += skip[None, :] * dy_n
                dD_sum += tl.sum(dy_n * u_n, axis=0)
            tl.store(du + _value_offsets(bk, token, p, c, planes, length, channels), du_n, mask=here)
            tl.store(ddelta + row * channels + c, ddelta_n, mask=c < channels)
            tl.store(dB + (partial + token) * states + s, dB_n, mask=s < states)
            tl.store(dC + (partial + token) * states + s, dC_n, mask=s < states)
            r = decay[None, :, :] * g
            token, token_next, row = token_next, token_after, row_next
            u_n, dy_n, delta_n, B_n, C_n, h_n = u_next, dy_next, delta_next, B_next, C_next, h_next
        tl.debug_barrier()
    inside = (c < channels)[:, None] & (s < states)[None, :]
    tl.store(dA + (slot * channels + c[:, None]) * states + s[None, :], dA_sum, mask=inside)
    if HAS_D:
        tl.store(dD + slot * channels + c, dD_sum, mask=c < channels)


def launch(kernel: Any, grid: tuple[int, ...], *args: Any, **options: Any) -> None:
    kernel[grid](*args, **options)
