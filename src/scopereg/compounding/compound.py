"""Compounded: the volume that tracked sweeps make, where its voxels come from, and how well the poses hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from scopereg.compounding.chosen_grid import choose_grid
from scopereg.compounding.left_out import LeftOut, leave_out
from scopereg.compounding.motion import check_motion, motion_of
from scopereg.compounding.settings import CompoundSettings
from scopereg.compounding.totals import BRIDGED, EMPTY, IMAGE, Peaks, Totals, Voxels, totals_of
from scopereg.data.compound import Grid
from scopereg.errors import ScopeRegError
from scopereg.images import Volume
from scopereg.io.sweeps import WORLD, TrackedSweep
from scopereg.ops.splat import make_ready
from scopereg.progress import counting, timed

USUAL = CompoundSettings()
_WORTH_A_WORD_MM = 0.1


@dataclass(frozen=True, eq=False)
class Holes:
    """How many voxels come from frames, how many were bridged, and what is still empty."""

    image: int
    bridged: int
    empty: int
    longest_mm: float  # of what was bridged

    def words(self, bridge_mm: float) -> str:
        """In one line, with the distance up to which holes are bridged."""
        every = self.image + self.bridged + self.empty
        image, bridged, empty = (f"{100 * count / every:.1f} %" for count in (self.image, self.bridged, self.empty))
        told = (
            f"{image} of the voxels come from frames; holes up to {bridge_mm:g} mm are bridged, {bridged} of the voxels"
        )
        return f"{told} ({self.bridged:,}); {empty} are empty"

    @property
    def facts(self) -> dict[str, Any]:
        every = self.image + self.bridged + self.empty
        shares = {"image_share": self.image, "bridged_share": self.bridged, "empty_share": self.empty}
        return {
            "image_voxels": self.image,
            "bridged_voxels": self.bridged,
            "empty_voxels": self.empty,
            **{name: round(count / every, 4) for name, count in shares.items()},
            "longest_bridge_mm": round(self.longest_mm, 2),
            "bridged_by": "linear between the two nearest voxels with an image, along the axis of the shortest gap",
        }


@dataclass(frozen=True, eq=False)
class Compounded:
    """A volume in the tracker's world, and all that is to be known of it."""

    volume: Volume
    voxel_mm: float
    states: Tensor  # (D, H, W), uint8: EMPTY, IMAGE or BRIDGED
    sweeps: tuple[TrackedSweep, ...]  # as they were used
    settings: CompoundSettings
    why: str  # its voxels have this size
    holes: Holes
    left_out: LeftOut | None
    notes: tuple[str, ...]

    @property
    def filled(self) -> Tensor:
        """Voxels (D, H, W) that hold an image."""
        return self.states > EMPTY

    @property
    def frames(self) -> int:
        return sum(len(sweep) for sweep in self.sweeps)

    @property
    def facts(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "voxel_mm": self.voxel_mm,
            "voxel_mm_why": self.why,
            "size": list(self.volume.size),
            "extent_mm": [round(length, 2) for length in self.volume.extent_mm],
            "origin_mm": list(self.volume.origin_mm),
            "direction_lps": self.volume.direction.tolist(),
            "mode": self.settings.mode,
            "frames": self.frames,
            "sweeps": [_told(sweep) for sweep in self.sweeps],
            "holes": {"bridge_mm": self.settings.bridge_mm, **self.holes.facts},
            "left_out": None if self.left_out is None else self.left_out.facts,
            "notes": list(self.notes),
        }


def compound_sweeps(
    sweeps: TrackedSweep | Sequence[TrackedSweep], settings: CompoundSettings = USUAL, *, left_out: bool = True
) -> Compounded:
    """One volume of all frames of some sweeps, which must lie in one world.

    The grid follows the mean frame: x along image rows, y down columns, z along their normal. Frames are averaged over
    blocks of about half a voxel, and each block is shared out among the eight voxels around it. With `left_out` frames
    are compared with the volume that the others make.
    """
    given = [sweeps] if isinstance(sweeps, TrackedSweep) else list(sweeps)
    if not given:
        raise ScopeRegError("there is no sweep", where="compound_sweeps(sweeps)", fix="pass one or more")
    prepared = [_prepared(sweep, settings) for sweep in given]
    ready = [sweep for sweep, _ in prepared]
    notes = [note for _, told in prepared for note in told]
    chosen = choose_grid(ready, settings)
    make_ready()
    totals = totals_of(settings.mode, chosen.grid)
    _add_all(ready, totals.add, "compounding")
    with timed("bridged holes"):
        voxels = totals.voxels(settings.bridge_mm)
    tested = _left_out(ready, totals, chosen.grid, settings) if left_out else None
    if left_out and tested is None:
        notes.append("too few frames, or too far apart, to leave any out: nothing tells how well their poses hold")
    volume = Volume(
        voxels.values, chosen.grid.spacing_mm, chosen.grid.first_mm.tolist(), chosen.grid.axes, frame_of_reference=WORLD
    )
    holes = _holes(voxels, chosen.grid)
    return Compounded(
        volume,
        chosen.grid.spacing_mm,
        voxels.states,
        tuple(ready),
        settings,
        chosen.why,
        holes,
        tested,
        tuple(notes),
    )


