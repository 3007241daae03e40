"""Track page: how a sequence was followed, as one HTML file with its frames, verdicts and traces over time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median

import numpy as np

from scopereg.geometry import SUCCESS_MM, Pose
from scopereg.images import Volume
from scopereg.provenance import provenance
from scopereg.registration.reading import Recording, image_line
from scopereg.registration.result import Assessment
from scopereg.registration.track import STATES, Step, compared, in_words, motion_check
from scopereg.report.charts import trace_chart
from scopereg.report.drawing import Curve, Span
from scopereg.report.page import Report
from scopereg.report.palette import Look, look
from scopereg.report.timeline import Shot, Timeline, light_of, path_picture, take_shots
from scopereg.report.words import calibrations

_MOST_ROWS = 1000
_BANDS = {
    "found": ("var(--c2)", False),
    "carried": ("var(--none)", True),
    "lost": ("var(--bad)", True),
    "unreadable": ("var(--line)", False),
}
_AXES = tuple(zip("xyz", (look(0), look(2), look(1)), strict=True))
_ANGLES = tuple(zip(("rx", "ry", "rz"), (look(0), look(2), look(1)), strict=True))
_TRACKED, _ALONE = look(0), look(1)


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
    verdicts = calibrations(step.result for step in steps if step.result is not None)
    report.notes([*verdicts, *motion_notes(steps), *notes])
    if steps:
        shots = take_shots(steps, lambda step: recording.frame(step.row), volume)
        timeline = Timeline(steps, shots)
        _add_frames(report, steps, timeline, shots, recording, volume)
        _add_traces(report, steps, timeline)
    _add_bad(report, [step for step in steps if not step.is_placed], recording)
    _add_poses(report, steps)
    report.facts(provenance(device=device))
    return report


def motion_notes(steps: Sequence[Step]) -> list[str]:
    """Whether the probe moved as the tracker says, where a tracker tells it: the volume may be mirrored."""
    motion = motion_check(steps)
    return [] if motion is None else [f"against the tracker's motion: {motion.in_words}"]


def _cards(steps: Sequence[Step], recording: Recording) -> dict[str, str]:
    """First how many may be relied on, then what became of the others."""
    counts = Counter(step.state for step in steps)
    cards = {}
    if any(step.ok is not None for step in steps):
        cards["frames that may be relied on"] = f"{sum(light_of(step) == 'green' for step in steps)} of {len(steps)}"
    cards["frames done"] = f"{len(steps)} of {len(recording)}"
    cards |= {state: str(counts[state]) for state in STATES if counts[state]}
    expected = [step.expected_mm for step in steps if step.is_placed and math.isfinite(step.expected_mm)]
    if expected:
        cards["median expected error"] = f"{median(expected):.1f} mm"
    times = [step.time_ms for step in steps if step.is_placed]
    if times:
        cards["median time per frame"] = f"{median(times):.0f} ms"
    return cards


def _add_frames(
    report: Report,
    steps: Sequence[Step],
    timeline: Timeline,
    shots: Sequence[Shot],
    recording: Recording,
    volume: Volume,
) -> None:
    report.heading(
        "Frames and verdicts",
        "The band is the verdict of each frame; what is INVALID was carried on by the motion, lost or could not be "
        "read. In the charts below, the frame under the cursor is shown beside the volume cut where it lies.",
    )
    report.chart(timeline.figure())
    if shots and any(step.pose is not None for step in steps):
        report.subheading("Through the volume", "The way of the frames' middles; axes are those of the world, LPS.")
        report.chart(path_picture(steps, shots, recording.frame(shots[0].row), volume))


def _add_traces(report: Report, steps: Sequence[Step], timeline: Timeline) -> None:
    spans = state_spans(steps)
    errors = compared(steps)
    if errors:
        report.heading("Error against the tracker", "; ".join(f"{name}: {in_words(e)}" for name, e in errors.items()))
        report.chart(error_trace(steps, timeline))
    report.heading(
        "Poses",
        "Lines as tracked, dots as each frame was found by itself; all as differences to the median, in brackets.",
    )
    for row, axes, label in ((0, _AXES, "translation, mm"), (3, _ANGLES, "angle, degrees")):
        curves = [curve for axis in range(3) for curve in _pose_curves(steps, row + axis, *axes[axis])]
        chart = trace_chart(curves, spans, x_label="time, s", y_label=label, x=timeline.x, over=timeline.over())
        report.chart(chart)
    report.heading(
        "Expected error",
        "The error to expect of each pose, where the frame belongs to the volume, and how far it is from the frame "
        "found by itself.",
    )
    report.chart(expected_error_trace(steps, timeline))


def error_trace(steps: Sequence[Step], timeline: Timeline) -> str:
    """Errors against the tracker over time, frame by frame and tracked."""
    curves = [_curve("frame by frame", steps, "alone_error_mm", _ALONE), _curve("tracked", steps, "error_mm", _TRACKED)]
    return _over_time(curves, steps, timeline, "error, mm", mark=True)


def expected_error_trace(steps: Sequence[Step], timeline: Timeline) -> str:
    """The error to expect over time, and how far tracked poses are from the frames by themselves."""
    curves = [
        _curve("expected error", steps, "expected_mm", _TRACKED),
        _curve("away from itself", steps, "apart_mm", _ALONE),
    ]
    return _over_time(curves, steps, timeline, "mm")


def _over_time(
    curves: Sequence[Curve], steps: Sequence[Step], timeline: Timeline, label: str, *, mark: bool = False
) -> str:
    level = (SUCCESS_MM, f"{SUCCESS_MM:g} mm") if mark else None
    return trace_chart(
        curves,
        state_spans(steps),
        x_label="time, s",
        y_label=label,
        mark=level,
        from_zero=True,
        x=timeline.x,
        over=timeline.over(),
    )


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
            spans[-1] = replace(spans[-1], stop=step.time_s + half)
        else:
            spans.append(Span(step.state, step.time_s - half, step.time_s + half, *_BANDS[step.state]))
    return spans


def _curve(name: str, steps: Sequence[Step], number: str, style: Look) -> Curve:
    known = [step for step in steps if math.isfinite(step.time_s)]
    return Curve(name, [step.time_s for step in known], [getattr(step, number) for step in known], *style)


def _pose_curves(steps: Sequence[Step], number: int, name: str, style: Look) -> list[Curve]:
    """One of the six numbers, as tracked and of the frames by themselves."""
    known = [step for step in steps if math.isfinite(step.time_s)]
    times = [step.time_s for step in known]
    tracked = np.array([_six(step.pose if step.state != "lost" else None)[number] for step in known])
    alone = np.array([_six(step.alone)[number] for step in known])
    every = np.r_[tracked, alone]
    if not np.isfinite(every).any():
        return [Curve(name, times, tracked.tolist(), *style)]
    usual = float(np.nanmedian(tracked if np.isfinite(tracked).any() else alone))
    if number >= 3:  # angles go round
        tracked, alone = ((values - usual + 180) % 360 - 180 + usual for values in (tracked, alone))
    line = Curve(f"{name} ({usual:+.1f})", times, (tracked - usual).tolist(), *style)
    return [line, Curve(f"{name} by itself", times, (alone - usual).tolist(), *style, dots=True)]


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
    columns = [
        "frame",
        "s",
        "state",
        "x mm",
        "y mm",
        "z mm",
        "rx °",
        "ry °",
        "rz °",
        "expected mm",
        "95 % below",
        "verdict",
    ]
    report.table(columns, [_pose_cells(step) for step in placed[:_MOST_ROWS]], style="tight")


def _pose_cells(step: Step) -> list[str]:
    told = Assessment.of(step.result)
    lengths = ("" if value is None else f"{value:.1f}" for value in (told.expected_mm, told.bound_mm))
    numbers = [f"{number:.2f}" for number in _six(step.pose)]
    return [str(step.row), f"{step.time_s:.2f}", step.state, *numbers, *lengths, told.state]
