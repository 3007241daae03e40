"""Regridding: images brought to another spacing, smoothed first by what a coarser grid cannot hold."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

_SLAB = 2**22  # elements that are smoothed at once


def smoothed(array: Tensor, scale: list[float]) -> Tensor:
    """Gaussian along each axis that gets coarser, sigma as for an ideal low-pass at the new grid's limit."""
    for axis, factor in enumerate(reversed(scale)):  # array axes run opposite to x, y, z
        sigma = 0.5 * float(np.sqrt(max(factor**2 - 1, 0)))
        if sigma > 0.1 and array.shape[axis] > 1:
            array = _blur_axis(array, axis, sigma)
    return array


def _blur_axis(array: Tensor, axis: int, sigma: float) -> Tensor:
    """Sums of shifted slabs: a convolution of one channel is given sixteen on a CPU, and so much memory."""
    radius = int(np.ceil(3 * sigma))
    taps = torch.exp(-0.5 * (torch.arange(-radius, radius + 1, device=array.device) / sigma) ** 2)
    across = 1 if axis == 0 else 0
    rows = max(1, _SLAB * array.shape[across] // max(array.numel(), 1))
    weights = (taps / taps.sum()).tolist()
    return torch.cat([_blurred(slab, axis, weights) for slab in array.split(rows, across)], across)


def _blurred(slab: Tensor, axis: int, weights: list[float]) -> Tensor:
    count, radius = slab.shape[axis], len(weights) // 2
    first, last = slab.narrow(axis, 0, 1), slab.narrow(axis, count - 1, 1)
    padded = torch.cat([*[first] * radius, slab, *[last] * radius], axis)
    total = weights[0] * padded.narrow(axis, 0, count)
    for shift, weight in enumerate(weights[1:], 1):
        total.add_(padded.narrow(axis, shift, count), alpha=weight)
    return total


def regrid(array: Tensor, scale: list[float], sizes: list[int], mode: str) -> Tensor:
    """Sample on a centred grid of `sizes` with steps of `scale` old voxels (both x, y(, z))."""
    axes = [
        ((torch.arange(n, device=array.device) - (n - 1) / 2) * f * 2 / max(old - 1, 1))
        for n, f, old in zip(sizes, scale, array.shape[::-1], strict=True)
    ]
    grid = torch.stack(torch.meshgrid(*reversed(axes), indexing="ij")[::-1], -1)
    values = F.grid_sample(
        array[None, None].float(), grid[None].float(), mode=mode, padding_mode="border", align_corners=True
    )
    return values[0, 0]
