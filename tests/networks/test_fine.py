"""Fine stage: its equations are those of its features, its two ways to read a volume agree, and it learns."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from scopereg.geometry import VoxelPoses, sample_poses, sample_slice
from scopereg.geometry.steps import lever_voxels, moved
from scopereg.networks import Batch
from scopereg.networks.fine import FineStage, VolumeLevel, distance, objective, sample
from scopereg.networks.lattice import Lattice

SHAPE, LARGER = (15, 22, 27), (16, 32, 32)


class Scene(NamedTuple):
    """Smooth volumes and frames cut out of them."""

    volumes: Tensor
    frames: Tensor
    poses: VoxelPoses

    @property
    def batch(self) -> Batch:
        return Batch(self.frames, self.volumes, *self.poses)


@pytest.fixture(scope="module")
def scene() -> Scene:
    generator = torch.Generator().manual_seed(3)
    noise = torch.rand(2, 1, *(-(-n // 5) + 1 for n in SHAPE), generator=generator)
    volumes = torch.nn.functional.interpolate(noise, SHAPE, mode="trilinear", align_corners=True)[:, 0]
    rotation, translation = sample_poses(4, 3.0, SHAPE, generator)
    frames = [
        sample_slice(volumes[row // 2][None], rotation[row][None].float(), translation[row][None].float())[0]
        for row in range(4)
    ]
    return Scene(volumes, torch.stack(frames), VoxelPoses(rotation.float(), translation.float()))


def fine_stage() -> FineStage:
    torch.manual_seed(0)
    return FineStage()


def test_equations_are_those_of_weighted_differences_of_features(scene: Scene) -> None:
    network = fine_stage().eval()
    start = moved(scene.poses, torch.full((4, 6), 0.7), lever_voxels(*SHAPE[1:]))
    with torch.no_grad():
        frame, volume = network.read(scene.frames)[1], network.encode(scene.volumes)[1]
        found = network.normal(1, frame, volume, start)
        points = frame.points @ start.rotation.transpose(1, 2) + start.translation[:, None]
        samples, inside = sample(volume, points)
        count = frame.vectors.shape[2]
        apart = samples[..., :count] - frame.vectors
        agree = 1 / (1 + apart.square().sum(-1) * torch.exp(-2 * network.log_tolerance[1]))
        weights = frame.weights * torch.sigmoid(samples[..., count]) * inside * agree
        # The slopes that the table holds, along the volume's axes, times how a point moves with each step.
        slopes = samples[..., count + 1 :].unflatten(-1, (3, count))
        shifts = [start.rotation[:, None, :, axis].expand(-1, len(frame.points), -1) for axis in range(3)]
        turns = [torch.cross(shift, points - start.translation[:, None], dim=-1) / frame.lever for shift in shifts]
        moves = torch.stack([*shifts, *turns], -1)  # (B, N, 3, 6)
        jacobian = torch.einsum("bnks,bnkj->bnsj", slopes, moves)
        matrix = torch.einsum("bn,bnsj,bnsl->bjl", weights, jacobian, jacobian) / len(frame.points)
        slope = torch.einsum("bn,bnsj,bns->bj", weights, jacobian, apart) / len(frame.points)
    torch.testing.assert_close(found.matrix, matrix, rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(found.slope, slope, rtol=1e-4, atol=1e-7)


def test_slopes_are_how_features_change_in_a_voxel(scene: Scene) -> None:
    """At cells, from cell to cell, both ways."""
    network = fine_stage().eval()
    with torch.no_grad():
        level = network.encode(scene.volumes)[1]
    count = network.channels[1]
    vectors, slopes = level.table[..., :count], level.table[..., count + 1 :].unflatten(-1, (3, count))
    change = (vectors[:, 2:, 3, 4] - vectors[:, :-2, 3, 4]) / (2 * level.stride)
    torch.testing.assert_close(slopes[:, 1:-1, 3, 4, 2], change)


@pytest.mark.parametrize("cells", [(4, 5, 6), (1, 5, 6)])
def test_gathering_reads_what_sampling_reads(cells: tuple[int, int, int]) -> None:
    generator = torch.Generator().manual_seed(1)
    table = torch.rand(2, *cells, 3, generator=generator)
    lattice = Lattice(cells, tuple((1 - n) / 2 for n in cells))
    level = VolumeLevel(table, lattice, 2)
    points = (torch.rand(4, 50, 3, generator=generator) - 0.5) * 2 * torch.tensor(cells[::-1]) * 1.3
    with torch.no_grad():
        gathered, inside = sample(level, points)
    sampled, same = sample(level, points)  # gradients are asked for
    assert torch.equal(inside, same)
    assert 0 < inside.mean() < 1 or cells[0] == 1
    kept = inside[..., None].bool()
    torch.testing.assert_close(gathered * kept, sampled * kept)


def test_a_step_of_nothing_is_taken_where_nothing_is_seen() -> None:
    network = fine_stage().eval()
    empty = torch.zeros(1, *SHAPE)
    with torch.no_grad():
        found = network(torch.zeros(1, *SHAPE[1:]), empty)
    torch.testing.assert_close(found.rotation, torch.eye(3)[None])
    torch.testing.assert_close(found.translation, torch.zeros(1, 3))


def test_distance_is_zero_at_the_truth_and_grows_with_the_step(scene: Scene) -> None:
    lever = lever_voxels(*SHAPE[1:])
    nearest = distance(scene.poses, scene.poses, lever)
    for axis in range(6):
        step = torch.zeros(4, 6)
        step[:, axis] = 2.0
        there = moved(scene.poses, step, lever)
        apart = (distance(there, scene.poses, lever).square() - nearest.square()).sqrt()
        torch.testing.assert_close(apart, torch.full((4,), 2.0), rtol=0.01, atol=0)


def test_gradient_reaches_every_weight(scene: Scene) -> None:
    network = fine_stage().train()
    objective(network, scene.batch).mean().backward()
    without = [name for name, value in network.named_parameters() if value.grad is None or not value.grad.any()]
    assert without == []


@pytest.mark.slow
def test_it_learns_to_come_nearer() -> None:
    """In a volume that it was not taught on."""
    torch.manual_seed(0)
    network = FineStage().train()
    optimizer = torch.optim.AdamW(network.parameters(), 2e-3)
    for step in range(60):
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * min(1, (step + 1) / 10) * (1 - step / 60)
        optimizer.zero_grad()
        objective(network, random_scene(step).batch).mean().backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
    network.eval()
    fresh = random_scene(1000, frames=32)
    lever = lever_voxels(*LARGER[1:])
    start = moved(fresh.poses, torch.empty(len(fresh.frames), 6).uniform_(-2, 2), lever)
    with torch.no_grad():
        found = network(fresh.frames, fresh.volumes, start)
    before = distance(start, fresh.poses, lever).median()
    after = distance(VoxelPoses(found.rotation, found.translation), fresh.poses, lever).median()
    assert after < 0.4 * before


def random_scene(seed: int, frames: int = 8) -> Scene:
    generator = torch.Generator().manual_seed(seed)
    noise = torch.rand(1, 1, *(-(-n // 5) + 1 for n in LARGER), generator=generator)
    volume = torch.nn.functional.interpolate(noise, LARGER, mode="trilinear", align_corners=True)[:, 0]
    rotation, translation = (part.float() for part in sample_poses(frames, 3.0, LARGER, generator))
    slices = sample_slice(volume.expand(frames, -1, -1, -1), rotation, translation)
    return Scene(volume, slices, VoxelPoses(rotation, translation))
