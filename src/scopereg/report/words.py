"""Words: what a page says of a verdict where there is little room; what it rests on stands once, elsewhere."""

from __future__ import annotations

from collections.abc import Iterable

from scopereg.registration.result import Assessment, Result


def brief(told: Assessment) -> str:
    """The verdict, why, and the errors to expect where they are known."""
    reason = told.reason.removeprefix(f"{told.word.lower()}: ")
    lengths = [
        "" if told.expected_mm is None else f"expected {told.expected_mm:.1f} mm",
        "" if told.bound_mm is None else f"95 % below {told.bound_mm:.1f} mm",
    ]
    said = "; ".join(part for part in (reason, *told.hints, ", ".join(filter(None, lengths))) if part)
    return f"{told.word}: {said}" if said else told.word


def calibrations(results: Iterable[Result]) -> list[str]:
    """What the verdicts of some results rest on, each once."""
    told = dict.fromkeys(result.calibrated_on for result in results)
    return [f"verdicts are calibrated on {words}" for words in told if words]
