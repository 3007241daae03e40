"""Fine stage: learned features of frame and volume, brought to agreement by Levenberg-Marquardt on SE(3).

Tokens of eight voxels tell a pose to about two voxels. From there a small convolutional pyramid describes both images
by unit vectors and weights, at strides of 4 and of 2 voxels. The pose is moved until the features of the volume at the
frame's points equal those of the frame: a weighted least-squares problem in six numbers. The loss on the pose goes back
through its steps, so that the features learn what to compare; no speckle need be shared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from scopereg.devices import full_precision
from scopereg.geometry import VoxelPoses, centred_axis
from scopereg.geometry.steps import lever_voxels, moved, solve_positive
from scopereg.networks.lattice import Lattice, kept
from scopereg.networks.passes import interpolate_by_gathering, place
from scopereg.networks.recipe import Batch, Recipe

STRIDES = (4, 2)  # voxels between features, coarse to fine
WIDTHS = (32, 64, 96)  # channels of the pyramid at strides of 2, 4 and 8 voxels
_GROUPS = 8  # of channels that are normalised together
_SEEN = 0.5  # share of the pixels around a point that must not be black
_AROUND = 5  # pixels on a side
_LONGEST = 2.0  # step in cells of a level
_SPREAD = 4.0  # voxels, turns at the lever: starts in training lie so far off on every axis, at the most
_FLOOR = 0.05  # voxels: nearer poses hardly count in the loss


class Features(NamedTuple):
    """Images described at one stride, S channels of unit length and a weight of each place."""

    vectors: Float[Tensor, "b s *places"]
    logits: Float[Tensor, "b 1 *places"]  # of the weights


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


class FineResult(NamedTuple):
    """Poses, and how well the features agree there."""

    rotation: Float[Tensor, "b 3 3"]
    translation: Float[Tensor, "b 3"]
    residual: Float[Tensor, "b"]  # weighted mean square distance of the features
    information: Float[Tensor, "b 6 6"]  # of shifts and turns in the frame's axes, in voxels, for each point compared
    path: tuple[VoxelPoses, ...] = ()  # the poses after every step, for the loss


class Normal(NamedTuple):
    """The least-squares problem at a pose, divided by the number of points."""

    matrix: Float[Tensor, "b 6 6"]
    slope: Float[Tensor, "b 6"]
    residual: Float[Tensor, "b"]


class Pyramid(nn.Module):
    """Features of images of two or three axes at strides of 4 and 2, with context from a stride of 8."""

    def __init__(self, axes: int, channels: Sequence[int]) -> None:
        super().__init__()
        self.axes = axes
        fine, middle, coarse = WIDTHS
        self.down2 = nn.Sequential(_block(axes, 1, fine, 2), _block(axes, fine, fine))
        self.down4 = nn.Sequential(_block(axes, fine, middle, 2), _block(axes, middle, middle))
        self.down8 = nn.Sequential(_block(axes, middle, coarse, 2), _block(axes, coarse, coarse))
        self.join4, self.join2 = _convolution(axes, coarse, middle, 1), _convolution(axes, middle, fine, 1)
        self.smooth4, self.smooth2 = _block(axes, middle, middle), _block(axes, fine, fine)
        self.tell4 = _convolution(axes, middle, channels[0] + 1, 1)
        self.tell2 = _convolution(axes, fine, channels[1] + 1, 1)

    def forward(self, images: Float[Tensor, "b *places"]) -> tuple[Features, Features]:
        """Of strides 4 and 2; the first feature lies on the first pixel."""
        at2 = self.down2(images.unsqueeze(1))
        at4 = self.down4(at2)
        at4 = self.smooth4(at4 + _doubled(self.join4(self.down8(at4)), at4.shape[2:]))
        at2 = self.smooth2(at2 + _doubled(self.join2(at4), at2.shape[2:]))
        return _told(self.tell4(at4)), _told(self.tell2(at2))


class FineStage(nn.Module):
    """Poses of frames (B, H, W) in volumes (V, D, H, W), B / V in a row for each, from starts a few voxels away.

    Alone it starts at the middle of the volume.
    """

    def __init__(self, channels: Sequence[int] = (24, 16), steps: Sequence[int] = (4, 4)) -> None:
        """`channels` of the features and `steps` taken with them, coarse to fine."""
        super().__init__()
        self.channels, self.steps = tuple(channels), tuple(steps)
        self.frame_features, self.volume_features = Pyramid(2, self.channels), Pyramid(3, self.channels)
        levels = len(STRIDES)
        self.log_damping = nn.Parameter(torch.full((levels, 6), math.log(1e-2)))  # as a share of the curvature
        self.log_floor = nn.Parameter(torch.full((levels, 6), math.log(1e-5)))  # curvature where nothing is seen
        self.log_tolerance = nn.Parameter(torch.zeros(levels))  # distance of features that counts half

    def forward(
        self,
        slice: Float[Tensor, "b h w"],
        volume: Float[Tensor, "v d h w"],
        start: VoxelPoses | None = None,
    ) -> FineResult:
        return self.locate(slice, self.encode(volume), start or VoxelPoses.identity(len(slice), slice.device))

    def encode(self, volumes: Float[Tensor, "v d h w"]) -> tuple[VolumeLevel, ...]:
        """All that depends on the volumes alone."""
        levels = []
        for found, stride in zip(self.volume_features(volumes), STRIDES, strict=True):
            vectors, logits = (part.float() for part in found)
            table = torch.cat([vectors, logits, *(_slopes(vectors, axis) / stride for axis in (4, 3, 2))], 1)
            table = table.movedim(1, -1).contiguous()
            levels.append(VolumeLevel(table, _lattice(volumes.shape[1:], vectors.shape[2:], stride), stride))
        return tuple(levels)

    def read(self, frames: Float[Tensor, "b h w"]) -> tuple[FrameLevel, ...]:
        """All that depends on the frames alone."""
        height, width = frames.shape[1:]
        lever = lever_voxels(height, width)
        seen = F.avg_pool2d((frames > 0).float().unsqueeze(1), _AROUND, 1, _AROUND // 2)[:, 0] > _SEEN
        levels = []
        for found, stride in zip(self.frame_features(frames), STRIDES, strict=True):
            vectors, logits = (part.float() for part in found)
            weights = torch.sigmoid(logits[:, 0]) * seen[:, ::stride, ::stride]
            points = kept(_frame_points, height, width, stride, frames.device)
            moves = kept(_moves, height, width, stride, frames.device)
            levels.append(FrameLevel(vectors.flatten(2).transpose(1, 2), weights.flatten(1), points, moves, lever))
        return tuple(levels)

    def locate(self, frames: Float[Tensor, "b h w"], encoded: Sequence[VolumeLevel], start: VoxelPoses) -> FineResult:
        """From starts in voxels from the middle of the volume; every level goes on where the one before ended."""
        read = self.read(frames)
        path: list[VoxelPoses] = []
        with full_precision(frames.device):
            poses = VoxelPoses(start.rotation.float(), start.translation.float())
            for level, (frame, volume) in enumerate(zip(read, encoded, strict=True)):
                for _ in range(self.steps[level]):
                    poses = self._step(level, frame, volume, poses)
                    path.append(poses)
            last = self.normal(level, frame, volume, poses)
        return FineResult(*poses, last.residual, last.matrix, tuple(path) if self.training else ())

    def normal(self, level: int, frame: FrameLevel, volume: VolumeLevel, poses: VoxelPoses) -> Normal:
        """The equations of shifts and turns (6) in the frame's own axes, in voxels; turns at the lever."""
        count = frame.vectors.shape[2]
        samples, inside = sample(volume, place(frame.points, *poses))  # (B, N, 4 S + 1)
        apart = samples[..., :count] - frame.vectors
        squared = apart.square().sum(-1)
        weights = frame.weights * torch.sigmoid(samples[..., count]) * inside
        residual = (weights * squared).sum(1) / weights.sum(1).clamp_min(1e-6)
        weights = weights / (1 + squared * torch.exp(-2 * self.log_tolerance[level]))  # far apart is a stranger
        # Features along the frame's axes. All that follows are sums over them, so points have matrices of three rows.
        slopes = samples[..., count + 1 :].unflatten(-1, (3, count))  # (B, N, 3, S), x, y, z
        slopes = torch.einsum("bnks,bkj->bnjs", slopes, poses.rotation)
        weighted = slopes * weights[..., None, None]
        among = weighted @ slopes.transpose(2, 3)  # (B, N, 3, 3)
        with_rest = (weighted @ apart.unsqueeze(-1)).squeeze(-1)  # (B, N, 3)
        points = len(frame.points)
        turned = torch.einsum("bnij,njl->bnil", among, frame.moves)
        matrix = torch.einsum("nik,bnil->bkl", frame.moves, turned)
        slope = torch.einsum("nik,bni->bk", frame.moves, with_rest)
        return Normal(matrix / points, slope / points, residual)

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
    """Distance to the true pose after every step, the later the heavier, from starts drawn around it."""
    lever = lever_voxels(*batch.slices.shape[1:])
    steps = (2 * torch.rand(len(batch.slices), 6, device=batch.slices.device) - 1) * _SPREAD
    path = network(batch.slices, batch.volumes, moved(batch.poses, steps, lever)).path
    weights = torch.linspace(0, 1, len(path) + 1)[1:].tolist()
    return sum(
        (weight * distance(poses, batch.poses, lever) for weight, poses in zip(weights, path, strict=True)),
        start=torch.zeros(len(batch.slices), device=batch.slices.device),
    ) / sum(weights)


