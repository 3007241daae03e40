"""Score page: how good some poses are, as one HTML file: errors and their spread, frame after frame, the worst."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from scopereg.evaluation.score.scores import FrameScore, Scores, Summary
from scopereg.evaluation.score.states import NO_POSE, NO_TRUTH, NOT_LOCATED
from scopereg.evaluation.score.words import facts_of, verdicts
from scopereg.geometry import SUCCESS_MM
from scopereg.report.charts import box_chart, pair_chart, scatter_chart
from scopereg.report.drawing import BoxPlot, Curve
from scopereg.report.figures import within_figure
from scopereg.report.page import Report
from scopereg.report.palette import Look, look

_MARK = (SUCCESS_MM, f"{SUCCESS_MM:g} mm")
_WORST, _MOST_ROWS, _MOST_BOXES = 15, 1000, 40
_SAID = {True: "called ok", False: "called not ok", None: "not judged"}
_LOOKS = {True: look(0), False: Look("var(--warn)", marker="triangle"), None: Look("var(--c2)", marker="square")}


def make_page(scores: Scores, hints: Sequence[str], facts: dict[str, Any]) -> Report:
    """Cards, hints, the spread of errors, errors in order, the worst, what could not be compared, all, how made."""
    summary = scores.summary
    kind, error = ("landmarks", "TRE") if scores.of_landmarks else ("frames", "mTRE")
    report = Report(f"{scores.name} against {scores.against}", _lead(scores))
    report.cards(_cards(summary, error))
    if hints:
        report.alert("The two sides may count otherwise", [f"{hint[0].upper()}{hint[1:]}." for hint in hints])
    report.notes([*(f"{name}: {told}" for name, told in facts_of(scores).items()), *scores.notes])
    report.heading("Errors", f"Share of the {kind} with at most each error; one that was not located is within none.")
    errors = np.array([row.error_mm for row in scores.counted])
    report.chart(within_figure({scores.name: errors}, {scores.name: look(0)}, kind=kind, error=error))
    report.chart(box_chart(_boxes(scores), x_label=f"{error}, mm (logarithmic)", mark=_MARK))
    _add_order(report, scores, error)
    _add_expected(report, scores)
    report.heading(f"Worst {kind}", "What was not located first, then the largest errors.")
    report.table(_columns(scores, error), [_line(row, scores) for row in scores.worst(_WORST)], style="tight")
    _add_left_out(report, scores)
    _add_all(report, scores, error)
    report.facts({**scores.facts, **facts})
    return report


def _lead(scores: Scores) -> str:
    if scores.of_landmarks:
        return (
            "Target registration error (TRE): how far the pose puts a point that was picked in the frame, or in the "
            "other volume, from where the same point was picked in the volume."
        )
    return (
        "mTRE: mean distance of five points of a frame, its middle and four towards its corners, between the two "
        "poses. Translation: distance of the middles. Rotation: length of the difference of the Euler angles; geodesic "
        "is the one angle between both orientations."
    )


def _cards(summary: Summary, error: str) -> dict[str, str]:
    cards = {
        f"within {SUCCESS_MM:g} mm": f"{summary.within} of {summary.frames}",
        f"median {error}": f"{summary.median_mm:.2f} mm",
        f"mean {error}": f"{summary.mean_mm:.2f} mm",
        "95 % are below": f"{summary.p95_mm:.2f} mm",
        "largest": f"{summary.max_mm:.2f} mm",
    }
    if summary.ok is not None:
        cards["called ok, and wrong"] = f"{summary.ok_wrong} of {summary.ok}"
    return cards


def _boxes(scores: Scores) -> list[BoxPlot]:
    """All together; by what was said of the poses, or by frame where there are several of landmarks."""
    good = [row for row in scores.counted if math.isfinite(row.error_mm)]
    groups: dict[str, list[float]] = {"all": [row.error_mm for row in good]}
    said = {row.verdict.ok for row in good}
    if len(said) > 1 or None not in said:
        for ok in (told for told in _SAID if told in said):
            groups[_SAID[ok]] = [row.error_mm for row in good if row.verdict.ok is ok]
    frames = list(dict.fromkeys((row.file, row.index) for row in good))
    if scores.of_landmarks and 1 < len(frames) <= _MOST_BOXES:
        for file, index in frames:
            own = [row for row in good if (row.file, row.index) == (file, index)]
            groups[own[0].frame_label] = [row.error_mm for row in own]
    return [BoxPlot(name, values, f"var(--c{0 if name == 'all' else 2})") for name, values in groups.items()]


def _add_order(report: Report, scores: Scores, error: str) -> None:
    """Errors frame after frame, by what was said of each; where all are of one file, by their numbers in it."""
    counted = scores.counted
    one_file = not scores.of_landmarks and len({row.file for row in counted}) == 1
    places = [float(row.index if one_file else number) for number, row in enumerate(counted, 1)]
    clouds = []
    for ok, said in _SAID.items():
        rows = [(x, row.error_mm) for x, row in zip(places, counted, strict=True) if row.verdict.ok is ok]
        known = [(x, value) for x, value in rows if math.isfinite(value)]
        if known:
            clouds.append(Curve(said, [x for x, _ in known], [y for _, y in known], *_LOOKS[ok]))
    order = f"number of the frame in {counted[0].file}" if one_file else "in the order of the table"
    report.heading("One after the other")
    report.chart(scatter_chart(clouds, x_label=order, y_label=f"{error}, mm (logarithmic)", mark=_MARK))


def _add_expected(report: Report, scores: Scores) -> None:
    known = [row for row in scores.counted if row.verdict.expected_mm > 0 and row.error_mm > 0]
    if len(known) > 1:
        report.heading("What was expected", verdicts(scores.summary) + ". On the line, the error is the expected one.")
        expected, errors = [row.verdict.expected_mm for row in known], [row.error_mm for row in known]
        cloud = Curve("a frame", expected, errors, *look(0))
        report.chart(pair_chart(cloud, x_label="expected error, mm", y_label="error, mm", mark=_MARK))


def _add_left_out(report: Report, scores: Scores) -> None:
    left_out = [row for state in (NOT_LOCATED, NO_TRUTH, NO_POSE) for row in scores.of_state(state)]
    if left_out:
        report.heading("Not compared", "What was not located counts as a failure in shares; the rest does not count.")
        cells = [[row.label, row.state, row.reason] for row in left_out[:_MOST_ROWS]]
        report.table(["frame", "why", ""], cells, style="words")


def _add_all(report: Report, scores: Scores, error: str) -> None:
    first = f"The first {_MOST_ROWS} of {len(scores.counted)}. " if len(scores.counted) > _MOST_ROWS else ""
    report.heading("All of them", f"{first}Both poses of each are in score.csv.")
    rows = [_line(row, scores) for row in scores.counted[:_MOST_ROWS]]
    report.table(_columns(scores, error), rows, style="tight")


def _columns(scores: Scores, error: str) -> list[str]:
    angles = [] if scores.of_landmarks else ["translation mm", "rotation °", "geodesic °"]
    told = [] if scores.summary.ok is None else ["verdict", "expected mm", "95 % below"]
    return ["landmark" if scores.of_landmarks else "frame", f"{error} mm", *angles, *told]


def _line(row: FrameScore, scores: Scores) -> list[str]:
    told = row.verdict
    error = f"{row.error_mm:.2f}" if math.isfinite(row.error_mm) else row.state
    numbers = [] if scores.of_landmarks else [row.translation_mm, row.rotation_deg, row.geodesic_deg]
    cells = [row.label, error, *map(_number, numbers)]
    if scores.summary.ok is None:
        return cells
    said = {True: "ok", False: "not ok", None: ""}[told.ok]
    return [*cells, said, _number(told.expected_mm), _number(told.bound_mm)]


def _number(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else ""
