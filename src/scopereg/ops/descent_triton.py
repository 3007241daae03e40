# mypy: disable-error-code="no-untyped-def"
# Kernel arguments are pointers and integers of the device language, which Python types do not describe.
"""`ops.descent` as Triton kernels: one launch a step, so that a recorded frame pays for a dozen and not for hundreds.

A program gathers the equations of some points of a frame and leaves their sum. The programs of the next step add these
up, each for itself, and solve: always in the same order, so that a pose is the same in every run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from scopereg.ops.scan.triton_backend import on_device
from scopereg.ops.scan.triton_kernels import launch

if TYPE_CHECKING:
    from scopereg.ops.descent import Rule, Table

POINTS = 32  # of one program
_POSE = tl.constexpr(14)  # numbers of a pose in memory: rotation, translation, sizes
_TILE = tl.constexpr(8)  # equations of a sum in memory, and twice as many columns; the right side is column _RIGHT
_COLUMNS = tl.constexpr(16)
_RIGHT = tl.constexpr(8)
_SUM = tl.constexpr(128)


@triton.jit
def _solution(sums, frame, blocks, damping, floor, points, K: tl.constexpr, BLOCKS: tl.constexpr):
    """The step (8,) that the equations left by all programs of a frame ask for; as `geometry.steps.solve_positive`."""
    i, j = tl.arange(0, _TILE), tl.arange(0, _COLUMNS)
    cell = i[:, None] * _COLUMNS + j[None, :]
    block = tl.arange(0, BLOCKS)
    at = sums + (frame * blocks + block)[:, None, None] * _SUM + cell[None, :, :]
    rows = tl.sum(tl.load(at, mask=(block < blocks)[:, None, None], other=0.0), axis=0) / points
    share = tl.load(damping + i, mask=i < K, other=0.0)
    least = tl.load(floor + i, mask=i < K, other=1.0)  # what is not asked for is 0
    rows += tl.where(i[:, None] == j[None, :], rows * share[:, None] + least[:, None], 0.0)
    for k in tl.static_range(K):
        pivot = tl.sum(tl.where(i[:, None] == k, rows, 0.0), axis=0)  # row k, (16,)
        pivot = pivot / tl.sum(tl.where(j == k, pivot, 0.0), axis=0)
        column = tl.sum(tl.where(j[None, :] == k, rows, 0.0), axis=1)  # (8,)
        rows += (tl.where(i == k, 1.0, 0.0) - column)[:, None] * pivot[None, :]
    return tl.sum(tl.where(j[None, :] == _RIGHT, rows, 0.0), axis=1)


@triton.jit
def _number(values, k):
    return tl.sum(tl.where(tl.arange(0, _TILE) == k, values, 0.0), axis=0)


@triton.jit
def _pose(
    before, after, sums, frame, first, blocks, damping, floor, points, lever, longest, largest,
    K: tl.constexpr, BLOCKS: tl.constexpr, MOVES: tl.constexpr,
):  # fmt: skip
    """The numbers of a frame's pose after the step whose equations lie in `sums`; the first program keeps them."""
    at = before + frame * _POSE
    r00, r01, r02 = tl.load(at), tl.load(at + 1), tl.load(at + 2)
    r10, r11, r12 = tl.load(at + 3), tl.load(at + 4), tl.load(at + 5)
    r20, r21, r22 = tl.load(at + 6), tl.load(at + 7), tl.load(at + 8)
    tx, ty, tz = tl.load(at + 9), tl.load(at + 10), tl.load(at + 11)
    wide, high = tl.load(at + 12), tl.load(at + 13)
    if MOVES:
        step = _solution(sums, frame, blocks, damping, floor, points, K, BLOCKS)
        length = tl.sqrt(tl.sum(tl.where(tl.arange(0, _TILE) < 6, step * step, 0.0), axis=0))
        share = -longest / tl.where(length > longest, length, longest)
        dx, dy, dz = share * _number(step, 0), share * _number(step, 1), share * _number(step, 2)
        share = share / lever
        x, y, z = share * _number(step, 3), share * _number(step, 4), share * _number(step, 5)
        tx += r00 * dx + r01 * dy + r02 * dz
        ty += r10 * dx + r11 * dy + r12 * dz
        tz += r20 * dx + r21 * dy + r22 * dz
        # Rodrigues: 1 + s [v] + c [v]^2, with s = sin a / a and c = (1 - cos a) / a^2.
        angle = tl.sqrt(x * x + y * y + z * z)
        small = angle < 1e-4
        safe = tl.where(small, 1.0, angle)
        s = tl.where(small, 1.0 - angle * angle / 6, tl.sin(safe) / safe)
        half = tl.where(small, 1.0, tl.sin(safe / 2) / (safe / 2))
        c = half * half / 2
        m00, m11, m22 = 1 - c * (y * y + z * z), 1 - c * (x * x + z * z), 1 - c * (x * x + y * y)
        m01, m10 = c * x * y - s * z, c * x * y + s * z
        m02, m20 = c * x * z + s * y, c * x * z - s * y
        m12, m21 = c * y * z - s * x, c * y * z + s * x
        r00, r01, r02 = _row(r00, r01, r02, m00, m01, m02, m10, m11, m12, m20, m21, m22)
        r10, r11, r12 = _row(r10, r11, r12, m00, m01, m02, m10, m11, m12, m20, m21, m22)
        r20, r21, r22 = _row(r20, r21, r22, m00, m01, m02, m10, m11, m12, m20, m21, m22)
        if K > 6:
            wide *= 1 - tl.minimum(tl.maximum(_number(step, 6) / lever, -largest), largest)
            high *= 1 - tl.minimum(tl.maximum(_number(step, 7) / lever, -largest), largest)
        if first:
            out = after + frame * _POSE
            tl.store(out, r00), tl.store(out + 1, r01), tl.store(out + 2, r02)
            tl.store(out + 3, r10), tl.store(out + 4, r11), tl.store(out + 5, r12)
            tl.store(out + 6, r20), tl.store(out + 7, r21), tl.store(out + 8, r22)
            tl.store(out + 9, tx), tl.store(out + 10, ty), tl.store(out + 11, tz)
            tl.store(out + 12, wide), tl.store(out + 13, high)
    return r00, r01, r02, r10, r11, r12, r20, r21, r22, tx, ty, tz, wide, high