def distance(poses: VoxelPoses, true: VoxelPoses, lever: float) -> Float[Tensor, "b"]:
    """Root mean square distance in voxels of pixels under two poses, as if they lay around the middle on all sides."""
    shift = (poses.translation - true.translation).square().sum(1)
    turn = (poses.rotation - true.rotation).square().sum((1, 2))
    return (shift + lever**2 / 2 * turn + _FLOOR**2).sqrt()


RECIPE = Recipe(objective, settings={"learning_rate": 1e-3, "clip": 1.0}, draws=True, start_within=_SPREAD)


def sample(volume: VolumeLevel, points: Float[Tensor, "b n 3"]) -> tuple[Float[Tensor, "b n c"], Float[Tensor, "b n"]]:
    """Volume features at points in voxels from its middle, B / V frames in a row for each; 1 where they lie inside."""
    volumes, frames = len(volume.table), len(points)
    cells = (points / volume.stride).reshape(volumes, -1, 3)
    first = kept(_first_cell, volume.lattice, points.device)
    last = kept(_last_cell, volume.lattice, points.device)
    inside = ((cells >= first) & (cells <= last)).all(-1)
    if torch.is_grad_enabled():
        # align_corners=True: the first cell lies at -1 and the last at 1, also where there is one cell alone
        grid = (2 * (cells - first) / (last - first).clamp_min(1) - 1)[:, :, None, None]
        found = F.grid_sample(volume.table.movedim(-1, 1), grid, align_corners=True)[..., 0, 0].transpose(1, 2)
    else:
        found = interpolate_by_gathering(volume.table.flatten(2, 3), volume.lattice, cells)
    return found.reshape(frames, -1, found.shape[-1]), inside.float().reshape(frames, -1)


