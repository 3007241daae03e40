"""Refine: a pose brought from near to exact by a likeness of frame and volume, Levenberg-Marquardt on SE(3).

The loop knows nothing of what is compared: a likeness (`registration.likeness`) gives the equations of a step at any
pose, coarse to fine. How much the start counts beside what is seen, which steps are taken and when it ends is here.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from scopereg.devices import resolve_device
from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose, VoxelPoses
from scopereg.geometry.beam import Thickness
from scopereg.geometry.steps import moved, solve_positive, step_between
from scopereg.image_fields import US
from scopereg.images import Frame, Volume, check_content, field_of_view, pose_from_voxels, pose_to_voxels
from scopereg.ops.replay import Replayed
from scopereg.registration.calibration import REFINED, Stage, refined_by
from scopereg.registration.grey import GREY, Grey, GreyVolume, make_grey
from scopereg.registration.lc2 import make_lc2
from scopereg.registration.learned import LEARNED
from scopereg.registration.likeness import (
    NOTHING_SHARED,
    AveragesAcross,
    Comparison,
    Likeness,
    MakeLikeness,
    Normal,
    PreparedLikeness,
)
from scopereg.registration.prepared import Found, Identity, Prepared
from scopereg.registration.result import RegistrationError, Result
from scopereg.registration.similarity import Similarity
from scopereg.registration.thickness import note_of, spread_voxels
from scopereg.registration.working_grid import USUAL_VOXELS, isotropic
from scopereg.threads import look, watched

if TYPE_CHECKING:
    from scopereg.registration.method import Method

REFINE = "refine"
_PRECISE = 0.5  # voxels: of phantoms' frames, which share no speckle, grey values know no better than a fine stage
_FIRST_DAMPING, _LESS, _MORE = 1e-2, 0.3, 8.0


class Refined(NamedTuple):
    """Poses after a refinement; never less similar than before it."""

    poses: VoxelPoses
    similarity: Float[Tensor, "b"]  # at the finest, -1 to 1
    similarity_before: Float[Tensor, "b"]  # of the start
    iterations: int  # of the frame that took most


class Refiner:
    """A volume prepared for refining frames in it: made once, used for every frame."""

    def __init__(
        self,
        volume: Float[Tensor, "d h w"],
        likeness: Likeness | None = None,
        *,
        known: Bool[Tensor, "d h w"] | None = None,
        spread: float | None = None,
    ) -> None:
        """`volume` in [0, 1], isotropic; `known` is where it has a picture, by default its planes' field of view.

        The likeness is by default that of grey values. `spread` is the usual error of start poses in voxels, by default
        what the likeness expects.
        """
        self.device = volume.device
        likeness = likeness or Grey()
        self.trust = 1 / (likeness.spread if spread is None else spread) ** 2
        self.prepared = likeness.prepare(volume, known)
        self._replayed = Replayed(self._refine)

    @watched()
    @torch.no_grad()
    def refine(
        self,
        frames: Shaped[Tensor, "b h w"],
        start: VoxelPoses,
        seen: Shaped[Tensor, "b h w"] | None = None,
        across: Float[Tensor, "b h w"] | None = None,
    ) -> Refined:
        """Poses of frames with pixels of the volume's spacing, from start poses in centred voxels.

        `seen` tells the pixels that the transducer sees; by default `images.field_of_view` of each frame. With `across`
        the volume is averaged across their plane, over Gaussians with so many voxels of standard deviation.
        """
        frames = frames.to(self.device, torch.float32)
        _check(frames, start)
        seen = torch.stack([field_of_view(frame) for frame in frames]) if seen is None else seen
        seen = seen.to(self.device, torch.float32)
        first = (value.to(self.device, torch.float32) for value in start)
        thick = () if across is None else (across.to(self.device, torch.float32),)
        rotation, translation, similarity, before, used = self._replayed(frames, seen, *first, *thick)
        return Refined(VoxelPoses(rotation, translation), similarity, before, int(used.max()))

    def _refine(
        self,
        frames: Float[Tensor, "b h w"],
        seen: Float[Tensor, "b h w"],
        rotation: Float[Tensor, "b 3 3"],
        translation: Float[Tensor, "b 3"],
        across: Float[Tensor, "b h w"] | None = None,
    ) -> tuple[Tensor, ...]:
        """`refine` in tensors alone, which a GPU replays."""
        prepared = self.prepared if across is None else _of_thick(self.prepared, across)
        poses = first = VoxelPoses(rotation, translation)
        total = torch.zeros(len(frames), dtype=torch.int64, device=self.device)
        for comparison in prepared.compare(frames, seen):
            if comparison.iterations:
                poses, used = descend(comparison, first, poses, self.trust)
                total = total + used
        similarity, before = comparison.similarity(poses), comparison.similarity(first)
        better = similarity >= before
        found = (_choose(better, new, old) for new, old in zip(poses, first, strict=True))
        return *found, torch.maximum(similarity, before), before, total


def refine_pose(
    frame: Frame,
    volume: Volume,
    start: Pose,
    likeness: Likeness | None = None,
    *,
    thickness_mm: float | str | None = None,
) -> Result:
    """`ImageToVolume` of a frame, refined from a start pose. The frame is resampled to the (isotropic) volume.

    `thickness_mm` is what the frame averages across its plane beyond the volume (`registration.thickness`).
    """
    check_content(frame)
    check_content(volume)
    begin = time.perf_counter()
    refiner = Refiner(volume.tissue, likeness, known=volume.known)
    pose, found = refine_in(refiner, volume, frame, start, Thickness.of(thickness_mm))
    elapsed_ms = (time.perf_counter() - begin) * 1e3
    return Result(pose, "refinement", elapsed_ms, float(found.similarity[0]), found.iterations)


def refine_in(
    refiner: Refiner, volume: Volume, frame: Frame, start: Pose, thickness: Thickness | None = None
) -> tuple[Pose, Refined]:
    """The refined pose of a frame in the isotropic volume that the refiner was made of, in mm, and how it went."""
    fine = frame.resampled(volume.isotropic_spacing_mm)
    where = pose_to_voxels(start, fine, volume)
    one = VoxelPoses(where.rotation[None].float(), where.translation[None].float())
    across = None if thickness is None else spread_voxels(thickness, fine, volume.isotropic_spacing_mm)[None]
    found = refiner.refine(fine.tissue[None], one, fine.seen[None], across)
    return pose_from_voxels(found.poses.rotation[0].cpu(), found.poses.translation[0].cpu(), fine, volume), found


def descend(
    comparison: Comparison, start: VoxelPoses, poses: VoxelPoses, trust: float
) -> tuple[VoxelPoses, Int[Tensor, "b"]]:
    """Levenberg-Marquardt from poses: steps that raise the merit are taken, others shorten the next.

    The merit is what is seen and, by `trust`, how near the `start` a pose lies. A frame whose step became small stays
    where it is while others go on. Also gives the iterations of each.
    """
    now = _with_start(comparison, start, poses, trust)
    damping = torch.full_like(now.merit, _FIRST_DAMPING)
    moving = torch.ones_like(now.merit, dtype=torch.bool)
    used = torch.zeros_like(now.merit, dtype=torch.int64)
    for _ in range(comparison.iterations):
        look()
        step = _step(now, damping, comparison.longest_step)
        tried = moved(poses, step, comparison.lever)
        then = _with_start(comparison, start, tried, trust)
        used = used + moving
        taken = (then.merit > now.merit) & moving
        now = Normal(*(_choose(taken, new, old) for new, old in zip(then, now, strict=True)))
        poses = VoxelPoses(*(_choose(taken, new, old) for new, old in zip(tried, poses, strict=True)))
        damping = (damping * torch.where(taken, _LESS, _MORE)).clamp(1e-6, 1e6)
        moving = moving & (torch.linalg.vector_norm(step, dim=1) >= comparison.last_step)
        # A GPU would have to be waited for: there the iterations left over cost less.
        if not moving.is_cuda and not bool(moving.any()):
            break
    return poses, used


def _with_start(comparison: Comparison, start: VoxelPoses, poses: VoxelPoses, trust: float) -> Normal:
    """What is seen and what the start says, as probabilities: errors of starts have a variance of 1 / `trust`."""
    seen, away = comparison.normal(poses), step_between(start, poses, comparison.lever)
    held = trust * torch.eye(6, device=away.device)
    merit = seen.merit - trust * away.square().sum(1) / 2
    return Normal(merit, seen.matrix + held, seen.slope + trust * away)


def _step(now: Normal, damping: Float[Tensor, "b"], longest: float) -> Float[Tensor, "b 6"]:
    """Damped Gauss-Newton step, no longer than allowed."""
    diagonal = now.matrix.diagonal(dim1=1, dim2=2)
    damped = now.matrix + torch.diag_embed(diagonal * damping[:, None] + 1e-9)
    step = -solve_positive(damped, now.slope)
    length = torch.linalg.vector_norm(step, dim=1, keepdim=True)
    return step * (longest / length.clamp_min(1e-12)).clamp_max(1.0)


def step_name(likeness: str) -> str:
    """What stands behind the `+` in the name of a method."""
    return REFINE if likeness == GREY else f"{REFINE}={likeness}"


def _precise_spread(volume: Volume) -> float:
    """Usual error in voxels of starts that are mostly right to a voxel of the grid that a network sees."""
    seen_mm = max(volume.extent_mm[:2]) / USUAL_VOXELS
    return _PRECISE * max(seen_mm / volume.isotropic_spacing_mm, 1.0)


def likeness_spacing_mm(volume: Volume, most_voxels: int | None) -> float | None:
    """The voxel size with which no plane has more than so many voxels along a side; None: as fine as the volume is."""
    if most_voxels is None:
        return None
    return max(*(length / most_voxels for length in volume.extent_mm[:2]), min(volume.spacing_mm))


def _of_thick(prepared: PreparedLikeness, across: Float[Tensor, "b h w"]) -> PreparedLikeness:
    """What is compared with frames that average the volume across their plane."""
    assert isinstance(prepared, AveragesAcross)
    return prepared.of_thick(across)


def _choose(taken: Bool[Tensor, "b"], new: Tensor, old: Tensor) -> Tensor:
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
    """What the method before found, polished by a likeness of frame and volume."""

    def __init__(self, before: Method, device: str = "auto", make: MakeLikeness = make_grey) -> None:
        self.before, self.device = before, resolve_device(device)
        self.alone = isinstance(before, Identity)  # nothing was found yet: the refinement looks wider
        self.likeness = make(self.device, self.alone)
        self.thickness: Thickness | None = None  # of frames, beyond that of the volume
        own = self.likeness.name
        self.name = f"{before.name} + {step_name(own)}"
        self.words = "refined" if own == GREY else f"refined by {own}"  # behind how the pose before was found
        self.facts: dict[str, Any] = {"start": before.facts, **self.likeness.facts, "device": str(self.device)}
        if own != GREY:
            self.facts["likeness"] = own

    def of_thick(self, thickness: Thickness) -> RefinedMethod:
        """The same for frames that average the volume across their plane."""
        same = copy.copy(self)
        same.thickness, same.facts = thickness, {**self.facts, "thickness": thickness.words}
        return same

    def prepare(self, volume: Volume) -> PreparedRefinement:
        """Grey values of another modality are none of ultrasound: there LC2 is what is compared."""
        foreign = volume.modality != US and self.likeness.name == GREY
        method = self
        if foreign:
            method = RefinedMethod(self.before, str(self.device), make_lc2)
            method.thickness = self.thickness
        return PreparedRefinement(method, self.before.prepare(volume), volume)


class PreparedRefinement(Prepared):
    """The volume of the method before, and an isotropic one to refine in."""

    refines = True

    def __init__(self, method: RefinedMethod, before: Prepared, volume: Volume) -> None:
        self.before, self.alone, self.words = before, method.alone, method.words
        self.stage = refined_by(method.likeness.name)
        self.volume, note = isotropic(volume, likeness_spacing_mm(volume, method.likeness.most_voxels))
        self.notes = tuple(dict.fromkeys((*before.notes, *((note,) if note else ()))))
        spread = _precise_spread(self.volume) if before.precise else None
        voxels = self.volume.array.to(method.device)
        self.refiner = Refiner(voxels, method.likeness, known=self.volume.known, spread=spread)
        self.precise = method.likeness.name == LEARNED
        self.thickness = method.thickness
        prepared = self.refiner.prepared
        if self.thickness is not None and not isinstance(prepared, AveragesAcross):
            raise ScopeRegError(
                f"the likeness {method.likeness.name} does not average over the thickness of frames",
                where="thickness_mm=",
                fix="leave it out, or refine by grey values",
            )
        grey = prepared if isinstance(prepared, GreyVolume) else None
        self.alike = Similarity(self.volume, method.device, grey, self.thickness) if grey is not None else None
        self.measures = self.alike is not None  # grey values are what it climbs
        self.batch_size, self.worth_a_process = before.batch_size, before.worth_a_process
        self.judges, self.might_look_wider = before.can_judge(self.stage), before.might_look_wider

    def narrow(self) -> PreparedRefinement:
        same = copy.copy(self)
        same.before = self.before.narrow()
        return same

    def wider(self) -> PreparedRefinement | None:
        wider = self.before.wider()
        if wider is None:
            return None
        same = copy.copy(self)
        same.before, same.might_look_wider = wider, False
        return same

    def is_ready(self, frame: Frame) -> bool:
        return self.before.is_ready(frame)

    def get_ready(self, frame: Frame) -> None:
        self.before.get_ready(frame)

    def reaches(self, frame: Frame, pose: Pose) -> bool:
        return self.before.reaches(frame, pose)

    def can_judge(self, stage: Stage) -> bool:
        return self.before.can_judge(stage)

    def judge_refined(self, frame: Frame, result: Result, stage: Stage = REFINED) -> Result:
        return self.before.judge_refined(frame, result, stage)

    def locate(self, frames: Sequence[Frame], starts: Sequence[Pose | None]) -> list[Found]:
        found = self.before.locate(frames, starts)
        return [self._finish(frame, one) for frame, one in zip(frames, found, strict=True)]

    def refine_from(self, frame: Frame, start: Result) -> Result | None:
        try:
            return self.judge_refined(frame, self._refine(frame, start), self.stage)
        except RegistrationError:
            return None

    def _finish(self, frame: Frame, found: Found) -> Found:
        if isinstance(found, ScopeRegError):
            return found
        try:
            return self.judge_refined(frame, self._best_refined(frame, found), self.stage)
        except RegistrationError as error:
            error.kept()
            if self.alone:
                return error
            found = found if self.alike is None else self.alike.of(frame, found)
            return replace(found, notes=(*found.notes, f"not refined: {error.what}"))

    def _best_refined(self, frame: Frame, found: Result) -> Result:
        """The place found or, of a search from starts, whichever of the places is most like the frame once refined."""
        if math.isfinite(found.stands_out):
            return self._refine(frame, found)
        refined: list[Result] = []
        failures: list[RegistrationError] = []
        for place in (found, *found.alternatives):
            try:
                refined.append(self._refine(frame, place))
            except RegistrationError as error:
                failures.append(error.kept())
        if not refined:
            raise failures[0]
        refined.sort(key=lambda result: result.similarity, reverse=True)
        taken_ms = found.time_ms + sum(result.time_ms - found.time_ms for result in refined)
        notes = self._noted(found.notes, frame)
        return replace(refined[0], time_ms=taken_ms, notes=notes, alternatives=tuple(refined[1:]))

    def _noted(self, notes: tuple[str, ...], frame: Frame) -> tuple[str, ...]:
        """Notes with how thick the frame is taken to be, where that was told."""
        note = "" if self.thickness is None else note_of(self.thickness, frame)
        return notes if not note or note in notes else (*notes, note)

    def _refine(self, frame: Frame, start: Result) -> Result:
        begin = time.perf_counter()
        pose, found = refine_in(self.refiner, self.volume, frame, start.pose, self.thickness)
        similarity = float(found.similarity[0])
        if not similarity > NOTHING_SHARED:
            raise RegistrationError(
                "too little of the frame lies in the volume at the start",
                where="refinement",
                fix="start nearer: from another pose, or with a method that searches",
            )
        return replace(
            start,
            pose=pose,
            method=f"{start.method}, {self.words}",
            time_ms=start.time_ms + (time.perf_counter() - begin) * 1e3,
            similarity=similarity,
            iterations=start.iterations + found.iterations,
            notes=self._noted(start.notes, frame),
        )
