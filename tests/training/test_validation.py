"""Validation: the truth scores zero, nothing scores the sampler's error, and passes follow each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from scopereg.data.frames import PROTOCOLS
from scopereg.data.poses import FRAMES_PER_CASE
from scopereg.data.store import AcquiredFrames, VolumeSet
from scopereg.geometry import VoxelPoses, compose_poses, mtre_mm, resample_volume, sample_poses, sample_slice
from scopereg.networks import NetworkResult
from scopereg.training.validation import (
    Examples,
    errors_mm,
    identity_errors_mm,
    locate,
    make_examples,
    summarise,
)

Maker = Callable[..., VolumeSet]


class Told(nn.Module):
    """Answers with the given poses, one batch after the other, and keeps what it was shown."""

    def __init__(self, *answers: VoxelPoses) -> None:
        super().__init__()
        self.answers, self.shown = list(answers), []

    def forward(self, slices: Tensor, volumes: Tensor) -> NetworkResult:
        assert not self.training
        self.shown.append((slices, volumes))
        poses = self.answers.pop(0)
        assert len(poses.rotation) == len(slices)
        return NetworkResult(*poses)


def parts(poses: VoxelPoses, sizes: list[int]) -> list[VoxelPoses]:
    return [VoxelPoses(*pair) for pair in zip(poses.rotation.split(sizes), poses.translation.split(sizes), strict=True)]


def random_poses(count: int, magnitude: float, seed: int) -> VoxelPoses:
    return sample_poses(count, magnitude, (16, 24, 24), torch.Generator().manual_seed(seed), min_inside=0)


def inverse(poses: VoxelPoses) -> VoxelPoses:
    return VoxelPoses(poses.rotation.mT, -(poses.rotation.mT @ poses.translation[..., None])[..., 0])


def with_frames(volumes: VolumeSet, count: int) -> VolumeSet:
    poses = random_poses(len(volumes) * count, 3, seed=8)
    images = torch.randint(0, 256, (len(volumes), count, *volumes.shape[1:]), dtype=torch.uint8)
    rotation, translation = (value.unflatten(0, (len(volumes), count)) for value in poses)
    return replace(volumes, frames=AcquiredFrames(images, rotation, translation))


# examples


def test_examples_are_the_same_for_a_seed_and_a_case_and_differ_otherwise(tiny_set: Maker) -> None:
    def made(seed: int, rows: tuple[int, ...] = (0, 1)) -> Examples:
        return make_examples(tiny_set(3).subset(rows), magnitude=3, seed=seed)

    first, again, other, later = made(0), made(0), made(1), made(0, (1, 2))
    for protocol in PROTOCOLS:
        assert torch.equal(first.slices[protocol], again.slices[protocol])
        assert not torch.equal(first.poses[protocol].translation, other.poses[protocol].translation)
        assert not torch.equal(first.slices[protocol], other.slices[protocol])
        # The second volume gets the same frames whatever else is in the set.
        assert torch.equal(first.slices[protocol][FRAMES_PER_CASE:], later.slices[protocol][:FRAMES_PER_CASE])


def test_each_volume_has_its_frames_in_a_row_at_their_poses(tiny_set: Maker) -> None:
    volumes = tiny_set(10, margin=(1, 3, 3))  # more than are cut at once
    examples = make_examples(volumes, magnitude=3, seed=0)
    references = volumes.references(torch.arange(10)).repeat_interleave(FRAMES_PER_CASE, 0)
    wanted = sample_slice(references, *examples.poses["paper"])
    torch.testing.assert_close(examples.slices["paper"].float() / 255, wanted, atol=0.5 / 255 + 1e-5, rtol=0)


def test_honest_examples_are_other_images_at_the_same_poses(tiny_set: Maker) -> None:
    examples = make_examples(tiny_set(2), magnitude=3, seed=0)
    assert not torch.equal(examples.slices["honest"], examples.slices["paper"])
    assert torch.equal(examples.poses["honest"].translation, examples.poses["paper"].translation)


def test_acquired_frames_are_the_honest_examples(tiny_set: Maker) -> None:
    volumes = with_frames(tiny_set(3), 6)
    examples = make_examples(volumes, magnitude=3, seed=0)
    assert volumes.frames is not None
    assert torch.equal(examples.slices["honest"], volumes.frames.images[:, :FRAMES_PER_CASE].flatten(0, 1))
    assert torch.equal(
        examples.poses["honest"].translation, volumes.frames.translation[:, :FRAMES_PER_CASE].flatten(0, 1)
    )


# errors


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_network_that_knows_the_truth_has_no_error(tiny_set: Maker, protocol: str) -> None:
    examples = make_examples(with_frames(tiny_set(10), 5), magnitude=3, seed=0)
    poses = examples.poses[protocol]  # type: ignore[index]
    network = Told(*parts(poses, [8 * FRAMES_PER_CASE, 2 * FRAMES_PER_CASE]))
    errors = errors_mm(network, examples, protocol)  # type: ignore[arg-type]
    assert errors.shape == (10 * FRAMES_PER_CASE,)
    assert errors.abs().max() < 1e-5


def test_a_shift_is_an_error_of_its_length_in_mm(tiny_set: Maker) -> None:
    examples = make_examples(tiny_set(2), magnitude=3, seed=0)  # 0.5 mm per voxel
    wrong = examples.poses["paper"]._replace(
        translation=examples.poses["paper"].translation + torch.tensor([0.0, 3.0, 4.0])
    )
    torch.testing.assert_close(errors_mm(Told(wrong), examples, "paper"), torch.full((8,), 2.5))


def test_a_network_is_given_back_in_its_mode(tiny_set: Maker) -> None:
    examples = make_examples(tiny_set(1), magnitude=3, seed=0)
    for mode in (True, False):
        network = Told(examples.poses["paper"]).train(mode)
        errors_mm(network, examples, "paper")
        assert network.training is mode


def test_no_registration_has_the_error_of_the_sampled_poses(tiny_set: Maker) -> None:
    examples = make_examples(tiny_set(80, shape=(8, 16, 16)), magnitude=4, seed=0)
    sampled = sample_poses(5000, 4, (8, 16, 16), torch.Generator().manual_seed(1))
    nowhere = VoxelPoses(torch.eye(3).expand(5000, 3, 3), torch.zeros(5000, 3))
    usual = mtre_mm(nowhere, sampled, (16, 16), 0.5).mean()
    for protocol in PROTOCOLS:
        assert float(identity_errors_mm(examples, protocol).mean()) == pytest.approx(float(usual), rel=0.05)


def test_no_registration_of_acquired_frames_has_the_error_of_their_own_poses(tiny_set: Maker) -> None:
    examples = make_examples(with_frames(tiny_set(2), 4), magnitude=3, seed=0)
    nowhere = VoxelPoses(torch.eye(3).expand(8, 3, 3), torch.zeros(8, 3))
    wanted = mtre_mm(nowhere, examples.poses["honest"], (24, 24), 0.5)
    torch.testing.assert_close(identity_errors_mm(examples, "honest"), wanted)


def test_a_summary_holds_mean_median_tail_and_share() -> None:
    found = summarise(torch.tensor([1.0, 2.0, 3.0, 10.0, 4.0]))
    assert found == pytest.approx(
        {"mean_mm": 4.0, "median_mm": 3.0, "p95_mm": 8.8, "max_mm": 10.0, "within_3_mm": 0.6}, rel=1e-6
    )


# passes


def test_one_pass_is_what_the_network_says() -> None:
    poses = random_poses(4, 5, seed=1)
    found = locate(Told(poses).eval(), torch.zeros(4, 24, 24), torch.zeros(2, 16, 24, 24))
    assert torch.equal(found.rotation, poses.rotation)
    assert torch.equal(found.translation, poses.translation)


def test_a_second_pass_is_found_in_the_volume_seen_from_the_first() -> None:
    """A first answer that is wrong, and a second that says what is left: together they are the truth."""
    true, first = random_poses(6, 5, seed=1), random_poses(6, 5, seed=2)
    left = compose_poses(inverse(first), true)
    found = locate(Told(first, left).eval(), torch.zeros(6, 24, 24), torch.zeros(3, 16, 24, 24), passes=2)
    torch.testing.assert_close(found.rotation, true.rotation, atol=1e-5, rtol=0)
    torch.testing.assert_close(found.translation, true.translation, atol=1e-4, rtol=0)


def test_each_slice_of_a_second_pass_meets_its_own_volume_resampled_at_its_own_pose() -> None:
    generator = torch.Generator().manual_seed(0)
    slices, volumes = torch.rand(6, 24, 24, generator=generator), torch.rand(3, 16, 24, 24, generator=generator)
    first = random_poses(6, 5, seed=2)
    network = Told(first, first)
    locate(network.eval(), slices, volumes, passes=2)
    assert torch.equal(network.shown[1][0], slices)
    assert torch.equal(network.shown[1][1], resample_volume(volumes[[0, 0, 1, 1, 2, 2]], *first))


def test_passes_that_find_half_of_what_is_left_halve_the_error() -> None:
    class Half(nn.Module):
        """Knows the true translation and where it stands; goes half of the way."""

        def __init__(self, true: Tensor) -> None:
            super().__init__()
            self.left = true

        def forward(self, slices: Tensor, volumes: Tensor) -> NetworkResult:
            self.left = self.left / 2
            return NetworkResult(torch.eye(3).expand(len(slices), 3, 3), self.left)

    true = random_poses(2, 5, seed=3).translation
    for passes in (1, 2, 3):
        found = locate(Half(true), torch.zeros(2, 24, 24), torch.zeros(2, 16, 24, 24), passes)
        torch.testing.assert_close(found.translation, true * (1 - 0.5**passes))
