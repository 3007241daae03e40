"""Settings of compounding that need no torch: the size of voxels, how holes are filled, what counts of the images."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from scopereg.errors import ScopeRegError
from scopereg.registration.settings import DEFAULT

Mode = Literal["mean", "max"]


@dataclass(frozen=True)
class CompoundSettings:
    """How frames become a volume."""

    voxel_mm: float | None = None
    """Size of a voxel; by default as fine as the frames have it, and no finer than leaves few holes between them."""
    bridge_mm: float = 5.0
    """Longest hole that is filled: linear along an axis of the grid, between the two nearest voxels with an image."""
    mode: Mode = "mean"
    """What a voxel shows of all that fell on it; max is for bone, vessels and other bright lines."""
    clip: tuple[int, int, int, int] | None = None
    """Part of the images that counts, in pixels: X Y WIDTH HEIGHT; by default that of PLUS's configuration, or all."""
    roi: tuple[float, float, float, float, float, float] | None = None
    """Part of the world to fill, in LPS mm, X1 X2 Y1 Y2 Z1 Z2: the axes of the volume are then those of the world."""
    every: int = 1
    """Take every so manieth frame alone."""

    def __post_init__(self) -> None:
        if self.voxel_mm is not None and not 0 < self.voxel_mm < math.inf:
            raise ScopeRegError(f"got {self.voxel_mm:g}", where="voxel_mm=", fix="pass a positive number of mm")
        if not 0 <= self.bridge_mm < math.inf:
            raise ScopeRegError(f"got {self.bridge_mm:g}", where="bridge_mm=", fix="pass mm, 0 to fill no holes")
        if self.mode not in ("mean", "max"):
            raise ScopeRegError(f"got {self.mode!r}", where="mode=", fix="pass mean or max")
        if self.roi is not None and not all(low < high for low, high in self.bounds_mm):
            shown = " ".join(f"{place:g}" for place in self.roi)
            raise ScopeRegError(f"got {shown}", where="roi=", fix="pass X1 X2 Y1 Y2 Z1 Z2, each first the smaller")
        if self.every < 1:
            raise ScopeRegError(f"got {self.every}", where="every=", fix="pass a number from 1 on")

    @property
    def bounds_mm(self) -> tuple[tuple[float, float], ...]:
        """The lower and the upper end of the region of interest along x, y, z."""
        return () if self.roi is None else tuple(zip(self.roi[::2], self.roi[1::2], strict=True))


@dataclass(frozen=True)
class JoinSettings:
    """How sweeps are registered onto the first, where their trackers do not share a world."""

    how: Literal["near", "anywhere"]
    """near: from where the tracker has them; anywhere: in all of the first."""
    method: str = DEFAULT
    device: str = "auto"
