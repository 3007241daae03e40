"""Path: where frames lay one after the other, and when, for a page that plays them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from scopereg.geometry import Pose
from scopereg.viewer.packets import flat, number


@dataclass(frozen=True)
class Step:
    """One frame of a path."""

    pose: Pose  # ImageToVolume
    file: str = ""
    index: int = 0  # in that file
    time_s: float = math.nan  # NaN where nobody knows
    volume: str = ""  # whatever tells volumes apart: poses in one of them are no place in another


def path_of(steps: Sequence[Step]) -> dict[str, Any] | None:
    """Ready for JSON: `poses` (three rows of each), `times_s` or None, `groups`, `follows`; None of a single frame.

    Steps of one group lie in one volume. A step follows the one before it unless frames between them are missing.
    """
    if len(steps) < 2:
        return None
    groups: dict[str, int] = {}
    return {
        "poses": [flat(step.pose.matrix[:3]) for step in steps],
        "times_s": _times(steps),
        "groups": [groups.setdefault(step.volume, len(groups)) for step in steps],
        "follows": [int(row > 0 and _follows(steps[row - 1], step)) for row, step in enumerate(steps)],
    }


def _times(steps: Sequence[Step]) -> list[float | None] | None:
    """None unless every step has one and none goes back."""
    times = [step.time_s for step in steps]
    if not all(map(math.isfinite, times)) or any(b < a for a, b in pairwise(times)):
        return None
    return [number(time - times[0], 4) for time in times]


def _follows(before: Step, after: Step) -> bool:
    return after.volume == before.volume and (after.file != before.file or after.index == before.index + 1)
