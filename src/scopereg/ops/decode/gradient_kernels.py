# mypy: disable-error-code="no-untyped-def"
# Kernel arguments are pointers and integers of the device language, which Python types do not describe.
"""Triton kernels that training takes: the backward passes of decoding, and gates both ways.

Imported by `gradients` and `ops.gates` alone.
"""

from __future__ import annotations

import triton
import triton.language as tl

from scopereg.ops.decode.triton_kernels import _moments, _positive, _tokens


@triton.jit
def _slope(y, low, high):
    """The slope of a positive gate where its value is y: that of softplus, 1 - exp(-y), and none where it is held."""
    small = y * (1.0 - y * (0.5 - y * (0.16666667 - y * 0.041666667)))
    return tl.where((y > low) & (y < high), tl.where(y < 0.01, small, 1.0 - tl.exp(-y)), 0.0)


@triton.jit
def _gates(logits, row, live, n, rate, low, high, N: tl.constexpr):
    """Write gate, readout and decay (BT, BN) and step (BT,) of one plane."""
    inside = live[:, None] & (n < N)[None, :]
    at = logits + row[:, None] * (2 * N + 1) + n[None, :]
    write = _positive(tl.load(at, mask=inside, other=0.0).to(tl.float32), low, high)
    read = tl.where(inside, _positive(tl.load(at + N, mask=inside, other=0.0).to(tl.float32), low, high), 0.0)
    step = _positive(tl.load(logits + row * (2 * N + 1) + 2 * N, mask=live, other=0.0).to(tl.float32), low, high)
    return write, read, step, tl.exp(step[:, None] * rate[None, :])


@triton.jit
def _total_gradient(mass, moments, gradients, b, t, live, planes, length, least, most):
    """Gradient (BT, 4) of the planes' weighted sum, and the largest mass (BT,), which the sum was divided by."""
    q = tl.arange(0, 4)
    largest = tl.zeros(t.shape, tl.float32)
    for d in range(planes):
        largest = tl.maximum(largest, tl.load(mass + (b * planes + d) * length + t, mask=live, other=0.0))
    largest = tl.minimum(tl.maximum(largest, least), most)
    total = tl.zeros((t.shape[0], 4), tl.float32)
    for d in range(planes):
        row = (b * planes + d) * length + t
        share = tl.load(mass + row, mask=live, other=0.0) / largest
        total += share[:, None] * tl.load(moments + row[:, None] * 4 + q[None, :], mask=live[:, None], other=0.0)
    weight = tl.sum(tl.where((q == 3)[None, :], total, 0.0), axis=1)
    free = (weight > least) & (weight < most)
    weight = tl.minimum(tl.maximum(weight, least), most)
    at = (b * length + t)[:, None] * 3 + q[None, :]
    place = tl.load(gradients[0] + at, mask=live[:, None] & (q < 3)[None, :], other=0.0)
    whole = largest * weight
    felt = tl.load(gradients[1] + b * length + t, mask=live, other=0.0)
    felt = tl.where((whole > least) & (whole < most), felt, 0.0)
    last = tl.where(free, felt * largest - tl.sum(place * total, axis=1) / (weight * weight), 0.0)
    return tl.where((q == 3)[None, :], last[:, None], place / weight[:, None]), largest


