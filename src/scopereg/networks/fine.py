"""Fine stage: learned features of frame and volume, brought to agreement by Levenberg-Marquardt on SE(3).

Tokens of eight voxels tell a pose to about two voxels. From there a small convolutional pyramid describes both images
by unit vectors and weights, at strides of 8, 4 and 2 voxels. The pose is moved until the features of the volume at the
frame's points equal those of the frame: a weighted least-squares problem in six numbers. The loss on the pose goes back
through its steps, so that the features learn what to compare; no speckle need be shared. A fourth set of features tells
places of the volume apart, for a first look at all of it (`networks.anywhere`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from scopereg.devices import full_precision
from scopereg.geometry import VoxelPoses
from scopereg.geometry.steps import lever_voxels, moved, solve_positive
from scopereg.networks.anywhere import FarFrame, FarVolume, places_loss, telling_loss
from scopereg.networks.lattice import Lattice, kept
from scopereg.networks.passes import place
from scopereg.networks.pyramid import (
    STRIDES,
    Pyramid,
    every_second,
    frame_places,
    read_table,
    seen_places,
    volume_lattice,
)
from scopereg.networks.recipe import Batch, Recipe
from scopereg.ops import descent

FINEST = len(STRIDES) - 1  # level
_DENSE = 2  # voxels: where places lie so close, every second of them says as much as all
_LONGEST = 2.0  # step in cells of a level
_SPREAD = 8.0  # voxels, turns at the lever: starts in training lie so far off on every axis, at the most
_FLOOR = 0.05  # voxels: nearer poses hardly count in the loss
_SOFT = 2.0  # voxels: distances beyond count less and less, so that what is nearly right becomes exact
_TELLING, _PLACES = 0.5, 0.1  # weights of the losses that tell poses and places apart
_SHARPEST = math.log(200.0)


class VolumeLevel(NamedTuple):
    """Volumes at one stride: features, the logit of the weight, and how features change along x, y, z in a voxel."""

    table: Float[Tensor, "v d h w c"]  # 4 S + 1 channels, which are read together
    lattice: Lattice  # where the cells lie, in cells from the middle of the volume
    stride: int


class FrameLevel(NamedTuple):
    """Frames at one stride."""

    vectors: Float[Tensor, "b n s"]
    weights: Float[Tensor, "b n"]
    points: Float[Tensor, "n 3"]  # voxels from the middle of the frame
    moves: Float[Tensor, "n 3 6"]  # how they move with each of six steps
    lever: float  # voxels, see `geometry.steps`


class FineVolume(NamedTuple):
    """All that depends on the volumes alone."""

    levels: tuple[VolumeLevel, ...]
    far: FarVolume


class FineFrame(NamedTuple):
    """All that depends on the frames alone."""

    levels: tuple[FrameLevel, ...]
    far: FarFrame
    lever: float

    def repeated(self, count: int) -> FineFrame:
        """One frame so many times, without copies."""
        return self._of_each(lambda part: part.expand(count, *part.shape[1:]))

    def pick(self, rows: Int64[Tensor, "k"]) -> FineFrame:
        """Some frames of these; one may be there several times."""
        return self._of_each(lambda part: part[rows])

    @classmethod
    def joined(cls, parts: Sequence[FineFrame]) -> FineFrame:
        """Frames of one size as one batch."""
        levels = (
            one[0]._replace(
                vectors=torch.cat([each.vectors for each in one]), weights=torch.cat([each.weights for each in one])
            )
            for one in zip(*(part.levels for part in parts), strict=True)
        )
        vectors, weights, seen = (torch.cat(one) for one in zip(*(part.far[:3] for part in parts), strict=True))
        return parts[0]._replace(levels=tuple(levels), far=FarFrame(vectors, weights, seen, parts[0].far.points))

    def _of_each(self, change: Callable[[Tensor], Tensor]) -> FineFrame:
        """The same change of whatever has a row for each frame."""
        levels = (one._replace(vectors=change(one.vectors), weights=change(one.weights)) for one in self.levels)
        vectors, weights, seen = (change(part) for part in self.far[:3])
        return FineFrame(tuple(levels), FarFrame(vectors, weights, seen, self.far.points), self.lever)


class FineResult(NamedTuple):
    """Poses, and how well the features agree there."""

    rotation: Float[Tensor, "b 3 3"]
    translation: Float[Tensor, "b 3"]
    residual: Float[Tensor, "b"]  # weighted mean square distance of the features
    information: Float[Tensor, "b 6 6"]  # of shifts and turns in the frame's axes, in voxels, for each point compared


class Normal(NamedTuple):
    """The least-squares problem at a pose, divided by the number of points: six steps, or eight with stretches."""

    matrix: Float[Tensor, "b k k"]
    slope: Float[Tensor, "b k"]
    residual: Float[Tensor, "b"]


class Local(NamedTuple):
    """The least-squares problem of each place of frames: which shift in the frame's axes makes the features equal."""

    among: Float[Tensor, "b n 3 3"]
    with_rest: Float[Tensor, "b n 3"]
    weights: Float[Tensor, "b n"]  # less where features are far apart
    squared: Float[Tensor, "b n"]  # distance of the features
    residual: Float[Tensor, "b"]  # mean of these, weighted without regard to how far they are apart


