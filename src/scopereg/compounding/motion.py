"""Motion: how a probe went, from the poses of its frames: steps between them, leaps, and poses that are no motion."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from scopereg.data.compound import box_of, corners_mm
from scopereg.errors import ScopeRegError
from scopereg.io.sweeps import TrackedSweep

_LEAP_MM, _LEAP_STEPS = 10.0, 10.0  # a leap is longer than that, and than so many usual steps
_BESIDE_STEPS = 3.0  # usual steps that the frames before and after a leap may lie apart
_SAME_MM = 1e-6
_PACE_FRAMES = 8
_STILL_PIXELS = 2.0  # a probe that moved less across its plane did not move
_LARGEST_MM = 2000.0  # of what a probe can sweep over

Array = npt.NDArray[np.float64]


class Motion(NamedTuple):
    """What is to be known of a sweep before it is compounded."""

    step_mm: float  # usual distance of neighbouring frames across their planes
    pace_mm: float  # usual way from frame to frame, without what jitter adds to it
    path_mm: float  # length of the way of their middles
    leaps: tuple[int, ...]  # single frames far from both neighbours, which lie beside one another
    repeated: int  # frames with the very pose of the frame before


def motion_of(sweep: TrackedSweep) -> Motion:
    """Steps, leaps and repeated poses."""
    places = corners_mm(sweep)  # (F, N, 3)
    if len(places) < 2:
        return Motion(0.0, 0.0, 0.0, (), 0)
    steps = np.diff(places, axis=0)
    lengths = np.linalg.norm(steps, axis=-1).mean(1)
    moved = lengths > _SAME_MM
    across = np.abs(np.einsum("fni,fi->fn", steps, sweep.image_to_world[:-1, :3, 2])).mean(1)
    usual = float(np.median(across[moved])) if moved.any() else 0.0
    apart = min(_PACE_FRAMES, len(places) - 1)
    pace = float(np.median(np.linalg.norm(places[apart:] - places[:-apart], axis=-1).mean(1))) / apart
    way = float(np.linalg.norm(np.diff(places.mean(1), axis=0), axis=-1).sum())
    return Motion(usual, pace, way, _leaps(places, lengths), int((~moved).sum()))


def _leaps(places: Array, lengths: Array) -> tuple[int, ...]:
    """Frames that the tracker had somewhere else for a moment."""
    usual = float(np.median(lengths))
    far = lengths > max(_LEAP_MM, _LEAP_STEPS * usual)
    both = np.flatnonzero(far[:-1] & far[1:]) + 1
    beside = np.linalg.norm(places[both + 1] - places[both - 1], axis=-1).mean(1)
    return tuple(both[beside < max(_BESIDE_STEPS * usual, _LEAP_MM)].tolist())


def check_motion(sweep: TrackedSweep, where: str) -> None:
    """An error for frames of which no volume can be made: poses that are all one, or in another unit."""
    _, low, high = box_of([sweep])
    reach = high - low
    if reach.max() > _LARGEST_MM:
        raise ScopeRegError(
            f"its frames span {_shown(reach)} mm: that is no ultrasound sweep",
            where=where,
            fix="check that poses, pixel size and calibration are in mm",
        )
    pixel_mm = max(sweep.spacing_mm)
    matrices = sweep.image_to_world
    if len(sweep) < 2 or np.allclose(matrices, matrices[0], rtol=0, atol=1e-6):
        raise ScopeRegError(
            f"all {len(sweep)} frames lie at one place: the probe did not move",
            where=where,
            fix="record a sweep across the image plane; a calibration alone, or a tracker that stood still, gives none",
        )
    if reach[2] < _STILL_PIXELS * pixel_mm:
        raise ScopeRegError(
            f"its frames span {reach[2]:.3g} mm across their plane, a pixel measures {pixel_mm:.3g} mm",
            where=where,
            fix="record a sweep across the image plane, and check that its poses are in mm",
        )


def _shown(lengths: Array) -> str:
    return " x ".join(f"{length:.0f}" for length in lengths)
