# mypy: disable-error-code="import-untyped, import-not-found"
"""Numba kernels of the `cpu` backend, the forward pass: float32, vectorised by hand where it counts.

The feature scan runs over blocks of LANES channels, so that a state (planes x states x LANES) stays in the first-level
cache, outputs gather in registers, and no sum crosses a vector.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from scopereg.ops.scan.cpu_vectors import (
    LANES,
    LOWEST,
    POLYNOMIAL,
    VECTOR,
    Floats,
    Indices,
    compiled,
    exp2,
    fma,
    splat,
)


@intrinsic
def _advance(
    typing: Any,
    group: Any,
    h: Any,
    rate: Any,
    rate_at: Any,
    u: Any,
    y: Any,
    token_at: Any,
    plane_stride: Any,
    delta: Any,
    delta_at: Any,
    write: Any,
    read: Any,
    gate_at: Any,
    states: Any,
) -> Any:
    """One token, one block of channels, len(group) planes: h = 2^(delta rate) h + delta u B; y += C . h.

    Arrays are addressed by element offsets; h is (states, planes, LANES), rate (states, LANES), both contiguous.
    """
    planes = group.count
    arguments = (h, rate, rate_at, u, y, token_at, plane_stride, delta, delta_at, write, read, gate_at, states)
    signature = types.void(group, *arguments)

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        def data(i: int) -> Any:
            return context.make_array(signature.args[i])(context, b, args[i]).data

        def vector(base: Any, offset: Any) -> Any:
            return b.bitcast(b.gep(base, [offset]), VECTOR.as_pointer())

        h, rate, u, y, delta, write, read = (data(i) for i in (1, 2, 4, 5, 8, 10, 11))
        rate_at, token_at, plane_stride, delta_at, gate_at, states = (args[i] for i in (3, 6, 7, 9, 12, 13))
        index = token_at.type
        step = b.load(vector(delta, delta_at), align=4)
        pushed, sums, targets = [], [], []
        for p in range(planes):
            offset = b.add(token_at, b.mul(plane_stride, index(p)))
            pushed.append(b.fmul(step, b.load(vector(u, offset), align=4)))
            targets.append(vector(y, offset))
            sums.append(cgutils.alloca_once_value(b, b.load(targets[p], align=4)))
        with cgutils.for_range(b, states) as loop:
            s = loop.index
            row = b.add(rate_at, b.mul(s, index(LANES)))
            decay = exp2(b, b.fmul(step, b.load(vector(rate, row), align=4)))
            gate = b.add(gate_at, s)
            write_s, read_s = (splat(b, b.load(b.gep(x, [gate]))) for x in (write, read))
            for p in range(planes):
                cell = vector(h, b.mul(b.add(b.mul(s, index(planes)), index(p)), index(LANES)))
                state = fma(b, b.load(cell, align=4), decay, b.fmul(pushed[p], write_s))
                b.store(state, cell, align=4)
                b.store(fma(b, state, read_s, b.load(sums[p])), sums[p])
        for p in range(planes):
            b.store(b.load(sums[p]), targets[p], align=4)
        return context.get_dummy_value()

    return signature, generate


@compiled()
def feature_tasks(
    first: int,
    last: int,
    group: tuple[int, ...],
    plane: int,
    u: Floats,
    delta: Floats,
    rate: Floats,
    write: Floats,
    read: Floats,
    skip: Floats,
    order: Indices,
    y: Floats,
) -> None:
    """Tasks first..last of (batch x channel blocks), for planes plane .. plane + len(group) - 1, all directions.

    u, y (batch, planes, length, channels); delta (batch, directions, length, channels); rate (directions, blocks,
    states, LANES) = A log2(e); write, read (batch, directions, length, states); skip (channels); channels are a
    multiple of LANES. A task owns its outputs, so that summing directions needs no lock.
    """
    _, planes, length, channels = u.shape
    directions, blocks, states, _ = rate.shape
    width = len(group)
    h = np.empty(states * width * LANES, np.float32)
    for task in range(first, last):
        batch, block = task // blocks, task % blocks
        corner = block * LANES
        for p in range(plane, plane + width):
            for t in range(length):
                for j in range(corner, corner + LANES):
                    y[batch, p, t, j] = skip[j] * u[batch, p, t, j]
        tokens_at = (batch * planes + plane) * length * channels + corner
        for k in range(directions):
            h[:] = np.float32(0.0)
            rate_at = (k * blocks + block) * states * LANES
            for n in range(length):
                t = order[k, n]
                row = (batch * directions + k) * length + t
                _advance(
                    group, h, rate, rate_at, u, y, tokens_at + t * channels, length * channels,
                    delta, row * channels + corner, write, read, row * states, states,
                )  # fmt: skip


@njit(inline="always")
def _exp2(x: Any) -> Any:
    """Scalar twin of `exp2`; it rounds by floor, which may stand in a loop whose sums are reordered."""
    whole = np.floor(x + np.float32(0.5))
    rest = x - whole
    power = np.float32(POLYNOMIAL[0])
    power = power * rest + np.float32(POLYNOMIAL[1])
    power = power * rest + np.float32(POLYNOMIAL[2])
    power = power * rest + np.float32(POLYNOMIAL[3])
    power = power * rest + np.float32(POLYNOMIAL[4])
    power = power * rest + np.float32(POLYNOMIAL[5])
    scale = np.int32((np.int32(max(whole, np.float32(LOWEST))) + np.int32(127)) << np.int32(23)).view(np.float32)
    return np.float32(0.0) if x < np.float32(LOWEST) else power * scale


@compiled(fastmath={"contract", "reassoc", "nsz"})
def coordinate_tasks(
    first: int,
    last: int,
    values: Floats,
    delta: Floats,
    rate: Floats,
    write: Floats,
    read: Floats,
    order: Indices,
    z: Floats,
) -> None:
    """Tasks first..last of (batch x planes): the coordinate scan, summed over directions into z, which starts at zero.

    values (planes, P, length); delta (batch, directions, planes, length); rate (directions, states) = A log2(e);
    write (batch, directions, planes, length, states); read (batch, directions, length, states); z (batch, planes,
    length, P).
    """
    planes, channels, length = values.shape
    directions, states = rate.shape
    h = np.empty((channels, states), np.float32)
    decay = np.empty(states, np.float32)
    pushed = np.empty(states, np.float32)
    for task in range(first, last):
        batch, plane = task // planes, task % planes
        for k in range(directions):
            h[:] = np.float32(0.0)
            for n in range(length):
                t = order[k, n]
                step = delta[batch, k, plane, t]
                for s in range(states):
                    decay[s] = _exp2(step * rate[k, s])
                    pushed[s] = step * write[batch, k, plane, t, s]
                for c in range(channels):
                    value = values[plane, c, t]
                    total = np.float32(0.0)
                    for s in range(states):
                        state = h[c, s] * decay[s] + value * pushed[s]
                        h[c, s] = state
                        total += state * read[batch, k, t, s]
                    z[batch, plane, t, c] += total


@compiled(fastmath={"contract", "nsz"})
def state_tasks(
    first: int, last: int, values: Floats, delta: Floats, rate: Floats, write: Floats, order: Indices, table: Floats
) -> None:
    """Tasks first..last of (batch x directions x planes): the states themselves, into table, in natural order.

    values (planes, length, P); table (batch, directions, planes, length, states, P); the rest as `coordinate_tasks`.
    """
    planes, length, channels = values.shape
    directions, states = rate.shape
    for task in range(first, last):
        batch, k, plane = task // (planes * directions), task // planes % directions, task % planes
        before = order[k, 0]
        for n in range(length):
            t = order[k, n]
            step = delta[batch, k, plane, t]
            for s in range(states):
                decay = _exp2(step * rate[k, s]) if n > 0 else np.float32(0.0)
                pushed = step * write[batch, k, plane, t, s]
                for c in range(channels):
                    inherited = table[batch, k, plane, before, s, c] if n > 0 else np.float32(0.0)
                    table[batch, k, plane, t, s, c] = decay * inherited + pushed * values[plane, t, c]
            before = t
