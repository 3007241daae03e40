"""Totals: what fell on each voxel of a grid, of all frames or of some, and the volume that it makes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from scopereg.data.compound import THIN, Grid, block_weight, blocks_of
from scopereg.io.sweeps import TrackedSweep
from scopereg.ops.bridges import bridge
from scopereg.ops.splat import splat, splat_peaks
from scopereg.threads import watched

SOLID = 0.25  # frames' worth of image from which holes are bridged: of the two voxels beside a frame one has it always
EMPTY, IMAGE, BRIDGED = 0, 1, 2


_MOST_COMPARED = 2**22  # voxels of a grid on which frames are compared: finer ones tell no more


class Voxels(NamedTuple):
    """Grey values of voxels (D, H, W) and where they come from."""

    values: Tensor  # 0 to 1
    states: Tensor  # EMPTY, IMAGE or BRIDGED, uint8
    gaps: Tensor  # voxels between the ends of a bridge


@dataclass(frozen=True, eq=False)
class Totals:
    """Sums of grey values and of weights (D, H, W, 2); a plane of image through a voxel's centre weighs 1."""

    grid: Grid
    sums: Tensor

    @classmethod
    def empty(cls, grid: Grid) -> Totals:
        return cls(grid, torch.zeros(*grid.shape, 2))

    @classmethod
    def of_all(cls, some: Sequence[Totals]) -> Totals:
        """The sum of several on one grid."""
        return cls(some[0].grid, torch.stack([one.sums for one in some]).sum(0) if len(some) > 1 else some[0].sums)

    def less(self, before: Totals) -> Totals:
        """What was added since, on the same grid."""
        return Totals(self.grid, (self.sums - before.sums).clamp_min_(0))

    @watched()
    def add(self, sweep: TrackedSweep, rows: Sequence[int], count: Callable[[int], None] = lambda _: None) -> None:
        """Some frames of a sweep; `count` is told of each few that are done."""
        weight = block_weight(sweep, self.grid)
        for points, values, frames in blocks_of(sweep, rows, self.grid):
            splat(self.sums, points, values, weight)
            count(frames)

    @watched()
    def pooled(self, factor: int) -> Totals:
        """The same in voxels so many times as large along each axis; what is left at the far ends is cut off."""
        if factor == 1:
            return self
        depth, height, width = (n // factor for n in self.grid.shape)
        sums = self.sums[: depth * factor, : height * factor, : width * factor]
        sums = sums.unflatten(0, (depth, factor)).sum(1).unflatten(1, (height, factor)).sum(2)
        sums = sums.unflatten(2, (width, factor)).sum(3)
        return Totals(self.grid.pooled(factor), sums / factor**2)  # a plane passes through so many voxels of each

    def for_comparing(self, *, kept: bool = False) -> Totals:
        """Pooled as far as frames are compared on; `kept` where these sums go on."""
        factor = 1
        while math.prod(n // factor for n in self.grid.shape) > _MOST_COMPARED:
            factor += 1
        pooled = self.pooled(factor)
        return Totals(self.grid, self.sums.clone()) if kept and pooled is self else pooled

    def without(self, others: Totals) -> Totals:
        """What is left in the part of the grid that the others have, without these."""
        z, y, x = others.grid.place_in(self.grid)
        depth, height, width = others.grid.shape
        part = self.sums[z : z + depth, y : y + height, x : x + width]
        return Totals(others.grid, (part - others.sums).clamp_min_(0))

    @watched()
    def voxels(self, bridge_mm: float) -> Voxels:
        """Means, with holes bridged."""
        sums, weights = self.sums.unbind(-1)
        return _bridged(sums / weights.clamp_min(1e-6), weights >= SOLID, weights >= THIN, bridge_mm, self.grid)


@dataclass(frozen=True, eq=False)
class Peaks:
    """The largest value that fell on each voxel (D, H, W); less than 0 where none did."""

    grid: Grid
    values: Tensor

    @classmethod
    def empty(cls, grid: Grid) -> Peaks:
        return cls(grid, torch.full(grid.shape, -1.0))

    @watched()
    def add(self, sweep: TrackedSweep, rows: Sequence[int], count: Callable[[int], None] = lambda _: None) -> None:
        for points, values, frames in blocks_of(sweep, rows, self.grid):
            splat_peaks(self.values, points, values)
            count(frames)

    @watched()
    def voxels(self, bridge_mm: float) -> Voxels:
        lit = self.values >= 0
        return _bridged(self.values.clamp_min(0), lit, lit, bridge_mm, self.grid)


def _bridged(values: Tensor, solid: Tensor, seen: Tensor, bridge_mm: float, grid: Grid) -> Voxels:
    gaps = bridge(values, solid, int(bridge_mm / grid.spacing_mm))
    states = torch.where(gaps > 0, BRIDGED, seen.to(torch.uint8)).to(torch.uint8)
    values *= states > 0
    return Voxels(values.clamp_(0, 1), states, gaps)