class Agreement(NamedTuple):
    """How far features of frames and volumes are apart at poses."""

    residual: Float[Tensor, "b"]  # weighted mean square distance
    robust: Float[Tensor, "b"]  # the same of what a step makes smaller: far distances count by their logarithm
    compared: Float[Tensor, "b"]  # weight of both, mean over the points
    inside: Float[Tensor, "b"]  # share of the frame's weight that lies in the volume


class FineStage(nn.Module):
    """Poses of frames (B, H, W) in volumes (V, D, H, W), B / V in a row for each, from starts a few voxels away.

    Alone it starts at the middle of the volume.
    """

    def __init__(self, channels: Sequence[int] = (24, 24, 16), steps: Sequence[int] = (4, 3, 3), far: int = 32) -> None:
        """`channels` of the features and `steps` taken with them, coarse to fine; `far` of those that tell places."""
        super().__init__()
        self.channels, self.steps = tuple(channels), tuple(steps)
        self.frame_features, self.volume_features = (Pyramid(axes, self.channels, far) for axes in (2, 3))
        levels = len(STRIDES)
        self.log_damping = nn.Parameter(torch.full((levels, 6), math.log(1e-2)))  # as a share of the curvature
        self.log_floor = nn.Parameter(torch.full((levels, 6), math.log(1e-5)))  # curvature where nothing is seen
        self.log_tolerance = nn.Parameter(torch.zeros(levels))  # distance of features that counts half
        self.log_sharpness = nn.Parameter(torch.full((2,), math.log(20.0)))  # of telling poses and places apart

    def forward(
        self,
        slice: Float[Tensor, "b h w"],
        volume: Float[Tensor, "v d h w"],
        start: VoxelPoses | None = None,
    ) -> FineResult:
        return self.locate(slice, self.encode(volume), start or VoxelPoses.identity(len(slice), slice.device))

    def encode(self, volumes: Float[Tensor, "v d h w"]) -> FineVolume:
        told = self.volume_features(volumes)
        levels = []
        for (vectors, logits), stride in zip(told.levels, STRIDES, strict=True):
            table = torch.cat([vectors, logits, *(_slopes(vectors, axis) / stride for axis in (4, 3, 2))], 1)
            lattice = volume_lattice(volumes.shape[1:], vectors.shape[2:], stride)
            levels.append(VolumeLevel(table.movedim(1, -1).contiguous(), lattice, stride))
        vectors, logits = told.far
        return FineVolume(
            tuple(levels),
            FarVolume((vectors * torch.sigmoid(logits)).movedim(1, -1).contiguous(), levels[0].lattice),
        )

    def read(self, frames: Float[Tensor, "b h w"]) -> FineFrame:
        height, width = frames.shape[1:]
        lever = lever_voxels(height, width)
        told = self.frame_features(frames)
        levels = []
        for (vectors, logits), stride in zip(told.levels, STRIDES, strict=True):
            weights = torch.sigmoid(logits[:, 0].flatten(1)) * seen_places(frames, stride)
            points = frame_places(height, width, stride, frames.device)
            moves = kept(_moves, height, width, stride, frames.device)
            rows = vectors.flatten(2).transpose(1, 2)
            if stride <= _DENSE:
                some = every_second(height, width, stride, frames.device)
                rows, weights, points, moves = rows[:, some], weights[:, some], points[some], moves[some]
            levels.append(FrameLevel(rows, weights, points, moves, lever))
        vectors, logits = told.far
        seen = seen_places(frames, STRIDES[0]).float()
        weights = torch.sigmoid(logits[:, 0].flatten(1)) * seen
        weights = weights / weights.sum(1, keepdim=True).clamp_min(1e-6)
        points = frame_places(height, width, STRIDES[0], frames.device)
        far = FarFrame(vectors.flatten(2).transpose(1, 2), weights, seen, points)
        return FineFrame(tuple(levels), far, lever)

    def locate(self, frames: Float[Tensor, "b h w"], encoded: FineVolume, start: VoxelPoses) -> FineResult:
        """From starts in voxels from the middle of the volume; every level goes on where the one before ended."""
        read = self.read(frames)
        poses = self.settle(read, encoded, start)
        with full_precision(poses.rotation.device):
            last = self.normal(FINEST, read.levels[FINEST], encoded.levels[FINEST], poses)
        return FineResult(*poses, last.residual, last.matrix)

    def descend(self, read: FineFrame, encoded: FineVolume, start: VoxelPoses) -> tuple[VoxelPoses, ...]:
        """The start and the poses after every step."""
        path = [VoxelPoses(start.rotation.float(), start.translation.float())]
        with full_precision(start.rotation.device):
            for level, (frame, volume) in enumerate(zip(read.levels, encoded.levels, strict=True)):
                for _ in range(self.steps[level]):
                    path.append(self._step(level, frame, volume, path[-1]))
        return tuple(path)

    def settle(self, read: FineFrame, encoded: FineVolume, start: VoxelPoses) -> VoxelPoses:
        """Where `descend` ends."""
        if not descent.serves(encoded.levels[0].table):
            return self.descend(read, encoded, start)[-1]
        poses = VoxelPoses(start.rotation.float(), start.translation.float())
        for level, count in enumerate(self.steps):
            poses = self.settle_at(level, read, encoded, poses, count)
        return poses

    def settle_at(self, level: int, read: FineFrame, encoded: FineVolume, poses: VoxelPoses, count: int) -> VoxelPoses:
        """Where so many steps with the features of one level lead."""
        frame, volume = read.levels[level], encoded.levels[level]
        if not descent.serves(volume.table):
            for _ in range(count):
                poses = self._step(level, frame, volume, poses)
            return poses
        table = descent.Table(volume.table, volume.lattice.start, volume.stride)
        rule = self.rule(level, count, frame.lever)
        rotation, translation, _ = descent.descend(table, frame.vectors, frame.weights, frame.points, *poses, rule)
        return VoxelPoses(rotation, translation)

    def rule(self, level: int, count: int, lever: float) -> descent.Rule:
        """How so many steps of a level are taken."""
        damping, floor, tolerance = (log[level].exp() for log in (self.log_damping, self.log_floor, self.log_tolerance))
        return descent.Rule(count, damping, floor, tolerance, lever, _LONGEST * STRIDES[level])

    def normal(
        self, level: int, frame: FrameLevel, volume: VolumeLevel, poses: VoxelPoses, *, stretched: bool = False
    ) -> Normal:
        """The equations of shifts and turns (6) in the frame's own axes, in voxels; turns at the lever.

        With `stretched` two more, of a frame that is wider and higher than its pixels say, by shares of the lever.
        """
        at = self.local(level, frame, volume, place(frame.points, *poses), poses.rotation)
        points, moves = len(frame.points), frame.moves
        if stretched:
            moves = torch.cat([moves, torch.diag_embed(frame.points / frame.lever)[:, :, :2]], 2)
        turned = torch.einsum("bnij,njl->bnil", at.among, moves)
        matrix = torch.einsum("nik,bnil->bkl", moves, turned)
        slope = torch.einsum("nik,bni->bk", moves, at.with_rest)
        return Normal(matrix / points, slope / points, at.residual)

    def local(
        self,
        level: int,
        frame: FrameLevel,
        volume: VolumeLevel,
        points: Float[Tensor, "b n 3"],
        rotation: Float[Tensor, "b 3 3"],
    ) -> Local:
        """The equations of each place on its own, wherever in the volume it lies: of its shift in the frame's axes."""
        count = frame.vectors.shape[2]
        samples, inside = read_table(volume.table, volume.lattice, points / volume.stride)  # (B, N, 4 S + 1)
        apart = samples[..., :count] - frame.vectors
        squared = apart.square().sum(-1)
        weights = frame.weights * torch.sigmoid(samples[..., count]) * inside
        residual = (weights * squared).sum(1) / weights.sum(1).clamp_min(1e-6)
        weights = weights / (1 + squared * torch.exp(-2 * self.log_tolerance[level]))  # far apart is a stranger
        # Features along the frame's axes. All that follow are sums over them, so points have matrices of three rows.
        slopes = samples[..., count + 1 :].unflatten(-1, (3, count))  # (B, N, 3, S), x, y, z
        slopes = torch.einsum("bnks,bkj->bnjs", slopes, rotation)
        weighted = slopes * weights[..., None, None]
        among = weighted @ slopes.transpose(2, 3)  # (B, N, 3, 3)
        with_rest = (weighted @ apart.unsqueeze(-1)).squeeze(-1)  # (B, N, 3)
        return Local(among, with_rest, weights, squared, residual)

    def agreement(self, level: int, frame: FrameLevel, volume: VolumeLevel, poses: VoxelPoses) -> Agreement:
        """Of frames at poses, without the equations."""
        count = frame.vectors.shape[2]
        samples, inside = read_table(volume.table, volume.lattice, place(frame.points, *poses) / volume.stride)
        squared = (samples[..., :count] - frame.vectors).square().sum(-1)
        weights = frame.weights * torch.sigmoid(samples[..., count]) * inside
        tolerance = torch.exp(2 * self.log_tolerance[level])
        total = weights.sum(1).clamp_min(1e-6)
        return Agreement(
            (weights * squared).sum(1) / total,
            (weights * tolerance * torch.log1p(squared / tolerance)).sum(1) / total,
            weights.mean(1),
            (frame.weights * inside).sum(1) / frame.weights.sum(1).clamp_min(1e-6),
        )

    def _step(self, level: int, frame: FrameLevel, volume: VolumeLevel, poses: VoxelPoses) -> VoxelPoses:
        now = self.normal(level, frame, volume, poses)
        diagonal = now.matrix.diagonal(dim1=1, dim2=2)
        damping = diagonal * self.log_damping[level].exp() + self.log_floor[level].exp()
        step = -solve_positive(now.matrix + torch.diag_embed(damping), now.slope)
        longest = _LONGEST * volume.stride
        length = torch.linalg.vector_norm(step, dim=1, keepdim=True)
        step = step * (longest / length.clamp_min(longest))
        return moved(poses, step, frame.lever)


