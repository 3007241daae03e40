# mypy: disable-error-code="no-untyped-def"
# Kernel arguments are pointers and integers of the device language, which Python types do not describe.
"""Triton kernels of the scans' backward pass: two sweeps that keep no states; docs/kernels.md explains them.

With g_n the adjoint of the state h_n, decay_n h_(n-1) = k_n what a token keeps of the state before, and
r_n = decay_n g_n what the token before receives: h_n = k_n + delta_n u_n B_n, g_n = C_n dy_n + r_(n+1). The gradient of
a step asks for q_n = g_n k_n, which needs states and adjoints together. But, summed over planes,

    q_n = q_(n+1) + C_n X_n - B_n Y_n,   X_n = dy_n k_n,   Y_n = delta_n u_n r_(n+1)

so the sweep that has the states (`recall_kernel`) and the one that has their adjoints (`adjoint_kernel`) exchange one
number a token and channel, never a state. dA would lose digits that way where decays are strong: `recall_kernel`
carries the derivative of the state along instead, t_n = decay_n (t_(n-1) + delta_n h_(n-1)).
"""

from __future__ import annotations

import triton
import triton.language as tl

from scopereg.ops.scan.triton_kernels import (
    cells,
    gate,
    over_planes,
    place,
    rates,
    received,
    step_of,
    values,
    write_gate,
)

LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def fetch(
    u, u_steps, dy, dy_steps, delta, delta_steps, B, B_steps, C, C_steps, b, k, token, live, p, s, c,
    planes, channels, states, WIDE: tl.constexpr,
):  # fmt: skip
    """A token's values (BP, BC) and their gradients, its steps (BC,), its write gate and its readout (BS,)."""
    return (
        values(u, u_steps, b, token, live, p, c, planes, channels),
        values(dy, dy_steps, b, token, live, p, c, planes, channels),
        step_of(delta, delta_steps, b, k, token, live, c, channels),
        write_gate(B, B_steps, b, k, token, live, s, c, states, channels, WIDE),
        gate(C, C_steps, b, k, token, live, s, states),
    )


