"""FittedFrame: a frame compared with what other frames show, where it lies and beside, and where it is most like it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scopereg.compounding.totals import EMPTY, Voxels
from scopereg.data.compound import Grid, blocks_of
from scopereg.images import Volume
from scopereg.io.sweeps import WORLD, TrackedSweep
from scopereg.ops.correlation import correlations_at

_FINEST_MM = 0.03  # where the search ends
_FEW, _MANY = 1000, 4000  # pixels compared in its first step, and then
_KEPT_COVER = 0.7  # of what the others show of a frame, that they must show at any other place


@dataclass(frozen=True)
class FittedFrame:
    """A frame, how like the others' volume it is where the tracker has it, and where it is most like it."""

    sweep: str
    row: int  # in the sweep
    number: int  # in its file
    run: int  # of frames that were left out together
    correlation: float
    best: float
    shift_mm: tuple[float, float, float]  # lateral, axial and across the plane, from the tracker's place to the best
    reach_mm: float  # of the search, along each axis
    cover: float  # share of its pixels that the others show
    others: Volume  # what they make, around it

    @property
    def distance_mm(self) -> float:
        return math.hypot(*self.shift_mm)

    @property
    def is_at_edge(self) -> bool:
        """Whether it may fit better yet farther away."""
        return max(map(abs, self.shift_mm)) > 0.98 * self.reach_mm

    @property
    def facts(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "sweep": self.sweep,
            "frame": self.number,
            "correlation": rounded(self.correlation),
            "best_correlation": rounded(self.best),
            "shift_mm": [rounded(part) for part in self.shift_mm],
        }


def rounded(number: Any) -> float:
    return round(float(number), 3)


class Others:
    """What other frames show: voxels on a grid, NaN where they show nothing."""

    def __init__(self, voxels: Voxels, grid: Grid) -> None:
        self.grid = grid
        self.shown = torch.where(voxels.states == EMPTY, torch.nan, voxels.values)
        origin = grid.first_mm.tolist()
        self.volume = Volume(voxels.values, grid.spacing_mm, origin, grid.axes, frame_of_reference=WORLD)

    def fit(
        self, sweep: TrackedSweep, row: int, run: int, *, reach_mm: float, steps: int, least_cover: float
    ) -> FittedFrame:
        """Where a frame is most like this, within the reach: at first so many steps to all sides, then finer ones.

        It stays where it is if less than `least_cover` of it is shown.
        """
        points, values, _ = next(blocks_of(sweep, [row], self.grid))
        to_voxels = sweep.image_to_world[row, :3, :3].T @ self.grid.axes / self.grid.spacing_mm
        axes = torch.from_numpy(to_voxels).float()

        def alike(shifts_mm: Tensor, most: int) -> tuple[Tensor, Tensor]:
            every = max(points.shape[1] // most, 1)
            return correlations_at(self.shown, points[:, ::every], values[::every], shifts_mm @ axes)

        here, cover = (float(each[0]) for each in alike(torch.zeros(1, 3), _MANY))
        at, best, most = torch.zeros(3), here, _FEW
        step_mm = reach_mm / steps if cover >= least_cover else 0.0
        while step_mm > _FINEST_MM:
            shifts = at + _cube(steps) * step_mm
            shifts = shifts[shifts.abs().amax(1) <= reach_mm]
            found, covered = alike(shifts, most)
            found = torch.where(covered >= _KEPT_COVER * cover, found, -1.0)
            place = int(found.argmax())
            at, best = shifts[place], float(found[place])
            step_mm, steps, most = step_mm / 2, 1, _MANY
        lateral, axial, across = at.tolist()
        return FittedFrame(
            sweep.name,
            row,
            sweep.number(row),
            run,
            here,
            max(best, here),
            (lateral, axial, across),
            reach_mm,
            cover,
            self.volume,
        )


def _cube(steps: int) -> Tensor:
    """Whole steps to all sides, none first: of places that are as good, the tracker's counts."""
    line = torch.arange(-steps, steps + 1).float()
    cube = torch.stack(torch.meshgrid(line, line, line, indexing="ij"), -1).reshape(-1, 3)
    return cube[cube.square().sum(1).argsort(stable=True)]


def evenly(count: int, most: int) -> list[int]:
    """At most so many rows, from the first to the last."""
    return list(dict.fromkeys(np.linspace(0, count - 1, min(most, count)).round().astype(int).tolist()))
