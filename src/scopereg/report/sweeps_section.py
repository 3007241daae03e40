"""Section of a report: sequences that were followed, with their frames, verdicts and errors over time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from scopereg.errors import ScopeRegError
from scopereg.evaluation.tables import NOTHING
from scopereg.geometry import SUCCESS_MM
from scopereg.images import Frame
from scopereg.io.cine import Cine
from scopereg.io.frames import read_cine
from scopereg.registration.track import STATES, Step, compared, read_track
from scopereg.report.page import Report
from scopereg.report.timeline import Timeline, light_of, take_shots
from scopereg.report.track_page import error_trace, expected_error_trace

_SEQUENCE = ".igs.mha"  # that track writes beside its table: the frames with their poses
_COLUMNS = ("sweep", "frames", "reliable", *STATES, "expected, median")
_ERRORS = ("sweep", "way", "frames", "mean", "median", "largest", f"within {SUCCESS_MM:g} mm")


class FollowedSequence(NamedTuple):
    """A sequence that was followed."""

    path: Path  # of its table
    steps: list[Step]

    @property
    def name(self) -> str:
        """The folder tells sweeps apart; the method is that of the first frame that has one."""
        method = next((step.method for step in self.steps if step.method), "")
        return f"{self.path.parent.name or self.path.name}" + (f" ({method})" if method else "")


def read_followed(paths: Sequence[Path]) -> list[FollowedSequence]:
    """Sequences from their tables."""
    return [FollowedSequence(path, read_track(path)) for path in paths]


def add_sweeps(report: Report, sweeps: Sequence[FollowedSequence], *, pictures: bool = True) -> None:
    """Tables of all sweeps, frames and traces of each; nothing where there are none."""
    if not sweeps:
        return
    report.heading(
        "Sweeps",
        "Sequences that were followed (scopereg track). Each frame is found by itself and weighed against the motion "
        "so far: followed where both agree, carried where the frame's own pose is unreliable, lost when that lasts. "
        "Coloured bands are frames that were not simply followed. In the charts, the frame under the cursor is shown.",
    )
    report.table(_COLUMNS, [_states(sweep) for sweep in sweeps], style="tight")
    errors = [row for sweep in sweeps for row in _errors(sweep)]
    if errors:
        report.subheading("Errors against the tracker")
        report.table(_ERRORS, errors, style="tight")
    for number, sweep in enumerate(sweeps, 1):
        report.subheading(sweep.name)
        shots = take_shots(sweep.steps, frames_beside(sweep), None) if pictures else []
        if pictures and not shots:
            report.text(f"No pictures: there is no {_SEQUENCE} file with its frames beside {sweep.path.name}.")
        timeline = Timeline(sweep.steps, shots, f"sweep-{number}")
        report.chart(timeline.figure())
        if compared(sweep.steps):
            report.chart(error_trace(sweep.steps, timeline))
        report.chart(expected_error_trace(sweep.steps, timeline))


def frames_beside(sweep: FollowedSequence) -> Callable[[Step], Frame]:
    """Gets the frames of a sweep from the sequence that was written beside its table."""
    found = sorted(sweep.path.parent.glob(f"*{_SEQUENCE}"))
    cine: Cine | None = None
    if len(found) == 1:
        try:
            cine = read_cine(found[0])
        except ScopeRegError:  # the page is about the table
            cine = None
    # A sequence that was one before is copied with all of its frames; others are made of those that could be read.
    readable = [step.row for step in sweep.steps if step.state != "unreadable"]
    places = {row: place for place, row in enumerate(readable)}

    def frame_of(step: Step) -> Frame:
        if cine is None:
            raise ScopeRegError("its frames are not at hand", where=str(sweep.path), fix="track it again")
        return cine[places[step.row] if len(cine) == len(readable) else step.row]

    return frame_of


def _states(sweep: FollowedSequence) -> list[str]:
    counts = Counter(step.state for step in sweep.steps)
    expected = [step.expected_mm for step in sweep.steps if step.is_placed and math.isfinite(step.expected_mm)]
    judged = any(step.ok is not None for step in sweep.steps)
    reliable = sum(light_of(step) == "green" for step in sweep.steps)
    return [
        sweep.name,
        str(len(sweep.steps)),
        str(reliable) if judged else NOTHING,
        *(str(counts[state]) for state in STATES),
        f"{median(expected):.2f} mm" if expected else NOTHING,
    ]


def _errors(sweep: FollowedSequence) -> list[list[str]]:
    rows = []
    for way, errors in compared(sweep.steps).items():
        near = sum(error <= SUCCESS_MM for error in errors)
        lengths = [f"{value:.2f} mm" for value in (sum(errors) / len(errors), median(errors), max(errors))]
        rows.append([sweep.name, way, str(len(errors)), *lengths, f"{100 * near / len(errors):.0f} %"])
    return rows
