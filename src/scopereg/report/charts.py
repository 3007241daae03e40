"""Charts as SVG text, for pages that must open anywhere without scripts or network.

A colour is any of CSS, such as `#4cc38a` or `var(--c0)`, which a page may change when it is printed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from html import escape

from scopereg.report.drawing import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Axis,
    BoxPlot,
    Curve,
    Mark,
    Series,
    Span,
    draw_band,
    draw_box,
    draw_cloud,
    draw_diagonal,
    draw_dots,
    draw_figure,
    draw_grid,
    draw_legend,
    draw_level,
    draw_line,
    draw_marks,
    draw_pieces,
    draw_span,
    draw_strokes,
    draw_upright,
    log_axis,
    percent_axis,
    plain_axis,
    zero_axis,
)

_TALL = 340  # of charts whose axes have one range
_ROW, _LETTER, _NAME = 34, 7.0, 26  # height of a box, width of a letter, letters of a name that fit


def line_chart(series: list[Series], *, x_label: str, y_label: str, mark: Mark | None = None) -> str:
    """An SVG chart of lines over 1, 2, 3, ..., the y axis from 0; `mark` draws a labelled level."""
    count = max(len(line.values) for line in series)
    ticks = tuple(range(1, count + 1, max(1, math.ceil(count / 16))))
    x = Axis(1, count, LEFT, WIDTH - RIGHT, ticks) if count > 1 else Axis(0, 2, LEFT, WIDTH - RIGHT, ticks)
    y = zero_axis([value for line in series for value in line.values] + [mark[0] if mark else 0.0])
    parts = [*draw_grid(x, y, x_label, y_label, vertical=False), *draw_level(mark, x, y)]
    for line in series:
        places = list(range(1, len(line.values) + 1))
        parts += [draw_line(places, line.values, x, y, line), *draw_dots(places, line.values, x, y, line)]
    return draw_figure(parts, HEIGHT, draw_legend(series))


def share_chart(curves: Sequence[Curve], *, x_label: str, y_label: str, mark: Mark | None = None) -> str:
    """Curves from 0 to 100 % over a logarithmic x axis; `mark` draws a labelled upright line."""
    x = log_axis([value for curve in curves for value in curve.x] + ([mark[0]] if mark else []))
    y = percent_axis()
    parts = [*draw_grid(x, y, x_label, y_label), *draw_upright(mark, x, HEIGHT)]
    for number, curve in enumerate(curves):
        parts += [draw_line(curve.x, curve.y, x, y, curve), *draw_marks(curve, x, y, number)]
    return draw_figure(parts, HEIGHT, draw_legend([replace(curve, dots=True) for curve in curves]))


def curve_chart(
    curves: Sequence[Curve],
    *,
    x_label: str,
    y_label: str,
    mark: Mark | None = None,
    percent: bool = False,
    shares: bool = False,
) -> str:
    """Curves with bands over a plain x axis, or over `shares` in per cent; y from 0 or in per cent.

    `mark` draws a labelled level.
    """
    places = sorted({value for curve in curves for value in curve.x})
    level = plain_axis(places, ticks=tuple(places) if len(places) <= 12 else None)
    x = percent_axis(LEFT, WIDTH - RIGHT) if shares else level
    tops = [value for curve in curves for value in [*curve.y, *(high for _, high in curve.band or [])]]
    known = [top for top in tops if math.isfinite(top)] + ([mark[0]] if mark else [])
    y = percent_axis() if percent else zero_axis(known)
    parts = [*draw_grid(x, y, x_label, y_label), *draw_level(mark, x, y)]
    parts += [part for curve in curves for part in draw_band(curve, x, y)]
    for curve in curves:
        parts += [draw_line(curve.x, curve.y, x, y, curve), *draw_dots(curve.x, curve.y, x, y, curve)]
    return draw_figure(parts, HEIGHT, draw_legend(curves))


def trace_chart(
    curves: Sequence[Curve],
    spans: Sequence[Span],
    *,
    x_label: str,
    y_label: str,
    mark: Mark | None = None,
    from_zero: bool = False,
    x: Axis | None = None,
    over: str = "",
) -> str:
    """Curves over time, on spans of time in colours of their own; a curve that only has `dots` has no line.

    Several charts may have one axis `x`; what is drawn `over` them may take it for granted.
    """
    known = [value for curve in curves for value in curve.y if math.isfinite(value)] or [0.0]
    ends = [end for span in spans for end in (span.start, span.stop)]
    x = x or plain_axis([value for curve in curves for value in curve.x] + ends)
    upright = replace(plain_axis(known), start=HEIGHT - BOTTOM, stop=TOP)
    y = zero_axis([*known, *([mark[0]] if mark else [])]) if from_zero else upright
    parts = [draw_span(span, x(span.start), x(span.stop), TOP, HEIGHT - BOTTOM) for span in spans]
    parts += [*draw_grid(x, y, x_label, y_label), *draw_level(mark, x, y)]
    for curve in curves:
        parts += draw_dots(curve.x, curve.y, x, y, curve, radius=2) if curve.dots else draw_pieces(curve, x, y)
    named = {span.name: span for span in spans}
    dots, lines = ([curve for curve in curves if curve.dots is dotted] for dotted in (True, False))
    legend = draw_legend(lines) + draw_legend(dots, clouds=True) + draw_legend(list(named.values()))
    return draw_figure([*parts, over], HEIGHT, legend)


def agreement_chart(curves: Sequence[Curve], *, x_label: str, y_label: str, percent: bool = False) -> str:
    """Curves with dots over axes of one range from 0, with the line where both agree."""
    height = _TALL
    known = [value for curve in curves for value in (*curve.x, *curve.y)]
    ends = ((LEFT, WIDTH - RIGHT), (height - BOTTOM, TOP))
    x, y = (percent_axis(*end) if percent else zero_axis(known, *end) for end in ends)
    parts = [*draw_grid(x, y, x_label, y_label, height=height), draw_diagonal(x, y)]
    for curve in curves:
        parts += [draw_line(curve.x, curve.y, x, y, curve)]
        parts += draw_dots(curve.x, curve.y, x, y, replace(curve, dots=True))
    return draw_figure(parts, height, draw_legend([replace(curve, dots=True) for curve in curves]))


def pair_chart(cloud: Curve, *, x_label: str, y_label: str, mark: Mark | None = None) -> str:
    """Dots over logarithmic axes of one range, with the line where both are alike; `mark` is drawn on both."""
    height = _TALL
    every = [*cloud.x, *cloud.y, *([mark[0]] if mark else [])]
    x, y = log_axis(every), log_axis(every, height - BOTTOM, TOP)
    parts = [*draw_grid(x, y, x_label, y_label, height=height), draw_diagonal(x, y)]
    parts += [*draw_level(mark, x, y), *draw_upright(mark, x, height), *draw_cloud(cloud, x, y)]
    return draw_figure(parts, height, draw_legend([cloud], clouds=True))


def scatter_chart(
    clouds: Sequence[Curve], *, x_label: str, y_label: str, mark: Mark | None = None, limit: Mark | None = None
) -> str:
    """Dots over a plain x axis, y logarithmic; `mark` draws a labelled level, `limit` a labelled upright line."""
    x = plain_axis([value for cloud in clouds for value in cloud.x] + ([limit[0]] if limit else []))
    y = log_axis([v for cloud in clouds for v in cloud.y] + ([mark[0]] if mark else []), HEIGHT - BOTTOM, TOP)
    parts = [*draw_grid(x, y, x_label, y_label), *draw_level(mark, x, y), *draw_upright(limit, x, HEIGHT)]
    parts += [dot for cloud in clouds for dot in draw_cloud(cloud, x, y)]
    return draw_figure(parts, HEIGHT, draw_legend(clouds, clouds=True))


def log_panel(curves: Sequence[Curve], ticks: Sequence[float], *, x_label: str, y_label: str) -> list[str]:
    """Curves with dots over logarithmic axes, for a picture of its own; a band is an upright stroke at each dot."""
    x = Axis(min(ticks) / 1.15, max(ticks) * 1.15, LEFT, WIDTH - RIGHT, tuple(ticks), log=True)
    y = log_axis([v for c in curves for v in (*c.y, *(high for _, high in c.band or []))], HEIGHT - BOTTOM, TOP)
    parts = draw_grid(x, y, x_label, y_label)
    for curve in curves:
        parts += [*draw_strokes(curve, x, y), draw_line(curve.x, curve.y, x, y, curve)]
        parts += draw_dots(curve.x, curve.y, x, y, replace(curve, dots=True))
    return parts


def box_chart(boxes: Sequence[BoxPlot], *, x_label: str, mark: Mark | None = None) -> str:
    """A row per box, x logarithmic: quartiles and median, whiskers to 5 and 95 %, dots beyond, a ring at the mean."""
    left = 16 + _LETTER * min(_NAME, max(len(box.name) for box in boxes))
    height = TOP + _ROW * len(boxes) + BOTTOM
    values = [value for box in boxes for value in box.values] + ([mark[0]] if mark else [])
    x = log_axis(values, left)
    y = Axis(0, len(boxes), TOP, height - BOTTOM, ())
    parts = [*draw_grid(x, y, x_label, "", height=height), *draw_upright(mark, x, height)]
    for index, box in enumerate(boxes):
        middle = y(index + 0.5)
        name = box.name if len(box.name) <= _NAME else box.name[: _NAME - 1] + "…"
        parts.append(f'<text x="{left - 8:.1f}" y="{middle + 4:.1f}" class="end name">{escape(name)}</text>')
        parts += draw_box(box, x, middle) if box.values else []
    return draw_figure(parts, height)
