"""Shifted sums: tables of a volume's cells, each shifted by its own vector, added up; for many sets of shifts.

So are all translations of a frame compared with a volume at once, for each rotation.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from scopereg.ops.scan import available_backends, forward_kernels


def shifted_sums(tables: Float[Tensor, "n d h w"], shifts: Float[Tensor, "r n 3"]) -> Float[Tensor, "r d h w"]:
    """At each cell the sum of all tables there and a shift away (x, y, z in cells); trilinear, nothing from outside.

    On a CPU a numba kernel does it, on an NVIDIA GPU one of Triton's, without gradients.
    """
    if forward_kernels(tables):
        from scopereg.ops import shifts_triton

        return shifts_triton.shifted_sums(tables, shifts)
    if tables.is_cuda or torch.is_grad_enabled() or available_backends("cpu")["cpu"] is not None:
        return plain_shifted_sums(tables, shifts)
    from scopereg.ops.scan.cpu import share
    from scopereg.ops.shift_kernels import shifted_sums_kernel

    bordered = F.pad(tables.float(), [0, 1] * 3).contiguous().numpy()
    sums = torch.zeros(len(shifts), *tables.shape[1:])
    known, found = shifts.float().contiguous().numpy(), sums.numpy()
    share(len(shifts), lambda first, last: shifted_sums_kernel(bordered, known, found, first, last))
    return sums


def plain_shifted_sums(tables: Float[Tensor, "n d h w"], shifts: Float[Tensor, "r n 3"]) -> Float[Tensor, "r d h w"]:
    """The same in plain PyTorch, one set of shifts after the other."""
    sizes = torch.tensor(tables.shape[:0:-1], device=tables.device, dtype=tables.dtype)  # x, y, z
    z, y, x = torch.meshgrid(*(torch.arange(n, device=tables.device) for n in tables.shape[1:]), indexing="ij")
    cells = torch.stack([x, y, z], -1).to(tables.dtype)  # (D, H, W, 3)
    sums = []
    for one in shifts.to(tables.dtype):
        places = cells + one[:, None, None, None]  # (N, D, H, W, 3)
        inside = ((places >= 0) & (places <= sizes - 1)).all(-1)
        grid = (2 * places + 1) / sizes - 1  # align_corners=False: it also knows what one cell alone is
        found = F.grid_sample(tables.unsqueeze(1), grid, padding_mode="border", align_corners=False).squeeze(1)
        sums.append((found * inside).sum(0))
    return torch.stack(sums)
