"""Fine stage: its equations are those of its features, its two ways to read a volume agree, and it learns."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from scopereg.geometry import VoxelPoses, sample_poses, sample_slice
from scopereg.geometry.steps import lever_voxels, moved
from scopereg.networks import Batch
from scopereg.networks.anywhere import alike, places_loss, telling_loss
from scopereg.networks.fine import FineStage, distance, objective
from scopereg.networks.lattice import Lattice
from scopereg.networks.pyramid import every_second, frame_places, read_table

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
        frame, volume = network.read(scene.frames).levels[1], network.encode(scene.volumes).levels[1]
        found = network.normal(1, frame, volume, start)
        points = frame.points @ start.rotation.transpose(1, 2) + start.translation[:, None]
        samples, inside = read_table(volume.table, volume.lattice, points / volume.stride)
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
        level = network.encode(scene.volumes).levels[1]
    count = network.channels[1]
    vectors, slopes = level.table[..., :count], level.table[..., count + 1 :].unflatten(-1, (3, count))
    change = (vectors[:, 2:, 3, 4] - vectors[:, :-2, 3, 4]) / (2 * level.stride)
    torch.testing.assert_close(slopes[:, 1:-1, 3, 4, 2], change)


@pytest.mark.parametrize("cells", [(4, 5, 6), (1, 5, 6)])
def test_a_table_is_read_alike_with_and_without_gradients(cells: tuple[int, int, int]) -> None:
    """As `grid_sample` reads it, values and gradients."""
    generator = torch.Generator().manual_seed(1)
    table = torch.rand(2, *cells, 3, generator=generator, requires_grad=True)
    lattice = Lattice(cells, tuple((1 - n) / 2 for n in cells))
    spread = torch.tensor([n - 1.0 for n in cells[::-1]]) * 0.65
    points = ((torch.rand(4, 50, 3, generator=generator) * 2 - 1) * spread).requires_grad_()
    with torch.no_grad():
        gathered, inside = read_table(table, lattice, points)
    rows, same = read_table(table, lattice, points)  # gradients are asked for
    assert torch.equal(inside, same)
    assert 0 < inside.mean() < 1
    last = torch.tensor([max(n - 1, 1) for n in cells[::-1]]) / 2
    grid = (points / last).reshape(2, 100, 1, 1, 3)
    sampled = torch.nn.functional.grid_sample(table.movedim(-1, 1), grid, align_corners=True)
    sampled = sampled[..., 0, 0].transpose(1, 2).reshape(4, 50, 3)
    kept = inside[..., None].bool()
    torch.testing.assert_close(gathered * kept, sampled * kept)
    torch.testing.assert_close(rows * kept, sampled * kept)
    ours = torch.autograd.grad((rows * kept).square().sum(), (table, points))
    theirs = torch.autograd.grad((sampled * kept).square().sum(), (table, points))
    depth = slice(None) if cells[0] > 1 else slice(2)  # along one cell alone nothing changes
    torch.testing.assert_close(ours[0], theirs[0])
    torch.testing.assert_close(ours[1][..., depth], theirs[1][..., depth])


@pytest.mark.parametrize("size", [(22, 27), (16, 16)])
def test_every_second_place_is_left_as_on_a_chessboard(size: tuple[int, int]) -> None:
    device = torch.device("cpu")
    points = frame_places(*size, 2, device)[every_second(*size, 2, device)]
    apart = torch.cdist(points, points).fill_diagonal_(torch.inf)
    torch.testing.assert_close(apart.min(1).values, torch.full((len(points),), 2 * 2**0.5))
    assert abs(len(points) - len(frame_places(*size, 2, device)) / 2) <= 1


def test_likeness_anywhere_is_a_mean_of_products_where_points_lie_inside(scene: Scene) -> None:
    network = fine_stage().eval()
    poses = VoxelPoses(*(part.repeat_interleave(2, 0) for part in scene.poses))
    poses = VoxelPoses(
        poses.rotation, poses.translation + torch.tensor([0.0, 0.0, 5.0]) * (torch.arange(8) % 2)[:, None]
    )
    with torch.no_grad():
        frames, volumes = network.read(scene.frames).far, network.encode(scene.volumes).far
        found = alike(frames, volumes, poses)
        for row in range(8):
            points = frames.points @ poses.rotation[row].T + poses.translation[row]
            cells, inside = read_table(volumes.table[row // 4][None], volumes.lattice, points[None] / 8)
            products = (cells[0] * frames.vectors[row // 2]).sum(1) * inside[0]
            torch.testing.assert_close(found[row // 2, row % 2], (products * frames.weights[row // 2]).sum())


def test_telling_losses_fall_where_features_tell_the_place() -> None:
    """Of features that are the place itself: unit vectors that turn along each axis."""
    torch.manual_seed(0)
    network = FineStage().eval()
    volumes = torch.rand(1, 48, 64, 64)
    poses = VoxelPoses(torch.eye(3)[None], torch.tensor([[4.0, -6.0, 3.0]]))
    with torch.no_grad():
        frame, volume = network.read(torch.rand(1, 32, 32)).far, network.encode(volumes).far
        places = volume.lattice.axes(torch.device("cpu"))
        z, y, x = torch.meshgrid(*(8 * axis for axis in places), indexing="ij")
        told = volume._replace(table=turning(torch.stack([x, y, z], -1))[None])
        here = frame.points + poses.translation[0]
        knowing = frame._replace(vectors=turning(here)[None])
        misled = frame._replace(vectors=turning(here.flip(0))[None])
        sharp = torch.tensor(100.0)
        for loss in (
            lambda frames: telling_loss(frames, told, poses, 13.0, sharp),
            lambda frames: places_loss(frames, told, poses, sharp),
        ):
            assert float(loss(knowing)) < 0.2 * float(loss(misled))


def turning(points: Tensor) -> Tensor:
    """Vectors of unit length that turn with each coordinate, once in 80 voxels."""
    angles = points * (2 * torch.pi / 80)
    return torch.nn.functional.normalize(torch.cat([angles.sin(), angles.cos()], -1), dim=-1)


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