@triton.jit
def weigh_gradient_kernel(
    logits, log_decay, moments, mass, coordinates_grad, evidence_grad, ahead, partial,
    logits_grad, moments_grad, decay_grad, planes, length, low, high, least, most,
    N: tl.constexpr, BN: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """Gradients of `weigh_kernel` without a table, for BT tokens.

    `ahead` (B, D', L, N) and `partial` (B, D', L, 2 N + 1) are scratch. The largest mass cancels out: no gradient.
    """
    b, t = tl.program_id(0).to(tl.int64), tl.program_id(1) * BT + tl.arange(0, BT)
    live, n, q = t < length, tl.arange(0, BN), tl.arange(0, 4)
    inside = live[:, None] & (n < N)[None, :]
    rate = -tl.exp(tl.load(log_decay + n, mask=n < N, other=0.0).to(tl.float32))
    above = (coordinates_grad, evidence_grad)
    total_grad, largest = _total_gradient(mass, moments, above, b, t, live, planes, length, least, most)
    # Up the planes: states of the forward pass, kept; adjoints of the backward pass, whose states come on the way down.
    f = tl.zeros((BT, BN), tl.float32)
    for d in range(planes):
        row = (b * planes + d) * length + t
        write, read, step, decay = _gates(logits, row, live, n, rate, low, high, N)
        f = decay * f + step[:, None] * write
        tl.store(ahead + row[:, None] * N + n[None, :], f, mask=inside)
    tl.debug_barrier()
    rate_grad = tl.zeros((BT, BN), tl.float32)
    h, g = tl.zeros((BT, BN), tl.float32), tl.zeros((BT, BN), tl.float32)
    for i in range(planes):
        d = planes - 1 - i
        row = (b * planes + d) * length + t
        write, read, step, decay = _gates(logits, row, live, n, rate, low, high, N)
        cells = row[:, None] * 4 + q[None, :]
        moment = tl.load(moments + cells, mask=live[:, None], other=0.0)
        share = tl.load(mass + row, mask=live, other=0.0) / largest
        tl.store(moments_grad + cells, share[:, None] * total_grad, mask=live[:, None])
        felt = tl.sum(total_grad * moment, axis=1) / largest  # gradient of the plane's mass
        before = tl.load(ahead + (row - length)[:, None] * N + n[None, :], mask=inside & (d > 0), other=0.0)
        f = tl.load(ahead + row[:, None] * N + n[None, :], mask=inside, other=0.0)
        behind = h
        h = decay * h + step[:, None] * write
        g = read * felt[:, None] + g  # adjoint of f
        held = decay * g * before
        at = partial + row[:, None] * (2 * N + 1) + n[None, :]
        tl.store(at, g, mask=inside)  # of what was written
        tl.store(at + N, felt[:, None] * (f + h), mask=inside)
        tl.store(partial + row * (2 * N + 1) + 2 * N, tl.sum(held * rate[None, :], axis=1), mask=live)
        tl.store(ahead + row[:, None] * N + n[None, :], behind, mask=inside)  # read before: its place is free
        rate_grad += held * step[:, None]
        g = decay * g
    tl.debug_barrier()
    g = tl.zeros((BT, BN), tl.float32)
    for d in range(planes):
        row = (b * planes + d) * length + t
        write, read, step, decay = _gates(logits, row, live, n, rate, low, high, N)
        moment = tl.load(moments + row[:, None] * 4 + q[None, :], mask=live[:, None], other=0.0)
        felt = tl.sum(total_grad * moment, axis=1) / largest
        behind = tl.load(ahead + row[:, None] * N + n[None, :], mask=inside, other=0.0)
        g = read * felt[:, None] + g  # adjoint of the backward pass
        held = decay * g * behind
        at = row[:, None] * (2 * N + 1) + n[None, :]
        pushed = g + tl.load(partial + at, mask=inside, other=0.0)
        steps = tl.load(partial + row * (2 * N + 1) + 2 * N, mask=live, other=0.0)
        steps += tl.sum(held * rate[None, :] + pushed * write, axis=1)
        reads = tl.load(partial + at + N, mask=inside, other=0.0)
        tl.store(logits_grad + at, pushed * step[:, None] * _slope(write, low, high), mask=inside)
        tl.store(logits_grad + at + N, reads * _slope(read, low, high), mask=inside)
        tl.store(logits_grad + row * (2 * N + 1) + 2 * N, steps * _slope(step, low, high), mask=live)
        rate_grad += held * step[:, None]
        g = decay * g
    decay_grad += (b * tl.num_programs(1) + tl.program_id(1)) * N
    tl.store(decay_grad + n, tl.sum(tl.where(inside, rate_grad, 0.0), axis=0) * rate, mask=n < N)


@triton.jit
def fit_gradient_kernel(
    points, coordinates, evidence, rotation, rotation_grad, translation_grad, coordinates_grad, evidence_grad,
    length, tiny, eps, BL: tl.constexpr,
):  # fmt: skip
    """Gradients of the pose of one frame by its coordinates and weights; see geometry.kabsch.

    With U the first two columns of the rotation, n the third, H = U'M: the polar factor's derivative is a turn in its
    plane, by what M has turned over the trace of H, and a tilt out of it, n n' dM / H.
    """
    b = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BL)
    total, means, covariance = _moments(points, coordinates, evidence, b, i, length, BL)
    mx, my, m1, m2, m3 = means
    a1, a2, a3, b1, b2, b3 = covariance
    t1, t2, t3 = _three(translation_grad + b * 3, 1)
    d1, d2, d3, e1, e2, e3 = _polar_gradient(
        rotation + b * 9, rotation_grad + b * 9, a1, a2, a3, b1, b2, b3, t1, t2, t3, mx, my, tiny, eps
    )
    r1, r2, r3 = _three(rotation + b * 9, 3)
    s1, s2, s3 = _three(rotation + b * 9 + 1, 3)
    px, py = -(r1 * t1 + r2 * t2 + r3 * t3), -(s1 * t1 + s2 * t2 + s3 * t3)  # gradient of the points' mean
    mean = tl.zeros((BL,), tl.float32)
    for start in range(0, length, BL):
        x, y, q1, q2, q3, w = _tokens(points, coordinates, evidence, b, start + i, length)
        g1, g2, g3 = d1 * (x - mx) + e1 * (y - my), d2 * (x - mx) + e2 * (y - my), d3 * (x - mx) + e3 * (y - my)
        felt = (q1 - m1) * g1 + (q2 - m2) * g2 + (q3 - m3) * g3 + q1 * t1 + q2 * t2 + q3 * t3 + x * px + y * py
        mean += w / total * felt
    mean = tl.sum(mean)
    for start in range(0, length, BL):
        x, y, q1, q2, q3, w = _tokens(points, coordinates, evidence, b, start + i, length)
        g1, g2, g3 = d1 * (x - mx) + e1 * (y - my), d2 * (x - mx) + e2 * (y - my), d3 * (x - mx) + e3 * (y - my)
        felt = (q1 - m1) * g1 + (q2 - m2) * g2 + (q3 - m3) * g3 + q1 * t1 + q2 * t2 + q3 * t3 + x * px + y * py
        live, share = start + i < length, w / total
        at = coordinates_grad + (b * length + start + i) * 3
        tl.store(at, share * (g1 + t1), mask=live)
        tl.store(at + 1, share * (g2 + t2), mask=live)
        tl.store(at + 2, share * (g3 + t3), mask=live)
        tl.store(evidence_grad + b * length + start + i, (felt - mean) / total, mask=live)


