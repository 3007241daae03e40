# mypy: disable-error-code="no-untyped-def"
# Kernel arguments are pointers and integers of the device language, which Python types do not describe.
"""Triton kernels of the steps of decoding; imported by `triton_backend` alone. Forward only, sums in float32."""

from __future__ import annotations

import triton
import triton.language as tl

_LARGE = tl.constexpr(20.0)  # where softplus is its argument, as PyTorch has it


@triton.jit
def _softplus(x):
    e = tl.exp(tl.minimum(x, _LARGE))
    # log(1 + e) by its series where 1 + e rounds away what matters.
    small = e * (1.0 - e * (0.5 - e * (0.33333334 - 0.25 * e)))
    return tl.where(x > _LARGE, x, tl.where(e < 0.01, small, tl.log(1.0 + e)))


@triton.jit
def _positive(x, low, high):
    return tl.minimum(tl.maximum(_softplus(x), low), high)


@triton.jit
def split_kernel(
    mapped, step, write, read, coordinate, length, low, high,
    K: tl.constexpr, C: tl.constexpr, S: tl.constexpr, BC: tl.constexpr, BS: tl.constexpr,
):  # fmt: skip
    """The gates of one token (program 0: its row in batch and length) and one direction (program 1)."""
    row, k = tl.program_id(0).to(tl.int64), tl.program_id(1)
    b, token = row // length, row % length
    columns = K * (C + 3 * S)
    out = (b * K + k) * length + token
    c = tl.arange(0, BC)
    x = tl.load(mapped + row * columns + k * C + c, mask=c < C, other=0.0).to(tl.float32)
    tl.store(step + out * C + c, _softplus(x), mask=c < C)
    s = tl.arange(0, BS)
    gates = mapped + row * columns + K * C + k * S + s
    tl.store(write + out * S + s, tl.load(gates, mask=s < S, other=0.0).to(tl.float32), mask=s < S)
    tl.store(read + out * S + s, tl.load(gates + K * S, mask=s < S, other=0.0).to(tl.float32), mask=s < S)
    x = tl.load(gates + 2 * K * S, mask=s < S, other=0.0).to(tl.float32)
    tl.store(coordinate + out * S + s, _positive(x, low, high), mask=s < S)


@triton.jit
def _depth_step(logits, row, t, n, live, rate, h, low, high, N: tl.constexpr):
    """One plane of the depth scan: the state (BT, BN) after it, and what is read of it (BT,)."""
    at = logits + row[:, None] * (2 * N + 1) + n[None, :]
    inside = live[:, None] & (n < N)[None, :]
    write = _positive(tl.load(at, mask=inside, other=0.0).to(tl.float32), low, high)
    read = tl.where(inside, _positive(tl.load(at + N, mask=inside, other=0.0).to(tl.float32), low, high), 0.0)
    step = _positive(tl.load(logits + row * (2 * N + 1) + 2 * N, mask=live, other=0.0).to(tl.float32), low, high)
    h = tl.exp(step[:, None] * rate[None, :]) * h + step[:, None] * write
    return h, tl.sum(h * read, axis=1)


@triton.jit
def _moment(moments, readout, b, shared, d, t, live, planes, length,
            K: tl.constexpr, S: tl.constexpr, BS: tl.constexpr, BT: tl.constexpr, TABLE: tl.constexpr):  # fmt: skip
    """Moments (BT, 4) of one plane: read from the table of states, or as they are."""
    q = tl.arange(0, 4)
    if TABLE:
        s = tl.arange(0, BS)
        inside = live[:, None] & (s < S)[None, :]
        total = tl.zeros((BT, 4), tl.float32)
        for k in tl.static_range(K):
            gate = tl.load(readout + ((b * K + k) * length + t[:, None]) * S + s[None, :], mask=inside, other=0.0)
            at = ((shared * K + k) * planes + d) * length + t  # (BT,)
            cells = moments + (at[:, None, None] * S + s[None, :, None]) * 4 + q[None, None, :]
            h = tl.load(cells, mask=inside[:, :, None], other=0.0)
            total += tl.sum(h * gate.to(tl.float32)[:, :, None], axis=1)
        return total
    at = (b * planes + d) * length + t
    return tl.load(moments + at[:, None] * 4 + q[None, :], mask=live[:, None], other=0.0).to(tl.float32)


