"""Terms of the baselines: poses as the six numbers that they regress, and the losses that they share.

Losses give one number per frame (B,), in single precision, and none looks at values: a graph can record them.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.geometry import VoxelPoses, euler_deg_from_rotation, place_plane, rotation_from_euler_deg, sample_points
from scopereg.ops.ssim import WINDOW, ssim_unchecked


def poses_from_vectors(vectors: Tensor) -> VoxelPoses:
    """Poses of vectors (B, 6): translation in voxels, then angles about x, y, z in degrees."""
    vectors = vectors.float()
    return VoxelPoses(rotation_from_euler_deg(vectors[:, 3:]), vectors[:, :3])


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
    if first.shape != second.shape or first.ndim != 3 or min(first.shape[1:]) < WINDOW:
        raise ScopeRegError(
            f"the shapes are {tuple(first.shape)} and {tuple(second.shape)}",
            where="structural_similarity",
            fix=f"pass two batches (B, H, W) of the same shape, at least {WINDOW} x {WINDOW} pixels",
        )
    return ssim_unchecked(first.float(), second.float())
