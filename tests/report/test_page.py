"""The HTML page is one file, well formed, and safe against what users call their data."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from scopereg.report.charts import Series, line_chart
from scopereg.report.page import Picture, Report

VOID = {"img", "meta", "br", "line", "circle", "polyline"}


class Balance(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def build() -> Report:
    report = Report("A <script>alert(1)</script> title", "lead & more")
    report.cards({"error": "0.5 mm"})
    report.heading("Chart", "why")
    report.chart(line_chart([Series("a", [1.0, 2.0, 0.5], "#fff")], x_label="x", y_label="y < z", mark=(3.0, "3 mm")))
    report.table(["name", "ok"], [["one", "yes"], ["<b>two</b>", "no"]], marks=[True, False])
    report.strip("Frame 1", "0.1 mm", [Picture("frame", np.zeros((4, 4), np.uint8))])
    report.facts({"seed": 3})
    return report


def test_page_is_balanced_and_holds_everything_itself(tmp_path: Path) -> None:
    page = build().save(tmp_path / "report.html").read_text()
    parser = Balance()
    parser.feed(page)
    assert parser.open == []
    assert parser.links
    assert all(link.startswith("data:") for link in parser.links)


def test_every_colour_is_the_page_s_own_in_the_dark_in_the_light_and_in_print() -> None:
    page = build().html()
    used = set(re.findall(r"var\((--[\w-]+)\)", page))
    dark, light, printed = re.findall(r":root \{ color-scheme:(dark|light); ([^}]*)\}", page)
    assert (dark[0], light[0], printed[0]) == ("dark", "light", "light")
    names = [set(re.findall(r"(--[\w-]+):", colours)) for _, colours in (dark, light, printed)]
    assert used <= names[0] == names[1] == names[2]
    assert dark[1] != light[1]


def test_text_is_escaped() -> None:
    page = build().html()
    assert "<script>" not in page
    assert "&lt;b&gt;two&lt;/b&gt;" in page
    assert "y &lt; z" in page


@pytest.mark.parametrize("values", [[0.0], [0.0, 0.0], [1e-3, 5e3], [7.0] * 40])
def test_charts_of_any_range_stay_inside_the_picture(values: list[float]) -> None:
    svg = line_chart([Series("a", values, "#fff")], x_label="x", y_label="y")
    heights = [float(part.split('"')[0]) for part in svg.split("<figcaption>")[0].split('cy="')[1:]]
    assert len(heights) == len(values)
    assert all(0 <= height <= 260 for height in heights)