@triton.jit
def weigh_kernel(
    logits, log_decay, moments, readout, mass, coordinates, evidence, planes, length, volumes,
    low, high, least, most,
    N: tl.constexpr, BN: tl.constexpr, K: tl.constexpr, S: tl.constexpr, BS: tl.constexpr, BT: tl.constexpr,
    TABLE: tl.constexpr,
):  # fmt: skip
    """Coordinates and evidence of BT tokens. `mass` (B, D', L) is scratch that each program keeps for itself."""
    b, t = tl.program_id(0).to(tl.int64), tl.program_id(1) * BT + tl.arange(0, BT)
    shared = b % volumes
    live, n = t < length, tl.arange(0, BN)
    rate = -tl.exp(tl.load(log_decay + n, mask=n < N, other=0.0).to(tl.float32))
    h = tl.zeros((BT, BN), tl.float32)
    for d in range(planes):
        row = (b * planes + d) * length + t
        h, given = _depth_step(logits, row, t, n, live, rate, h, low, high, N)
        tl.store(mass + row, given, mask=live)
    tl.debug_barrier()
    h = tl.zeros((BT, BN), tl.float32)
    largest = tl.zeros((BT,), tl.float32)
    for i in range(planes):
        row = (b * planes + planes - 1 - i) * length + t
        h, given = _depth_step(logits, row, t, n, live, rate, h, low, high, N)
        given += tl.load(mass + row, mask=live, other=0.0)
        tl.store(mass + row, given, mask=live)
        largest = tl.maximum(largest, given)
    tl.debug_barrier()
    largest = tl.minimum(tl.maximum(largest, least), most)
    total = tl.zeros((BT, 4), tl.float32)
    for d in range(planes):
        share = tl.load(mass + (b * planes + d) * length + t, mask=live, other=0.0) / largest
        total += share[:, None] * _moment(moments, readout, b, shared, d, t, live, planes, length, K, S, BS, BT, TABLE)
    q = tl.arange(0, 4)
    weight = tl.sum(tl.where((q == 3)[None, :], total, 0.0), axis=1)
    weight = tl.minimum(tl.maximum(weight, least), most)
    row = b * length + t
    place = total / weight[:, None]
    tl.store(coordinates + row[:, None] * 3 + q[None, :], place, mask=live[:, None] & (q < 3)[None, :])
    tl.store(evidence + row, tl.minimum(tl.maximum(largest * weight, least), most), mask=live)


@triton.jit
def _norm3(x, y, z):
    return tl.sqrt(x * x + y * y + z * z)


@triton.jit
def _polar(a1, a2, a3, b1, b2, b3, tiny, eps):
    """First two columns of the rotation next to the matrix [a b] (3 x 2); see geometry.kabsch.polar_rotation."""
    scale = tl.sqrt(a1 * a1 + a2 * a2 + a3 * a3 + b1 * b1 + b2 * b2 + b3 * b3)
    nothing = scale <= tiny
    safe = tl.where(nothing, 1.0, scale)
    a1, a2, a3 = tl.where(nothing, 1.0, a1 / safe), tl.where(nothing, 0.0, a2 / safe), tl.where(nothing, 0.0, a3 / safe)
    b1, b2, b3 = tl.where(nothing, 0.0, b1 / safe), tl.where(nothing, 1.0, b2 / safe), tl.where(nothing, 0.0, b3 / safe)
    first = a1 * a1 + a2 * a2 + a3 * a3 >= b1 * b1 + b2 * b2 + b3 * b3
    l1, l2, l3 = tl.where(first, a1, b1), tl.where(first, a2, b2), tl.where(first, a3, b3)
    s1, s2, s3 = tl.where(first, b1, a1), tl.where(first, b2, a2), tl.where(first, b3, a3)
    long = tl.maximum(_norm3(l1, l2, l3), 1e-12)
    l1, l2, l3 = l1 / long, l2 / long, l3 / long
    along = l1 * s1 + l2 * s2 + l3 * s3
    r1, r2, r3 = s1 - along * l1, s2 - along * l2, s3 - along * l3
    # Parallel to rounding: the direction of the identity, or a quarter turn from it.
    w1, w2 = tl.where(first, 0.0, 1.0), tl.where(first, 1.0, 0.0)
    near = tl.abs(l1 * w1 + l2 * w2) < 0.9
    w1, w2 = tl.where(near, w1, tl.where(first, -1.0, 0.0)), tl.where(near, w2, tl.where(first, 0.0, -1.0))
    parallel = r1 * r1 + r2 * r2 + r3 * r3 <= eps * eps
    r1, r2, r3 = tl.where(parallel, w1, r1), tl.where(parallel, w2, r2), tl.where(parallel, 0.0, r3)
    size = tl.maximum(_norm3(r1, r2, r3), 1e-12)
    r1, r2, r3 = r1 / size, r2 / size, r3 / size
    along = l1 * r1 + l2 * r2 + l3 * r3
    r1, r2, r3 = r1 - along * l1, r2 - along * l2, r3 - along * l3
    size = tl.maximum(_norm3(r1, r2, r3), 1e-12)
    r1, r2, r3 = r1 / size, r2 / size, r3 / size
    e1, e2, e3 = tl.where(first, l1, r1), tl.where(first, l2, r2), tl.where(first, l3, r3)
    f1, f2, f3 = tl.where(first, r1, l1), tl.where(first, r2, l2), tl.where(first, r3, l3)
    cosine = e1 * a1 + e2 * a2 + e3 * a3 + f1 * b1 + f2 * b2 + f3 * b3
    sine = f1 * a1 + f2 * a2 + f3 * a3 - e1 * b1 - e2 * b2 - e3 * b3
    root = tl.sqrt(cosine * cosine + sine * sine)
    cosine, sine = cosine / root, sine / root
    return (
        e1 * cosine + f1 * sine, e2 * cosine + f2 * sine, e3 * cosine + f3 * sine,
        f1 * cosine - e1 * sine, f2 * cosine - e2 * sine, f3 * cosine - e3 * sine,
    )  # fmt: skip


