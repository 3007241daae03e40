"""Compression: what a video codec's quantised 8 x 8 cosine transform leaves of an image."""

from __future__ import annotations

import functools
import math

import torch
import torch.nn.functional as F
from torch import Tensor

_BLOCK = 8
# The luminance table of the JPEG standard (ITU-T T.81, table K.1), in grey values of 255.
# fmt: off
_STEPS = (
    16, 11, 10, 16, 24, 40, 51, 61,
    12, 12, 14, 19, 26, 58, 60, 55,
    14, 13, 16, 24, 40, 57, 69, 56,
    14, 17, 22, 29, 51, 87, 80, 62,
    18, 22, 37, 56, 68, 109, 103, 77,
    24, 35, 55, 64, 81, 104, 113, 92,
    49, 64, 78, 87, 103, 121, 120, 101,
    72, 92, 95, 98, 112, 100, 103, 99,
)
# fmt: on


@functools.lru_cache(maxsize=8)
def cosine_basis(device: torch.device) -> Tensor:
    """Basis images (64, 64) of the orthonormal cosine transform of 8 x 8 blocks, one per row."""
    k = torch.arange(_BLOCK, dtype=torch.float64)
    waves = torch.cos(math.pi / _BLOCK * k[:, None] * (k + 0.5)) * math.sqrt(2 / _BLOCK)
    waves[0] /= math.sqrt(2)
    return torch.kron(waves, waves).float().to(device)


@functools.lru_cache(maxsize=8)
def _steps(device: torch.device) -> Tensor:
    return torch.tensor(_STEPS, dtype=torch.float32, device=device) / 255


def compress_frames(images: Tensor, coarseness: Tensor) -> Tensor:
    """Images (B, H, W) after quantisation with the standard table times `coarseness` (B, 1, 1)."""
    count, height, width = images.shape
    rows, columns = math.ceil(height / _BLOCK), math.ceil(width / _BLOCK)
    padding = (0, columns * _BLOCK - width, 0, rows * _BLOCK - height)
    padded = F.pad(images, padding, mode="replicate")
    blocks = padded.reshape(count, rows, _BLOCK, columns, _BLOCK).transpose(2, 3).reshape(count, -1, _BLOCK**2)
    basis = cosine_basis(images.device)
    steps = _steps(images.device) * coarseness  # (B, 1, 64)
    with torch.autocast(images.device.type, enabled=False):
        kept = torch.round(blocks @ basis.mT / steps) * steps  # (B, blocks, 64)
        blocks = (kept @ basis).reshape(count, rows, columns, _BLOCK, _BLOCK)
    return blocks.transpose(2, 3).reshape(padded.shape)[:, :height, :width]
