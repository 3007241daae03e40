"""Refinement: a pose brought from near to exact by the similarity of frame and volume, Levenberg-Marquardt on SE(3).

The frame and the volume at the pose are compared where both have a picture, by the correlation of grey values that were
normalised by their surroundings (`likeness`), coarse to fine. With both normalised to mean 0 and length 1 over these
pixels, half of the squared difference is one minus the correlation: a least-squares problem in six numbers.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from scopereg.devices import resolve_device
from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose, VoxelPoses, centred_axis, rotation_from_vector
from scopereg.images import Frame, Volume, check_content, field_of_view, pose_from_voxels, pose_to_voxels
from scopereg.ops.replay import Replayed
from scopereg.registration.likeness import gradients, normalise_locally
from scopereg.registration.prepared import Found, Identity, Prepared
from scopereg.registration.result import RegistrationError, Result, confidence_of
from scopereg.registration.working_grid import isotropic

if TYPE_CHECKING:
    from scopereg.registration.method import Method

REFINE = "refine"
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
    iterations: int  # of the frame that took most


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
            # A level that no pose descends needs no slopes.
            slopes = gradients(values) if level.iterations else values.new_empty(0, *values.shape)
            self.levels.append(torch.cat([values[None], seen, slopes]))  # (5 or 2, D, H, W)
        self._replayed = Replayed(self._refine)

    @torch.no_grad()
    def refine(self, frames: Tensor, start: VoxelPoses, seen: Tensor | None = None) -> Refined:
        """Poses (B, ...) of frames (B, H, W) with pixels of the volume's spacing, from start poses in centred voxels.

        `seen` (B, H, W) tells the pixels that the transducer sees; by default `images.field_of_view` of each frame.
        """
        frames = frames.to(self.device, torch.float32)
        _check(frames, start)
        seen = torch.stack([field_of_view(frame) for frame in frames]) if seen is None else seen
        seen = seen.to(self.device, torch.float32)
        first = (value.to(self.device, torch.float32) for value in start)
        rotation, translation, similarity, before, used = self._replayed(frames, seen, *first)
        return Refined(VoxelPoses(rotation, translation), similarity, before, int(used.max()))

    def likeness(self, frames: Tensor, poses: VoxelPoses, seen: Tensor | None = None) -> Tensor:
        """Correlation (B, levels) of frames (B, H, W) with the volume at poses; -1 where too little of it lies inside.

        All on the volume's device; nothing is asked of the host, so that a GPU can replay it.
        """
        seen = field_of_view(frames).to(torch.float32) if seen is None else seen
        pairs = zip(self.options.levels, self.levels, strict=True)
        problems = [_Problem(volume, frames, seen, poses, level, self.options) for level, volume in pairs]
        return torch.stack([problem.similarity(poses) for problem in problems], 1)

    def _refine(self, frames: Tensor, seen: Tensor, rotation: Tensor, translation: Tensor) -> tuple[Tensor, ...]:
        """`refine` in tensors alone, which a GPU replays."""
        poses = first = VoxelPoses(rotation, translation)
        total = torch.zeros(len(frames), dtype=torch.int64, device=self.device)
        for level, volume in zip(self.options.levels, self.levels, strict=True):
            problem = _Problem(volume, frames, seen, first, level, self.options)
            if level.iterations:
                poses, used = _descend(problem, poses, level, self.options)
                total = total + used
        similarity, before = problem.similarity(poses), problem.similarity(first)
        better = similarity >= before
        found = (_choose(better, new, old) for new, old in zip(poses, first, strict=True))
        return *found, torch.maximum(similarity, before), before, total


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
        grain = max(level.smooth, _GRAIN)
        self.each = level.stride**2 / (4 * math.pi * grain**2)

    def similarity(self, poses: VoxelPoses) -> Tensor:
        """Correlation (B,) over the pixels that both have."""
        samples = self._sampled(poses, self.volume[:2])
        return self._moments(samples, samples[:1]).similarity

    def normal(self, poses: VoxelPoses) -> _Normal:
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

    def _sampled(self, poses: VoxelPoses, volume: Tensor) -> Tensor:
        """The volume's channels (C, B, N) at the pixels of the frames."""
        first, second = (poses.rotation[:, None, :, axis] for axis in (0, 1))
        points = first * self.x[:, None] + second * self.y[:, None] + poses.translation[:, None]  # (B, N, 3)
        grid = (points / self.halves).reshape(1, 1, 1, -1, 3)
        return F.grid_sample(volume[None], grid, align_corners=True).reshape(len(volume), *self.frames.shape)

    def _moments(self, samples: Tensor, columns: Tensor) -> _Moments:
        """Sums over the pixels that both images have, of columns (K, B, N) that begin with the volume's values."""
        weights = self.seen * (samples[1] > _MOSTLY)
        every = torch.cat([columns, self.frames[None], torch.ones_like(weights)[None]]).transpose(0, 1)  # (B, K + 2, N)
        gram = (every * weights.unsqueeze(1)) @ every.transpose(1, 2)
        count = gram[:, -1, -1]
        sums = gram[:, :-1, -1]
        apart = gram[:, :-1, :-1] - sums.unsqueeze(2) * sums.unsqueeze(1) / count.clamp_min(1)[:, None, None]
        cut, frame = (apart[:, row, row].clamp_min(1e-12).sqrt() for row in (0, -1))
        among = apart[:, :-1, :-1] / cut.square()[:, None, None]
        with_frame = apart[:, :-1, -1] / (cut * frame).unsqueeze(1)
        enough = count >= self.options.least_inside * self.seen.sum(1).clamp_min(1)
        similarity = torch.where(enough, with_frame[:, 0], _NOTHING_SHARED)
        return _Moments(similarity, count, among, with_frame)


