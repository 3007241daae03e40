"""Augmentation: nothing asked for changes nothing, mirrors are exact, turns go the way they were drawn."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from scopereg.data.augment import AugmentOptions, augment_channels, augment_volumes, mirror_frames, mirror_volumes
from scopereg.geometry import centred_axis, rotation_from_euler_deg, sample_poses, sample_slice

NOTHING = AugmentOptions(
    mirror_chance=0, reverse_chance=0, turn_deg=0, tilt_deg=0, log_scale=0, shift=0, bend=0, log_gamma=0
)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(count: int = 3, shape: tuple[int, int, int] = (7, 12, 17)) -> Tensor:
    return torch.rand(count, *shape, generator=seeded(9))


def blob(shape: tuple[int, int, int], place: tuple[float, float, float]) -> Tensor:
    """A volume (1, D, H, W) with a Gaussian at x, y, z in centred voxels."""
    z, y, x = torch.meshgrid(*(centred_axis(n) for n in shape), indexing="ij")
    square = (x - place[0]) ** 2 + (y - place[1]) ** 2 + (z - place[2]) ** 2
    return torch.exp(-square / (2 * 1.5**2))[None]


def centre(volume: Tensor) -> Tensor:
    """Centre of mass (3,) of a volume (1, D, H, W) as x, y, z in centred voxels."""
    z, y, x = torch.meshgrid(*(centred_axis(n) for n in volume.shape[1:]), indexing="ij")
    return torch.stack([(axis * volume[0]).sum() for axis in (x, y, z)]) / volume.sum()


def drawn(seed: int) -> Tensor:
    """The draws of a volume, from -1 to 1: tilts about x and y, turn, three stretches, two shifts, two mirrors."""
    return 2 * torch.rand(1, 10, generator=seeded(seed))[0] - 1


def test_without_any_change_the_volume_stays() -> None:
    volumes = noise()
    torch.testing.assert_close(augment_volumes(volumes, seeded(), NOTHING), volumes, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("option", "axis"), [("mirror_chance", -1), ("reverse_chance", -3)])
def test_a_mirror_flips_exactly_one_axis(option: str, axis: int) -> None:
    volumes = noise()
    changed = augment_volumes(volumes, seeded(), replace(NOTHING, **{option: 1.0}))
    torch.testing.assert_close(changed, volumes.flip(axis), atol=1e-5, rtol=0)


def test_a_seed_gives_the_same_volumes_and_volumes_differ() -> None:
    volumes = noise(1).expand(4, -1, -1, -1)
    changed = augment_volumes(volumes, seeded(1))
    assert torch.equal(changed, augment_volumes(volumes, seeded(1)))
    assert not torch.equal(changed, augment_volumes(volumes, seeded(2)))
    assert len({float(volume.sum()) for volume in changed}) == 4


@pytest.mark.parametrize("shape", [(16, 32, 48), (2, 9, 8), (5, 64, 7)])
def test_grey_values_stay_in_range_and_no_black_comes_in(shape: tuple[int, int, int]) -> None:
    """Black wedges would tell a network how the volume was turned."""
    changed = augment_volumes(0.2 + 0.8 * noise(8, shape), seeded())
    assert bool(((changed > 0.1) & (changed <= 1)).all())


@pytest.mark.parametrize("option", ["turn_deg", "tilt_deg", "log_scale", "shift", "bend", "log_gamma"])
def test_each_option_alone_changes_the_volume(option: str) -> None:
    usual = getattr(AugmentOptions(), option)
    volumes = noise()
    changed = augment_volumes(volumes, seeded(), replace(NOTHING, **{option: usual}))
    assert (changed - volumes).abs().mean() > 1e-3


@pytest.mark.parametrize("seed", range(3))
def test_a_turn_moves_a_blob_to_where_its_rotation_says(seed: int) -> None:
    """The changed volume shows at p what lay at R p: what lay at q is found at R' q, in voxels on any shape."""
    shape, place = (9, 40, 64), (9.0, -3.0, 0.0)
    changed = augment_volumes(blob(shape, place), seeded(seed), replace(NOTHING, turn_deg=40))
    angle = 40 * float(drawn(seed)[2])
    rotation = rotation_from_euler_deg(torch.tensor([0.0, 0.0, angle]))
    wanted = rotation.T @ torch.tensor(place)
    assert (wanted - torch.tensor(place)).norm() > 1  # it has moved
    torch.testing.assert_close(centre(changed), wanted, atol=0.1, rtol=0)


