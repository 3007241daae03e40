"""Similarity: how alike a frame and a volume are at a pose; the one quantity that results tell, whatever found them."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from scopereg.geometry import Pose, VoxelPoses
from scopereg.geometry.beam import Thickness
from scopereg.images import Frame, Volume, pose_to_voxels
from scopereg.ops.replay import Replayed
from scopereg.registration.grey import GreyVolume, RefineOptions
from scopereg.registration.likeness import NOTHING_SHARED
from scopereg.registration.result import Result
from scopereg.registration.thickness import spread_voxels

_USUAL = RefineOptions()
FINEST = RefineOptions(levels=(_USUAL.levels[-1]._replace(iterations=0),))  # poses are compared, not moved


class Similarity:
    """The locally normalised correlation with one volume, -1 to 1: what a refinement by grey values ends with."""

    def __init__(
        self,
        volume: Volume,
        device: torch.device,
        grey: GreyVolume | None = None,
        thickness: Thickness | None = None,
    ) -> None:
        """The volume is isotropic, in [0, 1]; `grey` is the same as a refinement prepared it, where there is one.

        Frames are as thin as the volume unless a `thickness` is told.
        """
        self.thickness = thickness
        self.volume, self.device = volume, device
        self._grey = grey or GreyVolume(volume.array.to(device), FINEST, volume.known)
        self._replayed = Replayed(self._measure)

    def at(self, frame: Frame, pose: Pose) -> float:
        """Of a frame in [0, 1]; NaN where too little of it lies in the volume."""
        fine = frame.resampled(self.volume.isotropic_spacing_mm)
        where = pose_to_voxels(pose, fine, self.volume)
        images: tuple[Tensor, ...] = (fine.tissue, fine.seen, where.rotation, where.translation)
        if self.thickness is not None:
            images = (*images, spread_voxels(self.thickness, fine, fine.isotropic_spacing_mm))
        (found,) = self._replayed(*(part[None].to(self.device, torch.float32) for part in images))
        value = float(found[0])
        return value if value > NOTHING_SHARED else math.nan

    def of(self, frame: Frame, result: Result) -> Result:
        """A result with its similarity; the most alike of its alternatives, unless a search told which is the best."""
        places = [replace(one, similarity=self.at(frame, one.pose)) for one in (result, *result.alternatives)]
        if math.isfinite(result.stands_out):
            return replace(places[0], alternatives=tuple(places[1:]))
        places.sort(key=lambda one: one.similarity if math.isfinite(one.similarity) else -math.inf, reverse=True)
        return replace(places[0], alternatives=tuple(replace(one, alternatives=()) for one in places[1:]))

    @torch.no_grad()
    def _measure(
        self,
        frames: Float[Tensor, "b h w"],
        seen: Float[Tensor, "b h w"],
        rotation: Float[Tensor, "b 3 3"],
        translation: Float[Tensor, "b 3"],
        across: Float[Tensor, "b h w"] | None = None,
    ) -> tuple[Tensor, ...]:
        finest = self._grey.finest(frames, seen, across)
        return (finest.similarity(VoxelPoses(rotation, translation)),)
