"""Trust: whether a result may be believed, in the words of whatever the method says of it."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from scopereg.errors import ScopeRegError
from scopereg.registration.result import Result

Light = Literal["green", "amber", "red"]


class Trust(NamedTuple):
    """Methods may tell more or less; what they do not tell is None, or empty."""

    ok: bool | None  # None: nobody judged it, since the method is not calibrated
    confidence: float | None  # 0 to 1
    expected_mm: float | None
    reason: str

    @property
    def text(self) -> str:
        """In one line."""
        parts = [
            "" if self.confidence is None else f"confidence {self.confidence:.2f}",
            "" if self.expected_mm is None else f"expected error {self.expected_mm:.1f} mm",
            self.reason,
        ]
        return ", ".join(part for part in parts if part)


def trust_in(result: Result | None, error: ScopeRegError | None = None) -> Trust:
    """What a result says of itself; where nothing was found, nothing is ok."""
    if result is None:
        return Trust(False, None, None, " ".join(error.what.split()) if error is not None else "no result")
    return Trust(result.ok, _number(result.confidence), _number(result.expected_mm), " ".join(result.reason.split()))


def light_of(result: Result | None) -> Light:
    """Green: believe it. Amber: it may well be wrong, or nobody can tell. Red: not of this volume, or not found."""
    if result is None or result.belongs is False:
        return "red"
    return "green" if result.ok else "amber"


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
