"""Likeness: two acquisitions of one anatomy made comparable, grey values smoothed and normalised by their surroundings.

Gain, depth compensation and shadows change slowly over an image, speckle changes from pixel to pixel. What lies
between, relative to its surroundings, is the anatomy.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from scopereg.geometry import VoxelPoses, sample_slice

_QUIET = 1e-4  # spread of grey values in [0, 1] that is none
_LEAST = 1e-3  # share of seen pixels under a window, below which nothing is known there
_LEAST_PIXELS = 16  # that a similarity takes


def normalise_locally(images: Tensor, seen: Tensor, smooth: float, window: float, floor: float) -> Tensor:
    """Images (B, ...) of two or three axes, smoothed, minus their local mean, over their local spread.

    `smooth` and `window` are standard deviations in pixels; a `window` of 0 leaves the grey values as they are. `seen`
    (B, ...) is 1 where there is a picture: what is not seen has no part in any mean. `floor` is added to the spread,
    as a share of the usual one, so that noise in flat regions is not blown up.
    """
    weights = seen.to(images.dtype)
    values = _mean(images, weights, smooth) if smooth > 0 else images
    if window <= 0:
        return values
    share = blur(weights, window).clamp_min(_LEAST)
    apart = (values - blur(values * weights, window) / share) * weights
    variance = blur(apart.square(), window) / share
    axes = tuple(range(1, images.ndim))
    usual = (variance * weights).sum(axes, keepdim=True) / weights.sum(axes, keepdim=True).clamp_min(1)
    # An image without any contrast stays quiet instead of showing its rounding errors.
    return apart / (variance.sqrt() + floor * usual.sqrt()).clamp_min(_QUIET)


def _mean(images: Tensor, weights: Tensor, sigma: float) -> Tensor:
    return blur(images * weights, sigma) / blur(weights, sigma).clamp_min(_LEAST)


def blur(images: Tensor, sigma: float) -> Tensor:
    """Images (B, ...) of two or three axes under a Gaussian, axis by axis; at the border over what there is.

    As products with a matrix per axis: on a CPU many times faster than convolutions of one channel.
    """
    # On a GPU the matrices may be part of a recording, which owns what is made within it: nothing of it is kept.
    make = _kept_weights if images.device.type == "cpu" else _gaussian_weights
    for axis in range(1, images.ndim):
        weights = make(images.shape[axis], sigma, images.device, images.dtype)
        images = (images.movedim(axis, -1) @ weights.T).movedim(-1, axis)
    return images


def _gaussian_weights(count: int, sigma: float, device: torch.device, dtype: torch.dtype) -> Tensor:
    """What each of `count` pixels has of each other: (count, count)."""
    places = torch.arange(count, device=device, dtype=dtype)
    apart = places[:, None] - places
    weights = torch.exp(-apart.square() / (2 * sigma**2)) * (apart.abs() <= 3 * sigma)
    return weights / weights.sum(1, keepdim=True)


@lru_cache(maxsize=32)
def _kept_weights(count: int, sigma: float, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The same, made once: a frame is blurred twenty times, and the matrices took longer than the products."""
    with torch.inference_mode(False):  # what is made in that mode is of no use outside of it
        return _gaussian_weights(count, sigma, device, dtype)


def gradients(volume: Tensor) -> Tensor:
    """Central differences (3, D, H, W) of a volume (D, H, W) along x, y, z, per voxel; 0 along an axis of one voxel."""
    slopes = []
    for axis in (2, 1, 0):
        if volume.shape[axis] == 1:
            slopes.append(torch.zeros_like(volume))
        else:
            slopes.append(torch.gradient(volume, dim=axis)[0])
    return torch.stack(slopes)


def similarity_at(images: Tensor, volume: Tensor, poses: VoxelPoses) -> Tensor:
    """Correlation (B,) of frames (B, H, W) with a volume (D, H, W) at poses, where both have a picture.

    NaN where they share next to nothing. Nothing is asked of the host, so that a GPU can replay it.
    """
    cuts = sample_slice(volume, *poses, slice_shape=(images.shape[1], images.shape[2]))
    both = ((images > 0) & (cuts > 0)).flatten(1)
    count = both.sum(1)
    apart = [
        torch.where(both, values - (values * both).sum(1, keepdim=True) / count.clamp_min(1).unsqueeze(1), 0)
        for values in (images.flatten(1), cuts.flatten(1))
    ]
    first, second = (values.square().sum(1) for values in apart)
    found = (apart[0] * apart[1]).sum(1) / (first * second).sqrt()
    enough = (count >= _LEAST_PIXELS) & (first > 0) & (second > 0)
    return torch.where(enough, found, torch.nan)
