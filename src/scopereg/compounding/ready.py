"""Ready: sweeps with the frames that count, what was left out of them told; errors for what makes no volume."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from scopereg.compounding.motion import check_motion, motion_of
from scopereg.compounding.settings import CompoundSettings
from scopereg.errors import ScopeRegError
from scopereg.io.sweeps import TrackedSweep

_WORTH_A_WORD_MM = 0.1


def check_worlds(sweeps: Sequence[TrackedSweep]) -> None:
    """An error where files say that sweeps do not lie in one world."""
    worlds = list(dict.fromkeys(str(sweep.facts["world"]) for sweep in sweeps if "world" in sweep.facts))
    if len(worlds) > 1:
        raise ScopeRegError(
            f"they lie in different worlds: {', '.join(worlds)}",
            where="compound_sweeps(sweeps)",
            fix="name one that all of them know: reference=, or have them registered onto the first: join=near",
        )


def ready_sweep(sweep: TrackedSweep, settings: CompoundSettings) -> tuple[TrackedSweep, list[str]]:
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