@triton.jit
def _three(x, step):
    return tl.load(x), tl.load(x + step), tl.load(x + 2 * step)


@triton.jit
def _polar_gradient(rotation, gradient, a1, a2, a3, b1, b2, b3, t1, t2, t3, mx, my, tiny, eps):
    """Gradient (two columns) of the matrix [a b] whose polar factor the rotation begins with."""
    r1, r2, r3 = _three(rotation, 3)
    s1, s2, s3 = _three(rotation + 1, 3)
    n1, n2, n3 = _three(rotation + 2, 3)
    g1, g2, g3 = _three(gradient, 3)
    h1, h2, h3 = _three(gradient + 1, 3)
    k1, k2, k3 = _three(gradient + 2, 3)
    # The third column is r x s; the translation is the mean less the rotated mean of the points.
    g1, g2, g3 = g1 + s2 * k3 - s3 * k2 - t1 * mx, g2 + s3 * k1 - s1 * k3 - t2 * mx, g3 + s1 * k2 - s2 * k1 - t3 * mx
    h1, h2, h3 = h1 + k2 * r3 - k3 * r2 - t1 * my, h2 + k3 * r1 - k1 * r3 - t2 * my, h3 + k1 * r2 - k2 * r1 - t3 * my
    aa, ab = r1 * a1 + r2 * a2 + r3 * a3, r1 * b1 + r2 * b2 + r3 * b3
    bb = s1 * b1 + s2 * b2 + s3 * b3
    trace, determinant = aa + bb, aa * bb - ab * ab
    size = tl.sqrt(a1 * a1 + a2 * a2 + a3 * a3 + b1 * b1 + b2 * b2 + b3 * b3)
    something = size > tiny
    turn = (g1 * s1 + g2 * s2 + g3 * s3) - (h1 * r1 + h2 * r2 + h3 * r3)
    turn = tl.where(something, turn / tl.where(something, trace, 1.0), 0.0)
    # Points on a line leave the turn about it open: no gradient goes there.
    flat = determinant <= eps * trace * trace
    over = tl.where(flat | (size <= tiny), 0.0, 1.0 / tl.where(flat, 1.0, determinant))
    u, v = n1 * g1 + n2 * g2 + n3 * g3, n1 * h1 + n2 * h2 + n3 * h3
    u, v = (u * bb - v * ab) * over, (v * aa - u * ab) * over
    return (
        n1 * u + s1 * turn, n2 * u + s2 * turn, n3 * u + s3 * turn,
        n1 * v - r1 * turn, n2 * v - r2 * turn, n3 * v - r3 * turn,
    )  # fmt: skip


@triton.jit
def gate_kernel(x, y, count, low, high, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(y + at, _positive(tl.load(x + at, mask=inside, other=0.0).to(tl.float32), low, high), mask=inside)


@triton.jit
def gate_gradient_kernel(y, gradient, found, count, low, high, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    felt = tl.load(gradient + at, mask=inside, other=0.0).to(tl.float32)
    felt *= _slope(tl.load(y + at, mask=inside, other=1.0), low, high)
    tl.store(found + at, felt.to(found.dtype.element_ty), mask=inside)
