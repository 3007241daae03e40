"""The kernel that brings features together takes the steps of its twin in plain PyTorch."""

from __future__ import annotations

import pytest
import torch

from scopereg.geometry import VoxelPoses, sample_poses
from scopereg.geometry.steps import lever_voxels, moved
from scopereg.networks.fine import FineStage
from scopereg.ops import descent

pytest.importorskip("numba")
SHAPES = [(15, 22, 27), (8, 33, 16), (1, 24, 24), (3, 8, 8)]


@pytest.fixture(scope="module")
def stage() -> FineStage:
    torch.manual_seed(2)
    return FineStage().eval()


def draw(shape: tuple[int, int, int], away: float) -> tuple[torch.Tensor, torch.Tensor, VoxelPoses]:
    """Two volumes, two frames of each, and poses some voxels off."""
    generator = torch.Generator().manual_seed(5)
    volumes = torch.rand(2, *shape, generator=generator)
    frames = volumes[:, shape[0] // 2].repeat_interleave(2, 0).clone()
    frames[1, : shape[1] // 2] = 0  # half of it does not count
    middle = VoxelPoses.identity(4, torch.device("cpu"))
    steps = away * (2 * torch.rand(4, 6, generator=generator) - 1)
    return volumes, frames, moved(middle, steps, lever_voxels(*shape[1:]))


@pytest.mark.parametrize("away", [1.0, 6.0])
@pytest.mark.parametrize("shape", SHAPES)
def test_it_ends_where_its_twin_ends(stage: FineStage, shape: tuple[int, int, int], away: float) -> None:
    volumes, frames, start = draw(shape, away)
    with torch.no_grad():
        read, encoded = stage.read(frames), stage.encode(volumes)
        assert descent.serves(encoded.levels[0].table)
        fast, plain = stage.settle(read, encoded, start), stage.descend(read, encoded, start)[-1]
    torch.testing.assert_close(fast.translation, plain.translation, rtol=0, atol=1e-3)
    torch.testing.assert_close(fast.rotation, plain.rotation, rtol=0, atol=1e-4)
    if shape[0] > 1:  # in one plane alone all points lie outside as soon as a frame is turned
        assert float((fast.translation - start.translation).norm()) > 0.01


def test_frames_do_not_depend_on_each_other_nor_on_threads(stage: FineStage) -> None:
    volumes, frames, start = draw(SHAPES[0], 2.0)
    threads = torch.get_num_threads()
    with torch.no_grad():
        encoded = stage.encode(volumes[:1])
        read, poses = stage.read(frames[:2]), VoxelPoses(*(part[:2] for part in start))
        together = stage.settle(read, encoded, poses)
        try:
            torch.set_num_threads(2)
            again = stage.settle(read, encoded, poses)
        finally:
            torch.set_num_threads(threads)
        alone = stage.settle(stage.read(frames[1:2]), encoded, VoxelPoses(*(part[1:2] for part in start)))
    assert torch.equal(again.translation, together.translation)
    torch.testing.assert_close(alone.translation[0], together.translation[1], rtol=0, atol=1e-4)


def test_what_is_no_pose_stays_none_and_what_lies_outside_stays_there(stage: FineStage) -> None:
    volumes, frames, start = draw(SHAPES[0], 1.0)
    start.translation[0] = torch.nan
    start.translation[1] += 1000
    with torch.no_grad():
        found = stage.settle(stage.read(frames), stage.encode(volumes), start)
    assert found.translation[0].isnan().all()
    torch.testing.assert_close(found.translation[1], start.translation[1])
    assert found.translation[2:].isfinite().all()


def test_with_gradients_and_on_other_devices_the_twin_serves(stage: FineStage) -> None:
    table = torch.zeros(1, 2, 2, 2, 5)
    assert not descent.serves(table)
    with torch.no_grad():
        assert descent.serves(table)
        assert not descent.serves(table.double())
        assert not descent.serves(table.to("meta"))


def test_poses_of_training_and_of_use_are_the_same(stage: FineStage) -> None:
    """What `objective` learns from is what `locate` gives."""
    volumes, frames, _ = draw(SHAPES[0], 1.0)
    rotation, translation = sample_poses(4, 1.0, SHAPES[0], torch.Generator().manual_seed(1))
    start = VoxelPoses(rotation.float(), translation.float())
    path = stage.descend(stage.read(frames), stage.encode(volumes), start)
    with torch.no_grad():
        found = stage.locate(frames, stage.encode(volumes), start)
    assert len(path) == 1 + sum(stage.steps)
    torch.testing.assert_close(found.translation, path[-1].translation.detach(), rtol=0, atol=1e-3)
