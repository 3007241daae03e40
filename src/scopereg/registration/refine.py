"""Refinement: a pose brought from near to exact by the similarity of frame and volume, Levenberg-Marquardt on SE(3).

The frame and the volume at the pose are compared where both have a picture, by the correlation of grey values that were
normalised by their surroundings (`likeness`), coarse to fine. With both normalised to mean 0 and length 1 over these
pixels, half of the squared difference is one minus the correlation: a least-squares problem in six numbers.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose, VoxelPoses, centred_axis
from scopereg.images import Frame, Volume, check_content, field_of_view, pose_from_voxels, pose_to_voxels
from scopereg.registration.likeness import gradients, normalise_locally
from scopereg.registration.result import Result

_NOTHING_SHARED = -1.0  # similarity of a frame of which too little lies in the volume
_GRAIN = 1.5  # voxels: how far speckle reaches
_WEAK, _STRONG = 0.02, 0.999  # between which a correlation is weighed as one
_MOSTLY = 0.99  # a sample counts where all voxels around it have a picture
_FIRST_DAMPING, _LESS, _MORE = 1e-2, 0.3, 8.0


class Level(NamedTuple):
    """One stage, coarse to fine; lengths in voxels."""

    smooth: float  # standard deviation of the smoothing
    stride: int  # every so many pixels of the frame are compared
    window: float  # standard deviation of the surroundings that grey values are normalised by; 0: not at all
    iterations: int  # at most


@dataclass(frozen=True)
class RefineOptions:
    """Settings of a refinement, chosen on the validation part of CAMUS-M."""

    levels: tuple[Level, ...] = (Level(2, 2, 5, 10), Level(1, 2, 3, 10), Level(0, 1, 2, 8))
    """Stages, coarse to fine."""
    floor: float = 0.15
    """Share of the usual local spread that is added to the local spread: keeps flat regions quiet."""
    spread: float = 2.5
    """Usual error of start poses in voxels, of each shift and of each turn at the frame's edge: a weak similarity may
    not lead far beyond it. Infinite: the similarity alone decides."""
    least_inside: float = 0.3
    """Share of the seen pixels that must lie inside of the volume for a similarity."""
    longest_step: float = 2.0
    """Longest step in voxels, times the smoothing where that is more than one."""
    last_step: float = 0.005
    """Step in voxels below which a level is finished."""


WIDE = RefineOptions(levels=(Level(4, 4, 10, 15), *RefineOptions().levels), spread=4.0)
"""For starts that are farther off than those of a network: a tracker's, or none at all."""


class Refined(NamedTuple):
    """Poses after a refinement; never less similar than before it."""

    poses: VoxelPoses  # (B, ...)
    similarity: Tensor  # (B,), correlation at the finest level, -1 to 1
    similarity_before: Tensor  # (B,), of the start
    iterations: int


class Refiner:
    """A volume prepared for refining frames in it: made once, used for every frame."""

    def __init__(self, volume: Tensor, options: RefineOptions | None = None, *, known: Tensor | None = None) -> None:
        """`volume` (D, H, W) in [0, 1], isotropic; `known` (D, H, W) is where it has a picture, by default its planes'
        field of view."""
        self.options = options or RefineOptions()
        self.device = volume.device
        image = volume.float()[None]
        seen = (field_of_view(volume) if known is None else known.to(volume.device)).float()[None]
        self.levels = []
        for level in self.options.levels:
            values = normalise_locally(image, seen, level.smooth, level.window, self.options.floor)[0]
            self.levels.append(torch.cat([values[None], seen, gradients(values)]))  # (5, D, H, W)

    @torch.no_grad()
    def refine(self, frames: Tensor, start: VoxelPoses, seen: Tensor | None = None) -> Refined:
        """Poses (B, ...) of frames (B, H, W) with pixels of the volume's spacing, from start poses in centred voxels.

        `seen` (B, H, W) tells the pixels that the transducer sees; by default `images.field_of_view` of each frame.
        """
        frames = frames.to(self.device, torch.float32)
        _check(frames, start)
        seen = torch.stack([field_of_view(frame) for frame in frames]) if seen is None else seen
        seen = seen.to(self.device, torch.float32)
        poses = first = VoxelPoses(*(value.to(self.device, torch.float32) for value in start))
        total = 0
        for level, volume in zip(self.options.levels, self.levels, strict=True):
            problem = _Problem(volume, frames, seen, first, level, self.options)
            poses, used = _descend(problem, poses, level, self.options)
            total += used
        similarity, before = problem.similarity(poses), problem.similarity(first)
        better = similarity >= before
        rotation = torch.where(better[:, None, None], poses.rotation, first.rotation)
        translation = torch.where(better[:, None], poses.translation, first.translation)
        return Refined(VoxelPoses(rotation, translation), torch.maximum(similarity, before), before, total)