@pytest.mark.parametrize("seed", range(3))
def test_a_shift_is_a_share_of_the_image(seed: int) -> None:
    shape, place = (9, 41, 61), (0.0, 0.0, 0.0)
    changed = augment_volumes(blob(shape, place), seeded(seed), replace(NOTHING, shift=0.2))
    x, y = 0.2 * drawn(seed)[6:8]
    torch.testing.assert_close(centre(changed), -torch.stack([60 * x, 40 * y, 0 * x]), atol=0.05, rtol=0)


@pytest.mark.parametrize("seed", range(3))
def test_a_stretch_scales_each_axis_on_its_own(seed: int) -> None:
    shape, place = (21, 40, 64), (12.0, -7.0, 2.0)
    changed = augment_volumes(blob(shape, place), seeded(seed), replace(NOTHING, log_scale=0.3))
    wanted = torch.tensor(place) / torch.exp(0.3 * drawn(seed)[3:6])
    torch.testing.assert_close(centre(changed), wanted, atol=0.05, rtol=0)


def test_the_callers_volumes_are_left_alone() -> None:
    volumes = noise()
    before = volumes.clone()
    augment_volumes(volumes, seeded())
    assert torch.equal(volumes, before)


@pytest.mark.parametrize("flags", list(itertools.product([False, True], repeat=2)))
@pytest.mark.parametrize("shape", [(9, 20, 26), (8, 21, 25)])
def test_a_mirrored_frame_lies_in_the_mirrored_volume_at_the_mirrored_pose(flags: Any, shape: Any) -> None:
    volumes = noise(4, shape)  # noise has no symmetry: a wrong sign anywhere shows
    poses = sample_poses(4, 6, shape, seeded(3))
    frames = sample_slice(volumes, *poses)
    mirrored, reversed_ = (torch.full((4,), flag) for flag in flags)
    images, rotation, translation = mirror_frames(frames, *poses, mirrored, reversed_)
    changed = mirror_volumes(volumes, mirrored, reversed_)
    torch.testing.assert_close(sample_slice(changed, rotation, translation), images, atol=1e-4, rtol=0)
    assert torch.allclose(torch.linalg.det(rotation), torch.ones(4))
    assert torch.equal(images, frames) is not flags[0]
    assert torch.equal(changed, volumes) is not any(flags)


def test_each_frame_is_mirrored_by_its_own_flag() -> None:
    volumes = noise(2)
    poses = sample_poses(2, 3, (7, 12, 17), seeded(3))
    flags = torch.tensor([True, False])
    images, rotation, translation = mirror_frames(sample_slice(volumes, *poses), *poses, flags, ~flags)
    torch.testing.assert_close(translation, poses.translation * torch.tensor([[-1, 1, 1], [1, 1, -1]]))
    there = sample_slice(mirror_volumes(volumes, flags, ~flags), rotation, translation)
    torch.testing.assert_close(there, images, atol=1e-4, rtol=0)


def test_channels_move_alike_and_the_first_alone_gets_the_grey_map() -> None:
    volumes = noise()
    changed = augment_channels(torch.stack([volumes, volumes], 1), seeded(1))
    assert torch.equal(changed[:, 0], augment_volumes(volumes, seeded(1)))
    ungreyed = augment_volumes(volumes, seeded(1), replace(AugmentOptions(), log_gamma=0.0))
    torch.testing.assert_close(changed[:, 1], ungreyed)
