"""Proposal: grid, pose magnitude and batch to train some volumes with, each with the rule that gave it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from scopereg.data.folder import MIN_SIZE, FileGrid, eights
from scopereg.data.registry import DATASETS
from scopereg.data.seeds import generator_for
from scopereg.geometry import MIN_INSIDE, inside_fraction, sample_poses

USUAL_SIZE = 128  # voxels along a side
LARGE_SIZE = 192  # in-plane voxels beyond which a coarser grid is proposed
_USUAL_VOXELS = 32 * USUAL_SIZE * USUAL_SIZE
_DRAWS = 256
Shape = tuple[int, int, int]


class Usual(NamedTuple):
    """Settings to train with where nothing speaks against them."""

    magnitude: float  # largest pose offset, in voxels and degrees
    batch: int  # frames, in volumes of 32 x 128 x 128 voxels
    frames_per_volume: int


@dataclass(frozen=True)
class Proposal:
    """Settings to train with, and the rules that gave them."""

    shape: Shape
    spacing_mm: float
    magnitude: float
    batch: int
    rules: dict[str, str]


def propose(layout: str, grids: Sequence[FileGrid], usual: Usual) -> Proposal:
    """A proposal for a dataset as published, or for volumes of these grids."""
    grid = DATASETS[layout].published_grid()
    if grid is not None:
        shape, spacing_mm, rule = grid
        return _with_magnitude(shape, spacing_mm, {"shape": rule, "spacing_mm": rule}, usual)
    return _with_magnitude(*_common_grid(grids), usual)


def propose_for(shape: Shape, spacing_mm: float, usual: Usual) -> Proposal:
    """A proposal for a set that has its grid already."""
    return _with_magnitude(shape, spacing_mm, {"shape": "that of the set", "spacing_mm": "that of the set"}, usual)


def _common_grid(grids: Sequence[FileGrid]) -> tuple[Shape, float, dict[str, str]]:
    spacing_mm = max(min(grid.spacing_mm) for grid in grids)
    rules = {
        "spacing_mm": "the finest that every file has",
        "shape": f"what all files have in common, in multiples of 8, at least {MIN_SIZE}",
    }
    shape = _common_shape(grids, spacing_mm)
    if max(shape[1:]) > LARGE_SIZE:
        extent_mm = max(shape[1:]) * spacing_mm
        spacing_mm = math.ceil(1e4 * extent_mm / USUAL_SIZE) / 1e4
        shape = _common_shape(grids, spacing_mm)
        rules["spacing_mm"] = f"{USUAL_SIZE} voxels across what all files have in common: finer is slow to train"
    return shape, spacing_mm, rules


def _common_shape(grids: Sequence[FileGrid], spacing_mm: float) -> Shape:
    sizes = [grid.size_at(spacing_mm) for grid in grids]
    depth, height, width = (max(MIN_SIZE, eights(min(size[axis] for size in sizes))) for axis in range(3))
    return depth, height, width


def _with_magnitude(shape: Shape, spacing_mm: float, rules: dict[str, str], usual: Usual) -> Proposal:
    magnitude = int(usual.magnitude)
    while magnitude > 1 and _share_inside(shape, magnitude) < 0.5:
        magnitude -= 1
    words = f"half of the poses drawn keep {MIN_INSIDE:.0%} of the slice inside the volume"
    published = magnitude == usual.magnitude
    rules["magnitude"] = f"as published, and {words}" if published else f"the largest at which {words}"
    each = usual.frames_per_volume
    fitting = int(usual.batch * _USUAL_VOXELS / math.prod(shape)) // each * each
    batch = min(usual.batch, max(each, fitting))
    rules["batch"] = f"{usual.batch} at 32 x {USUAL_SIZE} x {USUAL_SIZE} voxels, fewer for more voxels"
    return Proposal(shape, spacing_mm, float(magnitude), batch, rules)


def _share_inside(shape: Shape, magnitude: float) -> float:
    """Share of drawn poses that the 35 % rule would keep."""
    poses = sample_poses(_DRAWS, magnitude, shape, generator_for("proposal", 0), min_inside=0)
    return float((inside_fraction(*poses, shape) >= MIN_INSIDE).float().mean())