@triton.jit
def recall_kernel(
    u, u_steps, delta, delta_steps, A, A_steps, B, B_steps, C, C_steps, dy, dy_steps, order, begins, carries,
    recalled, handed, dA, dC, dC_steps, directions, planes, length, channels, states, tokens,
    WIDE: tl.constexpr, BP: tl.constexpr, BS: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Forward over one segment: the states again, and what they alone tell: dC, dA, a part of the steps' gradient."""
    bk = tl.program_id(0).to(tl.int64)
    b, k, segment = bk // directions, bk % directions, tl.program_id(2)
    slot = bk * tl.num_programs(2) + segment
    p, s, c = place(channels, BP, BS, BC)
    rate = rates(A, A_steps, k, s, c, states, channels)
    first = segment * tokens
    stop = tl.minimum(first + tokens, length)
    visits = order + k * length
    blocks, plane_block = tl.cdiv(planes, BP), tl.program_id(1) // tl.cdiv(channels, BC)
    recalled += (bk * blocks + plane_block) * length * channels + c
    own_slot = slot * blocks + plane_block
    dC += tl.program_id(1).to(tl.int64) * dC_steps[0] + b * dC_steps[1] + k * dC_steps[2]
    h = received(begins, slot, segment > 0, p, s, c, planes, channels, BP, BS)
    t = tl.zeros((BS, BP, BC), tl.float32)
    dA_sum = tl.zeros((BS, BC), tl.float32)
    token = tl.load(visits + first)
    token_next = tl.load(visits + first + 1, mask=first + 1 < stop, other=0)
    u_n, dy_n, delta_n, B_n, C_n = fetch(
        u, u_steps, dy, dy_steps, delta, delta_steps, B, B_steps, C, C_steps, b, k, token, True, p, s, c,
        planes, channels, states, WIDE,
    )  # fmt: skip
    for n in range(first, stop):
        live = n + 1 < stop
        u_next, dy_next, delta_next, B_next, C_next = fetch(
            u, u_steps, dy, dy_steps, delta, delta_steps, B, B_steps, C, C_steps, b, k, token_next, live, p, s, c,
            planes, channels, states, WIDE,
        )  # fmt: skip
        token_after = tl.load(visits + n + 2, mask=n + 2 < stop, other=0)
        decay = tl.exp2(rate * delta_n[None, :])[:, None, :]
        t = decay * (t + delta_n[None, None, :] * h)
        kept, pushed = decay * h, delta_n[None, :] * u_n
        h = kept + pushed[None, :, :] * over_planes(B_n, WIDE)
        seen = tl.sum(kept * dy_n[None, :, :], axis=1)  # X_n (BS, BC)
        dA_sum += tl.sum(t * dy_n[None, :, :], axis=1) * C_n[:, None]
        # What the token reads of what it wrote itself is a product of sums where channels share the gate.
        if WIDE:
            dC_n = tl.sum(seen + tl.sum(pushed * dy_n, axis=0)[None, :] * B_n, axis=1)
        else:
            dC_n = tl.sum(seen, axis=1) + tl.sum(pushed * dy_n) * B_n
        tl.store(dC + token * dC_steps[3] + s, dC_n, mask=s < states)
        tl.store(recalled + n * channels, tl.sum(seen * C_n[:, None] * rate, axis=0) * LN2, mask=c < channels)
        token, token_next = token_next, token_after
        u_n, dy_n, delta_n, B_n, C_n = u_next, dy_next, delta_next, B_next, C_next
    carry = received(carries, slot, segment + 1 < tl.num_programs(2), p, s, c, planes, channels, BP, BS)
    dA_sum += tl.sum(t * carry, axis=1)
    last = tl.sum(tl.sum(h * carry, axis=1) * rate, axis=0) * LN2  # q behind the segment, as the steps ask for it
    tl.store(handed + own_slot * channels + c, last, mask=c < channels)
    inside = (s < states)[:, None] & (c < channels)[None, :]
    tl.store(dA + (own_slot * states + s[:, None]) * channels + c[None, :], dA_sum, mask=inside)


@triton.jit
def adjoint_kernel(
    u, u_steps, delta, delta_steps, A, A_steps, B, B_steps, C, C_steps, D, dy, dy_steps, order, carries,
    recalled, handed, du, du_steps, ddelta, ddelta_steps, dB, dB_steps, dD,
    directions, planes, length, channels, states, tokens,
    HAS_D: tl.constexpr, WIDE: tl.constexpr,
    BP: tl.constexpr, BS: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Backward over one segment: the adjoints, and from them and what `recall_kernel` left all other gradients."""
    bk = tl.program_id(0).to(tl.int64)
    b, k, segment = bk // directions, bk % directions, tl.program_id(2)
    slot = bk * tl.num_programs(2) + segment
    p, s, c = place(channels, BP, BS, BC)
    rate = rates(A, A_steps, k, s, c, states, channels)
    first = segment * tokens
    stop = tl.minimum(first + tokens, length)
    visits = order + k * length
    blocks, plane_block = tl.cdiv(planes, BP), (tl.program_id(1) // tl.cdiv(channels, BC)).to(tl.int64)
    recalled += (bk * blocks + plane_block) * length * channels + c
    own_slot = slot * blocks + plane_block
    here = (p < planes)[:, None] & (c < channels)[None, :]
    du += k * du_steps[0] + b * du_steps[1]
    ddelta += plane_block * ddelta_steps[0] + b * ddelta_steps[1] + k * ddelta_steps[2]
    dB += (plane_block if WIDE else tl.program_id(1)).to(tl.int64) * dB_steps[0] + b * dB_steps[1] + k * dB_steps[2]
    r = received(carries, slot, segment + 1 < tl.num_programs(2), p, s, c, planes, channels, BP, BS)
    run = tl.load(handed + own_slot * channels + c, mask=c < channels, other=0.0)
    dD_sum = tl.zeros((BP, BC), tl.float32)
    inside = (s < states)[:, None] & (c < channels)[None, :]
    if HAS_D:
        skip = tl.load(D + k * channels + c, mask=c < channels, other=0.0).to(tl.float32)
    token = tl.load(visits + stop - 1)
    token_next = tl.load(visits + stop - 2, mask=stop - 2 >= first, other=0)
    u_n, dy_n, delta_n, B_n, C_n = fetch(
        u, u_steps, dy, dy_steps, delta, delta_steps, B, B_steps, C, C_steps, b, k, token, True, p, s, c,
        planes, channels, states, WIDE,
    )  # fmt: skip
    recalled_n = tl.load(recalled + (stop - 1) * channels, mask=c < channels, other=0.0)
    for i in range(stop - first):
        n = stop - 1 - i
        live = n > first
        u_next, dy_next, delta_next, B_next, C_next = fetch(
            u, u_steps, dy, dy_steps, delta, delta_steps, B, B_steps, C, C_steps, b, k, token_next, live, p, s, c,
            planes, channels, states, WIDE,
        )  # fmt: skip
        recalled_next = tl.load(recalled + (n - 1) * channels, mask=(c < channels) & live, other=0.0)
        token_after = tl.load(visits + n - 2, mask=n - 2 >= first, other=0)
        pushed = delta_n[None, :] * u_n
        wrote = tl.sum(r * pushed[None, :, :], axis=1)  # Y_n (BS, BC)
        # q_n, as the steps ask for it
        run += recalled_n - tl.sum(wrote * (B_n if WIDE else B_n[:, None]) * rate, axis=0) * LN2
        if WIDE:
            dB_n = wrote + tl.sum(pushed * dy_n, axis=0)[None, :] * C_n[:, None]
            tl.store(dB + token * dB_steps[3] + c[None, :] * dB_steps[4] + s[:, None], dB_n, mask=inside)
        else:
            dB_n = tl.sum(wrote, axis=1) + tl.sum(pushed * dy_n) * C_n
            tl.store(dB + token * dB_steps[3] + s, dB_n, mask=s < states)
        g = C_n[:, None, None] * dy_n[None, :, :] + r
        into = tl.sum(g * over_planes(B_n, WIDE), axis=0)  # (BP, BC)
        ddelta_n = run + tl.sum(into * u_n, axis=0)
        du_n = into * delta_n[None, :]
        if HAS_D:
            du_n += skip[None, :] * dy_n
            dD_sum += dy_n * u_n
        tl.store(du + token * du_steps[3] + p[:, None] * du_steps[2] + c[None, :] * du_steps[4], du_n, mask=here)
        stepped = ddelta_n.to(ddelta.dtype.element_ty)
        tl.store(ddelta + token * ddelta_steps[3] + c * ddelta_steps[4], stepped, mask=c < channels)
        r = tl.exp2(rate * delta_n[None, :])[:, None, :] * g
        token, token_next = token_next, token_after
        u_n, dy_n, delta_n, B_n, C_n, recalled_n = u_next, dy_next, delta_next, B_next, C_next, recalled_next
    if HAS_D:
        tl.store(dD + own_slot * channels + c, tl.sum(dD_sum, axis=0), mask=c < channels)


@triton.jit
def starts_kernel(
    delta, delta_steps, A, A_steps, C, C_steps, dy, dy_steps, order, starts, elapsed,
    directions, planes, length, channels, states, tokens,
    BP: tl.constexpr, BS: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """What one segment alone hands back, its adjoint at the start; and its sum of steps. `chain_kernel` goes on."""
    bk = tl.program_id(0).to(tl.int64)
    b, k, segment = bk // directions, bk % directions, tl.program_id(2)
    p, s, c = place(channels, BP, BS, BC)
    rate = rates(A, A_steps, k, s, c, states, channels)
    first = segment * tokens
    stop = tl.minimum(first + tokens, length)
    r = tl.zeros((BS, BP, BC), tl.float32)
    total = tl.zeros((BC,), tl.float32)
    for i in range(stop - first):
        token = tl.load(order + k * length + stop - 1 - i)
        dy_n = values(dy, dy_steps, b, token, True, p, c, planes, channels)
        delta_n = step_of(delta, delta_steps, b, k, token, True, c, channels)
        C_n = gate(C, C_steps, b, k, token, True, s, states)
        total += delta_n
        r = tl.exp2(rate * delta_n[None, :])[:, None, :] * (r + C_n[:, None, None] * dy_n[None, :, :])
    slot = bk * tl.num_programs(2) + segment
    at, inside = cells(slot, p, s, c, planes, channels, BP, BS)
    tl.store(starts + at, r, mask=inside)
    tl.store(elapsed + slot * channels + c, total, mask=c < channels)
