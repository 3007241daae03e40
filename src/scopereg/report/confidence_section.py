"""Section of a report: what methods said of their poses, against the errors that these have."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from scopereg.evaluation.reliability import (
    Judged,
    Reliability,
    calibration_curve,
    doubt_of,
    kept_curve,
    rank_correlation,
    reliability_of,
)
from scopereg.evaluation.results import START, Group
from scopereg.evaluation.tables import NOTHING, number
from scopereg.geometry import SUCCESS_MM
from scopereg.registration.confidence import COVERAGE, ENOUGH
from scopereg.report.charts import agreement_chart, curve_chart, scatter_chart
from scopereg.report.drawing import Curve
from scopereg.report.figures import ordered
from scopereg.report.page import Report
from scopereg.report.palette import Look

Styles = dict[str, Look]

_LEAST = 3  # frames that a chart takes
_MARK = (SUCCESS_MM, f"{SUCCESS_MM:g} mm")
_COLUMNS = (
    *("method", "frames", "mean error", "expected", f"above {SUCCESS_MM:g} mm", "AUROC (95 %)"),
    *("below the bound", "bound, median", "ok", f"ok: within {SUCCESS_MM:g} mm", "surest half: mean error"),
)


def add_confidence(report: Report, groups: Sequence[Group], styles: Styles) -> None:
    """Table and charts of each group where a method tells a confidence; nothing where none does."""
    told = {group.label: found for group in groups if (found := _told(group, styles))}
    if not told:
        return
    report.heading(
        "Confidence",
        "What methods said of their poses, against the errors. AUROC: the chance that a frame off by more than "
        f"{SUCCESS_MM:g} mm is doubted more than one that is not, by its expected error where the method is "
        "calibrated, else by the similarity of frame and volume; a frame that is refused is doubted most. The interval "
        f"is from resampling patients. Of the errors {100 * COVERAGE:.0f} % should be below the bound.",
    )
    for label, methods in told.items():
        report.subheading(label)
        report.table(
            _COLUMNS, [_row(method, reliability_of(judged)) for method, judged in methods.items()], style="tight"
        )
        for method, judged in methods.items():
            if lost := judged.lost:
                report.text(f"Without {lost} frames that {method} did not locate: they have neither error nor verdict.")
            if silent := judged.silent:
                report.text(f"Without {silent} frames of {method} that were not judged.")
        for chart in _charts(methods, styles):
            report.chart(chart)


def _told(group: Group, styles: Styles) -> dict[str, Judged]:
    """The methods of a group that tell a confidence, with their frames."""
    found = {method: judged_frames(group, method) for method in ordered(group, styles) if method != START}
    return {method: judged for method, judged in found.items() if len(judged.errors_mm) >= _LEAST}


def judged_frames(group: Group, method: str) -> Judged:
    """The frames of a method that have an error and a confidence; of one without a calibration, and a similarity."""
    names = ("mtre_mm", "confidence", "expected_mm", "bound_mm")
    columns = {name: group.column(method, name) for name in names}
    if not np.isfinite(columns["confidence"]).any():
        columns["confidence"] = group.column(method, "similarity")
    refused = np.array([row.ok == "no" for row in group.methods[method]], dtype=bool)
    columns["confidence"] = np.where(refused, np.nan_to_num(columns["confidence"]), columns["confidence"])
    both = np.isfinite(columns["mtre_mm"]) & np.isfinite(columns["confidence"])
    errors, sure, expected, bound = (columns[name][both] for name in names)
    doubt = doubt_of(expected, sure)
    rows = [row for row, told in zip(group.methods[method], both, strict=True) if told]
    ok = np.array([row.ok == "yes" for row in rows], dtype=bool)
    there = np.isfinite(columns["mtre_mm"])
    lost, silent = int((~there).sum()), int((there & ~both).sum())
    return Judged(errors, doubt, [row.patient for row in rows], sure, expected, bound, ok, lost, silent)


def _row(method: str, found: Reliability) -> list[str]:
    low, high = found.interval
    interval = "" if math.isnan(low) else f" ({low:.2f} to {high:.2f})"
    return [
        method,
        str(found.frames),
        _mm(found.mean_mm),
        _mm(found.expected_mm),
        str(found.bad),
        number(found.auroc, ".2f") + interval,
        _share(found.below_bound),
        _mm(found.bound_mm),
        _share(found.ok),
        _share(found.ok_good),
        _mm(found.surest_half_mm),
    ]


def _mm(value: float) -> str:
    return NOTHING if math.isnan(value) else f"{value:.2f} mm"


def _share(value: float) -> str:
    return NOTHING if math.isnan(value) else f"{100 * value:.0f} %"


def _charts(methods: Mapping[str, Judged], styles: Styles) -> list[str]:
    """Errors over the confidence of each method, then all methods together."""
    charts = [_scatter(method, judged, styles[method]) for method, judged in methods.items()]
    calibrated = {method: judged for method, judged in methods.items() if judged.is_calibrated}
    if calibrated:
        charts += [_stated_shares(calibrated, styles), _stated_errors(calibrated, styles)]
    return [*charts, _kept(methods, styles)]


def _scatter(method: str, judged: Judged, style: Look) -> str:
    """mTRE over the confidence with their rank correlation; what is not ok as red crosses."""
    found = rank_correlation(judged.confidence, judged.errors_mm)
    said = "no rank correlation: all alike" if math.isnan(found) else f"rank correlation {found:+.2f}"
    name = f"{method}: {len(judged.errors_mm)} frames, {said}"
    parts, limit = [(name, np.ones_like(judged.ok), style)], None
    if judged.is_calibrated:
        counts = int(judged.ok.sum()), int((~judged.ok).sum())
        doubted = Look("var(--bad)", marker="cross")
        sure = style._replace(marker="circle")  # that of a method may be a cross too
        parts = [(f"{name}; ok: {counts[0]}", judged.ok, sure), (f"not ok: {counts[1]}", ~judged.ok, doubted)]
        limit = (ENOUGH, f"ok from {ENOUGH:g}")
    clouds = [
        Curve(words, judged.confidence[rows].clip(min=0).tolist(), judged.errors_mm[rows].tolist(), *look)
        for words, rows, look in parts
    ]
    x_label = "confidence" if judged.is_calibrated else "similarity"
    return scatter_chart(clouds, x_label=x_label, y_label="mTRE, mm (logarithmic)", mark=_MARK, limit=limit)


def _stated_shares(methods: Mapping[str, Judged], styles: Styles) -> str:
    curves = []
    for method, judged in methods.items():
        stated, true = calibration_curve(judged.confidence, (~judged.bad).astype(np.float64))
        curves.append(Curve(method, (100 * stated).tolist(), (100 * true).tolist(), *styles[method]))
    label = f"within {SUCCESS_MM:g} mm, % of the frames"
    return agreement_chart(curves, x_label="confidence stated, % (fifths of the frames)", y_label=label, percent=True)


def _stated_errors(methods: Mapping[str, Judged], styles: Styles) -> str:
    curves = []
    for method, judged in methods.items():
        known = np.isfinite(judged.expected_mm)
        stated, true = calibration_curve(judged.expected_mm[known], judged.errors_mm[known])
        curves.append(Curve(method, stated.tolist(), true.tolist(), *styles[method]))
    return agreement_chart(
        curves, x_label="expected error stated, mm (means of fifths of the frames)", y_label="mean error found, mm"
    )


def _kept(methods: Mapping[str, Judged], styles: Styles) -> str:
    curves = []
    for method, judged in methods.items():
        shares, means = kept_curve(judged.errors_mm, judged.doubt)
        curves.append(Curve(method, (100 * shares).tolist(), means.tolist(), *styles[method]))
    return curve_chart(
        curves, x_label="frames kept, %, the surest first", y_label="their mean error, mm", mark=_MARK, shares=True
    )