def objective(network: FineStage, batch: Batch) -> Float[Tensor, "b"]:
    """Distance to the true pose after every step, the later the heavier, from starts drawn around it.

    Beside it, how surely the true pose and the places of the frame are told from others anywhere in the volume.
    """
    encoded, read = network.encode(batch.volumes), network.read(batch.slices)
    with full_precision(batch.slices.device):
        lever, count = read.lever, len(batch.slices)
        draws = torch.rand(count, 7, device=batch.slices.device)
        start = moved(batch.poses, _SPREAD * draws[:, 6:] * (2 * draws[:, :6] - 1), lever)
        _, *path = network.descend(read, encoded, start)
        poses, places = network.log_sharpness.clamp_max(_SHARPEST).exp()
        telling = telling_loss(read.far, encoded.far, batch.poses, lever, poses)
        telling = _TELLING * telling + _PLACES * places_loss(read.far, encoded.far, batch.poses, places)
        return telling + _along(path, batch.poses, lever)


def _along(path: Sequence[VoxelPoses], true: VoxelPoses, lever: float) -> Float[Tensor, "b"]:
    """Mean of the distances on a path, the later the heavier; far ones by their logarithm."""
    far = torch.stack([distance(poses, true, lever) for poses in path], 1)
    weights = torch.linspace(0, 1, len(path) + 1, device=far.device)[1:]
    return (_SOFT * torch.log1p(far / _SOFT) * weights).sum(1) / weights.sum()