def _descend(problem: _Problem, poses: VoxelPoses, level: Level, options: RefineOptions) -> tuple[VoxelPoses, Tensor]:
    """Levenberg-Marquardt from poses (B, ...): steps that raise the similarity are taken, others shorten the next.

    A frame whose step became small stays where it is while others go on. Also gives the iterations (B,) of each.
    """
    now = problem.normal(poses)
    damping = torch.full_like(now.merit, _FIRST_DAMPING)
    moving = torch.ones_like(now.merit, dtype=torch.bool)
    used = torch.zeros_like(now.merit, dtype=torch.int64)
    longest = options.longest_step * max(level.smooth, 1.0)
    for _ in range(level.iterations):
        step = _step(now, damping, longest)
        tried = _moved(poses, step, problem.lever)
        then = problem.normal(tried)
        used = used + moving
        taken = (then.merit > now.merit) & moving
        now = _Normal(*(_choose(taken, new, old) for new, old in zip(then, now, strict=True)))
        poses = VoxelPoses(*(_choose(taken, new, old) for new, old in zip(tried, poses, strict=True)))
        damping = (damping * torch.where(taken, _LESS, _MORE)).clamp(1e-6, 1e6)
        moving = moving & (torch.linalg.vector_norm(step, dim=1) >= options.last_step)
        # A GPU would have to be waited for: there the iterations left over cost less.
        if not moving.is_cuda and not bool(moving.any()):
            break
    return poses, used


def _step(now: _Normal, damping: Tensor, longest: float) -> Tensor:
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


def _check(frames: Tensor, start: VoxelPoses) -> None:
    if frames.ndim != 3 or start.rotation.shape != (len(frames), 3, 3) or start.translation.shape != (len(frames), 3):
        shapes = tuple(frames.shape), tuple(start.rotation.shape), tuple(start.translation.shape)
        raise ScopeRegError(
            f"the shapes {shapes} do not fit together",
            where="Refiner.refine(frames, start)",
            fix="pass frames (B, H, W), rotations (B, 3, 3) and translations (B, 3)",
        )


