"""Figures: the errors of groups of results as charts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from scopereg.evaluation.results import START, Group
from scopereg.evaluation.statistics import fold_mean, mean_interval, success_rate
from scopereg.geometry import SUCCESS_MM
from scopereg.report.charts import box_chart, curve_chart, share_chart
from scopereg.report.drawing import BoxPlot, Curve
from scopereg.report.palette import DASHED, Look, look

_POINTS = 240
_MARK = (SUCCESS_MM, f"{SUCCESS_MM:g} mm")


def method_styles(methods: Iterable[str], reference: str) -> dict[str, Look]:
    """The look of each method in every chart of a page: no registration grey, the reference the first of all looks."""
    others = [method for method in dict.fromkeys(methods) if method not in (reference, START)]
    found = {method: look(number) for number, method in enumerate(others, 1)}
    return {START: Look("var(--none)", DASHED, "ring"), **found, reference: look(0)}


def ordered(group: Group, styles: dict[str, Look]) -> list[str]:
    """The methods of a group in the order of the styles: no registration first, the reference last."""
    return [method for method in styles if method in group.methods]


def box_figure(group: Group, styles: dict[str, Look]) -> str:
    """mTRE of each method; frames that were not located are told beside its name."""
    boxes = []
    for method in ordered(group, styles):
        errors = group.column(method, "mtre_mm")
        good = errors[np.isfinite(errors)]
        lost = len(errors) - len(good)
        name = f"{method} ({lost} lost)" if lost else method
        boxes.append(BoxPlot(name, good.tolist(), styles[method].colour))
    return box_chart(boxes, x_label="mTRE, mm (logarithmic)", mark=_MARK)


def cumulative_figure(group: Group, styles: dict[str, Look]) -> str:
    """Share of the frames within each error; one that was not located is within none."""
    return within_figure({method: group.column(method, "mtre_mm") for method in ordered(group, styles)}, styles)


def within_figure(
    columns: Mapping[str, NDArray[np.float64]], styles: Mapping[str, Look], *, kind: str = "frames", error: str = "mTRE"
) -> str:
    """Share of what has an error at most as large, by name; NaN is within none."""
    places = _log_places(np.concatenate(list(columns.values())))
    curves = []
    for name, errors in columns.items():
        within = [100 * success_rate(errors, place).fraction for place in places]
        told = f"{name}: {100 * success_rate(errors).fraction:.1f} % within {SUCCESS_MM:g} mm"
        curves.append(Curve(told, places, within, *styles[name]))
    return share_chart(curves, x_label=f"{error}, mm (logarithmic)", y_label=f"{kind} within, %", mark=_MARK)


def capture_figures(groups: Sequence[Group], styles: dict[str, Look]) -> list[str]:
    """mTRE and success over the magnitudes, with bands; a method has points where it has results."""
    own = {method: [group for group in groups if method in group.methods] for method in styles}
    errors, rates = [], []
    for method, places in own.items():
        if not places:
            continue
        x = [group.magnitude for group in places]
        spans = [_error_span(group, method) for group in places]
        band = [(low, high) for _, low, high in spans]
        errors.append(Curve(method, x, [mean for mean, *_ in spans], *styles[method], band=band, dots=True))
        found = [success_rate(group.column(method, "mtre_mm")) for group in places]
        band = [(100 * rate.interval.low, 100 * rate.interval.high) for rate in found]
        rates.append(Curve(method, x, [100 * r.fraction for r in found], *styles[method], band=band, dots=True))
    label = "largest offset, voxels and degrees on each axis"
    return [
        curve_chart(errors, x_label=label, y_label="mean mTRE, mm", mark=_MARK),
        curve_chart(rates, x_label=label, y_label=f"within {SUCCESS_MM:g} mm, %", percent=True),
    ]


def _error_span(group: Group, method: str) -> tuple[float, float, float]:
    """Mean mTRE with its deviation over folds, or with one fold its bootstrap interval over patients."""
    errors = group.column(method, "mtre_mm")
    found = fold_mean(errors, group.folds)
    if found.folds > 1:
        return found.mean, found.mean - found.std, found.mean + found.std
    good = np.isfinite(errors)
    if not good.any():
        return math.nan, math.nan, math.nan
    return (found.mean, *mean_interval(errors[good], np.array(group.patients)[good]))


def _log_places(errors: NDArray[np.float64]) -> list[float]:
    """Errors to count up to, evenly on the logarithmic axis, and the one that is a success."""
    good = errors[np.isfinite(errors) & (errors > 0)]
    low, high = (float(good.min()), float(good.max())) if len(good) else (SUCCESS_MM, SUCCESS_MM)
    low = max(low, high / 1e4)
    below = low * (1 - 1e-9)  # where the curve begins: no line from an earlier mark to the first error
    return sorted({below, *np.geomspace(low, high, _POINTS).tolist(), high, SUCCESS_MM})
