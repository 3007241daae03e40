"""Compounding gives back what the frames showed, where they showed it; held-out frames lie where the tracker says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from scopereg.data.compound import CompoundedVolume, compound
from scopereg.data.tracked import around, frames_on_grid, held_out_blocks, real_case, start_poses
from scopereg.errors import ScopeRegError
from scopereg.geometry import (
    Pose,
    VoxelPoses,
    compose_poses,
    euler_deg_from_rotation,
    invert_poses,
    mtre_mm,
    resample_volume,
    sample_poses,
    sample_slice,
)
from scopereg.images import pose_from_voxels, pose_to_voxels
from scopereg.io.sweeps import TrackedSweep, read_npz_sweep

LIVER = Path(__file__).parents[3] / "shared" / "data" / "liver_sweep.npz"
HEIGHT, WIDTH, SPACING = 90, 110, (0.4, 0.5)  # 55 x 36 mm
TILTED = Pose.from_euler_deg((20, -35, 70), (120, -40, 300), "Sweep", "World")


def field(points_mm: np.ndarray) -> np.ndarray:
    """A smooth function of world mm, 0 to 1, without symmetry."""
    x, y, z = np.moveaxis((points_mm - TILTED.translation_mm) @ TILTED.rotation, -1, 0)
    return 0.5 + 0.2 * np.sin(x / 7) + 0.15 * np.sin(y / 5 + 1) + 0.12 * np.sin(z / 6 + x / 15)


def make_sweep(count: int = 41, step_mm: float = 0.8, mask: Tensor | None = None) -> TrackedSweep:
    """Frames of `field` along a rocking sweep, tilted in the world."""
    images, matrices = [], []
    y, x = np.meshgrid(np.arange(HEIGHT) * SPACING[1], np.arange(WIDTH) * SPACING[0], indexing="ij")
    pixels_mm = np.stack([x, y, 0 * x], -1)
    for k in range(count):
        s = k - (count - 1) / 2
        rocked = Pose.from_euler_deg((0.3 * s, 0.05 * s, 0.1 * s), (0.02 * s, 0.01 * s, step_mm * s), "Image", "Sweep")
        pose = TILTED @ rocked
        images.append(field(pose.apply(pixels_mm)))
        matrices.append(pose.matrix)
    return TrackedSweep("smooth", torch.tensor(np.stack(images)).float(), SPACING, np.stack(matrices), mask)


SWEEP = make_sweep()


def voxel_places_mm(result: CompoundedVolume) -> np.ndarray:
    """World mm (D, H, W, 3) of the voxels."""
    axes = [np.arange(n) - (n - 1) / 2 for n in result.volume.shape]
    z, y, x = np.meshgrid(*axes, indexing="ij")
    return result.volume_to_world.apply(np.stack([x, y, z], -1) * result.volume.isotropic_spacing_mm)


def test_the_volume_is_what_the_frames_showed() -> None:
    result = compound(SWEEP, shape=(32, 48, 56))
    filled = result.filled.numpy()
    error = np.abs(result.volume.numpy() - field(voxel_places_mm(result)))[filled]
    assert filled.mean() > 0.35
    assert error.mean() < 0.006
    assert np.quantile(error, 0.99) < 0.04  # at the border a voxel has neighbours on one side only
    assert not result.volume.array[~result.filled].any()


def test_the_grid_follows_the_sweep_and_holds_all_of_it() -> None:
    result = compound(SWEEP, shape=(32, 48, 56))
    middle = SWEEP.pose(20)
    volume = result.volume
    assert np.abs(volume.direction - middle.rotation).max() < 0.01
    corners = [(x, y, 0.0) for x in (0, (WIDTH - 1) * SPACING[0]) for y in (0, (HEIGHT - 1) * SPACING[1])]
    places = np.concatenate([SWEEP.pose(row).apply(corners) for row in range(len(SWEEP))])
    reach = np.abs(result.volume_to_world.inverse().apply(places)) - np.array(volume.extent_mm) / 2
    assert reach.max() < 1e-6
    assert reach.max(0).max() > -1e-6  # and one axis is just filled


def test_some_frames_keep_the_grid_of_all() -> None:
    some, every = compound(SWEEP, range(5, 20), (32, 48, 56)), compound(SWEEP, shape=(32, 48, 56))
    assert some.volume.origin_mm == every.volume.origin_mm
    assert bool((every.filled | ~some.filled).all())
    assert int(some.filled.sum()) < int(every.filled.sum())
    assert some.facts["frames"] == 15


def test_a_spacing_alone_makes_a_grid_that_holds_the_sweep() -> None:
    coarse, fine = compound(SWEEP, shape=None, spacing_mm=2), compound(SWEEP, shape=None, spacing_mm=1)
    assert coarse.volume.isotropic_spacing_mm == pytest.approx(2)
    assert all(abs(a / b - 2) < 0.15 for a, b in zip(fine.volume.shape, coarse.volume.shape, strict=True))
    both = compound(SWEEP, shape=(10, 20, 30), spacing_mm=1)  # less than the sweep: its middle
    assert both.volume.shape == (10, 20, 30)
    assert np.allclose(both.volume.centre_mm, fine.volume.centre_mm)
    assert float(both.filled.float().mean()) > 0.99


def test_holes_are_bridged_along_the_sweep_up_to_a_distance() -> None:
    rows = [row for row in range(len(SWEEP)) if not 15 <= row < 20]  # 4.8 mm without a frame
    bridged = compound(SWEEP, rows, None, 1)
    left = compound(SWEEP, rows, None, 1, bridge_mm=1)
    assert bridged.facts["bridged_share"] > 0.04
    assert int(left.filled.sum()) < int(bridged.filled.sum())
    gap = bridged.filled & ~left.filled
    error = np.abs(bridged.volume.numpy() - field(voxel_places_mm(bridged)))[gap.numpy()]
    assert error.mean() < 0.03
    assert not left.volume.array[gap].any()


def test_only_what_is_seen_is_used() -> None:
    mask = torch.zeros(HEIGHT, WIDTH, dtype=torch.bool)
    mask[10:70, 20:80] = True
    sweep = make_sweep(mask=mask)
    images = sweep.images.clone()
    images[:, ~mask] = 1.0
    dirty = TrackedSweep("dirty", images, SPACING, sweep.image_to_world, mask)
    clean, other = (compound(s, shape=(24, 40, 40)) for s in (sweep, dirty))
    assert torch.equal(clean.volume.array, other.volume.array)
    assert clean.volume.isotropic_spacing_mm < compound(SWEEP, shape=(24, 40, 40)).volume.isotropic_spacing_mm


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        ({"rows": []}, "rows"),
        ({"rows": [99]}, "rows"),
        ({"shape": None}, "shape, spacing_mm"),
        ({"shape": (1, 8, 8)}, "shape"),
        ({"spacing_mm": 0.0}, "spacing_mm"),
        ({"shape": None, "spacing_mm": 0.01}, "spacing_mm"),
        ({"bridge_mm": -1}, "bridge_mm"),
    ],
)
def test_what_cannot_be_compounded_is_refused(arguments: dict, where: str) -> None:
    with pytest.raises(ScopeRegError) as caught:
        compound(SWEEP, **arguments)
    assert caught.value.where == f"compound({where})"


def test_held_out_blocks_are_spread_and_leave_the_ends() -> None:
    rows = held_out_blocks(140)
    assert len(set(rows)) == 25
    assert rows[:5] == (12, 13, 14, 15, 16)
    assert rows[-1] == 128
    assert held_out_blocks(7, blocks=1, size=5) == (1, 2, 3, 4, 5)
    with pytest.raises(ScopeRegError, match="at most 4 blocks"):
        held_out_blocks(30)


def test_frames_keep_their_places_on_another_grid() -> None:
    (frame,), seen = frames_on_grid(SWEEP, [7], (50, 40), 1.1)
    assert frame.shape == (50, 40)
    y, x = np.meshgrid(*(np.arange(n) * 1.1 for n in frame.shape), indexing="ij")
    places = np.stack([x + frame.origin_mm[0], y + frame.origin_mm[1], 0 * x], -1)
    error = np.abs(frame.numpy() - field(SWEEP.pose(7).apply(places)))[seen.numpy()]
    assert error.max() < 0.03
    assert not frame.array[~seen].any()
    assert int(seen.sum()) == pytest.approx((WIDTH * 0.4 / 1.1) * (HEIGHT * 0.5 / 1.1), rel=0.06)
    assert np.allclose(frame.centre_mm[:2], [(WIDTH - 1) * 0.2, (HEIGHT - 1) * 0.25])


def test_held_out_frames_lie_where_the_tracker_says() -> None:
    case = real_case(SWEEP, held_out_blocks(len(SWEEP), 3, 3), None, 1)
    assert len(case) == 9
    assert case.images.shape == (9, *case.reference.volume.shape[1:])
    shape = case.frames[0].shape
    cut = sample_slice(case.reference.volume.array, *case.truth, slice_shape=shape)
    full = sample_slice(case.reference.filled.float(), *case.truth, slice_shape=shape) > 0.99
    both = full & case.seen
    assert float(both.float().mean()) > 0.8 * float(case.seen.float().mean())
    assert float((cut - case.images)[both].abs().mean()) < 0.02  # of a range of 0 to 1
    moved = VoxelPoses(case.truth.rotation, case.truth.translation + 2.0)
    off = sample_slice(case.reference.volume.array, *moved, slice_shape=shape)
    assert float((off - case.images)[both].abs().mean()) > 0.06
    for index, row in enumerate(case.rows):
        pose = pose_from_voxels(
            case.truth.rotation[index], case.truth.translation[index], case.frames[index], case.reference.volume
        )
        assert pose.is_close(SWEEP.pose(row), mm=1e-3, deg=1e-3)


def test_start_poses_are_as_far_from_the_truth_as_asked() -> None:
    truth = sample_poses(200, 30, (64, 64, 64), torch.Generator().manual_seed(5))
    start = start_poses(truth, 10, 1, (32, 128, 128))
    needed = compose_poses(invert_poses(start), truth)
    numbers = torch.cat([needed.translation, euler_deg_from_rotation(needed.rotation)], 1)
    assert float(numbers.abs().max()) < 10 + 1e-3
    assert float(numbers.std(0).min()) > 5  # uniform in +-10: 5.8
    assert torch.equal(start.rotation, start_poses(truth, 10, 1, (32, 128, 128)).rotation)
    assert not torch.equal(start.rotation, start_poses(truth, 10, 2, (32, 128, 128)).rotation)


def test_a_pose_found_around_the_start_leads_back_to_the_reference() -> None:
    case = real_case(SWEEP, [10, 20, 30], None, 1, frame_shape=(32, 40))
    shape = (16, 32, 40)
    start = start_poses(case.truth, 4, 0, shape)
    cuts = around(case.reference, start, shape)
    needed = compose_poses(invert_poses(start), case.truth)
    composed = compose_poses(start, needed)
    assert float(mtre_mm(composed, case.truth, (32, 40), 1.0).max()) < 1e-3
    for index, (cut, frame) in enumerate(zip(cuts, case.frames, strict=True)):
        assert cut.shape == shape
        # The same pose in millimetres, in the part and in the whole.
        found = pose_from_voxels(needed.rotation[index], needed.translation[index], frame, cut)
        whole = pose_to_voxels(found, frame, case.reference.volume)
        assert torch.allclose(whole.translation, case.truth.translation[index], atol=1e-3)
        assert torch.allclose(whole.rotation, case.truth.rotation[index], atol=1e-4)
        again = sample_slice(cut.array, needed.rotation[index], needed.translation[index], slice_shape=(32, 40))
        inner = (again > 0)[4:-4, 4:-4] & case.seen[4:-4, 4:-4]
        assert float((again - frame.array)[4:-4, 4:-4][inner].abs().median()) < 0.03


def test_resampling_to_another_shape_is_the_middle_of_the_whole() -> None:
    volume = torch.rand(2, 8, 10, 12)
    poses = sample_poses(2, 2, (8, 10, 12), torch.Generator().manual_seed(0))
    whole, part = resample_volume(volume, *poses), resample_volume(volume, *poses, shape=(4, 6, 8))
    assert torch.allclose(part, whole[:, 2:-2, 2:-2, 2:-2], atol=1e-6)


@pytest.mark.skipif(not LIVER.is_file(), reason="the liver sweep is not at hand")
def test_a_real_frame_is_found_in_the_volume_of_the_others() -> None:
    sweep = read_npz_sweep(LIVER)
    case = real_case(sweep, [60, 90], (64, 128, 128), 1.8)
    cut = [
        sample_slice(case.reference.volume.array, case.truth.rotation, case.truth.translation + shift)
        for shift in (torch.zeros(3), torch.tensor([0.0, 2 / 1.8, 0.0]))
    ]
    full = sample_slice(case.reference.filled.float(), *case.truth) > 0.99
    for index in range(2):
        both = full[index] & case.seen
        at_pose, beside = (
            float(torch.corrcoef(torch.stack([c[index][both], case.images[index][both]]))[0, 1]) for c in cut
        )
        assert at_pose > 0.97
        assert beside < at_pose - 0.03
