"""Blur: Gaussian blurs of another width for each frame, as batched matrix products."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from scopereg.geometry import centred_axis

_LEAST_PX = 0.05  # below it the kernel is the identity in float32 anyway


@functools.lru_cache(maxsize=16)
def _half_squares(size: int, device: torch.device) -> Tensor:
    """Minus half the squared distances (size, size) between pixels of a row."""
    position = centred_axis(size, device=device)
    return -0.5 * (position[:, None] - position) ** 2


def blur_matrix(size: int, sigma_px: Tensor) -> Tensor:
    """Matrices (..., size, size) that blur a row of pixels by sigmas (..., 1, 1); outside of the image lies nothing."""
    exponent = _half_squares(size, sigma_px.device) / sigma_px.clamp_min(_LEAST_PX) ** 2
    return torch.softmax(exponent, -1)  # rows sum to 1, so that the border does not darken


def blur_down(images: Tensor, sigma_px: Tensor) -> Tensor:
    """Images (B, H, W) blurred along their columns by sigmas (B, 1, 1)."""
    with torch.autocast(images.device.type, enabled=False):
        return blur_matrix(images.shape[-2], sigma_px) @ images


def blur_across(images: Tensor, sigma_px: Tensor) -> Tensor:
    """Images (B, H, W) blurred along their rows by sigmas (B, 1, 1)."""
    with torch.autocast(images.device.type, enabled=False):
        return images @ blur_matrix(images.shape[-1], sigma_px).mT
