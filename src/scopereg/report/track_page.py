"""Track page: how a sequence was followed, as one HTML file with traces over time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from scopereg.evaluation.tables import NOTHING
from scopereg.geometry import SUCCESS_MM, Pose
from scopereg.images import Volume
from scopereg.provenance import provenance
from scopereg.registration.reading import Recording, image_line
from scopereg.registration.result import YES_NO
from scopereg.registration.track import STATES, Step, compared, in_words, read_track
from scopereg.report.charts import trace_chart
from scopereg.report.drawing import Curve, Span
from scopereg.report.page import Report

_MOST_ROWS = 1000
_BANDS = {"found": "var(--c2)", "carried": "var(--c1)", "lost": "var(--bad)", "unreadable": "var(--none)"}
_AXES = (("x", "var(--c0)"), ("y", "var(--c4)"), ("z", "var(--c3)"))
_TRACKED, _ALONE = "var(--c0)", "var(--c3)"


def make_page(
    steps: Sequence[Step], recording: Recording, volume: Volume, notes: Sequence[str], *, method: str, device: str
) -> Report:
    """Cards, traces, errors where a tracker tells them, frames that were not found, all poses, how it was made."""
    report = Report(
        f"{recording.source.name} followed through {recording.reading.volume.name}",
        f"By {method}. {image_line(volume)}. Poses are ImageToVolume "
        "in LPS mm. Each frame is found by itself and weighed against the motion so far: followed where both agree, "
        "carried on by the motion where the frame's own pose is unreliable, lost when that lasts, found again by "
        "itself. Carried poses have no picture behind them. Not for clinical use.",
    )
    report.cards(_cards(steps, recording))
    report.notes(notes)
    if steps:
        _add_traces(report, steps)
    _add_bad(report, [step for step in steps if not step.is_placed], recording)
    _add_poses(report, steps)
    report.facts(provenance(device=device))
    return report


def _cards(steps: Sequence[Step], recording: Recording) -> dict[str, str]:
    counts = Counter(step.state for step in steps)
    cards = {"frames done": f"{len(steps)} of {len(recording)}"}
    cards |= {state: str(counts[state]) for state in STATES if counts[state]}
    expected = [step.expected_mm for step in steps if step.is_placed and math.isfinite(step.expected_mm)]
    if expected:
        cards["median expected error"] = f"{median(expected):.1f} mm"
    times = [step.time_ms for step in steps if step.is_placed]
    if times:
        cards["median time per frame"] = f"{median(times):.0f} ms"
    return cards


def _add_traces(report: Report, steps: Sequence[Step]) -> None:
    spans = state_spans(steps)
    errors = compared(steps)
    if errors:
        report.heading("Error against the tracker", "; ".join(f"{name}: {in_words(e)}" for name, e in errors.items()))
        report.chart(error_trace(steps))
    report.heading(
        "Poses", "Lines as tracked, dots as each frame was found by itself; all as differences to the median."
    )
    for row, label in ((0, "translation, mm"), (3, "angle, degrees")):
        curves = [curve for axis in range(3) for curve in _pose_curves(steps, row + axis, *_AXES[axis])]
        report.chart(trace_chart(curves, spans, x_label="time, s", y_label=label))
    report.heading(
        "Expected error", "The error to expect of each pose, and how far it is from the frame found by itself."
    )
    report.chart(expected_error_trace(steps))


def error_trace(steps: Sequence[Step]) -> str:
    """Errors against the tracker over time, frame by frame and tracked."""
    curves = [_curve("frame by frame", steps, "alone_error_mm", _ALONE), _curve("tracked", steps, "error_mm", _TRACKED)]
    return _over_time(curves, state_spans(steps), "error, mm", mark=True)


def expected_error_trace(steps: Sequence[Step]) -> str:
    """The error to expect over time, and how far tracked poses are from the frames by themselves."""
    curves = [
        _curve("expected error", steps, "expected_mm", _TRACKED),
        _curve("away from itself", steps, "apart_mm", _ALONE),
    ]
    return _over_time(curves, state_spans(steps), "mm")


def _over_time(curves: Sequence[Curve], spans: Sequence[Span], label: str, *, mark: bool = False) -> str:
    level = (SUCCESS_MM, f"{SUCCESS_MM:g} mm") if mark else None
    return trace_chart(curves, spans, x_label="time, s", y_label=label, mark=level, from_zero=True)


def state_spans(steps: Sequence[Step]) -> list[Span]:
    """Spans of frames that were not simply followed: half a step before each to half a step after, runs joined."""
    times = [step.time_s for step in steps]
    gaps = [b - a for a, b in pairwise(times) if b > a]
    half = median(gaps) / 2 if gaps else 0.5
    spans: list[Span] = []
    for step in steps:
        if step.state not in _BANDS or not math.isfinite(step.time_s):
            continue
        if spans and spans[-1].name == step.state and spans[-1].stop >= step.time_s - 1.5 * half:
            spans[-1] = Span(step.state, spans[-1].start, step.time_s + half, _BANDS[step.state])
        else:
            spans.append(Span(step.state, step.time_s - half, step.time_s + half, _BANDS[step.state]))
    return spans


def _curve(name: str, steps: Sequence[Step], number: str, colour: str) -> Curve:
    known = [step for step in steps if math.isfinite(step.time_s)]
    return Curve(name, [step.time_s for step in known], [getattr(step, number) for step in known], colour)


def _pose_curves(steps: Sequence[Step], number: int, name: str, colour: str) -> list[Curve]:
    """One of the six numbers, as tracked and of the frames by themselves."""
    known = [step for step in steps if math.isfinite(step.time_s)]
    times = [step.time_s for step in known]
    tracked = np.array([_six(step.pose if step.state != "lost" else None)[number] for step in known])
    alone = np.array([_six(step.alone)[number] for step in known])
    every = np.r_[tracked, alone]
    if not np.isfinite(every).any():
        return [Curve(name, times, tracked.tolist(), colour)]
    usual = float(np.nanmedian(tracked if np.isfinite(tracked).any() else alone))
    if number >= 3:  # angles go round
        tracked, alone = ((values - usual + 180) % 360 - 180 + usual for values in (tracked, alone))
    line = Curve(f"{name} ({usual:+.1f})", times, (tracked - usual).tolist(), colour)
    return [line, Curve(f"{name} by itself", times, (alone - usual).tolist(), colour, dots=True)]


def _six(pose: Pose | None) -> np.ndarray:
    return np.full(6, np.nan) if pose is None else np.r_[pose.translation_mm, pose.euler_deg]


def _add_bad(report: Report, bad: Sequence[Step], recording: Recording) -> None:
    if bad:
        report.heading("Frames that were not found", "Carried on by the motion, lost, or not to be read.")
        cells = [
            [recording.label(step.row), f"{step.time_s:.2f}", step.state, step.reason] for step in bad[:_MOST_ROWS]
        ]
        report.table(["frame", "s", "state", "why"], cells, style="words")


def _add_poses(report: Report, steps: Sequence[Step]) -> None:
    placed = [step for step in steps if step.pose is not None]
    if not placed:
        return
    report.heading("All poses", "Everything, with the frames by themselves, is in track.csv.")
    columns = ["frame", "s", "state", "x mm", "y mm", "z mm", "rx deg", "ry deg", "rz deg", "expected mm", "ok"]
    report.table(columns, [_pose_cells(step) for step in placed[:_MOST_ROWS]], style="tight")


def _pose_cells(step: Step) -> list[str]:
    expected = f"{step.expected_mm:.1f}" if math.isfinite(step.expected_mm) else ""
    numbers = [f"{number:.2f}" for number in _six(step.pose)]
    return [str(step.row), f"{step.time_s:.2f}", step.state, *numbers, expected, YES_NO[step.ok]]


_COLUMNS = ("sweep", "frames", *STATES, "expected, median", "ok")
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


def add_sweeps(report: Report, sweeps: Sequence[FollowedSequence]) -> None:
    """Tables of all sweeps and traces of each; nothing where there are none."""
    if not sweeps:
        return
    report.heading(
        "Sweeps",
        "Sequences that were followed (scopereg track). Each frame is found by itself and weighed against the motion "
        "so far: followed where both agree, carried where the frame's own pose is unreliable, lost when that lasts. "
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
        report.chart(expected_error_trace(sweep.steps))


def _states(sweep: FollowedSequence) -> list[str]:
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


def _errors(sweep: FollowedSequence) -> list[list[str]]:
    rows = []
    for way, errors in compared(sweep.steps).items():
        near = sum(error <= SUCCESS_MM for error in errors)
        lengths = [f"{value:.2f} mm" for value in (sum(errors) / len(errors), median(errors), max(errors))]
        rows.append([sweep.name, way, str(len(errors)), *lengths, f"{100 * near / len(errors):.0f} %"])
    return rows
