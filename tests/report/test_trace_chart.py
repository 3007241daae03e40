"""Traces over time: gaps stay gaps, bands lie where their frames are, values keep their sign."""

from __future__ import annotations

import math
import re

from scopereg.report.charts import Curve, Span, trace_chart

TIMES = [0.0, 0.1, 0.2, 0.3, 0.4]


def chart(values: list[float], **options: bool) -> str:
    spans = [Span("lost", 0.15, 0.25, "red")]
    return trace_chart([Curve("x", TIMES, values, "green")], spans, x_label="s", y_label="mm", **options)


def test_what_is_not_known_is_not_bridged() -> None:
    lines = re.findall(r'<polyline points="([^"]*)"', chart([-2.0, -1.0, math.nan, 1.0, 2.0]))
    assert [len(line.split()) for line in lines] == [2, 2]
    heights = [float(point.split(",")[1]) for line in lines for point in line.split()]
    assert heights == sorted(heights, reverse=True)  # SVG counts downwards; values below 0 are no edge


def test_a_band_lies_between_its_neighbours() -> None:
    drawn = chart([0.0, 1.0, 2.0, 3.0, 4.0])
    start, width = map(float, re.search(r'<rect x="([\d.]+)" y="\d+" width="([\d.]+)"', drawn).groups())  # type: ignore[union-attr]
    (line,) = re.findall(r'<polyline points="([^"]*)"', drawn)
    places = [float(point.split(",")[0]) for point in line.split()]
    assert places[1] < start < places[2] < start + width < places[3]
    assert re.search(r'<span class="key"><svg[^>]*><rect[^>]*fill:red[^>]*></rect></svg>lost</span>', drawn)


def test_nothing_known_still_draws() -> None:
    assert "<polyline" not in chart([math.nan] * 5)
    assert "<svg" in chart([math.nan] * 5, from_zero=True)