def refine_pose(frame: Frame, volume: Volume, start: Pose, options: RefineOptions | None = None) -> Result:
    """`ImageToVolume` of a frame, refined from a start pose. The frame is resampled to the (isotropic) volume."""
    check_content(frame)
    check_content(volume)
    begin = time.perf_counter()
    pose, found = refine_in(Refiner(volume.array, options), volume, frame, start)
    elapsed_ms = (time.perf_counter() - begin) * 1e3
    return Result(pose, "refinement", elapsed_ms, float(found.similarity[0]), found.iterations)


def refine_in(refiner: Refiner, volume: Volume, frame: Frame, start: Pose) -> tuple[Pose, Refined]:
    """The refined pose of a frame in the isotropic volume that the refiner was made of, in mm, and how it went."""
    fine = frame.resampled(volume.isotropic_spacing_mm)
    where = pose_to_voxels(start, fine, volume)
    one = VoxelPoses(where.rotation[None].float(), where.translation[None].float())
    found = refiner.refine(fine.array[None], one)
    return pose_from_voxels(found.poses.rotation[0].cpu(), found.poses.translation[0].cpu(), fine, volume), found


class _Normal(NamedTuple):
    """The least-squares problem of one step, for each frame."""

    merit: Tensor  # (B,), logarithm of the pose's probability, but for a constant
    matrix: Tensor  # (B, 6, 6)
    slope: Tensor  # (B, 6), of what falls when the merit rises


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
        self.lever = torch.sqrt((self.x.square() + self.y.square()).mean()).clamp_min(1.0)  # voxels per radian
        # Pixels nearer than the smoothing, or than speckle, say the same: so many say something of their own.
        grain = max(level.smooth, _GRAIN)
        self.each = level.stride**2 / (4 * math.pi * grain**2)

    def similarity(self, poses: VoxelPoses) -> Tensor:
        """Correlation (B,) over the pixels that both have."""
        return self._compare(poses, self.volume[:2])[0]

    def normal(self, poses: VoxelPoses) -> _Normal:
        """The merit, and the Gauss-Newton equations of shifts and turns (B, 6) in the frame's own axes, in voxels."""
        similarity, weights, difference, cut, samples, spread = self._compare(poses, self.volume)
        slopes = torch.einsum("cbn,bck->kbn", samples[2:], poses.rotation)  # along the frame's axes
        x, y = self.x / self.lever, self.y / self.lever
        # A turn about an axis moves a point by the cross product with it; points of a frame have z = 0.
        turns = (slopes[2] * y, -slopes[2] * x, slopes[1] * x - slopes[0] * y)
        jacobian = torch.stack([*slopes, *turns], -1) / spread[:, None, None]  # (B, N, 6)
        weighted = weights.unsqueeze(-1)
        # Normalising takes out what only shifts the mean or scales the values.
        jacobian = jacobian - (weighted * jacobian).sum(1, keepdim=True) / weights.sum(1)[:, None, None].clamp_min(1)
        along = (weighted * cut.unsqueeze(-1) * jacobian).sum(1, keepdim=True)
        jacobian = jacobian - cut.unsqueeze(-1) * along
        matrix = (weighted * jacobian).transpose(1, 2) @ jacobian
        slope = (weighted * jacobian * difference.unsqueeze(-1)).sum(1)
        return self._with_start(similarity, matrix, slope, self.each * weights.sum(1), poses)

    def _with_start(
        self, similarity: Tensor, matrix: Tensor, slope: Tensor, count: Tensor, poses: VoxelPoses
    ) -> _Normal:
        """What the pixels say and what the start says, as probabilities.

        Of `count` independent pairs with correlation r the logarithm of their likelihood is -count / 2 log(1 - r^2): a
        strong similarity outweighs any start, a weak one does not.
        """
        strength = similarity.clamp(_WEAK, _STRONG)
        weight = count * strength / (1 - strength.square())  # of a change of the similarity
        merit = -count / 2 * torch.log1p(-strength.square()) + count * (similarity - strength)
        trust = 1 / self.options.spread**2
        away = self._away(poses)
        merit = merit - trust * away.square().sum(1) / 2
        held = trust * torch.eye(6, device=away.device)
        return _Normal(merit, weight[:, None, None] * matrix + held, weight[:, None] * slope + trust * away)

    def _away(self, poses: VoxelPoses) -> Tensor:
        """Shifts and turns (B, 6) from the start in its own axes, in voxels; turns are small."""
        back = self.start.rotation.transpose(1, 2)
        shift = (back @ (poses.translation - self.start.translation).unsqueeze(-1)).squeeze(-1)
        turn = back @ poses.rotation
        skew = (turn - turn.transpose(1, 2)) / 2
        return torch.cat([shift, self.lever * torch.stack([skew[:, 2, 1], skew[:, 0, 2], skew[:, 1, 0]], 1)], 1)

    def _compare(self, poses: VoxelPoses, volume: Tensor) -> tuple[Tensor, ...]:
        """Similarity (B,), weights, difference and cut (B, N), samples (C, B, N) and the cut's spread (B,)."""
        first, second = (poses.rotation[:, None, :, axis] for axis in (0, 1))
        points = first * self.x[:, None] + second * self.y[:, None] + poses.translation[:, None]  # (B, N, 3)
        halves = [max((n - 1) / 2, 0.5) for n in reversed(volume.shape[1:])]
        grid = torch.stack([places / half for places, half in zip(points.unbind(-1), halves, strict=True)], -1)
        samples = F.grid_sample(volume[None], grid.reshape(1, 1, 1, -1, 3), align_corners=True)
        samples = samples.reshape(len(volume), *self.frames.shape)
        weights = self.seen * (samples[1] > _MOSTLY)
        count = weights.sum(1)
        frames, _ = _standardised(self.frames, weights, count)
        cut, spread = _standardised(samples[0], weights, count)
        similarity = (weights * frames * cut).sum(1)
        enough = count >= self.options.least_inside * self.seen.sum(1).clamp_min(1)
        return torch.where(enough, similarity, _NOTHING_SHARED), weights, cut - frames, cut, samples, spread


