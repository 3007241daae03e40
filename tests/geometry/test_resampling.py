"""Volumes seen from a pose, and poses one after the other: what a second pass of a network stands on."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.geometry import (
    VoxelPoses,
    centred_axis,
    compose_poses,
    resample_volume,
    rotation_from_euler_deg,
    sample_poses,
    sample_slice,
)

SHAPE = (15, 24, 31)


def noise(count: int, shape: tuple[int, int, int] = SHAPE) -> Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(0))


def poses(count: int, magnitude: float, seed: int = 1) -> VoxelPoses:
    return sample_poses(count, magnitude, SHAPE, torch.Generator().manual_seed(seed), min_inside=0)


def as_matrix(poses: VoxelPoses) -> Tensor:
    """Homogeneous matrices (B, 4, 4) in float64."""
    matrix = torch.eye(4, dtype=torch.float64).repeat(len(poses.rotation), 1, 1)
    matrix[:, :3, :3], matrix[:, :3, 3] = poses.rotation.double(), poses.translation.double()
    return matrix


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_the_middle_plane_of_a_resampled_volume_is_the_slice(padding: str) -> None:
    volumes, there = noise(5), poses(5, 20)
    middle = resample_volume(volumes, *there, padding=padding)[:, SHAPE[0] // 2]  # type: ignore[arg-type]
    torch.testing.assert_close(middle, sample_slice(volumes, *there, padding=padding))  # type: ignore[arg-type]


def test_planes_of_a_resampled_volume_are_slices_moved_along_its_normal() -> None:
    volumes, there = noise(3), poses(3, 20)
    resampled = resample_volume(volumes, *there)
    for plane, z in enumerate(centred_axis(SHAPE[0]).tolist()):
        moved = there._replace(translation=there.translation + z * there.rotation[:, :, 2])
        torch.testing.assert_close(resampled[:, plane], sample_slice(volumes, *moved), atol=1e-4, rtol=0)


def test_a_volume_resampled_at_the_identity_is_itself() -> None:
    volumes = noise(2)
    nowhere = VoxelPoses(torch.eye(3).expand(2, 3, 3), torch.zeros(2, 3))
    torch.testing.assert_close(resample_volume(volumes, *nowhere), volumes)


@pytest.mark.unchecked_shapes
def test_resampling_wants_a_pose_for_each_volume() -> None:
    with pytest.raises(ScopeRegError, match="do not fit together"):
        resample_volume(noise(3), *poses(2, 5))


def test_composed_poses_are_products_of_their_matrices() -> None:
    first, second = poses(6, 40, seed=2), poses(6, 40, seed=3)
    product = as_matrix(first) @ as_matrix(second)
    torch.testing.assert_close(as_matrix(compose_poses(first, second)), product, atol=1e-5, rtol=0)


def test_the_order_of_composed_poses_matters() -> None:
    turn = VoxelPoses(rotation_from_euler_deg(torch.tensor([[0.0, 0.0, 90.0]])), torch.zeros(1, 3))
    shift = VoxelPoses(torch.eye(3)[None], torch.tensor([[1.0, 0.0, 0.0]]))
    # A turn by 90 degrees about z takes x to y.
    torch.testing.assert_close(compose_poses(turn, shift).translation, torch.tensor([[0.0, 1.0, 0.0]]))
    torch.testing.assert_close(compose_poses(shift, turn).translation, torch.tensor([[1.0, 0.0, 0.0]]))


def test_a_slice_of_a_resampled_volume_is_the_slice_at_the_composed_pose() -> None:
    """A volume that is linear in x, y and z is interpolated without error, as long as nothing from outside comes in."""
    shape = (41, 61, 61)
    z, y, x = torch.meshgrid(*(centred_axis(n) for n in shape), indexing="ij")
    volumes = (0.5 + 0.01 * x - 0.02 * y + 0.03 * z).expand(4, *shape)
    first, second = poses(4, 4, seed=4), poses(4, 4, seed=5)
    size = (16, 16)
    twice = sample_slice(resample_volume(volumes, *first), *second, slice_shape=size)
    once = sample_slice(volumes, *compose_poses(first, second), slice_shape=size)
    torch.testing.assert_close(twice, once, atol=1e-4, rtol=0)
