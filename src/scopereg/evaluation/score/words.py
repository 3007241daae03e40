"""Words: what scores come to, in lines for terminals and pages."""

from __future__ import annotations

import math

from scopereg.evaluation.score.scores import Scores, Summary
from scopereg.evaluation.score.states import NO_POSE, NO_TRUTH
from scopereg.geometry import SUCCESS_MM


def title_of(scores: Scores) -> str:
    """What is compared with what, how many of it, and what could not be."""
    summary = scores.summary
    told = {"not located": summary.frames - summary.located, "without truth": len(scores.of_state(NO_TRUTH))}
    told["of the truth without a pose"] = len(scores.of_state(NO_POSE))
    left_out = ", ".join(f"{count} {what}" for what, count in told.items() if count)
    kind = "landmarks" if scores.of_landmarks else "frames"
    return f"{scores.name} against {scores.against}: {summary.frames} {kind}" + (f" ({left_out})" if left_out else "")


def facts_of(scores: Scores) -> dict[str, str]:
    """Errors, shares, and what was said of the poses, by what they are."""
    summary = scores.summary
    facts = {
        "TRE" if scores.of_landmarks else "mTRE": f"mean {summary.mean_mm:.2f}, median {summary.median_mm:.2f}, "
        f"95 % {summary.p95_mm:.2f}, max {summary.max_mm:.2f} mm",
        f"{SUCCESS_MM:g} mm": within(summary),
    }
    if not scores.of_landmarks:
        facts["means"] = (
            f"translation {summary.translation_mm:.2f} mm, rotation {summary.rotation_deg:.2f} degrees (Euler angles), "
            f"{summary.geodesic_deg:.2f} degrees (geodesic)"
        )
    return facts if summary.ok is None else {**facts, "verdict": verdicts(summary)}


def within(summary: Summary) -> str:
    """The share of small errors and its interval."""
    low, high = summary.within_interval
    share = f"{summary.within} of {summary.frames} within, {100 * summary.within_share:.1f} %"
    return f"{share} (95 % interval {100 * low:.1f} to {100 * high:.1f})"


def verdicts(summary: Summary) -> str:
    """How many poses were called reliable, and how right that was."""
    told = [
        f"{summary.ok} ok, {summary.ok_wrong} of them wrong by more than {SUCCESS_MM:g} mm",
        f"{summary.refused} not ok, {summary.refused_right} of them right",
    ]
    if math.isfinite(summary.expected_mm):
        told.append(f"expected {summary.expected_mm:.2f} mm (mean)")
    if math.isfinite(summary.below_bound):
        told.append(f"{100 * summary.below_bound:.0f} % below their 95 % bound")
    return "; ".join(told)
