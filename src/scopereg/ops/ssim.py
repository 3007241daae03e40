"""Structural similarity of images, without a look at their values, so that a graph can record it."""

from __future__ import annotations

import math
from functools import reduce

import torch
from jaxtyping import Float
from torch import Tensor

WINDOW, _SIGMA = 11, 1.5  # pixels of the Gaussian


def ssim_unchecked(
    first: Float[Tensor, "b h w"], second: Float[Tensor, "b h w"], data_range: float = 1.0
) -> Float[Tensor, " b"]:
    """SSIM of images without a look at their values, so that a graph can record it."""
    # Variances do not feel a shift of the grey values, but their rounding does: measured about the image's mean.
    level_1, level_2 = (image.mean((1, 2), keepdim=True) for image in (first, second))
    first, second = first - level_1, second - level_2
    mean_1, mean_2, square_1, square_2, product = (
        _gaussian_valid(image) for image in (first, second, first * first, second * second, first * second)
    )
    variance_1, variance_2 = square_1 - mean_1**2, square_2 - mean_2**2
    covariance = product - mean_1 * mean_2
    mean_1, mean_2 = mean_1 + level_1, mean_2 + level_2
    c1, c2 = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2
    luminance = (2 * mean_1 * mean_2 + c1) / (mean_1**2 + mean_2**2 + c1)
    structure = (2 * covariance + c2) / (variance_1 + variance_2 + c2)
    return (luminance * structure).mean((1, 2))


def _gaussian_valid(image: Float[Tensor, "b h w"]) -> Float[Tensor, "b h2 w2"]:
    """SSIM's window over images, where it fits.

    A sum of shifted images instead of a convolution: cuDNN convolves in TF32, too coarse for the variances.
    """
    taps = [math.exp(-0.5 * ((step - WINDOW // 2) / _SIGMA) ** 2) for step in range(WINDOW)]
    taps = [tap / sum(taps) for tap in taps]
    for axis in (1, 2):
        length = image.shape[axis] - WINDOW + 1
        image = reduce(torch.add, (tap * image.narrow(axis, start, length) for start, tap in enumerate(taps)))
    return image
