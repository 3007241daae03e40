# mypy: disable-error-code="no-untyped-def"
# Kernel arguments are pointers and integers of the device language, which Python types do not describe.
"""`ops.shifts` as one launch of Triton's: every cell of every set of shifts by itself, forward only.

All tables lie in the GPU's cache, where neighbouring cells read neighbouring values.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from scopereg.ops.scan.triton_backend import on_device
from scopereg.ops.scan.triton_kernels import launch

CELLS = 256  # of one program


@triton.jit
def shifted_sums_kernel(tables, shifts, sums, count, depth, height, width, B: tl.constexpr):
    """Cells of one block (program 0) for one set of shifts (program 1), table after table."""
    cell, r = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1)
    cells = depth * height * width
    live = cell < cells
    x, y, z = cell % width, (cell // width) % height, cell // (width * height)
    total = tl.zeros((B,), tl.float32)
    for n in range(count):
        at = shifts + (r * count + n) * 3
        to_x, to_y, to_z = tl.load(at), tl.load(at + 1), tl.load(at + 2)
        ix, iy, iz = tl.floor(to_x).to(tl.int32), tl.floor(to_y).to(tl.int32), tl.floor(to_z).to(tl.int32)
        ax, ay, az = to_x - ix, to_y - iy, to_z - iz
        px, py, pz = x + ix, y + iy, z + iz
        # The last cell is read between it and the border only where the shift is whole.
        last_x, last_y, last_z = px + tl.where(ax > 0, 1, 0), py + tl.where(ay > 0, 1, 0), pz + tl.where(az > 0, 1, 0)
        inside = live & (px >= 0) & (last_x < width) & (py >= 0) & (last_y < height) & (pz >= 0) & (last_z < depth)
        row = tables + n * cells + (pz * height + py) * width + px
        for corner in tl.static_range(8):
            share = ax if corner % 2 else 1 - ax
            share *= ay if corner // 2 % 2 else 1 - ay
            share *= az if corner // 4 else 1 - az
            far = (corner // 4 * height + corner // 2 % 2) * width + corner % 2
            # A corner that counts for nothing may lie outside of the table.
            counts = inside & (tl.zeros((B,), tl.float32) + share > 0)
            total += share * tl.load(row + far, mask=counts, other=0.0)
    tl.store(sums + r * cells + cell, total, mask=live)


def shifted_sums(tables: Tensor, shifts: Tensor) -> Tensor:
    """Tables (N, D, H, W) and shifts (R, N, 3) to sums (R, D, H, W)."""
    tables, shifts = tables.float().contiguous(), shifts.float().contiguous()
    count, depth, height, width = tables.shape
    sums = torch.empty(len(shifts), depth, height, width, device=tables.device)
    with on_device(tables):
        grid = triton.cdiv(depth * height * width, CELLS), len(shifts)
        launch(shifted_sums_kernel, grid, tables, shifts, sums, count, depth, height, width, B=CELLS)
    return sums
