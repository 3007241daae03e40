"""Deformer: a volume prepared for the deformation of frames in it, fitted coarse to fine from their rigid poses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from scopereg.devices import full_precision, resolve_device
from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose, VoxelPoses, plane_points
from scopereg.geometry.rotations import rotation_from_vector
from scopereg.geometry.spline import PlaneSpline
from scopereg.geometry.steps import lever_voxels
from scopereg.images import Frame, Volume, check_content, pose_to_voxels
from scopereg.registration.deformable.displacement import Deformation, Displacement, border_mm
from scopereg.registration.deformable.elasticity import elastic_energy
from scopereg.registration.deformable.equations import Elastic, Points, Solution, added, rigid_moves, summed
from scopereg.registration.grey import Grey, Level, RefineOptions
from scopereg.registration.learned import make_learned
from scopereg.registration.likeness import Pointwise
from scopereg.registration.refine import likeness_spacing_mm
from scopereg.registration.working_grid import isotropic
from scopereg.threads import look, watched

_SHOWN = 4  # every so many pixels of a frame its displacement is measured
_SPREADS_MM = (0.02, 20.0, 60)  # usual sizes of displacements that are tried in the end: from, to, how many
_LEARNED, _GREY = 3, 3  # comparisons of each likeness
_GREY_LEVELS = (Level(2, 2, 5, 1), Level(1, 2, 3, 1), Level(0, 2, 2, 1))


@dataclass(frozen=True)
class DeformOptions:
    """Settings of a deformation, chosen on phantoms (docs/deformable.md)."""

    knots: float = 8.0
    """Steps between knots along the longer side of a frame, unless these would be longer than `longest_step_mm`."""
    longest_step_mm: float = 20.0
    """Longest step between knots."""
    length: float = 0.15
    """Over which displacements bend, as a share of the frame's longer side."""
    poisson_ratio: float = 0.0
    """Of the plane alone: tissue that cannot be compressed leaves the plane, so that areas in it may change."""
    spread_mm: float = 1.5
    """Usual size of a displacement, while it is sought."""
    step_mm: float = 1.0
    """Usual error of the rigid pose that is found of a deformed frame."""
    learned: float = 0.3
    """Share of what learned features say, as if their points were independent: neighbours see the same."""
    grey: float = 1.0
    """The same of grey values, after `GreyComparison.each`."""
    iterations: int = 3
    """Steps with each set of comparisons."""
    least_significance: float = 3.0
    """Logarithm of the likelihood that a deformation must add, or nothing is displaced."""
    least_jacobian: float = 0.2
    """Displacements that would make areas smaller than by this factor are held back: 0 would be a fold."""

    def __post_init__(self) -> None:
        for name in ("knots", "longest_step_mm", "length", "spread_mm", "step_mm"):
            if not 0 < getattr(self, name) < math.inf:
                raise _wrong(name, "a positive number")
        if min(self.learned, self.grey) < 0 or max(self.learned, self.grey) == 0:
            raise _wrong("learned", "shares of 0 or more, one of them above 0")
        if not 0 < self.least_jacobian < 1:
            raise _wrong("least_jacobian", "a number between 0 and 1")
        if self.iterations < 1:
            raise _wrong("iterations", "1 or more")


def _wrong(name: str, wanted: str) -> ScopeRegError:
    return ScopeRegError(f"{name} is none", where=f"DeformOptions({name})", fix=f"pass {wanted}")


class _Said(NamedTuple):
    """A comparison, where its points lie and what the knots have of them: the same in every step."""

    comparison: Pointwise
    share: float
    basis: Tensor
    turns: Tensor


class Deformer:
    """A volume prepared for the deformation of any number of frames."""

    @watched()
    def __init__(self, volume: Volume, device: str = "auto", options: DeformOptions | None = None) -> None:
        """Grey values of the volume in [0, 1], as `for_registration` gives them."""
        check_content(volume)
        self.options, place = options or DeformOptions(), resolve_device(device)
        learned = make_learned(place, False)
        self.volume, _ = isotropic(volume, likeness_spacing_mm(volume, learned.most_voxels))
        voxels, known = self.volume.tissue.to(place), self.volume.known
        self.learned = learned.prepare(voxels, known)
        self.grey = Grey(RefineOptions(levels=_GREY_LEVELS)).prepare(voxels, known)
        self.device = place

    @watched()
    def deform(self, frame: Frame, pose: Pose) -> Deformation:
        """What the rigid pose of a frame leaves; grey values of the frame in [0, 1]."""
        check_content(frame)
        fine = frame.resampled(self.volume.isotropic_spacing_mm)
        with torch.inference_mode(), full_precision(self.device):
            return _Fit(self, frame, fine, pose).deformation()