def _convolution(axes: int, inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Module:
    make = nn.Conv2d if axes == 2 else nn.Conv3d
    return make(inputs, outputs, size, stride, size // 2)


def _block(axes: int, inputs: int, outputs: int, stride: int = 1) -> nn.Module:
    return nn.Sequential(_convolution(axes, inputs, outputs, 3, stride), nn.GroupNorm(_GROUPS, outputs), nn.SiLU())


def _told(found: Float[Tensor, "b c *places"]) -> Features:
    return Features(F.normalize(found[:, :-1].float(), dim=1), found[:, -1:])


def _doubled(coarse: Float[Tensor, "b c *places"], sizes: Sequence[int]) -> Float[Tensor, "b c *more"]:
    """Features between which others lie, so that every second one stays where it is."""
    mode = "bilinear" if coarse.ndim == 4 else "trilinear"
    between = F.interpolate(coarse, [2 * n - 1 for n in coarse.shape[2:]], mode=mode, align_corners=True)
    pads = [pad for n, own in zip(reversed(sizes), reversed(between.shape[2:]), strict=True) for pad in (0, n - own)]
    return F.pad(between, pads, mode="replicate")


def _slopes(vectors: Float[Tensor, "v s d h w"], axis: int) -> Float[Tensor, "v s d h w"]:
    """Central differences from cell to cell."""
    return torch.gradient(vectors, dim=axis)[0] if vectors.shape[axis] > 1 else torch.zeros_like(vectors)


def _lattice(voxels: Sequence[int], cells: Sequence[int], stride: int) -> Lattice:
    """Cells of which the first lies on the first voxel."""
    depth, height, width = cells
    z, y, x = ((1 - n) / 2 / stride for n in voxels)
    return Lattice((depth, height, width), (z, y, x))


def _first_cell(lattice: Lattice, device: torch.device) -> Tensor:
    return torch.tensor(lattice.start[::-1], device=device)


def _last_cell(lattice: Lattice, device: torch.device) -> Tensor:
    ends = [first + n - 1 for first, n in zip(lattice.start, lattice.shape, strict=True)]
    return torch.tensor(ends[::-1], device=device)


def _frame_points(height: int, width: int, stride: int, device: torch.device) -> Tensor:
    """Points (N, 3) of a frame that have features, voxels from its middle."""
    y, x = (centred_axis(n, device=device)[::stride] for n in (height, width))
    y, x = torch.meshgrid(y, x, indexing="ij")
    return torch.stack([x, y, torch.zeros_like(x)], -1).flatten(0, 1)


def _moves(height: int, width: int, stride: int, device: torch.device) -> Tensor:
    """How each point moves (N, 3, 6) with the six steps. A turn moves it by the cross product with its axis."""
    x, y, zero = (_frame_points(height, width, stride, device) / lever_voxels(height, width)).unbind(1)
    turns = [torch.stack(part, 1) for part in ((zero, zero, y), (zero, zero, -x), (-y, x, zero))]
    shifts = torch.eye(3, device=device).expand(len(x), 3, 3)
    return torch.cat([shifts, torch.stack(turns, 2)], 2)