@triton.jit
def _row(a, b, c, m00, m01, m02, m10, m11, m12, m20, m21, m22):
    return a * m00 + b * m10 + c * m20, a * m01 + b * m11 + c * m21, a * m02 + b * m12 + c * m22


@triton.jit
def finish_kernel(
    before, after, sums, blocks, damping, floor, points, lever, longest, largest,
    K: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """The last pose."""
    frame = tl.program_id(0)
    _pose(before, after, sums, frame, True, blocks, damping, floor, points, lever, longest, largest, K, BLOCKS, True)


@triton.jit
def _weighted(table, row, step, inside, left, right, a, b, c, d, column, C: tl.constexpr, mask):
    """Values of eight cells around each point, four pairs along x, of the columns asked for."""
    found = tl.zeros(column.shape, tl.float32)
    for pair in tl.static_range(4):
        share = a if pair == 0 else (b if pair == 1 else (c if pair == 2 else d))
        at = row[pair]
        near = tl.load(table + at * C + column, mask=mask, other=0.0)
        far = tl.load(table + (at + step) * C + column, mask=mask, other=0.0)
        found += share * (left * near + right * far)
    return found


@triton.jit
def step_kernel(
    table, depth, height, width, start_z, start_y, start_x, stride, each,
    vectors, weights, places, count,
    before, after, sums, left_sums, blocks, damping, floor, tolerance, lever, longest, largest,
    S: tl.constexpr, BS: tl.constexpr, BN: tl.constexpr, K: tl.constexpr, BLOCKS: tl.constexpr, MOVES: tl.constexpr,
):  # fmt: skip
    """The pose after the step before, and the equations of the next one for the points of this program."""
    part, frame = tl.program_id(0), tl.program_id(1)
    r00, r01, r02, r10, r11, r12, r20, r21, r22, tx, ty, tz, wide, high = _pose(
        before, after, sums, frame, part == 0, blocks, damping, floor, count, lever, longest, largest, K, BLOCKS, MOVES
    )
    half = tl.load(tolerance)
    n = part * BN + tl.arange(0, BN)
    live = n < count
    x = tl.load(places + n * 3, mask=live, other=0.0)
    y = tl.load(places + n * 3 + 1, mask=live, other=0.0)
    weight = tl.load(weights + frame * count + n, mask=live, other=0.0)
    # Columns of the rotation are as long as the pixels are large.
    r00, r10, r20 = r00 * wide, r10 * wide, r20 * wide
    r01, r11, r21 = r01 * high, r11 * high, r21 * high
    cx = (r00 * x + r01 * y + tx) / stride - start_x
    cy = (r10 * x + r11 * y + ty) / stride - start_y
    cz = (r20 * x + r21 * y + tz) / stride - start_z
    inside = live & (weight != 0) & (cx >= 0) & (cx <= width - 1) & (cy >= 0) & (cy <= height - 1)
    inside = inside & (cz >= 0) & (cz <= depth - 1)
    cx, cy, cz = tl.where(inside, cx, 0.0), tl.where(inside, cy, 0.0), tl.where(inside, cz, 0.0)
    low_x = tl.minimum(cx.to(tl.int32), tl.maximum(width - 2, 0))
    low_y = tl.minimum(cy.to(tl.int32), tl.maximum(height - 2, 0))
    low_z = tl.minimum(cz.to(tl.int32), tl.maximum(depth - 2, 0))
    right, down, deep = cx - low_x, cy - low_y, cz - low_z
    step_x = tl.minimum(1, width - 1)
    step_y, step_z = width * tl.minimum(1, height - 1), width * height * tl.minimum(1, depth - 1)
    volume = (frame // each).to(tl.int64) * depth * height * width
    at = volume + (low_z * height + low_y) * width + low_x
    row = (at, at + step_y, at + step_z, at + step_z + step_y)
    a, b, c, d = (1 - deep) * (1 - down), (1 - deep) * down, deep * (1 - down), deep * down
    C: tl.constexpr = 4 * S + 1
    logit = _weighted(table, row, step_x, inside, 1 - right, right, a, b, c, d, tl.full((BN,), S, tl.int32), C, inside)

    s = tl.arange(0, BS)
    mask = inside[:, None] & (s < S)[None, :]
    rows = (row[0][:, None], row[1][:, None], row[2][:, None], row[3][:, None])
    a, b, c, d, right = a[:, None], b[:, None], c[:, None], d[:, None], right[:, None]
    column = tl.zeros((BN, BS), tl.int32) + s[None, :]
    apart = _weighted(table, rows, step_x, mask, 1 - right, right, a, b, c, d, column, C, mask)
    apart -= tl.load(vectors + (frame * count + n)[:, None] * S + s[None, :], mask=mask, other=0.0)
    weight = tl.where(inside, weight / (1 + tl.exp(-logit)) / (1 + tl.sum(apart * apart, axis=1) / (half * half)), 0.0)
    by_x = _weighted(table, rows, step_x, mask, 1 - right, right, a, b, c, d, column + (S + 1), C, mask)
    by_y = _weighted(table, rows, step_x, mask, 1 - right, right, a, b, c, d, column + (2 * S + 1), C, mask)
    by_z = _weighted(table, rows, step_x, mask, 1 - right, right, a, b, c, d, column + (3 * S + 1), C, mask)
    # Features along the frame's axes.
    along_x = by_x * r00 + by_y * r10 + by_z * r20
    along_y = by_x * r01 + by_y * r11 + by_z * r21
    along_z = by_x * r02 + by_y * r12 + by_z * r22
    xx, xy = tl.sum(along_x * along_x, axis=1), tl.sum(along_x * along_y, axis=1)
    xz, yy = tl.sum(along_x * along_z, axis=1), tl.sum(along_y * along_y, axis=1)
    yz, zz = tl.sum(along_y * along_z, axis=1), tl.sum(along_z * along_z, axis=1)
    x_rest, y_rest = tl.sum(along_x * apart, axis=1), tl.sum(along_y * apart, axis=1)
    z_rest = tl.sum(along_z * apart, axis=1)

    # How a point moves with each of the steps, as three numbers along the frame's axes: of shifts, of turns, by the
    # cross product with their axes, and of stretches, along its own.
    x, y = x / lever, y / lever
    i, j = tl.arange(0, _TILE), tl.arange(0, _COLUMNS)
    ix, iy, iz = _moves(i, x, y)
    jx, jy, jz = _moves(j, x, y)
    jx, jy, jz = tl.where(j[None, :] < K, jx, 0.0), tl.where(j[None, :] < K, jy, 0.0), tl.where(j[None, :] < K, jz, 0.0)
    is_right = j[None, :] == _RIGHT
    px = xx[:, None] * jx + xy[:, None] * jy + xz[:, None] * jz + tl.where(is_right, x_rest[:, None], 0.0)
    py = xy[:, None] * jx + yy[:, None] * jy + yz[:, None] * jz + tl.where(is_right, y_rest[:, None], 0.0)
    pz = xz[:, None] * jx + yz[:, None] * jy + zz[:, None] * jz + tl.where(is_right, z_rest[:, None], 0.0)
    px, py, pz = weight[:, None] * px, weight[:, None] * py, weight[:, None] * pz  # (BN, 16)
    asked = (i < K)[None, :, None]
    each_point = ix[:, :, None] * px[:, None, :] + iy[:, :, None] * py[:, None, :] + iz[:, :, None] * pz[:, None, :]
    total = tl.sum(tl.where(asked, each_point, 0.0), axis=0)  # (8, 16)
    cell = i[:, None] * _COLUMNS + j[None, :]
    tl.store(left_sums + (frame * tl.num_programs(0) + part) * _SUM + cell, total)


@triton.jit
def _moves(k, x, y):
    """How points (BN,) move along x, y, z with each of the steps `k`."""
    x, y, k = x[:, None], y[:, None], k[None, :]
    by_x = tl.where(k == 0, 1.0, 0.0) + tl.where(k == 5, -y, 0.0) + tl.where(k == 6, x, 0.0)
    by_y = tl.where(k == 1, 1.0, 0.0) + tl.where(k == 5, x, 0.0) + tl.where(k == 7, y, 0.0)
    by_z = tl.where(k == 2, 1.0, 0.0) + tl.where(k == 3, y, 0.0) + tl.where(k == 4, -x, 0.0)
    return by_x, by_y, by_z


def descend(
    table: Table,
    vectors: Tensor,
    weights: Tensor,
    points: Tensor,
    rotation: Tensor,
    translation: Tensor,
    rule: Rule,
    sizes: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """As `ops.descent.descend`; everything lies on the GPU, and nothing waits for it."""
    frames, count, channels = vectors.shape
    sizes = rotation.new_ones(frames, 2) if sizes is None else sizes
    now = torch.cat([rotation.reshape(frames, 9), translation, sizes], 1).float().contiguous()
    then = torch.empty_like(now)
    unknowns, blocks = len(rule.damping), triton.cdiv(count, POINTS)
    sums, more = (now.new_empty(frames * blocks, _TILE.value * _COLUMNS.value) for _ in range(2))
    depth, height, width = table.values.shape[1:4]
    damping, floor, tolerance = (part.to(now).contiguous() for part in (rule.damping, rule.floor, rule.tolerance))
    each = (
        *(table.values.contiguous(), depth, height, width, *table.start, float(table.stride)),
        *(frames // len(table.values), vectors.contiguous(), weights.float().contiguous(), points.contiguous(), count),
    )
    limits = (rule.lever, rule.longest, rule.largest)
    tile = {"K": unknowns, "BLOCKS": triton.next_power_of_2(blocks)}
    columns = {"S": channels, "BS": triton.next_power_of_2(channels), "BN": POINTS}
    with on_device(now):
        for step in range(rule.steps):
            launch(
                step_kernel, (blocks, frames), *each, now, then, sums, more, blocks, damping, floor,
                tolerance, *limits, MOVES=step > 0, **columns, **tile,
            )  # fmt: skip
            if step:
                now, then = then, now
            sums, more = more, sums
        launch(finish_kernel, (frames,), now, then, sums, blocks, damping, floor, count, *limits, **tile)
    return then[:, :9].unflatten(1, (3, 3)), then[:, 9:12], then[:, 12:]
