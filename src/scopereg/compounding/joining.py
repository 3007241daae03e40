"""Joining: sweeps of trackers that do not know one another, each found in the volume of the first.

A sweep is one rigid body: some of its frames are located together in that volume. It is joined only if nothing speaks
against the pose, its frames are reliable there, and they fit there best where they then lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scopereg.compounding.agreement import Agreement, agreement_with
from scopereg.compounding.chosen_grid import choose_grid
from scopereg.compounding.fitting import Others, evenly, rounded
from scopereg.compounding.settings import CompoundSettings, JoinSettings
from scopereg.compounding.totals import Totals
from scopereg.data.compound import blocks_of, corners_mm
from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame
from scopereg.io.sweeps import WORLD, TrackedSweep
from scopereg.ops.correlation import correlations_at
from scopereg.progress import say
from scopereg.registration.body import BODY
from scopereg.registration.locator import Locator
from scopereg.registration.method import parse
from scopereg.registration.together import Together

_FRAMES = 9  # of a sweep, that are located together
_LEAST_COVER = 0.25  # of a frame near which it is sought
FIRST = "First"


@dataclass(frozen=True)
class Joined:
    """What became of a sweep that was to be joined to the first."""

    sweep: str
    reason: str  # why it was not; empty where it was
    pose: Pose | None = None  # from its world to that of the first
    moved_mm: float = 0.0  # what that does to its frames, on the mean
    turned_deg: float = 0.0
    reliable: int = 0  # frames that are reliable there
    counted: int = 0  # of so many that had a part in it
    agreement: Agreement | None = None

    @property
    def ok(self) -> bool:
        return not self.reason

    @property
    def verdict(self) -> str:
        """In one line."""
        if self.pose is None or self.reason:
            return f"{self.sweep} is not joined: {self.reason}"
        told = f"{self.sweep} is joined, moved by {self.moved_mm:.1f} mm and {self.turned_deg:.1f} degrees"
        fit = "" if self.agreement is None else f"; {self.agreement.verdict}"
        return f"{told}: {self.reliable} of {self.counted} frames are reliable there{fit}"

    @property
    def facts(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "sweep": self.sweep,
            "ok": self.ok,
            "verdict": self.verdict,
            "world_to_first": None if self.pose is None else self.pose.matrix.tolist(),
            "moved_mm": rounded(self.moved_mm),
            "turned_deg": rounded(self.turned_deg),
            "reliable_frames": self.reliable,
            "counted_frames": self.counted,
            "agreement": None if self.agreement is None else self.agreement.facts,
        }


def join_sweeps(
    sweeps: Sequence[TrackedSweep], settings: CompoundSettings, join: JoinSettings
) -> tuple[list[TrackedSweep], list[Joined]]:
    """The first and those that were found in it, in its world; and what became of each of the others.

    An error if none was found.
    """
    first, *rest = sweeps
    grid = choose_grid([first], replace(settings, roi=None)).grid
    totals = Totals.empty(grid)
    totals.add(first, range(len(first)))
    small = totals.for_comparing()
    others = Others(small.voxels(settings.bridge_mm), small.grid)
    locator = Locator(others.volume, str(parse(join.method).persistent(fallback=False)), device=join.device)
    joined = []
    for sweep in rest:
        say(f"joining {sweep.name} to {first.name}")
        joined.append(_join(sweep, locator, others, near=join.how == "near"))
    moved = [
        replace(sweep, image_to_world=one.pose.matrix @ sweep.image_to_world)
        for sweep, one in zip(rest, joined, strict=True)
        if one.ok and one.pose is not None
    ]
    if not moved:
        raise ScopeRegError(
            "; ".join(one.verdict for one in joined),
            where="join=",
            fix="pass sweeps that show the same and overlap, another method=, or compound each by itself",
        )
    return [first, *moved], joined


def _join(sweep: TrackedSweep, locator: Locator, others: Others, *, near: bool) -> Joined:
    rows = evenly(len(sweep), _FRAMES)
    if near:
        seen = [row for row in range(len(sweep)) if _cover(others, sweep, row) >= _LEAST_COVER]
        rows = [seen[place] for place in evenly(len(seen), _FRAMES)] if seen else []
        if len(rows) < 2:
            return Joined(sweep.name, "it lies nowhere near the first; say that it may lie anywhere: join=anywhere")
    start = Pose.identity(BODY, WORLD) if near else None
    frames = [_frame(sweep, row) for row in rows]
    try:
        together = locator.locate_together(frames, [sweep.pose(row) for row in rows], start)
    except ScopeRegError as error:
        return Joined(sweep.name, error.what)
    return _judged(sweep, together, others)


def _judged(sweep: TrackedSweep, together: Together, others: Others) -> Joined:
    pose = Pose(together.pose.rotation, together.pose.translation_mm, WORLD, FIRST)
    middles = corners_mm(sweep).mean(1)
    moved_mm = float(np.linalg.norm(pose.apply(middles) - middles, axis=1).mean())
    counted = [one.ok for one, counts in zip(together.frames, together.counts, strict=True) if counts]
    there = replace(sweep, image_to_world=pose.matrix @ sweep.image_to_world)
    seen = [row for row in range(len(there)) if _cover(others, there, row) >= _LEAST_COVER]
    agreement = agreement_with(others, there, seen) if seen else Agreement(sweep.name, (), len(sweep))
    turned_deg = pose.angle_to_deg(Pose(np.eye(3), np.zeros(3), WORLD, FIRST))
    reliable = sum(ok is True for ok in counted)
    found = Joined(sweep.name, "", pose, moved_mm, turned_deg, reliable, len(counted), agreement)
    return replace(found, reason=_reason(found, together))


def _reason(found: Joined, together: Together) -> str:
    """Why it may not be joined there; empty where nothing says so."""
    if together.ok is False:
        return together.whole.reason or "the pose is not reliable"
    if together.ok is None and 2 * found.reliable < max(found.counted, 3):
        return f"only {found.reliable} of {found.counted} frames are reliable where it would lie"
    assert found.agreement is not None
    return "" if found.agreement.fits else found.agreement.verdict


def _cover(others: Others, sweep: TrackedSweep, row: int) -> float:
    """The share of a frame that the first shows, by some of its pixels."""
    points, values, _ = next(blocks_of(sweep, [row], others.grid))
    every = max(points.shape[1] // 500, 1)
    _, covered = correlations_at(others.shown, points[:, ::every], values[::every], points.new_zeros(1, 3))
    return float(covered[0])


def _frame(sweep: TrackedSweep, row: int) -> Frame:
    """A frame of which what the transducer sees counts alone."""
    frame = sweep.frame(row)
    return Frame(frame.array, frame.spacing_mm, frame.origin_mm, mask=sweep.seen)
