"""Terms that the baselines' losses share: poses as six numbers, and the volume cut at a pose against the frame.

All give one number per frame (B,), in single precision, and none looks at values: a graph can record them.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.geometry import euler_deg_from_rotation, place_plane, sample_points

_WINDOW, _SIGMA = 11, 1.5  # SSIM's Gaussian, as in evaluation.metrics
_C1, _C2 = 0.01**2, 0.03**2  # for images in [0, 1]


def pose_vectors(rotation: Tensor, translation: Tensor) -> Tensor:
    """Poses (B, 3, 3) and (B, 3) as (B, 6): translation in voxels, then angles about x, y, z in degrees."""
    return torch.cat([translation.float(), euler_deg_from_rotation(rotation.float())], 1)


def vector_mse(predicted: Tensor, true: Tensor) -> Tensor:
    """Mean squared error (B,) of vectors (B, N)."""
    return (predicted.float() - true.float()).square().mean(1)


def smooth_l1(predicted: Tensor, true: Tensor) -> Tensor:
    """Mean smooth-L1 error (B,) of vectors (B, N): a parabola below 1, straight above."""
    return F.smooth_l1_loss(predicted.float(), true.float(), reduction="none").mean(1)


def pose_smooth_l1(predicted: Tensor, true: Tensor) -> tuple[Tensor, Tensor]:
    """Smooth-L1 errors (B,) of pose vectors (B, 6): that of the translations, that of the angles."""
    return smooth_l1(predicted[:, :3], true[:, :3]), smooth_l1(predicted[:, 3:], true[:, 3:])


def resampled_slices(volumes: Tensor, rotation: Tensor, translation: Tensor) -> Tensor:
    """Slices (B, H, W) that volumes (V, D, H, W) have at poses (B, 3, 3) and (B, 3); each serves B / V in a row."""
    height, width = volumes.shape[2:]
    planes = place_plane(rotation.float(), translation.float(), (height, width))
    # All planes of a volume in one call: it need not be repeated.
    return sample_points(volumes.float(), planes.unflatten(0, (len(volumes), -1))).flatten(0, 1)


def image_mse(first: Tensor, second: Tensor) -> Tensor:
    """Mean squared difference (B,) of images (B, ...)."""
    return (first.float() - second.float()).square().flatten(1).mean(1)


def structural_similarity(first: Tensor, second: Tensor) -> Tensor:
    """SSIM (B,) of images (B, H, W) in [0, 1], as `evaluation.metrics.ssim` without its look at the values."""
    if first.shape != second.shape or first.ndim != 3 or min(first.shape[1:]) < _WINDOW:
        raise ScopeRegError(
            f"the shapes are {tuple(first.shape)} and {tuple(second.shape)}",
            where="structural_similarity",
            fix=f"pass two batches (B, H, W) of the same shape, at least {_WINDOW} x {_WINDOW} pixels",
        )
    first, second = first.float(), second.float()
    # Variances do not feel a shift of the grey values, but their rounding does: measured about the image's mean.
    level_1, level_2 = (image.mean((1, 2), keepdim=True) for image in (first, second))
    first, second = first - level_1, second - level_2
    moments = torch.stack([first, second, first * first, second * second, first * second])
    mean_1, mean_2, square_1, square_2, product = _gaussian(_gaussian(moments, 2), 3)
    spread = square_1 - mean_1**2 + square_2 - mean_2**2
    structure = (2 * (product - mean_1 * mean_2) + _C2) / (spread + _C2)
    mean_1, mean_2 = mean_1 + level_1, mean_2 + level_2
    luminance = (2 * mean_1 * mean_2 + _C1) / (mean_1**2 + mean_2**2 + _C1)
    return (luminance * structure).mean((1, 2))


def _gaussian(images: Tensor, axis: int) -> Tensor:
    """Images weighted by SSIM's window along one axis, where it fits: no convolution, which autocast would round."""
    taps = [math.exp(-0.5 * ((step - _WINDOW // 2) / _SIGMA) ** 2) for step in range(_WINDOW)]
    length = images.shape[axis] - _WINDOW + 1
    blurred = torch.zeros_like(images.narrow(axis, 0, length))
    for start, tap in enumerate(taps):
        blurred = blurred + tap / sum(taps) * images.narrow(axis, start, length)
    return blurred
