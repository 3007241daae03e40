"""What CU-Reg is trained for: pose, distances between frames, likeness of the cut volume, and the organ's mask."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from scopereg.networks.baselines.cu_reg import FRAMES, CuReg
from scopereg.networks.baselines.pose import poses_from_vectors
from scopereg.training.objectives.similarity import (
    image_mse,
    pose_smooth_l1,
    pose_vectors,
    resampled_slices,
    smooth_l1,
    structural_similarity,
)
from scopereg.training.source import Batch


@dataclass(frozen=True)
class CuRegWeights:
    """Weights of the terms, as published."""

    translation: float = 1.0
    """Of the smooth-L1 error of the translation, in voxels."""
    rotation: float = 1.0
    """Of the smooth-L1 error of the angles, in degrees."""
    distances: float = 0.1
    """Of the smooth-L1 error of the distances to the other frames, in voxels, where there are others."""
    similarity: float = 0.5
    """Of 1 - SSIM of the volume at the predicted pose and the frame."""
    prompt: float = 0.1
    """Of the mean squared error of the prompt against the organ's mask, where there is one."""


def objective(network: CuReg, batch: Batch, *, weights: CuRegWeights | None = None) -> Tensor:
    """The loss (B,) of the frames of a batch.

    With 4 frames or more of each volume, a target has the next three of its volume beside it; with fewer, itself.
    """
    weights = weights or CuRegWeights()
    frames = len(batch.slices) // len(batch.volumes)
    stacks = with_neighbours(batch.slices, frames)
    found = network.predict(stacks, batch.volumes)
    translation, rotation = pose_smooth_l1(found.vectors, pose_vectors(batch.rotation, batch.translation))
    loss = weights.translation * translation + weights.rotation * rotation
    if frames >= FRAMES:
        distances = neighbour_distances(batch.translation.float(), frames)
        loss = loss + weights.distances * smooth_l1(found.distances, distances)
    resampled = resampled_slices(batch.volumes, *poses_from_vectors(found.vectors))
    loss = loss + weights.similarity * (1 - structural_similarity(resampled, batch.slices))
    if batch.masks is not None:
        loss = loss + weights.prompt * image_mse(found.prompt, prompt_target(batch.masks))
    return loss


def with_neighbours(values: Tensor, frames: int) -> Tensor:
    """Each of values (B, ...) with the next three of its group of `frames`, round and round: (B, 4, ...).

    In a group of fewer than four each stands four times, as at inference.
    """
    if frames < FRAMES:
        return torch.stack([values] * FRAMES, 1)
    groups = values.unflatten(0, (-1, frames))
    return torch.stack([groups.roll(-step, 1) for step in range(FRAMES)], 2).flatten(0, 1)


def neighbour_distances(translation: Tensor, frames: int) -> Tensor:
    """Distances (B, 3) in voxels of the centres (B, 3) of the three neighbours from the frame's own."""
    centres = with_neighbours(translation, frames)
    return torch.linalg.vector_norm(centres[:, 1:] - centres[:, :1], dim=-1)


def prompt_target(masks: Tensor) -> Tensor:
    """Masks (B, H, W) as the prompt should be, (B, 2, H, W): one channel for the background, one for the organ."""
    return torch.stack([~masks.bool(), masks.bool()], 1).float()
