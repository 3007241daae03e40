"""Compounded: the volume that tracked sweeps make, where its voxels come from, and how well the poses hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from scopereg.compounding.agreement import Agreement, agreement_with
from scopereg.compounding.chosen_grid import choose_grid
from scopereg.compounding.fitting import Others
from scopereg.compounding.joining import Joined, join_sweeps
from scopereg.compounding.left_out import LeftOut, leave_out
from scopereg.compounding.motion import motion_of
from scopereg.compounding.ready import check_worlds, ready_sweep
from scopereg.compounding.settings import CompoundSettings, JoinSettings
from scopereg.compounding.totals import BRIDGED, EMPTY, IMAGE, Peaks, Totals, Voxels
from scopereg.data.compound import Grid
from scopereg.errors import ScopeRegError
from scopereg.images import Volume
from scopereg.io.sweeps import WORLD, TrackedSweep
from scopereg.ops.splat import make_ready
from scopereg.progress import counting, timed

USUAL = CompoundSettings()


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
    agreements: tuple[Agreement, ...]  # of each sweep but the first with the others
    joined: tuple[Joined, ...]  # what became of those that were to be registered onto the first
    notes: tuple[str, ...]

    @property
    def filled(self) -> Tensor:
        """Voxels (D, H, W) that hold an image."""
        return self.states > EMPTY

    @property
    def frames(self) -> int:
        return sum(len(sweep) for sweep in self.sweeps)

    @property
    def doubts(self) -> list[str]:
        """Sweeps that are in it and fit the others somewhere else."""
        return [f"{each.sweep}: {each.verdict}" for each in self.agreements if each.fits is False]

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
            "agreements": [agreement.facts for agreement in self.agreements],
            "joined": [one.facts for one in self.joined],
            "notes": list(self.notes),
        }


def compound_sweeps(
    sweeps: TrackedSweep | Sequence[TrackedSweep],
    settings: CompoundSettings = USUAL,
    *,
    join: JoinSettings | None = None,
    left_out: bool = True,
) -> Compounded:
    """One volume of all frames of some sweeps. They must lie in one world, or `join` registers them onto the first.

    The grid follows the mean frame: x along image rows, y down columns, z along their normal. Frames are averaged over
    blocks of about half a voxel, and each block is shared out among the eight voxels around it. With `left_out` frames
    are compared with the volume that the others make. What cannot be joined is left out and told in `joined`.
    """
    given = [sweeps] if isinstance(sweeps, TrackedSweep) else list(sweeps)
    if not given:
        raise ScopeRegError("there is no sweep", where="compound_sweeps(sweeps)", fix="pass one or more")
    told = [ready_sweep(sweep, settings) for sweep in given]
    ready, joined = [sweep for sweep, _ in told], list[Joined]()
    notes = [note for _, some in told for note in some]
    make_ready()
    if join is not None and len(ready) > 1:
        ready, joined = join_sweeps(ready, settings, join)
    else:
        check_worlds(ready)
    chosen = choose_grid(ready, settings)
    voxels, sums = _gathered(ready, chosen.grid, settings, left_out=left_out)
    tested = _left_out(ready, sums, chosen.grid, settings) if left_out else None
    if left_out and tested is None:
        notes.append("too few frames, or too far apart, to leave any out: nothing tells how well their poses hold")
    if not bool(voxels.states.any()):
        raise ScopeRegError(
            "no frame passes through it", where="roi=", fix="pass a part of the world in which frames lie, in LPS mm"
        )
    volume = Volume(
        voxels.values, chosen.grid.spacing_mm, chosen.grid.first_mm.tolist(), chosen.grid.axes, frame_of_reference=WORLD
    )
    return Compounded(
        volume,
        chosen.grid.spacing_mm,
        voxels.states,
        tuple(ready),
        settings,
        chosen.why,
        _holes(voxels, chosen.grid),
        tested,
        tuple(_agreements(ready, sums, settings)) if left_out else (),
        tuple(joined),
        tuple(notes),
    )


def _gathered(
    sweeps: Sequence[TrackedSweep], grid: Grid, settings: CompoundSettings, *, left_out: bool
) -> tuple[Voxels, list[Totals]]:
    """The voxels of the volume, and for comparing frames with it the pooled sums of each sweep."""
    mean = settings.mode == "mean"
    totals = Totals.empty(grid) if mean or left_out else None
    peaks = None if mean else Peaks.empty(grid)
    every, done, each = sum(len(sweep) for sweep in sweeps), 0, list[Totals]()
    with counting("compounding") as count:

        def more(frames: int) -> None:
            nonlocal done
            done += frames
            count(done, every)

        for sweep in sweeps:
            if totals is not None:
                totals.add(sweep, range(len(sweep)), more if mean else _quietly)
                each.append(totals.for_comparing(kept=len(sweeps) > 1))
            if peaks is not None:
                peaks.add(sweep, range(len(sweep)), more)
    with timed("bridged holes"):
        made = totals if peaks is None else peaks
        assert made is not None
        voxels = made.voxels(settings.bridge_mm)
    return voxels, [each[0], *(after.less(before) for before, after in pairwise(each))] if each else []


def _quietly(_: int) -> None:
    pass


def _left_out(
    sweeps: Sequence[TrackedSweep], sums: Sequence[Totals], finer: Grid, settings: CompoundSettings
) -> LeftOut | None:
    """Of means, whatever the volume shows."""
    with timed("left frames out"), counting("leaving frames out") as count:
        return leave_out(sweeps, Totals.of_all(sums), finer, settings.bridge_mm, count)


def _agreements(
    sweeps: Sequence[TrackedSweep], sums: Sequence[Totals], settings: CompoundSettings
) -> Iterator[Agreement]:
    """Each sweep but the first with all others."""
    for place in range(1, len(sweeps)):
        rest = Totals.of_all([one for other, one in enumerate(sums) if other != place])
        yield agreement_with(Others(rest.voxels(settings.bridge_mm), rest.grid), sweeps[place])


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