def _prepared(sweep: TrackedSweep, settings: CompoundSettings) -> tuple[TrackedSweep, list[str]]:
    """The frames that count of a sweep, and what was left out."""
    notes = [f"{sweep.name}: {note}" for note in sweep.facts.get("notes", ())]
    moved_mm = float(sweep.facts.get("calibration_moved_mm", 0.0))
    if moved_mm > _WORTH_A_WORD_MM:
        skew = float(sweep.facts.get("calibration_skew", 0.0))
        notes.append(
            f"{sweep.name}: the calibration's axes are not square (cosine {skew:.3f}): "
            f"a corner moves by {moved_mm:.1f} mm"
        )
    dropped: dict[str, int] = sweep.facts.get("dropped", {})
    if dropped:
        reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.items())
        notes.append(f"{sweep.name}: {sum(dropped.values())} of {len(sweep) + sum(dropped.values())} frames: {reasons}")
    rows = range(0, len(sweep), settings.every)
    used = sweep if settings.every == 1 else sweep.subset(rows)
    motion = motion_of(used)
    if motion.leaps:
        leaping = [used.number(row) for row in motion.leaps]
        shown = ", ".join(map(str, leaping[:5])) + ", ..." * (len(leaping) > 5)
        plural = "s" * (len(leaping) != 1)
        notes.append(f"{sweep.name}: the tracker leaps to frame{plural} {shown} and back: left out")
        used = used.subset([row for row in range(len(used)) if row not in set(motion.leaps)])
        used = replace(used, facts={**used.facts, "leaps": leaping})
    if motion.repeated:
        notes.append(
            f"{sweep.name}: {motion.repeated} of {len(rows)} frames have the very pose of the frame before: "
            "the probe stood still, or the tracker was slower than the images"
        )
    if settings.clip is not None:
        used = _clipped(used, settings.clip)
    check_motion(used, sweep.name)
    return used, notes


def _clipped(sweep: TrackedSweep, clip: tuple[int, int, int, int]) -> TrackedSweep:
    x, y, width, height = clip
    inside = torch.zeros_like(sweep.seen)
    if min(clip) >= 0:
        inside[y : y + height, x : x + width] = True
    mask = sweep.seen & inside
    if not bool(mask.any()):
        rows, columns = sweep.seen.shape
        raise ScopeRegError(
            f"nothing is seen in {' '.join(map(str, clip))} of images of {columns} x {rows} pixels",
            where="clip=",
            fix="pass X Y WIDTH HEIGHT in pixels, counted from the corner at the left above",
        )
    return replace(sweep, mask=mask)


def _add_all(sweeps: Sequence[TrackedSweep], add: Callable[..., None], label: str) -> None:
    every, done = sum(len(sweep) for sweep in sweeps), 0
    with counting(label) as count:
        for sweep in sweeps:

            def more(frames: int) -> None:
                nonlocal done
                done += frames
                count(done, every)

            add(sweep, range(len(sweep)), more)


def _left_out(
    sweeps: Sequence[TrackedSweep], totals: Totals | Peaks, grid: Grid, settings: CompoundSettings
) -> LeftOut | None:
    """Of means, whatever the volume shows."""
    if isinstance(totals, Peaks):
        totals = Totals.empty(grid)
        for sweep in sweeps:
            totals.add(sweep, range(len(sweep)))
    with timed("left frames out"), counting("leaving frames out") as count:
        return leave_out(sweeps, totals, settings.bridge_mm, count)


def _holes(voxels: Voxels, grid: Grid) -> Holes:
    counts = torch.bincount(voxels.states.flatten(), minlength=3).tolist()
    longest = float(voxels.gaps.max() - 1) * grid.spacing_mm if counts[BRIDGED] else 0.0
    return Holes(counts[IMAGE], counts[BRIDGED], counts[EMPTY], longest)


def _told(sweep: TrackedSweep) -> dict[str, Any]:
    motion = motion_of(sweep)
    return {
        "name": sweep.name,
        "frames": len(sweep),
        "pixel_mm": list(sweep.spacing_mm),
        "seen_share": round(float(sweep.seen.float().mean()), 4),
        "path_mm": round(motion.path_mm, 1),
        "step_mm": round(motion.step_mm, 3),
        **sweep.facts,
    }
