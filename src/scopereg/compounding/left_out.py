"""LeftOut: frames compared with the volume that the others make; how far off they fit best tells how well poses hold.

Frames are left out in runs, since one between two neighbours would find itself again in them. A run is taken out of
the sums of all frames, so that nothing is compounded twice. Each of its frames is then compared with what is left: at
the tracker's place, and shifted around it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from scopereg.compounding.fitting import FittedFrame, Others, evenly, rounded
from scopereg.compounding.motion import motion_of
from scopereg.compounding.totals import Totals
from scopereg.data.compound import Grid, corners_mm
from scopereg.data.tracked import held_out_blocks
from scopereg.io.sweeps import TrackedSweep

REACH_MM = 6.0  # a frame is sought as far from where the tracker has it, along each axis
RUN_MM = 1.5  # length of a run that is left out
_RUNS, _OF_RUN = 12, 3  # runs of a sweep at most, and frames of each that are compared
_LEAST_FRAMES = 7  # of a sweep
_STEPS = 3  # of the search, to either side
_LEAST_COVER = 0.5  # of a frame, that the others show
AGREE_MM, ROUGHLY_MM = 1.0, 3.0  # usual shift up to which poses agree; its tail, and up to which they do roughly

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LeftOut:
    """What frames that were left out tell."""

    frames: tuple[FittedFrame, ...]
    uncovered: int  # frames of which the others show too little
    run_frames: int  # of the longest run
    voxel_mm: float

    @property
    def distances_mm(self) -> Array:
        return np.array([frame.distance_mm for frame in self.frames])

    @property
    def usual_mm(self) -> float:
        return float(np.median(self.distances_mm))

    @property
    def p95_mm(self) -> float:
        return float(np.percentile(self.distances_mm, 95))

    @property
    def steady_mm(self) -> float:
        """Root mean square of what the frames of a run have in common."""
        return _rms(np.array([shifts.mean(0) for shifts in self._runs]))

    @property
    def jitter_mm(self) -> float:
        """Root mean square of how the frames of a run differ; NaN where runs have one frame."""
        apart = [shifts - shifts.mean(0) for shifts in self._runs if len(shifts) > 1]
        free = sum(len(each) - 1 for each in apart)
        return math.sqrt(sum(float(np.square(each).sum()) for each in apart) / free) if free else math.nan

    @property
    def _runs(self) -> list[Array]:
        found: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
        for frame in self.frames:
            found.setdefault((frame.sweep, frame.run), []).append(frame.shift_mm)
        return [np.array(shifts) for shifts in found.values()]

    @property
    def agree(self) -> bool:
        return self.usual_mm <= AGREE_MM and self.p95_mm <= ROUGHLY_MM

    @property
    def verdict(self) -> str:
        """In one line, how well the poses agree with one another: what all have wrong alike nothing tells."""
        told = (
            f"{len(self.frames)} frames left out fit best {self.usual_mm:.2g} mm from where the tracker has them "
            f"(95 %: {self.p95_mm:.2g} mm)"
        )
        if self.agree:
            return f"{told}: the poses agree with one another"
        if self.usual_mm <= ROUGHLY_MM:
            return f"{told}: the poses agree roughly; {self._why}"
        return f"{told}: the poses do not agree; {self._why}"

    @property
    def _why(self) -> str:
        if math.isnan(self.jitter_mm):
            return "jitter of the tracker, motion of the patient or a wrong calibration"
        if self.jitter_mm > self.steady_mm:
            return "shifts differ from frame to frame: jitter of the tracker, or images out of step with it"
        return "neighbours are off together: the patient moved, or the calibration is wrong"

    @property
    def facts(self) -> dict[str, Any]:
        """Ready for JSON."""
        lateral, axial, across = np.mean([frame.shift_mm for frame in self.frames], 0)
        return {
            "verdict": self.verdict,
            "agree": self.agree,
            "frames": len(self.frames),
            "frames_in_a_run": self.run_frames,
            "uncovered_frames": self.uncovered,
            "at_the_edge_of_the_search": sum(frame.is_at_edge for frame in self.frames),
            "voxel_mm": round(self.voxel_mm, 4),
            "correlation": rounded(np.median([frame.correlation for frame in self.frames])),
            "best_correlation": rounded(np.median([frame.best for frame in self.frames])),
            "shift_mm": {
                "median": rounded(self.usual_mm),
                "p95": rounded(self.p95_mm),
                "largest": rounded(self.distances_mm.max()),
                "mean_lateral": rounded(lateral),
                "mean_axial": rounded(axial),
                "mean_across": rounded(across),
            },
            "jitter_mm": None if math.isnan(self.jitter_mm) else rounded(self.jitter_mm),
            "steady_mm": rounded(self.steady_mm),
            "each": [frame.facts for frame in self.frames],
        }


def _rms(vectors: Array) -> float:
    return float(np.sqrt(np.square(vectors).sum(-1).mean()))


def runs_of(sweep: TrackedSweep) -> list[list[int]]:
    """Runs of frames to leave out, spread evenly, the ends of the sweep left in."""
    if len(sweep) < _LEAST_FRAMES:
        return []
    pace_mm = max(motion_of(sweep).pace_mm, 1e-6)
    size = min(max(round(RUN_MM / pace_mm), 1), len(sweep) // _LEAST_FRAMES)
    count = min(_RUNS, len(sweep) // (size + 2))
    rows = held_out_blocks(len(sweep), count, size)
    return [list(rows[start : start + size]) for start in range(0, len(rows), size)]


def leave_out(
    sweeps: Sequence[TrackedSweep],
    totals: Totals,
    finer: Grid,
    bridge_mm: float,
    count: Callable[[int, int], None] = lambda done, of: None,
) -> LeftOut | None:
    """Frames of all sweeps against the volume of the others; None where there are too few.

    `totals` are the sums of all frames, pooled from those of a `finer` grid.
    """
    runs = [(sweep, number, rows) for sweep in sweeps for number, rows in enumerate(runs_of(sweep))]
    found: list[FittedFrame] = []
    uncovered = 0
    for done, (sweep, number, rows) in enumerate(runs):
        count(done, len(runs))
        for frame in _compared(sweep, number, rows, totals, finer, bridge_mm):
            if frame.cover >= _LEAST_COVER:
                found.append(frame)
            else:
                uncovered += 1
    if runs:
        count(len(runs), len(runs))
    longest = max((len(rows) for _, _, rows in runs), default=0)
    return LeftOut(tuple(found), uncovered, longest, totals.grid.spacing_mm) if len(found) > 2 else None


def _compared(
    sweep: TrackedSweep, number: int, rows: Sequence[int], totals: Totals, finer: Grid, bridge_mm: float
) -> Iterator[FittedFrame]:
    """Some frames of a run against what is left without it, however long the hole that it leaves."""
    before, after = max(rows[0] - 1, 0), min(rows[-1] + 1, len(sweep) - 1)
    places = corners_mm(sweep.subset(range(before, after + 1)))
    hole_mm = float(np.linalg.norm(places[-1] - places[0], axis=-1).max())
    bridge_mm = max(bridge_mm, 2 * hole_mm)
    part = _around(places, totals.grid, REACH_MM + bridge_mm)
    left = totals.without(_run(sweep, rows, part, totals.grid, finer)).voxels(bridge_mm)
    others, how = Others(left, part), {"reach_mm": REACH_MM, "least_cover": _LEAST_COVER}
    for place in evenly(len(rows), _OF_RUN):
        yield others.fit(sweep, rows[place], number, steps=_STEPS, **how)


def _run(sweep: TrackedSweep, rows: Sequence[int], part: Grid, whole: Grid, finer: Grid) -> Totals:
    """The sums of a run alone, pooled as those of all frames were."""
    factor = round(part.spacing_mm / finer.spacing_mm)
    low = [factor * start for start in part.place_in(whole)]
    high = [start + factor * n for start, n in zip(low, part.shape, strict=True)]
    run = Totals.empty(finer.part((low[0], low[1], low[2]), (high[0], high[1], high[2])))
    run.add(sweep, rows)
    return run.pooled(factor)


def _around(places_mm: Array, grid: Grid, margin_mm: float) -> Grid:
    """The part of a grid around some places."""
    voxels = (places_mm.reshape(-1, 3) - grid.first_mm) @ grid.axes / grid.spacing_mm
    margin = margin_mm / grid.spacing_mm + 1
    most = np.array(grid.shape[::-1])
    low = np.clip(np.floor(voxels.min(0) - margin), 0, most - 1).astype(int)
    high = np.clip(np.ceil(voxels.max(0) + margin) + 1, low + 1, most).astype(int)
    (x1, y1, z1), (x2, y2, z2) = low.tolist(), high.tolist()
    return grid.part((z1, y1, x1), (z2, y2, x2))
