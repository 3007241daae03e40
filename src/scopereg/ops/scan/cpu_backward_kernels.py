# mypy: disable-error-code="import-untyped, import-not-found"
"""Numba kernels of the `cpu` backend, the backward pass of the feature scan: float32, blocks of LANES channels.

States are not kept by the forward pass and never divided back: those at the beginnings of chunks of tokens are computed
first, then, chunk by chunk from the end, those within. Both together take room for two roots of the length.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from scopereg.ops.scan.cpu_vectors import (
    LANES,
    Floats,
    Indices,
    add_to,
    compiled,
    constant,
    data_of,
    exp2,
    fma,
    load,
    splat,
    sums_of_both,
    vector_at,
)


@intrinsic
def _carry(
    typing: Any, group: Any, source: Any, source_at: Any, target: Any, target_at: Any, rate: Any, rate_at: Any,
    u: Any, token_at: Any, plane_stride: Any, delta: Any, delta_at: Any, write: Any, gate_at: Any, states: Any,
) -> Any:  # fmt: skip
    """One token, one block of channels, len(group) planes: target = 2^(delta rate) source + delta u B.

    Arrays are addressed by element offsets; states are (states, planes, LANES), rate (states, LANES), contiguous.
    """
    planes = group.count
    signature = types.void(
        group, source, source_at, target, target_at, rate, rate_at, u, token_at, plane_stride, delta, delta_at,
        write, gate_at, states,
    )  # fmt: skip

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        source, target, rate, u, delta, write = data_of(context, b, signature, args, 1, 3, 5, 7, 10, 12)
        source_at, target_at, rate_at, token_at, plane_stride = (args[i] for i in (2, 4, 6, 8, 9))
        delta_at, gate_at, states = args[11], args[13], args[14]
        index = token_at.type
        step = load(b, delta, delta_at)
        pushed = [b.fmul(step, load(b, u, b.add(token_at, b.mul(plane_stride, index(p))))) for p in range(planes)]
        with cgutils.for_range(b, states) as loop:
            s = loop.index
            decay = exp2(b, b.fmul(step, load(b, rate, b.add(rate_at, b.mul(s, index(LANES))))))
            write_s = splat(b, b.load(b.gep(write, [b.add(gate_at, s)])))
            for p in range(planes):
                cell = b.mul(b.add(b.mul(s, index(planes)), index(p)), index(LANES))
                before = load(b, source, b.add(source_at, cell))
                after = fma(b, before, decay, b.fmul(pushed[p], write_s))
                b.store(after, vector_at(b, target, b.add(target_at, cell)), align=4)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _retreat(
    typing: Any, group: Any, kept: Any, kept_at: Any, r: Any, rate: Any, rate_at: Any, u: Any, dy: Any, du: Any,
    token_at: Any, plane_stride: Any, delta: Any, ddelta: Any, delta_at: Any, write: Any, read: Any, gate_at: Any,
    dwrite: Any, dread: Any, part_at: Any, drate: Any, drate_at: Any, states: Any,
) -> Any:  # fmt: skip
    """One token on the way back: its gradients are added, and r becomes what the token before it receives.

    With h the state before the token, at `kept`, g the adjoint of the state after it and r_n = decay g: g = C dy + r.
    Addresses and layouts as in `_carry`; r like the states, drate like rate, dwrite and dread of this task alone.
    """
    planes = group.count
    signature = types.void(
        group, kept, kept_at, r, rate, rate_at, u, dy, du, token_at, plane_stride, delta, ddelta, delta_at,
        write, read, gate_at, dwrite, dread, part_at, drate, drate_at, states,
    )  # fmt: skip

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        arrays = data_of(context, b, signature, args, 1, 3, 4, 6, 7, 8, 11, 12, 14, 15, 17, 18, 20)
        kept, r, rate, u, dy, du, delta, ddelta, write, read, dwrite, dread, drate = arrays
        kept_at, rate_at, token_at, plane_stride = (args[i] for i in (2, 5, 9, 10))
        delta_at, gate_at, part_at, drate_at, states = (args[i] for i in (13, 16, 19, 21, 22))
        index = token_at.type
        step = load(b, delta, delta_at)
        places = [b.add(token_at, b.mul(plane_stride, index(p))) for p in range(planes)]
        values, slopes = ([load(b, x, place) for place in places] for x in (u, dy))
        pushed = [b.fmul(step, value) for value in values]
        into = [cgutils.alloca_once_value(b, constant(0.0)) for _ in range(planes)]
        through = cgutils.alloca_once_value(b, constant(0.0))
        with cgutils.for_range(b, states) as loop:
            s = loop.index
            row = b.mul(s, index(LANES))
            rate_s = load(b, rate, b.add(rate_at, row))
            decay = exp2(b, b.fmul(step, rate_s))
            write_s, read_s = (splat(b, b.load(b.gep(x, [b.add(gate_at, s)]))) for x in (write, read))
            held = by_write = by_read = constant(0.0)
            for p in range(planes):
                cell = b.mul(b.add(b.mul(s, index(planes)), index(p)), index(LANES))
                passed = b.fmul(decay, load(b, kept, b.add(kept_at, cell)))
                g = fma(b, slopes[p], read_s, load(b, r, cell))
                b.store(fma(b, g, write_s, b.load(into[p])), into[p])
                held = fma(b, g, passed, held)
                by_write = fma(b, g, pushed[p], by_write)
                by_read = fma(b, fma(b, pushed[p], write_s, passed), slopes[p], by_read)
                b.store(b.fmul(decay, g), vector_at(b, r, cell), align=4)
            b.store(fma(b, held, rate_s, b.load(through)), through)
            add_to(b, drate, b.add(drate_at, row), b.fmul(held, step))
            for array, total in zip((dwrite, dread), sums_of_both(b, by_write, by_read), strict=True):
                place = b.gep(array, [b.add(part_at, s)])
                b.store(b.fadd(b.load(place), total), place)
        total = b.fmul(b.load(through), constant(math.log(2.0)))  # rate is in powers of two
        for value, place, share in zip(values, places, into, strict=True):
            found = b.load(share)
            add_to(b, du, place, b.fmul(found, step))
            total = fma(b, found, value, total)
        add_to(b, ddelta, delta_at, total)
        return context.get_dummy_value()

    return signature, generate


@compiled()
def _first_states(
    begins: Floats, chunks: int, chunk: int, visits: Indices, group: tuple[int, ...], size: int,
    u: Floats, tokens_at: int, stride: int, delta: Floats, corner: int, rows: int,
    rate: Floats, rate_at: int, write: Floats,
) -> None:  # fmt: skip
    """The states in which the chunks begin, one after the other into `begins`."""
    channels, states = u.shape[3], write.shape[3]
    begins[:size] = np.float32(0.0)
    for n in range((chunks - 1) * chunk):
        t = visits[n]
        target = (n // chunk + 1) * size
        source = target - size if n % chunk == 0 else target
        _carry(
            group, begins, source, begins, target, rate, rate_at, u, tokens_at + t * channels, stride,
            delta, (rows + t) * channels + corner, write, (rows + t) * states, states,
        )  # fmt: skip


@compiled()
def gradient_tasks(
    first: int, last: int, group: tuple[int, ...], plane: int, together: int, chunk: int,
    u: Floats, delta: Floats, rate: Floats, write: Floats, read: Floats, skip: Floats, order: Indices, dy: Floats,
    du: Floats, ddelta: Floats, drate: Floats, dwrite: Floats, dread: Floats,
) -> None:  # fmt: skip
    """Tasks first..last of (batch x runs of `together` channel blocks), for len(group) planes, all directions.

    Inputs as in `feature_tasks`, dy like y. Added to: du (batch, planes, length, channels), ddelta (batch, directions,
    length, channels), drate (batch, directions, blocks, states, LANES), dwrite, dread (batch, runs, directions, length,
    states). A task owns all that it adds to, so that sums need no lock and are the same with any number of threads.
    """
    _, planes, length, channels = u.shape
    directions, blocks, states, _ = rate.shape
    runs, width = dwrite.shape[1], len(group)
    chunks, size, stride = -(-length // chunk), states * width * LANES, length * channels
    begins, kept = np.empty(chunks * size, np.float32), np.empty(chunk * size, np.float32)
    r = np.empty(size, np.float32)
    for task in range(first, last):
        batch, run = task // runs, task % runs
        for block in range(run * together, min((run + 1) * together, blocks)):
            corner = block * LANES
            tokens_at = (batch * planes + plane) * stride + corner
            for p in range(plane, plane + width):
                for t in range(length):
                    for j in range(corner, corner + LANES):
                        du[batch, p, t, j] = skip[j] * dy[batch, p, t, j]
            for k in range(directions):
                visits = order[k]
                rate_at = (k * blocks + block) * states * LANES
                sums_at = ((batch * directions + k) * blocks + block) * states * LANES
                rows, parts = (batch * directions + k) * length, ((batch * runs + run) * directions + k) * length
                _first_states(
                    begins, chunks, chunk, visits, group, size, u, tokens_at, stride, delta, corner, rows,
                    rate, rate_at, write,
                )  # fmt: skip
                r[:] = np.float32(0.0)
                for piece in range(chunks - 1, -1, -1):
                    start, stop = piece * chunk, min((piece + 1) * chunk, length)
                    kept[:size] = begins[piece * size : (piece + 1) * size]
                    for n in range(start, stop - 1):
                        t, before = visits[n], (n - start) * size
                        _carry(
                            group, kept, before, kept, before + size, rate, rate_at, u, tokens_at + t * channels,
                            stride, delta, (rows + t) * channels + corner, write, (rows + t) * states, states,
                        )  # fmt: skip
                    for n in range(stop - 1, start - 1, -1):
                        t = visits[n]
                        _retreat(
                            group, kept, (n - start) * size, r, rate, rate_at, u, dy, du, tokens_at + t * channels,
                            stride, delta, ddelta, (rows + t) * channels + corner, write, read, (rows + t) * states,
                            dwrite, dread, (parts + t) * states, drate, sums_at, states,
                        )  # fmt: skip
