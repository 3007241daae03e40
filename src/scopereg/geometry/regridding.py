"""Regridding: images brought to another spacing, smoothed first by what a coarser grid cannot hold."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor


def smoothed(array: Tensor, scale: list[float]) -> Tensor:
    """Gaussian along each axis that gets coarser, sigma as for an ideal low-pass at the new grid's limit."""
    for axis, factor in enumerate(reversed(scale)):  # array axes run opposite to x, y, z
        sigma = 0.5 * float(np.sqrt(max(factor**2 - 1, 0)))
        if sigma > 0.1 and array.shape[axis] > 1:
            array = _blur_axis(array, axis, sigma)
    return array


def _blur_axis(array: Tensor, axis: int, sigma: float) -> Tensor:
    radius = int(np.ceil(3 * sigma))
    taps = torch.exp(-0.5 * (torch.arange(-radius, radius + 1, device=array.device) / sigma) ** 2)
    lines = array.movedim(axis, -1)
    flat = F.pad(lines.reshape(-1, 1, lines.shape[-1]), (radius, radius), mode="replicate")
    return F.conv1d(flat, (taps / taps.sum())[None, None]).reshape(lines.shape).movedim(-1, axis)


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
