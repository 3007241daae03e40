"""ChosenGrid: the voxels of a compounded volume, their size and extent chosen by the frames, and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from scopereg.compounding.motion import motion_of
from scopereg.compounding.settings import CompoundSettings
from scopereg.data.compound import MAX_VOXELS, Grid, box_of
from scopereg.errors import ScopeRegError
from scopereg.io.limits import check_size
from scopereg.io.sweeps import TrackedSweep

USUAL_VOXELS = 2**26  # at most, where nobody asked for a size
_DIGITS = 2  # of a size that is chosen


class ChosenGrid(NamedTuple):
    """A grid, and in words why it is as fine."""

    grid: Grid
    why: str


def choose_grid(sweeps: Sequence[TrackedSweep], settings: CompoundSettings) -> ChosenGrid:
    """A box along the mean frame around all that was seen; voxels as asked for, else as the frames have it.

    Voxels are no finer than pixels, than half the usual distance of frames (the two on either side of a voxel then
    reach it), and than `USUAL_VOXELS` of them fill the box.
    """
    axes, low, high = box_of(sweeps)
    if settings.roi is not None:
        axes, (low, high) = np.eye(3), np.array(settings.bounds_mm).T
    size_mm, why = (settings.voxel_mm, "as asked for") if settings.voxel_mm else _as_frames_have_it(sweeps, high - low)
    if settings.roi is None:
        depth, height, width = (int(length / size_mm) + 2 for length in reversed(high - low))
        centre_mm = axes @ (low + high) / 2
    else:  # its first voxel is where it was asked for
        depth, height, width = (int(length / size_mm + 1e-6) + 1 for length in reversed(high - low))
        centre_mm = low + (np.array([width, height, depth]) - 1) * size_mm / 2
    if depth * height * width > MAX_VOXELS:
        raise ScopeRegError(
            f"voxels of {size_mm:g} mm would be {width} x {height} x {depth}",
            where="voxel_mm=",
            fix="choose a larger size, or none: then one that fits is taken",
        )
    check_size((depth, height, width), 4, "voxel_mm=")
    return ChosenGrid(Grid((depth, height, width), size_mm, axes, centre_mm), why)


def _as_frames_have_it(sweeps: Sequence[TrackedSweep], reach_mm: np.ndarray) -> tuple[float, str]:
    """The finest of the sweeps decides."""
    pixel_mm, half_step_mm = min((max(sweep.spacing_mm), motion_of(sweep).step_mm / 2) for sweep in sweeps)
    fits_mm = _finest(reach_mm, USUAL_VOXELS)
    wanted = max(pixel_mm, half_step_mm)
    if fits_mm > wanted:
        return _up(fits_mm), f"as fine as {USUAL_VOXELS / 1e6:.0f} million voxels allow"
    if half_step_mm > pixel_mm:
        return _up(half_step_mm), f"half of the usual distance between frames, {2 * half_step_mm:.2g} mm"
    return _up(pixel_mm), "as fine as the frames have it"


def _finest(reach_mm: np.ndarray, most: int) -> float:
    """The size of voxels of which just so many, and no more, fill a box."""
    size_mm = float((np.maximum(reach_mm, 1e-3).prod() / most) ** (1 / 3))
    while np.prod(reach_mm // size_mm + 2) > most:
        size_mm *= 1.01
    return size_mm


def _up(size_mm: float) -> float:
    """A round number that is not smaller."""
    scale = 10.0 ** (math.floor(math.log10(size_mm)) + 1 - _DIGITS)
    return float(f"{math.ceil(size_mm / scale - 1e-9) * scale:.6g}")
