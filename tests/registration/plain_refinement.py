"""A refinement by grey values written in one piece: the twin that the likeness and the loop on SE(3) are held to."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from scopereg.geometry import VoxelPoses, centred_axis, rotation_from_vector
from scopereg.images import field_of_view
from scopereg.registration.grey import Level, RefineOptions, gradients, normalise_locally


@torch.no_grad()
def refine_plainly(
    volume: Tensor, frames: Tensor, start: VoxelPoses, options: RefineOptions
) -> tuple[VoxelPoses, Tensor, Tensor]:
    """Poses, similarity and iterations (B, ...) of frames (B, H, W) in a volume (D, H, W)."""
    known, seen = field_of_view(volume).float()[None], torch.stack([field_of_view(frame) for frame in frames]).float()
    poses, total = start, torch.zeros(len(frames), dtype=torch.int64)
    for level in options.levels:
        values = normalise_locally(volume[None], known, level.smooth, level.window, options.floor)[0]
        table = torch.cat([values[None], known, gradients(values)])
        problem = _Problem(table, frames, seen, start, level, options)
        poses, used = _descend(problem, poses, level, options)
        total = total + used
    after, before = problem.similarity(poses), problem.similarity(start)
    poses = VoxelPoses(*(_choose(after >= before, new, old) for new, old in zip(poses, start, strict=True)))
    return poses, torch.maximum(after, before), total


class Normal(NamedTuple):
    """The least-squares problem of one step, for each frame."""

    merit: Tensor  # (B,), logarithm of the pose's probability, but for a constant
    matrix: Tensor  # (B, 6, 6)
    slope: Tensor  # (B, 6), of what falls when the merit rises


class _Moments(NamedTuple):
    """Products of the volume's values at the frame and their changes (K), all without their means."""

    similarity: Tensor  # (B,)
    pixels: Tensor  # (B,), how many both images have
    among: Tensor  # (B, K, K)
    with_frame: Tensor  # (B, K), with the frame of length 1

    @property
    def with_cut(self) -> Tensor:
        """(B, K), with the volume's values."""
        return self.among[:, :, 0]


