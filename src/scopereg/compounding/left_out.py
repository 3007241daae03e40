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
import torch
from torch import Tensor

from scopereg.compounding.motion import motion_of
from scopereg.compounding.totals import EMPTY, Totals
from scopereg.data.compound import Grid, blocks_of, corners_mm
from scopereg.data.tracked import held_out_blocks
from scopereg.images import Volume
from scopereg.io.sweeps import WORLD, TrackedSweep
from scopereg.ops.correlation import correlations_at

REACH_MM = 6.0  # a frame is sought as far from where the tracker has it, along each axis
RUN_MM = 1.5  # length of a run that is left out
_MOST_VOXELS = 2**22  # of the grid on which frames are compared: finer ones tell no more
_RUNS, _OF_RUN = 12, 3  # runs of a sweep at most, and frames of each that are compared
_LEAST_FRAMES = 7  # of a sweep
_FIRST_STEPS, _FINEST_MM = 3, 0.03  # of the search, to either side; where it ends
_FEW, _MANY = 1000, 4000  # pixels compared in its first step, and then
_LEAST_COVER, _KEPT_COVER = 0.5, 0.7  # of a frame that the others show, and the share of that at any other place
HOLDS_MM, ROUGHLY_MM = 1.0, 3.0  # usual shift up to which poses hold; the tail of it, and up to which they do roughly

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LeftOutFrame:
    """A frame, how like the volume of the others it is where the tracker has it, and where it is most like it."""

    sweep: str
    row: int  # in the sweep
    number: int  # in its file
    run: int
    correlation: float
    best: float
    shift_mm: tuple[float, float, float]  # lateral, axial and across the plane, from the tracker's place to the best
    cover: float  # share of its pixels that the others show
    others: Volume  # what the others make, around it

    @property
    def distance_mm(self) -> float:
        return math.hypot(*self.shift_mm)

    @property
    def is_at_edge(self) -> bool:
        """Whether it may fit better yet farther away."""
        return max(map(abs, self.shift_mm)) > 0.98 * REACH_MM


@dataclass(frozen=True)
class LeftOut:
    """What frames that were left out tell."""

    frames: tuple[LeftOutFrame, ...]
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
    def holds(self) -> bool:
        return self.usual_mm <= HOLDS_MM and self.p95_mm <= ROUGHLY_MM

    @property
    def verdict(self) -> str:
        """In one line, how well the poses hold."""
        told = (
            f"{len(self.frames)} frames left out fit best {self.usual_mm:.2g} mm from where the tracker has them "
            f"(95 %: {self.p95_mm:.2g} mm)"
        )
        if self.holds:
            return f"{told}: the poses hold"
        if self.usual_mm <= ROUGHLY_MM:
            return f"{told}: the poses hold roughly; {self._why}"
        return f"{told}: the poses do not hold; {self._why}"

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
            "holds": self.holds,
            "frames": len(self.frames),
            "frames_in_a_run": self.run_frames,
            "uncovered_frames": self.uncovered,
            "at_the_edge_of_the_search": sum(frame.is_at_edge for frame in self.frames),
            "voxel_mm": round(self.voxel_mm, 4),
            "correlation": _rounded(np.median([frame.correlation for frame in self.frames])),
            "best_correlation": _rounded(np.median([frame.best for frame in self.frames])),
            "shift_mm": {
                "median": _rounded(self.usual_mm),
                "p95": _rounded(self.p95_mm),
                "largest": _rounded(self.distances_mm.max()),
                "mean_lateral": _rounded(lateral),
                "mean_axial": _rounded(axial),
                "mean_across": _rounded(across),
            },
            "jitter_mm": None if math.isnan(self.jitter_mm) else _rounded(self.jitter_mm),
            "steady_mm": _rounded(self.steady_mm),
            "each": [
                {
                    "sweep": frame.sweep,
                    "frame": frame.number,
                    "correlation": _rounded(frame.correlation),
                    "best_correlation": _rounded(frame.best),
                    "shift_mm": [_rounded(part) for part in frame.shift_mm],
                }
                for frame in self.frames
            ],
        }


def _rms(vectors: Array) -> float:
    return float(np.sqrt(np.square(vectors).sum(-1).mean()))


