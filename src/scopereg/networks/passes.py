"""Passes: a network asked once, or again with the volume as seen from its last answer."""

from __future__ import annotations

from torch import Tensor, nn

from scopereg.geometry import VoxelPoses, compose_poses, resample_volume


def locate(network: nn.Module, slices: Tensor, volumes: Tensor, passes: int = 1) -> VoxelPoses:
    """Poses (B, ...) of slices (B, H, W) in volumes (V, D, H, W), B / V slices in a row for each.

    Every pass after the first sees the volume resampled at the pose found so far.
    """
    result = network(slices, volumes)
    found = VoxelPoses(result.rotation, result.translation)
    for _ in range(passes - 1):
        own = volumes.repeat_interleave(len(slices) // len(volumes), 0)
        result = network(slices, resample_volume(own, *found))
        found = compose_poses(found, VoxelPoses(result.rotation, result.translation))
    return found