class _Problem:
    """Frames against a volume at one level: similarity and its normal equations at any pose."""

    def __init__(
        self,
        volume: Tensor,
        frames: Tensor,
        seen: Tensor,
        start: VoxelPoses,
        level: Level,
        options: RefineOptions,
    ) -> None:
        self.volume, self.start, self.options = volume, start, options
        height, width = frames.shape[1:]
        rows, columns = (slice((n % level.stride) // 2, None, level.stride) for n in (height, width))
        values = normalise_locally(frames, seen, level.smooth, level.window, options.floor)
        self.frames, self.seen = (image[:, rows, columns].flatten(1) for image in (values, seen))  # (B, N)
        axes = (centred_axis(n, device=frames.device) for n in (height, width))
        y, x = torch.meshgrid(*(axis[part] for axis, part in zip(axes, (rows, columns), strict=True)), indexing="ij")
        self.x, self.y = x.flatten(), y.flatten()  # (N,)
        spans = (n * n - 1 for n in (height, width))  # twelve times the mean square of a centred axis
        self.lever = max(math.sqrt(sum(spans) / 12), 1.0)  # voxels per radian
        halves = (max((n - 1) / 2, 0.5) for n in reversed(volume.shape[1:]))
        # Filled on the device: what is recorded may not copy from the host.
        self.halves = torch.cat([torch.full((1,), half, device=frames.device) for half in halves])  # x, y, z
        # Pixels nearer than the smoothing, or than speckle, say the same: so many say something of their own.
        grain = max(level.smooth, 1.5)
        self.each = level.stride**2 / (4 * math.pi * grain**2)

    def similarity(self, poses: VoxelPoses) -> Tensor:
        """Correlation (B,) over the pixels that both have."""
        samples = self._sampled(poses, self.volume[:2])
        return self._moments(samples, samples[:1]).similarity

    def normal(self, poses: VoxelPoses) -> Normal:
        """The merit, and the Gauss-Newton equations of shifts and turns (B, 6) in the frame's own axes, in voxels."""
        samples = self._sampled(poses, self.volume)
        slopes = torch.einsum("cbn,bck->kbn", samples[2:], poses.rotation)  # along the frame's axes
        x, y = self.x / self.lever, self.y / self.lever
        # A turn about an axis moves a point by the cross product with it; points of a frame have z = 0.
        turns = (slopes[2] * y, -slopes[2] * x, slopes[1] * x - slopes[0] * y)
        found = self._moments(samples, torch.stack([samples[0], *slopes, *turns]))
        # Both images have mean 0 and length 1 over the shared pixels, and so has no change of them any part along them.
        along = found.with_cut[:, 1:]  # (B, 6), of the change along the cut
        matrix = found.among[:, 1:, 1:] - along.unsqueeze(2) * along.unsqueeze(1)
        slope = along * found.similarity.unsqueeze(1) - found.with_frame[:, 1:]
        return self._with_start(found.similarity, matrix, slope, self.each * found.pixels, poses)

    def _with_start(
        self, similarity: Tensor, matrix: Tensor, slope: Tensor, count: Tensor, poses: VoxelPoses
    ) -> Normal:
        """What the pixels say and what the start says, as probabilities.

        Of `count` independent pairs with correlation r the logarithm of their likelihood is -count / 2 log(1 - r^2): a
        strong similarity outweighs any start, a weak one does not.
        """
        strength = similarity.clamp(0.02, 0.999)
        weight = count * strength / (1 - strength.square())  # of a change of the similarity
        merit = -count / 2 * torch.log1p(-strength.square()) + count * (similarity - strength)
        trust = 1 / self.options.spread**2
        away = self._away(poses)
        merit = merit - trust * away.square().sum(1) / 2
        held = trust * torch.eye(6, device=away.device)
        return Normal(merit, weight[:, None, None] * matrix + held, weight[:, None] * slope + trust * away)

    def _away(self, poses: VoxelPoses) -> Tensor:
        """Shifts and turns (B, 6) from the start in its own axes, in voxels; turns are small."""
        back = self.start.rotation.transpose(1, 2)
        shift = (back @ (poses.translation - self.start.translation).unsqueeze(-1)).squeeze(-1)
        turn = back @ poses.rotation
        skew = (turn - turn.transpose(1, 2)) / 2
        return torch.cat([shift, self.lever * torch.stack([skew[:, 2, 1], skew[:, 0, 2], skew[:, 1, 0]], 1)], 1)

    def _sampled(self, poses: VoxelPoses, volume: Tensor) -> Tensor:
        """The volume's channels (C, B, N) at the pixels of the frames."""
        first, second = (poses.rotation[:, None, :, axis] for axis in (0, 1))
        points = first * self.x[:, None] + second * self.y[:, None] + poses.translation[:, None]  # (B, N, 3)
        grid = (points / self.halves).reshape(1, 1, 1, -1, 3)
        return F.grid_sample(volume[None], grid, align_corners=True).reshape(len(volume), *self.frames.shape)

    def _moments(self, samples: Tensor, columns: Tensor) -> _Moments:
        """Sums over the pixels that both images have, of columns (K, B, N) that begin with the volume's values."""
        weights = self.seen * (samples[1] > 0.99)
        every = torch.cat([columns, self.frames[None], torch.ones_like(weights)[None]]).transpose(0, 1)  # (B, K + 2, N)
        gram = (every * weights.unsqueeze(1)) @ every.transpose(1, 2)
        count = gram[:, -1, -1]
        sums = gram[:, :-1, -1]
        apart = gram[:, :-1, :-1] - sums.unsqueeze(2) * sums.unsqueeze(1) / count.clamp_min(1)[:, None, None]
        cut, frame = (apart[:, row, row].clamp_min(1e-12).sqrt() for row in (0, -1))
        among = apart[:, :-1, :-1] / cut.square()[:, None, None]
        with_frame = apart[:, :-1, -1] / (cut * frame).unsqueeze(1)
        enough = count >= self.options.least_inside * self.seen.sum(1).clamp_min(1)
        similarity = torch.where(enough, with_frame[:, 0], -1.0)
        return _Moments(similarity, count, among, with_frame)


def _descend(problem: _Problem, poses: VoxelPoses, level: Level, options: RefineOptions) -> tuple[VoxelPoses, Tensor]:
    """Levenberg-Marquardt from poses (B, ...): steps that raise the similarity are taken, others shorten the next.

    A frame whose step became small stays where it is while others go on. Also gives the iterations (B,) of each.
    """
    now = problem.normal(poses)
    damping = torch.full_like(now.merit, 1e-2)
    moving = torch.ones_like(now.merit, dtype=torch.bool)
    used = torch.zeros_like(now.merit, dtype=torch.int64)
    longest = options.longest_step * max(level.smooth, 1.0)
    for _ in range(level.iterations):
        step = _step(now, damping, longest)
        tried = _moved(poses, step, problem.lever)
        then = problem.normal(tried)
        used = used + moving
        taken = (then.merit > now.merit) & moving
        now = Normal(*(_choose(taken, new, old) for new, old in zip(then, now, strict=True)))
        poses = VoxelPoses(*(_choose(taken, new, old) for new, old in zip(tried, poses, strict=True)))
        damping = (damping * torch.where(taken, 0.3, 8.0)).clamp(1e-6, 1e6)
        moving = moving & (torch.linalg.vector_norm(step, dim=1) >= options.last_step)
        # A GPU would have to be waited for: there the iterations left over cost less.
        if not moving.is_cuda and not bool(moving.any()):
            break
    return poses, used


def _step(now: Normal, damping: Tensor, longest: float) -> Tensor:
    """Damped Gauss-Newton step (B, 6), no longer than allowed."""
    diagonal = now.matrix.diagonal(dim1=1, dim2=2)
    damped = now.matrix + torch.diag_embed(diagonal * damping[:, None] + 1e-9)
    step = -_solve(damped, now.slope)
    length = torch.linalg.vector_norm(step, dim=1, keepdim=True)
    return step * (longest / length.clamp_min(1e-12)).clamp_max(1.0)


def _solve(matrix: Tensor, right: Tensor) -> Tensor:
    """x (B, N) of matrix (B, N, N) x = right (B, N), for positive definite matrices, which need no pivoting.

    Gauss and Jordan's elimination: unlike LAPACK's it never asks the host, so that a GPU can replay it.
    """
    size = matrix.shape[-1]
    rows = torch.cat([matrix, right.unsqueeze(-1)], -1)  # (B, N, N + 1)
    unit = torch.eye(size, device=rows.device, dtype=rows.dtype)
    for k in range(size):
        pivot = rows[:, k : k + 1] / rows[:, k : k + 1, k : k + 1]
        rows = rows + (unit[k, :, None] - rows[:, :, k : k + 1]) * pivot
    return rows[..., -1]


def _moved(poses: VoxelPoses, step: Tensor, lever: float) -> VoxelPoses:
    """Poses after shifts and turns (B, 6) in the frame's own axes, turns in voxels at the lever."""
    rotation = poses.rotation @ rotation_from_vector(step[:, 3:] / lever)
    return VoxelPoses(rotation, poses.translation + (poses.rotation @ step[:, :3, None]).squeeze(-1))


def _choose(taken: Tensor, new: Tensor, old: Tensor) -> Tensor:
    return torch.where(taken.reshape(-1, *(1,) * (new.ndim - 1)), new, old)
