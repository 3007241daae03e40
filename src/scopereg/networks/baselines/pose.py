"""Poses as the six numbers that the baselines regress."""

from __future__ import annotations

from torch import Tensor

from scopereg.geometry import VoxelPoses, rotation_from_euler_deg


def poses_from_vectors(vectors: Tensor) -> VoxelPoses:
    """Poses of vectors (B, 6): translation in voxels, then angles about x, y, z in degrees."""
    vectors = vectors.float()
    return VoxelPoses(rotation_from_euler_deg(vectors[:, 3:]), vectors[:, :3])
