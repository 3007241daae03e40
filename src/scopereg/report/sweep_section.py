"""Section of a report: sequences that were followed, as traces over time (`track.csv` of `scopereg track`)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from scopereg.evaluation.tables import NOTHING
from scopereg.geometry import SUCCESS_MM
from scopereg.registration.track import STATES, Step, compared, read_track
from scopereg.report.page import Report
from scopereg.report.track_page import error_trace, trust_trace

_COLUMNS = ("sweep", "frames", *STATES, "expected, median", "ok")
_ERRORS = ("sweep", "way", "frames", "mean", "median", "largest", f"within {SUCCESS_MM:g} mm")


class Sweep(NamedTuple):
    """A sequence that was followed."""

    path: Path  # of its table
    steps: list[Step]

    @property
    def name(self) -> str:
        """The folder tells sweeps apart; the method is that of the first frame that has one."""
        method = next((step.method for step in self.steps if step.method), "")
        return f"{self.path.parent.name or self.path.name}" + (f" ({method})" if method else "")


def read_sweeps(paths: Sequence[Path]) -> list[Sweep]:
    """Sequences from their tables."""
    return [Sweep(path, read_track(path)) for path in paths]


def add_sweeps(report: Report, sweeps: Sequence[Sweep]) -> None:
    """Tables of all sweeps and traces of each; nothing where there are none."""
    if not sweeps:
        return
    report.heading(
        "Sweeps",
        "Sequences that were followed (scopereg track). Each frame is found by itself and weighed against the motion "
        "so far: followed where both agree, carried where the frame is not to be believed, lost when that lasts. "
        "Coloured bands are frames that were not simply followed.",
    )
    report.table(_COLUMNS, [_states(sweep) for sweep in sweeps], style="tight")
    errors = [row for sweep in sweeps for row in _errors(sweep)]
    if errors:
        report.subheading("Errors against the tracker")
        report.table(_ERRORS, errors, style="tight")
    for sweep in sweeps:
        report.subheading(sweep.name)
        if compared(sweep.steps):
            report.chart(error_trace(sweep.steps))
        report.chart(trust_trace(sweep.steps))


def _states(sweep: Sweep) -> list[str]:
    counts = Counter(step.state for step in sweep.steps)
    expected = [step.expected_mm for step in sweep.steps if step.is_placed and math.isfinite(step.expected_mm)]
    judged = [step.ok for step in sweep.steps if step.ok is not None]
    return [
        sweep.name,
        str(len(sweep.steps)),
        *(str(counts[state]) for state in STATES),
        f"{median(expected):.2f} mm" if expected else NOTHING,
        f"{100 * sum(judged) / len(judged):.0f} %" if judged else NOTHING,
    ]


def _errors(sweep: Sweep) -> list[list[str]]:
    rows = []
    for way, errors in compared(sweep.steps).items():
        near = sum(error <= SUCCESS_MM for error in errors)
        lengths = [f"{value:.2f} mm" for value in (sum(errors) / len(errors), median(errors), max(errors))]
        rows.append([sweep.name, way, str(len(errors)), *lengths, f"{100 * near / len(errors):.0f} %"])
    return rows
