"""Training frames: decided by seed, rank and step alone, and what they claim to be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from scopereg.data.store import AcquiredFrames, VolumeSet
from scopereg.errors import ScopeRegError
from scopereg.geometry import is_rotation, sample_poses, sample_slice
from scopereg.networks.recipe import Batch
from scopereg.training.settings import TrainSettings
from scopereg.training.source import FrameSource, check_volumes

Maker = Callable[..., VolumeSet]
PAPER = TrainSettings(protocol="paper", augment=False, batch=8, frames_per_volume=2, magnitude=3.0)
HONEST = replace(PAPER, protocol="honest", augment=True)


def same(one: Batch, other: Batch) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.tensors(), other.tensors(), strict=True))


def frames_at_their_poses(batch: Batch) -> Tensor:
    """Slices of the batch's own volumes at the batch's own poses."""
    each = len(batch.slices) // len(batch.volumes)
    return sample_slice(batch.volumes.repeat_interleave(each, 0), *batch.poses)


def with_frames(volumes: VolumeSet, count: int, magnitude: float = 3.0) -> VolumeSet:
    """The set with frames cut from its volumes, as if they had been acquired."""
    poses = sample_poses(len(volumes) * count, magnitude, volumes.shape, torch.Generator().manual_seed(3))
    references = volumes.references(torch.arange(len(volumes))).repeat_interleave(count, 0)
    images = (sample_slice(references, *poses) * 255).round().byte()
    frames = AcquiredFrames(*(value.unflatten(0, (len(volumes), count)) for value in (images, *poses)))
    return replace(volumes, frames=frames, facts={"magnitude": magnitude})


# which draw


@pytest.mark.parametrize("settings", [PAPER, HONEST, replace(HONEST, passes=2)])
def test_a_step_gives_the_same_batch_whatever_was_asked_before(tiny_set: Maker, settings: TrainSettings) -> None:
    source = FrameSource(tiny_set(), settings)
    wanted = FrameSource(tiny_set(), settings).batch(3)
    for step in (0, 7, 2, 3):
        found = source.batch(step)
        source.draw_ahead(step + 1)
    assert same(found, wanted)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_on_a_gpu_a_step_gives_the_same_batch_whatever_was_asked_before(tiny_set: Maker) -> None:
    """There eight steps are drawn at once, beside the training step."""
    volumes = tiny_set().to("cuda")
    source, wanted = FrameSource(volumes, HONEST), FrameSource(volumes, HONEST).batch(11)
    for step in (*range(4, 12), 30, 11):
        found = source.batch(step).each(torch.clone)
        source.draw_ahead(step + 1)
    assert same(found, wanted)
    assert not same(found, source.batch(12))


@pytest.mark.parametrize("settings", [PAPER, HONEST])
def test_steps_ranks_and_seeds_give_other_batches(tiny_set: Maker, settings: TrainSettings) -> None:
    first = FrameSource(tiny_set(), settings).batch(0)
    others = (
        FrameSource(tiny_set(), settings).batch(1),
        FrameSource(tiny_set(), settings, rank=1).batch(0),
        FrameSource(tiny_set(), replace(settings, seed=1)).batch(0),
    )
    for other in others:
        assert not torch.equal(first.translation, other.translation)
        assert not torch.equal(first.slices, other.slices)


def test_a_batch_has_the_frames_and_volumes_asked_for(tiny_set: Maker) -> None:
    batch = FrameSource(tiny_set(margin=(1, 3, 2)), HONEST).batch(0)
    assert batch.slices.shape == (8, 24, 24)
    assert batch.volumes.shape == (4, 16, 24, 24)
    assert batch.translation.shape == (8, 3)
    assert is_rotation(batch.rotation).all()
    assert batch.translation.abs().max() <= 3.0


def test_draws_leave_the_global_random_numbers_alone(tiny_set: Maker) -> None:
    before = torch.get_rng_state()
    FrameSource(tiny_set(), HONEST).batch(0)
    assert torch.equal(torch.get_rng_state(), before)


# what it shows


@pytest.mark.parametrize("augment", [False, True])
@pytest.mark.parametrize("margin", [(0, 0, 0), (1, 4, 3)])
def test_paper_frames_are_slices_of_their_volumes_at_their_poses(tiny_set: Maker, augment: bool, margin: Any) -> None:
    batch = FrameSource(tiny_set(margin=margin), replace(PAPER, augment=augment)).batch(0)
    torch.testing.assert_close(batch.slices, frames_at_their_poses(batch), atol=1e-5, rtol=0)


def test_without_augmentation_the_volumes_are_those_of_the_set(tiny_set: Maker) -> None:
    volumes = tiny_set(margin=(1, 4, 3))
    references = volumes.references(torch.arange(len(volumes)))
    for volume in FrameSource(volumes, PAPER).batch(0).volumes:
        assert any(torch.equal(volume, reference) for reference in references)


@pytest.mark.parametrize("augment", [False, True])
def test_frames_for_a_second_pass_lie_in_the_resampled_volumes_at_their_poses(tiny_set: Maker, augment: bool) -> None:
    """Interpolated twice, and black where the first guess has cut something off: alike, not the same."""
    settings = replace(PAPER, batch=64, passes=2, magnitude=5.0, augment=augment)
    batch = FrameSource(tiny_set(shape=(24, 32, 32)), settings).batch(0)
    errors = (batch.slices - frames_at_their_poses(batch)).abs().flatten(1)
    still = (batch.slices - batch.volumes.repeat_interleave(2, 0)[:, 12]).abs().flatten(1)
    assert errors.median(1).values.max() < 0.01
    assert errors.mean() < 0.25 * still.mean()


def test_half_of_the_volumes_serve_a_second_pass(tiny_set: Maker) -> None:
    volumes = tiny_set()
    settings = replace(PAPER, batch=128, passes=2, magnitude=5.0)
    batch = FrameSource(volumes, settings).batch(0)
    references = volumes.references(torch.arange(len(volumes)))
    first = torch.tensor([any(torch.equal(one, other) for other in references) for one in batch.volumes])
    assert 0.3 < first.float().mean() < 0.7
    # What a first pass leaves is smaller than what it starts from.
    second = ~first.repeat_interleave(2)
    assert batch.translation[second].abs().max() <= 0.4 * 5.0 < batch.translation[~second].abs().max()


def test_honest_frames_differ_from_their_volumes(tiny_set: Maker) -> None:
    batch = FrameSource(tiny_set(margin=(1, 4, 3)), HONEST).batch(0)
    alike = (batch.slices - frames_at_their_poses(batch)).abs().flatten(1).max(1).values < 1e-3
    assert not alike.all()
    assert 0 <= batch.slices.min() <= batch.slices.max() <= 1


# frames that were acquired beforehand


def test_acquired_frames_come_with_their_volume_and_pose(tiny_set: Maker) -> None:
    volumes = with_frames(tiny_set(), 5)
    batch = FrameSource(volumes, replace(HONEST, augment=False, batch=32)).batch(0)
    assert volumes.frames is not None
    assert all(
        any(torch.equal(frame, other / 255) for other in volumes.frames.images.flatten(0, 1)) for frame in batch.slices
    )
    torch.testing.assert_close(batch.slices, frames_at_their_poses(batch), atol=0.003, rtol=0)  # grey values of 1/255


def test_mirrored_acquired_frames_still_lie_in_their_volumes(tiny_set: Maker) -> None:
    """Half of the frames get no mismatch; were a mirror wrong anywhere, no more than a quarter of these would fit."""
    volumes = with_frames(tiny_set(), 5)
    batch = FrameSource(volumes, replace(HONEST, batch=256)).batch(0)
    wrong = (batch.slices - frames_at_their_poses(batch)).abs().flatten(1).max(1).values
    fits = wrong < 0.003
    assert fits.float().mean() > 0.35
    references = volumes.references(torch.arange(len(volumes)))
    as_it_was = torch.tensor([any(torch.equal(one, other) for other in references) for one in batch.volumes])
    assert (fits & ~as_it_was.repeat_interleave(2)).any()


def test_the_papers_frames_are_cut_even_where_frames_were_acquired(tiny_set: Maker) -> None:
    batch = FrameSource(with_frames(tiny_set(), 5), PAPER).batch(0)
    assert same(batch, FrameSource(tiny_set(), PAPER).batch(0))


def test_acquired_frames_allow_one_pass_and_their_own_magnitude(tiny_set: Maker) -> None:
    volumes = with_frames(tiny_set(), 4, magnitude=3.0)
    check_volumes(volumes, HONEST)
    check_volumes(volumes, replace(PAPER, passes=2, magnitude=4.0))
    with pytest.raises(ScopeRegError, match="passes"):
        check_volumes(volumes, replace(HONEST, passes=2))
    with pytest.raises(ScopeRegError, match=r"within \+-3, not \+-4"):
        check_volumes(volumes, replace(HONEST, magnitude=4.0))


@pytest.mark.parametrize("settings", [PAPER, HONEST])
def test_too_few_acquired_frames_for_validation_are_refused(tiny_set: Maker, settings: TrainSettings) -> None:
    """Validation takes four of each volume: with fewer it would look for frames in the volumes of others."""
    with pytest.raises(ScopeRegError, match="3 frames of each volume"):
        check_volumes(with_frames(tiny_set(), 3), settings)


# masks of the organ


def labelled(volumes: VolumeSet) -> VolumeSet:
    """Bright voxels are class 1: a mask must then lie where its frame is bright."""
    return replace(volumes, labels=(volumes.images > 127).byte())


@pytest.mark.parametrize("acquired", [False, True])
@pytest.mark.parametrize("augment", [False, True])
def test_masks_lie_where_the_frames_show_the_organ(tiny_set: Maker, augment: bool, acquired: bool) -> None:
    volumes = labelled(tiny_set(margin=(0, 0, 0) if acquired else (1, 4, 3)))
    settings = replace(PAPER, network="cu-reg", augment=augment, batch=32)
    if acquired:
        volumes, settings = with_frames(volumes, 4), replace(settings, protocol="honest")
    batch = FrameSource(volumes, settings).batch(0)
    assert batch.masks is not None
    assert batch.masks.shape == batch.slices.shape
    assert 0.2 < batch.masks.float().mean() < 0.8
    # Where the volume says so at the frame's pose, not where the frame says so: that one is another acquisition.
    organ = frames_at_their_poses(batch)
    if augment and not acquired:
        assert batch.slices[batch.masks].mean() > batch.slices[~batch.masks].mean() + 0.2  # the grey map was bent
    else:
        # Masks of acquired frames are mirrored outside, slices fade to black there.
        inside = frames_at_their_poses(batch._replace(volumes=torch.ones_like(batch.volumes))) > 0.999
        assert ((organ > 0.5) == batch.masks)[inside].float().mean() > 0.95


def test_masks_are_for_those_who_learn_from_them_and_where_there_are_labels(tiny_set: Maker) -> None:
    prompted = replace(PAPER, network="cu-reg")
    assert FrameSource(labelled(tiny_set()), PAPER).batch(0).masks is None
    assert FrameSource(tiny_set(), prompted).batch(0).masks is None
    assert FrameSource(labelled(tiny_set()), prompted).batch(0).masks is not None


def test_masks_change_nothing_else_of_a_batch(tiny_set: Maker) -> None:
    plain = FrameSource(tiny_set(), replace(HONEST, network="cu-reg")).batch(2)
    masked = FrameSource(labelled(tiny_set()), replace(HONEST, network="cu-reg")).batch(2)
    assert same(plain, masked._replace(masks=None))
