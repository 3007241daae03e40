"""Refinement: exact where it can be, never less similar than its start, and blind to what only one image has."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from plain_refinement import refine_plainly
from torch import Tensor

from scopereg.data import phantom
from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose, VoxelPoses, compose_poses, invert_poses, rotation_from_euler_deg, sample_slice
from scopereg.geometry.steps import moved, solve_positive
from scopereg.images import Frame, Volume, pose_from_voxels
from scopereg.registration.grey import WIDE, Grey, GreyVolume, Level, RefineOptions
from scopereg.registration.refine import Refiner, _with_start, refine_pose

INFINITE = float("inf")


@cache
def volume() -> Tensor:
    return phantom.create("abdomen", seed=3, shape=(32, 64, 64)).volume.array


def poses(*rows: tuple[float, ...]) -> VoxelPoses:
    """Rows of shifts in voxels and angles in degrees."""
    numbers = torch.tensor(rows)
    return VoxelPoses(rotation_from_euler_deg(numbers[:, 3:]), numbers[:, :3])


TRUE = poses((1.0, -2.0, 1.5, 3.0, -2.0, 4.0), (-2.0, 1.0, 0.5, -3.0, 1.0, 0.0), (0.0, 0.0, 0.0, 0.0, 0.0, 0.0))
AWAY = poses((0.8, -0.6, 0.7, 1.0, -1.2, 0.8), (-0.7, 0.9, -0.8, -0.8, 1.0, -1.0), (1.0, 0.5, -0.6, 1.2, 0.6, 0.7))
START = compose_poses(TRUE, AWAY)


def frames() -> Tensor:
    return sample_slice(volume().expand(3, -1, -1, -1), *TRUE)


def errors(found: VoxelPoses, true: VoxelPoses) -> tuple[float, float]:
    """Largest shift in voxels and turn in degrees."""
    apart = compose_poses(invert_poses(true), found)
    angle = torch.rad2deg(torch.acos(((apart.rotation.diagonal(dim1=1, dim2=2).sum(1) - 1) / 2).clamp(-1, 1)))
    return float(apart.translation.norm(dim=1).max()), float(angle.max())


def test_slices_of_the_volume_are_found_to_a_fraction_of_a_voxel() -> None:
    before = errors(START, TRUE)
    found = Refiner(volume()).refine(frames(), START)
    shift, turn = errors(found.poses, TRUE)
    assert before[0] > 1
    assert shift < 0.05
    assert turn < 0.25
    assert (found.similarity > found.similarity_before + 0.1).all()
    assert (found.similarity > 0.9).all()  # not 1: the frame's surroundings are its plane, the volume's are not


@pytest.mark.parametrize("options", [RefineOptions(), WIDE, RefineOptions(spread=INFINITE)])
def test_likeness_and_loop_give_the_bits_of_a_refinement_in_one_piece(options: RefineOptions) -> None:
    """What they share with a refinement by another likeness changes nothing of this one."""
    speckled = frames() + 0.1 * torch.rand(3, 64, 64, generator=torch.Generator().manual_seed(0))
    found = Refiner(volume(), Grey(options)).refine(speckled, START)
    poses, similarity, used = refine_plainly(volume(), speckled, START, options)
    assert torch.equal(found.poses.rotation, poses.rotation)
    assert torch.equal(found.poses.translation, poses.translation)
    assert torch.equal(found.similarity, similarity)
    assert found.iterations == int(used.max()) > 3


def test_likeness_is_the_similarity_of_each_level_and_moves_nothing() -> None:
    """Levels without iterations are for this; a refinement with them leaves poses where they are."""
    levels = tuple(level._replace(iterations=0) for level in RefineOptions().levels)
    still = Grey(RefineOptions(levels=levels))
    found = Refiner(volume(), still).refine(frames(), START)
    assert torch.equal(found.poses.translation, START.translation)
    assert found.iterations == 0
    likeness = still.prepare(volume()).correlations(frames(), START)
    assert likeness.shape == (3, len(levels))
    torch.testing.assert_close(likeness[:, -1], found.similarity)
    assert (still.prepare(volume()).correlations(frames(), TRUE) > likeness).all()


def test_another_gain_and_gamma_hardly_matter() -> None:
    ramp = torch.linspace(0.5, 1.3, 64)[:, None]
    changed = (frames() * ramp).clamp(0, 1) ** 0.7
    shift, turn = errors(Refiner(volume()).refine(changed, START).poses, TRUE)
    assert shift < 0.4
    assert turn < 0.8


def test_what_only_the_frame_has_is_not_compared() -> None:
    """Pixels out of the volume are filled with bright noise: where the volume has none they have no say."""
    moved = poses((10.0, 0.0, 0.0, 0.0, 0.0, 2.0))
    frame = sample_slice(volume()[None], *moved)
    outside = sample_slice(torch.ones_like(volume())[None], *moved) < 0.5
    assert outside.float().mean() > 0.1
    frame[outside] = torch.rand(int(outside.sum()), generator=torch.Generator().manual_seed(0)) * 0.5 + 0.5
    start = compose_poses(moved, poses((0.7, -0.5, 0.6, 0.8, -0.7, 0.6)))
    shift, _ = errors(Refiner(volume()).refine(frame, start, seen=torch.ones_like(frame)).poses, moved)
    assert shift < 0.15


def test_pixels_that_the_transducer_does_not_see_do_not_count() -> None:
    seen = torch.ones(3, 64, 64)
    seen[:, :, 44:] = 0
    spoiled = frames()
    spoiled[:, :, 44:] = torch.rand(3, 64, 20, generator=torch.Generator().manual_seed(1))
    shift, _ = errors(Refiner(volume()).refine(spoiled, START, seen=seen).poses, TRUE)
    assert shift < 0.1


@pytest.mark.parametrize("seed", range(3))
def test_never_less_similar_than_the_start(seed: int) -> None:
    """Frames of pure noise, where every step is chance."""
    noise = torch.rand(3, 64, 64, generator=torch.Generator().manual_seed(seed))
    found = Refiner(volume()).refine(noise, TRUE)
    assert (found.similarity >= found.similarity_before).all()


def test_a_weak_similarity_does_not_lead_far_from_the_start() -> None:
    noise = torch.rand(3, 64, 64, generator=torch.Generator().manual_seed(5))
    held, free = (
        errors(Refiner(volume(), Grey(RefineOptions(spread=spread))).refine(noise, TRUE).poses, TRUE)[0]
        for spread in (0.3, INFINITE)
    )
    assert held < 0.5
    assert free > 1.0


def test_frames_of_a_batch_are_refined_as_alone() -> None:
    refiner = Refiner(volume())
    together = refiner.refine(frames(), START)
    for row in range(3):
        alone = refiner.refine(frames()[row : row + 1], VoxelPoses(*(value[row : row + 1] for value in START)))
        torch.testing.assert_close(alone.poses.translation[0], together.poses.translation[row], atol=2e-4, rtol=0)


def test_a_start_beyond_the_volume_is_given_back() -> None:
    far = poses((500.0, 0.0, 0.0, 0.0, 0.0, 0.0))
    found = Refiner(volume()).refine(frames()[:1], far)
    assert float(found.similarity) == -1
    assert torch.equal(found.poses.translation, far.translation)


def test_the_slope_is_that_of_the_merit() -> None:
    """Against differences of the merit itself; that also sees pixels come and go, and interpolates between voxels."""
    level = Level(2.0, 1, 5.0, 1)
    grey = GreyVolume(volume(), RefineOptions(levels=(level,)))
    seen = torch.ones(1, 64, 64)
    seen[:, :8] = 0
    start = VoxelPoses(START.rotation[:1], START.translation[:1])
    (comparison,) = grey.compare(frames()[:1], seen)
    trust = 1 / grey.options.spread**2
    here = compose_poses(start, poses((0.2, -0.1, 0.15, 0.1, 0.2, -0.1)))
    slope = _with_start(comparison, start, here, trust).slope[0]
    wanted = []
    for axis in range(6):
        step = torch.zeros(1, 6)
        step[0, axis] = 0.05
        there = (moved(here, sign * step, comparison.lever) for sign in (1, -1))
        up, down = (_with_start(comparison, start, place, trust).merit for place in there)
        wanted.append(float(up - down) / -0.1)
    numeric = torch.tensor(wanted)
    assert torch.nn.functional.cosine_similarity(slope, numeric, dim=0) > 0.98
    assert 0.7 < float(slope.norm() / numeric.norm()) < 1.3


def test_the_elimination_solves_what_lapack_solves() -> None:
    factors = torch.randn(50, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    matrices = factors @ factors.mT + 1e-3 * torch.eye(6, dtype=torch.float64)
    right = factors[:, 0]
    torch.testing.assert_close(
        solve_positive(matrices, right), torch.linalg.solve(matrices, right), rtol=1e-8, atol=1e-8
    )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_gpu_replays_what_a_cpu_computes() -> None:
    """Twice with other frames, so that what was recorded meets new values."""
    slow, fast = Refiner(volume()), Refiner(volume().cuda())
    for rows in ([0, 1, 2], [2, 0, 1], [1]):
        start = VoxelPoses(*(value[rows] for value in START))
        wanted, found = slow.refine(frames()[rows], start), fast.refine(frames()[rows], start)
        torch.testing.assert_close(found.poses.translation.cpu(), wanted.poses.translation, atol=5e-3, rtol=0)
        torch.testing.assert_close(found.poses.rotation.cpu(), wanted.poses.rotation, atol=2e-4, rtol=0)
        torch.testing.assert_close(found.similarity.cpu(), wanted.similarity, atol=1e-3, rtol=0)


def test_the_wide_search_reaches_farther() -> None:
    far = compose_poses(TRUE, poses(*([(5.0, -4.0, 3.0, 6.0, -5.0, 6.0)] * 3)))
    near, wide = (
        errors(Refiner(volume(), Grey(options)).refine(frames(), far).poses, TRUE)[0] for options in (None, WIDE)
    )
    assert wide < 0.1
    assert wide <= near


def test_millimetres_and_spacings_come_out_right() -> None:
    reference = Volume(volume(), 0.8)
    true = pose_from_voxels(TRUE.rotation[0], TRUE.translation[0], Frame(frames()[0], spacing_mm=0.8), reference)
    fine = Frame(frames()[0], spacing_mm=0.8).resampled(0.5)
    turned = Pose.from_euler_deg((1.0, -1.0, 0.5), (0.6, -0.5, 0.6), source="Image", target="Image")
    result = refine_pose(fine, reference, true @ turned)
    corner = np.array([10.0, -12.0, 0.0])
    assert np.linalg.norm(result.pose.apply(corner) - true.apply(corner)) < 0.25
    assert np.linalg.norm((true @ turned).apply(corner) - true.apply(corner)) > 0.7
    assert result.time_ms > 0
    assert 0.6 < result.similarity <= 1


def test_shapes_that_do_not_fit_are_named() -> None:
    with pytest.raises(ScopeRegError, match="do not fit together"):
        Refiner(volume()).refine(frames(), VoxelPoses(START.rotation[:2], START.translation[:2]))


def test_a_flat_volume_of_few_planes_works() -> None:
    thin = volume()[15:17]
    frame = sample_slice(thin[None], *poses((1.0, 0.5, 0.0, 0.0, 0.0, 2.0)))
    found = Refiner(thin, Grey(replace(RefineOptions(), least_inside=0.1))).refine(frame, poses((0.0,) * 6))
    assert found.poses.translation.isfinite().all()
