# mypy: disable-error-code="no-untyped-def"
# Kernel arguments are pointers and integers of the device language, which Python types do not describe.
"""Turned lattices: an encoded volume at the cells of a lattice that is turned and shifted, in one launch of Triton's.

The twin of `networks.passes.seen_from`, which in plain PyTorch is some fifty launches: a frame waits for these longer
than for the work in them. Forward only.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from scopereg.ops.scan.triton_backend import on_device
from scopereg.ops.scan.triton_kernels import launch


class Cells(NamedTuple):
    """A lattice of cells: how many along z, y, x, where the first lies, and from plane to plane, in cells."""

    shape: tuple[int, int, int]
    start: tuple[float, float, float]
    depth_step: float


@triton.jit
def turned_kernel(
    tokens, out, rotation, shift, volume,
    depth, height, width, start_z, start_y, start_x, step,
    wide_height, wide_width, first_z, first_y, first_x, wide_step, count,
    C: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """One cell (program 0) of one frame (program 1)."""
    n, b = tl.program_id(0), tl.program_id(1)
    x = n % wide_width + first_x
    y = (n // wide_width) % wide_height + first_y
    z = (n // (wide_width * wide_height)) * wide_step + first_z
    at, to = rotation + b * 9, shift + b * 3
    cx = tl.load(at) * x + tl.load(at + 1) * y + tl.load(at + 2) * z + tl.load(to) - start_x
    cy = tl.load(at + 3) * x + tl.load(at + 4) * y + tl.load(at + 5) * z + tl.load(to + 1) - start_y
    cz = (tl.load(at + 6) * x + tl.load(at + 7) * y + tl.load(at + 8) * z + tl.load(to + 2) - start_z) / step
    low_x, low_y, low_z = tl.floor(cx), tl.floor(cy), tl.floor(cz)
    c = tl.arange(0, BC)
    total = tl.zeros((BC,), tl.float32) + 0.0 * (cx + cy + cz)  # what is not a number stays so
    base = tokens + b.to(tl.int64) * volume
    for corner in tl.static_range(8):
        px, py, pz = low_x + corner % 2, low_y + (corner // 2) % 2, low_z + corner // 4
        share = (1 - tl.abs(cx - px)) * (1 - tl.abs(cy - py)) * (1 - tl.abs(cz - pz))
        inside = (px >= 0) & (px < width) & (py >= 0) & (py < height) & (pz >= 0) & (pz < depth)
        px, py, pz = tl.where(inside, px, 0.0), tl.where(inside, py, 0.0), tl.where(inside, pz, 0.0)
        row = (pz.to(tl.int64) * height + py.to(tl.int64)) * width + px.to(tl.int64)
        found = tl.load(base + row * C + c, mask=c < C, other=0.0).to(tl.float32)
        total += tl.where(inside, share, 0.0) * found
    tl.store(out + (b.to(tl.int64) * count + n) * C + c, total, mask=c < C)


def turned(tokens: Tensor, cells: Cells, wanted: Cells, rotation: Tensor, shift: Tensor) -> Tensor:
    """Tokens (B, D, L, C) of `cells` at those `wanted`, turned and shifted: (B, D2, L2, C); zeros lie outside."""
    batch, _, _, channels = tokens.shape
    shared = tokens.shape[0] == 1 or tokens.stride(0) == 0  # one volume for all
    table = (tokens[:1] if shared else tokens).contiguous()
    planes, height, width = wanted.shape
    count = planes * height * width
    out = torch.empty(batch, planes, height * width, channels, device=table.device, dtype=table.dtype)
    with on_device(table):
        launch(
            turned_kernel, (count, batch),
            table, out, rotation.float().contiguous(), shift.float().contiguous(), 0 if shared else table[0].numel(),
            *cells.shape, *cells.start, cells.depth_step,
            height, width, *wanted.start, wanted.depth_step, count,
            C=channels, BC=triton.next_power_of_2(channels),
        )  # fmt: skip
    return out