def _standardised(values: Tensor, weights: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """Values (B, N) with weighted mean 0 and length 1, and the length (B,) that they had."""
    apart = values - ((weights * values).sum(1) / count.clamp_min(1))[:, None]
    spread = (weights * apart.square()).sum(1).clamp_min(1e-12).sqrt()
    return apart / spread[:, None], spread


def _descend(problem: _Problem, poses: VoxelPoses, level: Level, options: RefineOptions) -> tuple[VoxelPoses, int]:
    """Levenberg-Marquardt from poses (B, ...): steps that raise the similarity are taken, others shorten the next."""
    now = problem.normal(poses)
    damping = torch.full_like(now.merit, _FIRST_DAMPING)
    longest = options.longest_step * max(level.smooth, 1.0)
    for used in range(1, level.iterations + 1):
        step = _step(now, damping, longest)
        tried = _moved(poses, step, float(problem.lever))
        then = problem.normal(tried)
        taken = then.merit > now.merit
        now = _Normal(*(_choose(taken, new, old) for new, old in zip(then, now, strict=True)))
        poses = VoxelPoses(*(_choose(taken, new, old) for new, old in zip(tried, poses, strict=True)))
        damping = (damping * torch.where(taken, _LESS, _MORE)).clamp(1e-6, 1e6)
        if bool((torch.linalg.vector_norm(step, dim=1) < options.last_step).all()):
            return poses, used
    return poses, level.iterations


def _step(now: _Normal, damping: Tensor, longest: float) -> Tensor:
    """Damped Gauss-Newton step (B, 6), no longer than allowed."""
    diagonal = now.matrix.diagonal(dim1=1, dim2=2)
    damped = now.matrix + torch.diag_embed(diagonal * damping[:, None] + 1e-9)
    step = -torch.linalg.solve(damped, now.slope.unsqueeze(-1)).squeeze(-1)
    length = torch.linalg.vector_norm(step, dim=1, keepdim=True)
    return step * (longest / length.clamp_min(1e-12)).clamp_max(1.0)


def _moved(poses: VoxelPoses, step: Tensor, lever: float) -> VoxelPoses:
    """Poses after shifts and turns (B, 6) in the frame's own axes, turns in voxels at the lever."""
    turn = step[:, 3:] / lever  # radians
    zero = torch.zeros_like(turn[:, 0])
    x, y, z = turn.unbind(1)
    cross = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], 1).unflatten(1, (3, 3))
    rotation = poses.rotation @ torch.linalg.matrix_exp(cross)
    return VoxelPoses(rotation, poses.translation + (poses.rotation @ step[:, :3, None]).squeeze(-1))


def _choose(taken: Tensor, new: Tensor, old: Tensor) -> Tensor:
    return torch.where(taken.reshape(-1, *(1,) * (new.ndim - 1)), new, old)


def _check(frames: Tensor, start: VoxelPoses) -> None:
    if frames.ndim != 3 or start.rotation.shape != (len(frames), 3, 3) or start.translation.shape != (len(frames), 3):
        shapes = tuple(frames.shape), tuple(start.rotation.shape), tuple(start.translation.shape)
        raise ScopeRegError(
            f"the shapes {shapes} do not fit together",
            where="Refiner.refine(frames, start)",
            fix="pass frames (B, H, W), rotations (B, 3, 3) and translations (B, 3)",
        )