class RefinedMethod:
    """What the method before found, polished by the similarity of frame and volume."""

    def __init__(self, before: Method, device: str = "auto") -> None:
        self.before, self.device = before, resolve_device(device)
        self.name = f"{before.name} + {REFINE}"
        self.alone = isinstance(before, Identity)  # nothing was found yet: the refinement looks wider
        self.options = WIDE if self.alone else RefineOptions()
        self.facts: dict[str, Any] = {"start": before.facts, "options": str(self.options), "device": str(self.device)}

    def prepare(self, volume: Volume) -> PreparedRefinement:
        return PreparedRefinement(self, self.before.prepare(volume), volume)


class PreparedRefinement(Prepared):
    """The volume of the method before, and an isotropic one to refine in."""

    refines = True

    def __init__(self, method: RefinedMethod, before: Prepared, volume: Volume) -> None:
        self.before, self.alone = before, method.alone
        self.volume, note = isotropic(volume)
        self.notes = tuple(dict.fromkeys((*before.notes, *((note,) if note else ()))))
        self.refiner = Refiner(self.volume.array.to(method.device), method.options)
        self.batch_size, self.worth_a_process = before.batch_size, before.worth_a_process
        self.judges, self.might_look_wider = before.judges, before.might_look_wider

    def narrow(self) -> PreparedRefinement:
        same = copy.copy(self)
        same.before = self.before.narrow()
        return same

    def reaches(self, frame: Frame, pose: Pose) -> bool:
        return self.before.reaches(frame, pose)

    def judge_refined(self, frame: Frame, result: Result) -> Result:
        return self.before.judge_refined(frame, result)

    def locate(self, frames: Sequence[Frame], starts: Sequence[Pose | None]) -> list[Found]:
        found = self.before.locate(frames, starts)
        return [self._finish(frame, one) for frame, one in zip(frames, found, strict=True)]

    def refine_from(self, frame: Frame, start: Result) -> Result | None:
        try:
            return self.judge_refined(frame, self._refine(frame, start))
        except RegistrationError:
            return None

    def _finish(self, frame: Frame, found: Found) -> Found:
        if isinstance(found, ScopeRegError):
            return found
        try:
            return self.judge_refined(frame, self._best_refined(frame, found))
        except RegistrationError as error:
            if self.alone:
                return error
            return replace(found, notes=(*found.notes, f"not refined: {error.what}"))

    def _best_refined(self, frame: Frame, found: Result) -> Result:
        """The place found or, of a wide search, whichever of the places is most like the frame once refined."""
        refined: list[Result] = []
        failures: list[RegistrationError] = []
        for place in (found, *found.alternatives):
            try:
                refined.append(self._refine(frame, place))
            except RegistrationError as error:
                failures.append(error)
        if not refined:
            raise failures[0]
        refined.sort(key=lambda result: result.similarity, reverse=True)
        taken_ms = found.time_ms + sum(result.time_ms - found.time_ms for result in refined)
        return replace(refined[0], time_ms=taken_ms, notes=found.notes, alternatives=tuple(refined[1:]))

    def _refine(self, frame: Frame, start: Result) -> Result:
        begin = time.perf_counter()
        pose, found = refine_in(self.refiner, self.volume, frame, start.pose)
        similarity = float(found.similarity[0])
        if similarity <= -1:
            raise RegistrationError(
                "too little of the frame lies in the volume at the start",
                where="refinement",
                fix="start nearer: from another pose, or with a method that searches",
            )
        return replace(
            start,
            pose=pose,
            method=f"{start.method}, refined",
            time_ms=start.time_ms + (time.perf_counter() - begin) * 1e3,
            similarity=similarity,
            iterations=start.iterations + found.iterations,
            # That of the pose before says nothing of this one; a calibration judges it anew.
            confidence=start.confidence if math.isnan(start.confidence) else confidence_of(similarity),
        )