def _rounded(number: Any) -> float:
    return round(float(number), 3)


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
    bridge_mm: float,
    count: Callable[[int, int], None] = lambda done, of: None,
) -> LeftOut | None:
    """Frames of all sweeps against the volume of the others, from the sums of all; None where there are too few."""
    finer, totals = totals, totals.pooled(_factor(totals.grid))
    runs = [(sweep, number, rows) for sweep in sweeps for number, rows in enumerate(runs_of(sweep))]
    found: list[LeftOutFrame] = []
    uncovered = 0
    for done, (sweep, number, rows) in enumerate(runs):
        count(done, len(runs))
        for frame in _compared(sweep, number, rows, totals, finer.grid, bridge_mm):
            if frame.cover >= _LEAST_COVER:
                found.append(frame)
            else:
                uncovered += 1
    if runs:
        count(len(runs), len(runs))
    longest = max((len(rows) for _, _, rows in runs), default=0)
    return LeftOut(tuple(found), uncovered, longest, totals.grid.spacing_mm) if len(found) > 2 else None


def _factor(grid: Grid) -> int:
    """How many times as large voxels have to be."""
    factor = 1
    while math.prod(n // factor for n in grid.shape) > _MOST_VOXELS:
        factor += 1
    return factor


def _compared(
    sweep: TrackedSweep, number: int, rows: Sequence[int], totals: Totals, finer: Grid, bridge_mm: float
) -> Iterator[LeftOutFrame]:
    """Some frames of a run against what is left without it, however long the hole that it leaves."""
    before, after = max(rows[0] - 1, 0), min(rows[-1] + 1, len(sweep) - 1)
    places = corners_mm(sweep.subset(range(before, after + 1)))
    hole_mm = float(np.linalg.norm(places[-1] - places[0], axis=-1).max())
    bridge_mm = max(bridge_mm, 2 * hole_mm)
    part = _around(places, totals.grid, REACH_MM + bridge_mm)
    left = totals.without(_run(sweep, rows, part, totals.grid, finer)).voxels(bridge_mm)
    others = Volume(left.values, part.spacing_mm, part.first_mm.tolist(), part.axes, frame_of_reference=WORLD)
    shown = torch.where(left.states == EMPTY, torch.nan, left.values)
    chosen = dict.fromkeys(np.linspace(0, len(rows) - 1, min(_OF_RUN, len(rows))).round().astype(int).tolist())
    for place in chosen:
        yield _best_fit(sweep, rows[place], number, others, shown, part)


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


def _best_fit(sweep: TrackedSweep, row: int, run: int, others: Volume, shown: Tensor, grid: Grid) -> LeftOutFrame:
    """Where around the tracker's place a frame is most like what is `shown`, NaN where nothing is."""
    points, values, _ = next(blocks_of(sweep, [row], grid))
    axes = torch.from_numpy(sweep.image_to_world[row, :3, :3].T @ grid.axes / grid.spacing_mm).float()  # mm to voxels

    def alike(shifts_mm: Tensor, most: int) -> tuple[Tensor, Tensor]:
        step = max(points.shape[1] // most, 1)
        return correlations_at(shown, points[:, ::step], values[::step], shifts_mm @ axes)

    here, cover = (float(each[0]) for each in alike(torch.zeros(1, 3), _MANY))
    if cover < _LEAST_COVER:
        return LeftOutFrame(sweep.name, row, sweep.number(row), run, here, here, (0.0, 0.0, 0.0), cover, others)
    at, best = torch.zeros(3), here
    step_mm, steps, most = REACH_MM / _FIRST_STEPS, _FIRST_STEPS, _FEW
    while step_mm > _FINEST_MM:
        shifts = at + _cube(steps) * step_mm
        shifts = shifts[shifts.abs().amax(1) <= REACH_MM]
        found, covered = alike(shifts, most)
        found = torch.where(covered >= _KEPT_COVER * cover, found, -1.0)
        place = int(found.argmax())
        at, best = shifts[place], float(found[place])
        step_mm, steps, most = step_mm / 2, 1, _MANY
    lateral, axial, across = at.tolist()
    return LeftOutFrame(
        sweep.name, row, sweep.number(row), run, here, max(best, here), (lateral, axial, across), cover, others
    )


def _cube(steps: int) -> Tensor:
    """Whole steps to all sides, none first: of places that are as good, the tracker's counts."""
    line = torch.arange(-steps, steps + 1).float()
    cube = torch.stack(torch.meshgrid(line, line, line, indexing="ij"), -1).reshape(-1, 3)
    return cube[cube.square().sum(1).argsort(stable=True)]
