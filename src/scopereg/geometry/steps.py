"""Steps on SE(3): small motions of frames in their own axes, and the equations that they solve.

A step is six numbers in voxels: three shifts, then three turns as the way of a point at the `lever`, so that a unit of
each moves the points of a frame equally far.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from scopereg.geometry.rotations import rotation_from_vector
from scopereg.geometry.slicing import VoxelPoses


def lever_voxels(height: int, width: int) -> float:
    """Distance of a frame's pixels from its middle, root mean square; at least 1."""
    spans = (n * n - 1 for n in (height, width))  # twelve times the mean square of a centred axis
    return max(math.sqrt(sum(spans) / 12), 1.0)


def moved(poses: VoxelPoses, steps: Float[Tensor, "b 6"], lever: float) -> VoxelPoses:
    """Poses after steps in the frames' own axes."""
    rotation = poses.rotation @ rotation_from_vector(steps[:, 3:] / lever)
    return VoxelPoses(rotation, poses.translation + (poses.rotation @ steps[:, :3, None]).squeeze(-1))


def solve_positive(matrix: Float[Tensor, "b n n"], right: Float[Tensor, "b n"]) -> Float[Tensor, "b n"]:
    """x of matrix x = right, for positive definite matrices, which need no pivoting.

    Gauss and Jordan's elimination: unlike LAPACK's it never asks the host, so that a GPU can replay it.
    """
    size = matrix.shape[-1]
    rows = torch.cat([matrix, right.unsqueeze(-1)], -1)  # (B, N, N + 1)
    unit = torch.eye(size, device=rows.device, dtype=rows.dtype)
    for k in range(size):
        pivot = rows[:, k : k + 1] / rows[:, k : k + 1, k : k + 1]
        rows = rows + (unit[k, :, None] - rows[:, :, k : k + 1]) * pivot
    return rows[..., -1]


def inverse_positive(matrix: Float[Tensor, "b n n"]) -> Float[Tensor, "b n n"]:
    """The inverse, in the same way."""
    count, size = matrix.shape[:2]
    unit = torch.eye(size, device=matrix.device, dtype=matrix.dtype)
    columns = solve_positive(matrix.repeat_interleave(size, 0), unit.repeat(count, 1))
    return columns.unflatten(0, (count, size)).transpose(1, 2)


def step_between(first: VoxelPoses, poses: VoxelPoses, lever: float) -> Float[Tensor, "b 6"]:
    """The step that leads from one pose to another, for turns that are small: what `moved` takes."""
    back = first.rotation.transpose(1, 2)
    shift = (back @ (poses.translation - first.translation).unsqueeze(-1)).squeeze(-1)
    turn = back @ poses.rotation
    skew = (turn - turn.transpose(1, 2)) / 2
    return torch.cat([shift, lever * torch.stack([skew[:, 2, 1], skew[:, 0, 2], skew[:, 1, 0]], 1)], 1)
