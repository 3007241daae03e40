"""Whole: a whole volume of ultrasound located in a volume of another modality, all of its slices as one rigid body.

It begins where it is told to, or where the files put both. From there LC2 of all slices (`registration.lc2`) is
climbed. So it is from places within reach where the edges of both run along one another (`registration.directions`);
one of them is taken if it explains clearly more, as chance makes a difference of some percent anywhere. Where nothing
that was climbed to stands out from places drawn at random the ultrasound is left where it was.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from scopereg.devices import resolve_device
from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose, VoxelPoses
from scopereg.geometry.steps import moved, step_between
from scopereg.images import Volume, check_content, field_of_view
from scopereg.progress import timed
from scopereg.registration.directions import Directions, climbed
from scopereg.registration.lc2 import LC2Likeness, LC2Options, PatchLevel
from scopereg.registration.likeness import NOTHING_SHARED
from scopereg.registration.refine import descend
from scopereg.registration.result import RegistrationError, Result

ULTRASOUND = "Ultrasound"
_METHOD = "lc2 of all slices"
_SILENT = "nobody has measured what LC2 tells of errors"
_LEFT = "nothing within reach stands out from places drawn at random; it is left at its start"
_FINEST_MM = 0.5  # voxels of the comparison; finer ones cost time and tell nothing more
_MOST_VOXELS = 160  # along the longest side of the ultrasound
_EDGE_MM, _MARGIN_MM = 1.5, 4.0  # smoothing where directions are compared, and how near to the border nothing counts
_LEVEL = PatchLevel(1.4, 1.0, 2, 3, 25)
_CLEARLY = 1.02  # times as much as near the start must be explained elsewhere
_AS_MUCH = 0.9  # of what lies inside near the start must lie inside elsewhere: LC2 of fewer slices is not comparable
_DRAWN, _CHANCE_MM, _CHANCE_DEG = 80, 10.0, 8.0  # places that tell what chance explains, and how far off they lie
_NEIGHBOUR_MM = 5.0  # as far as a point moves on average: what lies nearer is no other place
_AROUND_MM, _AROUND_DEG = 3.0, 3.0  # how far around good places others are tried
_BETTER = 1.005  # times as much there, or it stays: less is the noise of the images
_STANDS_OUT = 1.03  # times as much as at the best of these
_LEAST_INSIDE = 0.3  # of the ultrasound in the other volume at the start


@dataclass(frozen=True)
class WholeSettings:
    """How a whole volume is sought."""

    reach_mm: float = 10.0
    """How far off the start its middle may lie; 0: only the nearest maximum is climbed to."""
    turn_deg: float = 8.0
    """How far it may be turned about each axis."""
    level: PatchLevel = _LEVEL
    """What LC2 compares; lengths in voxels."""
    places: int = 600
    """Places within reach whose edges are compared."""
    kept: int = 8
    """Of them, from how many edges are climbed along."""
    near: int = 120
    """Places around the best of those, up to 3 mm and degrees off, that LC2 is asked for."""
    climbs: int = 6
    """Of them, from how many LC2 is climbed."""
    seed: int = 0


def locate_whole(
    ultrasound: Volume,
    volume: Volume,
    start: Pose | None = None,
    settings: WholeSettings | None = None,
    *,
    device: str = "cpu",
) -> Result:
    """`UltrasoundToVolume`, LPS mm, of a whole volume of ultrasound in a volume of another modality.

    `start` is where to look; by default both lie in one world. The result has no verdict: how much LC2 explains does
    not tell an error.
    """
    begin = time.perf_counter()
    settings = settings or WholeSettings()
    for image in (ultrasound, volume):
        check_content(image)
    first = Pose(np.eye(3), np.zeros(3)) if start is None else start
    first = Pose(first.rotation, first.translation_mm, ULTRASOUND, volume.frame_of_reference)
    with timed("brought a whole volume into another"):
        search = Search(ultrasound, volume, first, settings, resolve_device(device))
        found = search.run()
    return Result(
        search.pose_of(found.poses),
        _METHOD,
        (time.perf_counter() - begin) * 1e3,
        found.similarity,
        found.iterations,
        notes=tuple(_notes(search, found, start is None)),
        reason=_SILENT if found.stands_out else _LEFT,
        volume=volume,
    )


@dataclass(frozen=True)
class _Climbed:
    """Where LC2 led."""

    poses: VoxelPoses  # (1, ...)
    similarity: float
    iterations: int = 0
    elsewhere: bool = False  # whether it was begun at another place than the start
    stands_out: bool = True  # from places drawn at random; else nothing was climbed


class Search:
    """Both volumes on voxels of one size, and what is compared of them."""

    def __init__(
        self, ultrasound: Volume, volume: Volume, start: Pose, settings: WholeSettings, device: torch.device
    ) -> None:
        self.settings, self.start = settings, start
        coarser_mm = max(min(image.spacing_mm) for image in (ultrasound, volume))
        self.step_mm = max(_FINEST_MM, coarser_mm / 2, max(ultrasound.extent_mm) / _MOST_VOXELS)
        room_mm = (
            max(settings.reach_mm, _CHANCE_MM) + math.radians(settings.turn_deg) * max(ultrasound.extent_mm) / 2 + 5.0
        )
        near = _around(volume, ultrasound, start, room_mm)
        self.own = ultrasound.for_registration().resampled(self.step_mm)
        self.other = near.for_registration().resampled(self.step_mm)
        image, seen = (each.to(device, torch.float32) for each in (self.own.tissue, _seen(self.own)))
        there, known = (each.to(device, torch.float32) for each in (self.other.tissue, _seen(self.other)))
        options = LC2Options(levels=(settings.level,), spread=math.inf)
        prepared = LC2Likeness(options).prepare(there, known > 0)
        (self.comparison,) = prepared.compare_slices(image, seen)
        self.directions = None
        if settings.reach_mm > 0:
            smooth, margin = _EDGE_MM / self.step_mm, _MARGIN_MM / self.step_mm
            self.directions = Directions(there, known, image, seen, smooth=smooth, margin=margin)
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.first = self.voxels_of(start)
        if not len(self.comparison.patches) or self._share_inside() < _LEAST_INSIDE:
            raise RegistrationError(
                "too little of the ultrasound lies in the other volume at the start",
                where="locate_whole(start)",
                fix="tell where it lies: start=",
            )

    def run(self) -> _Climbed:
        """The best place, if it stands out."""
        best = self._best()
        drawn = self._drawn(self.first, _DRAWN, _CHANCE_MM, _CHANCE_DEG)
        # A place that is right makes its neighbours better than chance.
        away = step_between(best.poses, drawn, self.comparison.lever).norm(dim=1) > _NEIGHBOUR_MM / self.step_mm
        by_chance = float(self._similarities(_pick(drawn, away.nonzero()[:, 0])).max()) if bool(away.any()) else 0.0
        if best.similarity > _STANDS_OUT * by_chance:
            return best if self.directions is None else self._polished(best)
        return _Climbed(self.first, float(self.comparison.similarity(self.first)), best.iterations, stands_out=False)

    def _best(self) -> _Climbed:
        """Where the start leads, or another place within reach that explains clearly more."""
        near = self._climb(self.first)
        if self.directions is None:
            return near
        least = _AS_MUCH * float(self.comparison.inside(near.poses))
        others = [
            one
            for one in self._elsewhere(self.directions)
            if self._within_reach(one.poses) and float(self.comparison.inside(one.poses)) >= least
        ]
        far = max(others, key=lambda one: one.similarity, default=near)
        return far if far.similarity > _CLEARLY * near.similarity else near

    def _polished(self, best: _Climbed) -> _Climbed:
        """The best of what is climbed to from places around a good one: maxima lie close to one another."""
        around = self._drawn(best.poses, self.settings.near // 2, _AROUND_MM, _AROUND_DEG)
        rows = self._similarities(around).topk(self.settings.climbs // 2).indices
        again = [self._climb(_pick(around, row[None]), elsewhere=best.elsewhere) for row in rows]
        found = max(
            (one for one in again if self._within_reach(one.poses)), key=lambda one: one.similarity, default=best
        )
        return found if found.similarity > _BETTER * best.similarity else best

    def _within_reach(self, poses: VoxelPoses) -> bool:
        """Whether the middle of the ultrasound lies so far off its start at most."""
        off_mm = float((poses.translation - self.first.translation).norm()) * self.step_mm
        return off_mm <= self.settings.reach_mm

    def voxels_of(self, pose: Pose) -> VoxelPoses:
        """A pose (1, ...) in voxels, between the middles of both."""
        axes = self.other.direction.T
        offset = axes @ (pose.apply(self.own.centre_mm) - self.other.centre_mm) / self.step_mm
        told = axes @ pose.rotation @ self.own.direction, offset
        device = self.comparison.volume.device
        return VoxelPoses(*(torch.tensor(each, dtype=torch.float32, device=device)[None] for each in told))

    def pose_of(self, poses: VoxelPoses) -> Pose:
        rotation, offset = (part[0].double().cpu().numpy() for part in poses)
        turned = self.other.direction @ Pose(rotation, np.zeros(3)).rotation @ self.own.direction.T
        centre = self.other.centre_mm + self.other.direction @ offset * self.step_mm
        return Pose(turned, centre - turned @ self.own.centre_mm, ULTRASOUND, self.start.target)

    def _share_inside(self) -> float:
        """How much of what is compared lies where the other volume has a picture, at the start."""
        return float(self.comparison.inside(self.first))

    def _climb(self, poses: VoxelPoses, *, elsewhere: bool = False) -> _Climbed:
        before = float(self.comparison.similarity(poses))
        there, used = descend(self.comparison, poses, poses, 0.0)
        after = float(self.comparison.similarity(there))
        if after < before:
            return _Climbed(poses, before, int(used.max()), elsewhere)
        return _Climbed(there, after, int(used.max()), elsewhere)

    def _elsewhere(self, directions: Directions) -> Iterator[_Climbed]:
        """Where LC2 leads from places within reach, the most promising ones."""
        settings, lever = self.settings, self.comparison.lever
        places = self._drawn(self.first, settings.places, settings.reach_mm, settings.turn_deg)
        best = directions.similarity(places).topk(min(settings.kept, settings.places)).indices
        places, _ = climbed(
            directions, _pick(places, best), lever, step=2.0 / self.step_mm, rounds=25, generator=self.generator
        )
        around = [
            self._drawn(_pick(places, torch.tensor([row])), settings.near // settings.kept + 1, _AROUND_MM, _AROUND_DEG)
            for row in range(len(places.rotation))
        ]
        tried = VoxelPoses(*(torch.cat(parts) for parts in zip(*around, strict=True)))
        told = self._similarities(tried)
        for row in told.topk(min(settings.climbs, len(told))).indices:
            if float(told[row]) > NOTHING_SHARED:
                yield self._climb(_pick(tried, row[None]), elsewhere=True)

    def _similarities(self, poses: VoxelPoses) -> Float[Tensor, "k"]:
        """LC2 at each of many poses, one after the other: all slices at once are large."""
        rows = torch.arange(len(poses.rotation))
        return torch.cat([self.comparison.similarity(_pick(poses, row[None])) for row in rows])

    def _drawn(self, about: VoxelPoses, count: int, most_mm: float, most_deg: float) -> VoxelPoses:
        """Poses around one, which is the first of them."""
        lever = self.comparison.lever
        steps = torch.rand(count, 6, generator=self.generator) * 2 - 1
        steps[:, :3] *= most_mm / self.step_mm
        steps[:, 3:] *= math.radians(most_deg) * lever
        steps[0] = 0
        repeated = VoxelPoses(*(part.expand(count, *part.shape[1:]) for part in about))
        return moved(repeated, steps.to(about.rotation), lever)


def _pick(poses: VoxelPoses, rows: Tensor) -> VoxelPoses:
    return VoxelPoses(*(part[rows.to(part.device)] for part in poses))


def _seen(volume: Volume) -> Float[Tensor, "d h w"]:
    """1 where there is a picture that counts."""
    field = field_of_view(volume.tissue)
    return (field if volume.mask is None else field & volume.mask).float()


def _around(volume: Volume, ultrasound: Volume, start: Pose, room_mm: float) -> Volume:
    """The part of a volume within some room around the ultrasound at its start."""
    signs = np.stack(np.meshgrid([-1, 1], [-1, 1], [-1, 1], indexing="ij"), -1).reshape(-1, 3)
    corners = start.apply(ultrasound.centre_mm + signs * np.array(ultrasound.extent_mm) / 2 @ ultrasound.direction.T)
    places = (corners - np.asarray(volume.origin_mm)) @ volume.direction
    low, high = (f(0) for f in (places.min, places.max))
    spacing = np.array(volume.spacing_mm)
    first = np.clip(np.floor((low - room_mm) / spacing).astype(int), 0, None)
    last = np.minimum(np.ceil((high + room_mm) / spacing).astype(int) + 1, volume.size)
    if (last - first < 2).any():
        raise RegistrationError(
            "the volumes do not overlap where their files put them",
            where="locate_whole(start)",
            fix="tell where the ultrasound lies: start=",
        )
    parts = tuple(slice(int(a), int(b)) for a, b in zip(first[::-1], last[::-1], strict=True))
    origin = np.asarray(volume.origin_mm) + volume.direction @ (first * spacing)
    mask = None if volume.mask is None else volume.mask[parts]
    return Volume(volume.array[parts], volume.spacing_mm, origin.tolist(), volume.direction, mask=mask)


def _notes(search: Search, found: _Climbed, by_files: bool) -> Iterator[str]:
    if by_files:
        yield "both volumes are taken to lie in one world, as their files put them"
    count = len(search.comparison.points)
    yield f"{count} points of all slices are compared, at {search.step_mm * search.settings.level.stride:.2g} mm"
    if found.stands_out and found.elsewhere:
        yield f"a place up to {search.settings.reach_mm:g} mm off the start explains clearly more than the start does"


def check_reach(reach_mm: float, where: str) -> float:
    """A reach in mm that is none or positive, and no more than 50."""
    if not 0 <= reach_mm <= 50:
        raise ScopeRegError(f"the reach is {reach_mm:g} mm", where=where, fix="pass 0 to 50 mm")
    return reach_mm