class _Fit:
    """One frame."""

    def __init__(self, deformer: Deformer, frame: Frame, fine: Frame, pose: Pose) -> None:
        self.options, self.frame, self.fine = deformer.options, frame, fine
        self.voxel_mm = fine.isotropic_spacing_mm
        where = pose_to_voxels(pose, fine, deformer.volume)
        self.pose = VoxelPoses(where.rotation[None].float(), where.translation[None].float())
        self.pose = VoxelPoses(*(part.to(deformer.device) for part in self.pose))
        low, high = border_mm(frame)
        longer = max(high[0] - low[0], high[1] - low[1])
        step = min(longer / self.options.knots, self.options.longest_step_mm)
        self.spline = PlaneSpline.over(low, high, step)
        self.lever_mm = lever_voxels(*fine.shape) * self.voxel_mm
        self.middle = torch.from_numpy(fine.centre_mm[:2])
        self.seen = _seen_mm(frame)
        shown = self._at(torch.from_numpy(self.seen))
        self.elastic = Elastic(
            elastic_energy(self.spline, self.options.length * longer, self.options.poisson_ratio), *shown
        )
        image, seen = (part[None].to(deformer.device, torch.float32) for part in (fine.tissue, fine.seen))
        said: list[tuple[Pointwise, float]] = [
            *((one, self.options.learned) for one in deformer.learned.compare(image, seen)),
            *((one, self.options.grey) for one in deformer.grey.compare(image, seen)),
        ]
        self.said = [self._said(one, share) for one, share in said]

    def deformation(self) -> Deformation:
        """Coarse to fine by learned features, then with grey values, and in the end as much as is significant."""
        values, step = torch.zeros(3 * self.spline.knots, dtype=torch.float64), torch.zeros(6, dtype=torch.float64)
        usual = torch.tensor([self.options.spread_mm], dtype=torch.float64)
        for which in _SCHEDULE:
            for _ in range(self.options.iterations):
                look()
                values, step, *_ = self._solve(which, values, step, usual)
        low, high, count = _SPREADS_MM
        every = torch.logspace(math.log10(low), math.log10(high), count, dtype=torch.float64)
        return self._told(self._solve(_SCHEDULE[-1], values, step, every))

    def _solve(self, which: Sequence[int], values: Tensor, step: Tensor, spreads_mm: Tensor) -> Solution:
        parts = [summed(self._points(said, values, step)) for said in (self.said[n] for n in which) if said.share > 0]
        return self.elastic.solve(added(parts), values, step, spreads_mm, self.options.step_mm)

    def _points(self, said: _Said, values: Tensor, step: Tensor) -> Points:
        """What the points of a comparison say where they lie now."""
        off_mm = said.basis @ values.view(-1, 3) + said.turns @ step
        off = (off_mm / self.voxel_mm).to(self.pose.rotation)[None]
        local = said.comparison.local(self.pose, off)
        matrix, slope = (part[0].double().cpu() * said.share for part in local)
        return Points(said.basis, said.turns, matrix / self.voxel_mm**2, slope / self.voxel_mm)

    def _said(self, comparison: Pointwise, share: float) -> _Said:
        return _Said(comparison, share, *self._at(comparison.places.double().cpu() * self.voxel_mm + self.middle))

    def _at(self, points_mm: Tensor) -> tuple[Tensor, Tensor]:
        """What knots have of points in the frame's own mm, and how these move with rigid steps."""
        return self.spline.basis(points_mm), rigid_moves(points_mm - self.middle, self.lever_mm)

    def _told(self, found: Solution) -> Deformation:
        """What was found, if it is significant: not as large as to fold."""
        least, (low, high) = self.options.least_significance, border_mm(self.frame)
        empty = Deformation(
            Displacement.none(self.spline),
            self._step(torch.zeros(6)),
            found.significance,
            least,
            0.0,
            low,
            high,
            self.seen,
        )
        if not found.significance > least:
            return empty
        displacement = Displacement(self.spline, found.values.view(-1, 3).numpy())
        displacement = displacement.unfolded(self.seen, self.options.least_jacobian)
        step = self._step(found.step)
        return replace(empty, displacement=displacement, step=step, spread_mm=found.spread_mm)

    def _step(self, numbers: Tensor) -> Pose:
        """Six numbers as a rigid move about the middle of the frame, in its own mm."""
        turn = rotation_from_vector(numbers[None, 3:].double() / self.lever_mm)[0].numpy()
        middle = self.fine.centre_mm
        name = self.frame.frame_of_reference
        return Pose(turn, numbers[:3].double().numpy() + middle - turn @ middle, name, name)


# Comparisons of each set, of learned features and then of grey values: 0, 1, 2 and 3, 4, 5.
_SCHEDULE = (
    (0,),
    (0, 1),
    (0, 1, 2),
    *((1, 2, _LEARNED + level) for level in range(_GREY)),
)


def _seen_mm(frame: Frame) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Some points (N, 2) of what a frame shows, in its own mm."""
    points = plane_points(frame.shape, dtype=torch.float64)
    some = slice(_SHOWN // 2, None, _SHOWN)
    shown = points[some, some][frame.seen[some, some].cpu()]
    shown = shown if len(shown) else points.flatten(0, 1)
    return shown.numpy() * frame.spacing_mm + frame.centre_mm[:2]