def distance(poses: VoxelPoses, true: VoxelPoses, lever: float) -> Float[Tensor, "b"]:
    """Root mean square distance in voxels of pixels under two poses, as if they lay around the middle on all sides."""
    shift = (poses.translation - true.translation).square().sum(1)
    turn = (poses.rotation - true.rotation).square().sum((1, 2))
    return (shift + lever**2 / 2 * turn + _FLOOR**2).sqrt()


def distances(poses: VoxelPoses, lever: float) -> Float[Tensor, "b b"]:
    """`distance` of each pose to each other."""
    count = len(poses.rotation)
    every = VoxelPoses(*(part.repeat(count, *[1] * (part.ndim - 1)) for part in poses))
    each = VoxelPoses(*(part.repeat_interleave(count, 0) for part in poses))
    return distance(every, each, lever).unflatten(0, (count, count))


RECIPE = Recipe(objective, settings={"learning_rate": 1e-3, "clip": 1.0}, draws=True, start_within=_SPREAD)


def _slopes(vectors: Float[Tensor, "v s d h w"], axis: int) -> Float[Tensor, "v s d h w"]:
    """Central differences from cell to cell, as `torch.gradient`, which would fix an exported model's batch size."""
    count = vectors.shape[axis]
    if count == 1:
        return torch.zeros_like(vectors)
    parts = [vectors.narrow(axis, 1, 1) - vectors.narrow(axis, 0, 1)]
    if count > 2:
        parts.append((vectors.narrow(axis, 2, count - 2) - vectors.narrow(axis, 0, count - 2)) / 2)
    parts.append(vectors.narrow(axis, count - 1, 1) - vectors.narrow(axis, count - 2, 1))
    return torch.cat(parts, axis)


def _moves(height: int, width: int, stride: int, device: torch.device) -> Tensor:
    """How each point moves (N, 3, 6) with the six steps. A turn moves it by the cross product with its axis."""
    x, y, zero = (frame_places(height, width, stride, device) / lever_voxels(height, width)).unbind(1)
    turns = [torch.stack(part, 1) for part in ((zero, zero, y), (zero, zero, -x), (-y, x, zero))]
    shifts = torch.eye(3, device=device).expand(len(x), 3, 3)
    return torch.cat([shifts, torch.stack(turns, 2)], 2)
