"""Filling: empty places of a volume painted over from what lies around them, coarse to fine."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from scopereg.images import field_of_view

_DARK = 1 / 255  # grey values below it are no picture: one step of the bytes that volumes are stored as


def pictured(volume: Tensor) -> Tensor:
    """Where a volume (D, H, W) in [0, 1] holds a picture, bool: between its first and last grey along every axis.

    Black blood and shadows inside of a fan count, black surroundings and the corners beside a sweep do not.
    """
    lit = (volume > _DARK).to(torch.uint8)
    return field_of_view(lit) & field_of_view(lit.movedim(0, -1)).movedim(-1, 0)


def fill_empty(volume: Tensor, content: Tensor) -> Tensor:
    """The volume (D, H, W) as it is where there is `content` (bool), elsewhere a smooth continuation of that."""
    values, weights = (volume * content)[None, None], content.to(volume.dtype)[None, None]
    finest = [(values, weights)]
    while max(values.shape[2:]) > 1:
        block = [min(2, n) for n in values.shape[2:]]
        values, weights = (F.avg_pool3d(x, block, ceil_mode=True) for x in (values, weights))
        finest.append((values, weights))
    filled = values / weights.clamp_min(1e-6)
    for values, weights in reversed(finest[:-1]):
        around = F.interpolate(filled, values.shape[2:], mode="trilinear", align_corners=False)
        filled = values + around * (1 - weights)  # values are means over the block, empty voxels counted as 0
    return filled[0, 0]