@triton.jit
def _tokens(points, coordinates, evidence, b, i, length):
    """Points (x, y), their coordinates and weights, of the tokens i of one frame."""
    live = i < length
    at = coordinates + (b * length + i) * 3
    return (
        tl.load(points + i * 2, mask=live, other=0.0),
        tl.load(points + i * 2 + 1, mask=live, other=0.0),
        tl.load(at, mask=live, other=0.0),
        tl.load(at + 1, mask=live, other=0.0),
        tl.load(at + 2, mask=live, other=0.0),
        tl.load(evidence + b * length + i, mask=live, other=0.0),
    )


@triton.jit
def _moments(points, coordinates, evidence, b, i, length, BL: tl.constexpr):
    """Of the tokens of one frame, in two passes: their mass, the weighted means and the covariance of M (3 x 2)."""
    zero = tl.zeros((BL,), tl.float32)
    m, mx, my, m1, m2, m3 = zero, zero, zero, zero, zero, zero
    for start in range(0, length, BL):
        x, y, q1, q2, q3, w = _tokens(points, coordinates, evidence, b, start + i, length)
        m, mx, my, m1, m2, m3 = m + w, mx + w * x, my + w * y, m1 + w * q1, m2 + w * q2, m3 + w * q3
    total = tl.maximum(tl.sum(m), 1.1754943508222875e-38)
    mx, my = tl.sum(mx) / total, tl.sum(my) / total
    m1, m2, m3 = tl.sum(m1) / total, tl.sum(m2) / total, tl.sum(m3) / total
    a1, a2, a3, b1, b2, b3 = zero, zero, zero, zero, zero, zero
    for start in range(0, length, BL):
        x, y, q1, q2, q3, w = _tokens(points, coordinates, evidence, b, start + i, length)
        w = w / total
        q1, q2, q3 = w * (q1 - m1), w * (q2 - m2), w * (q3 - m3)
        x, y = x - mx, y - my
        a1, a2, a3, b1, b2, b3 = a1 + q1 * x, a2 + q2 * x, a3 + q3 * x, b1 + q1 * y, b2 + q2 * y, b3 + q3 * y
    means = (mx, my, m1, m2, m3)
    return total, means, (tl.sum(a1), tl.sum(a2), tl.sum(a3), tl.sum(b1), tl.sum(b2), tl.sum(b3))


@triton.jit
def fit_kernel(points, coordinates, evidence, rotation, translation, residual, length, tiny, eps, BL: tl.constexpr):
    """The pose of one frame: two passes over its tokens for the covariance, one for what is left."""
    b = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BL)
    total, means, covariance = _moments(points, coordinates, evidence, b, i, length, BL)
    mx, my, m1, m2, m3 = means
    a1, a2, a3, b1, b2, b3 = covariance
    r1, r2, r3, s1, s2, s3 = _polar(a1, a2, a3, b1, b2, b3, tiny, eps)
    t1, t2, t3 = m1 - r1 * mx - s1 * my, m2 - r2 * mx - s2 * my, m3 - r3 * mx - s3 * my
    left = tl.zeros((BL,), tl.float32)
    for start in range(0, length, BL):
        x, y, q1, q2, q3, w = _tokens(points, coordinates, evidence, b, start + i, length)
        d1, d2, d3 = r1 * x + s1 * y + t1 - q1, r2 * x + s2 * y + t2 - q2, r3 * x + s3 * y + t3 - q3
        left += w / total * (d1 * d1 + d2 * d2 + d3 * d3)
    out = rotation + b * 9  # row by row
    tl.store(out, r1), tl.store(out + 1, s1), tl.store(out + 2, r2 * s3 - r3 * s2)
    tl.store(out + 3, r2), tl.store(out + 4, s2), tl.store(out + 5, r3 * s1 - r1 * s3)
    tl.store(out + 6, r3), tl.store(out + 7, s3), tl.store(out + 8, r1 * s2 - r2 * s1)
    tl.store(translation + b * 3, t1), tl.store(translation + b * 3 + 1, t2), tl.store(translation + b * 3 + 2, t3)
    tl.store(residual + b, tl.sqrt(tl.sum(left)))
