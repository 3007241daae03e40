"""Agreement: whether a sweep shows what others show where both lie; what else would tell that they do not belong so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scopereg.compounding.fitting import FittedFrame, Others, evenly, rounded
from scopereg.compounding.left_out import AGREE_MM, ROUGHLY_MM
from scopereg.io.sweeps import TrackedSweep

REACH_MM, _STEPS = 10.0, 5
_FRAMES = 12  # of a sweep, that are compared
_LEAST_COVER, _LEAST_FRAMES = 0.25, 2
_LIKE = 0.3  # correlation below which nothing is in common


@dataclass(frozen=True)
class Agreement:
    """Some frames of a sweep where the others show the same, and how many were looked at."""

    sweep: str
    frames: tuple[FittedFrame, ...]
    of: int

    @property
    def usual_mm(self) -> float:
        """Median distance from where a frame lies to where it fits best."""
        return float(np.median([frame.distance_mm for frame in self.frames])) if self.frames else float("nan")

    @property
    def best(self) -> float:
        """Median correlation there."""
        return float(np.median([frame.best for frame in self.frames])) if self.frames else float("nan")

    @property
    def fits(self) -> bool | None:
        """None where they show too little in common to tell."""
        if len(self.frames) < _LEAST_FRAMES or self.best < _LIKE:
            return None
        return self.usual_mm <= ROUGHLY_MM

    @property
    def verdict(self) -> str:
        """In one line."""
        shown = f"{len(self.frames)} of {self.of} frames"
        if len(self.frames) < _LEAST_FRAMES:
            return f"{shown} show what the others do: nothing tells whether it lies where it belongs"
        if self.best < _LIKE:
            return f"{shown} lie where the others do and are not like them: nothing tells whether it belongs there"
        told = f"{shown} show what the others do, and fit best {self.usual_mm:.2g} mm from where they lie"
        if self.usual_mm <= AGREE_MM:
            return f"{told}: it fits"
        return f"{told}: it {'fits roughly' if self.fits else 'does not fit'}"

    @property
    def facts(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "sweep": self.sweep,
            "verdict": self.verdict,
            "fits": self.fits,
            "frames": len(self.frames),
            "of": self.of,
            "shift_mm": rounded(self.usual_mm) if self.frames else None,
            "best_correlation": rounded(self.best) if self.frames else None,
            "each": [frame.facts for frame in self.frames],
        }


def agreement_with(others: Others, sweep: TrackedSweep, rows: Sequence[int] | None = None) -> Agreement:
    """Some frames of a sweep, or these, against what others show."""
    chosen = [rows[place] for place in evenly(len(rows), _FRAMES)] if rows else evenly(len(sweep), _FRAMES)
    fitted = (
        others.fit(sweep, row, number, reach_mm=REACH_MM, steps=_STEPS, least_cover=_LEAST_COVER)
        for number, row in enumerate(chosen)
    )
    return Agreement(sweep.name, tuple(frame for frame in fitted if frame.cover >= _LEAST_COVER), len(chosen))
