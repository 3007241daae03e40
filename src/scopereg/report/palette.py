"""Palette: colours of pages and pictures by name, and the looks by which lines are told apart without them.

The colours were searched for: each pair differs by 0.11 or more in OKLab for people who see all colours and for those
who lack one kind of cones, on dark and on light pages. In grey colours alone cannot tell eight lines apart, so that
dashes and markers differ too.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Marker = Literal["circle", "square", "triangle", "diamond", "cross", "ring"]

DASHED, DOTTED, DASH_DOTTED = "5 4", "2 3", "7 3 2 3"
_DASHES = ("", DASHED, DASH_DOTTED, DOTTED, "12 4", "12 3 2 3 2 3")
_MARKS: tuple[Marker, ...] = ("circle", "square", "triangle", "diamond", "cross")
COLOURS = 8  # c0 to c7

SIGNS = {"green": "✓", "amber": "!", "red": "✕"}  # of the lights of verdicts, for whom their colours look alike
LIGHTS = {"green": "var(--good)", "amber": "var(--warn)", "red": "var(--bad)"}

# By the background: good, warn and bad are the lights of verdicts, c0 to c7 the lines of charts.
DARK = {
    "ink": "#e8eaed",
    "dim": "#a3a9af",
    "back": "#111418",
    "panel": "#1a1f25",
    "line": "#2c333b",
    "good": "#98f3bd",
    "warn": "#fdac3c",
    "bad": "#e05f42",
    "none": "#8b95a1",
    "c0": "#d4fccc",
    "c1": "#b1860a",
    "c2": "#8da5f1",
    "c3": "#cd357f",
    "c4": "#8465e6",
    "c5": "#fa9a8e",
    "c6": "#65ddea",
    "c7": "#fdd619",
}
LIGHT = {
    "ink": "#111",
    "dim": "#4a5157",
    "back": "#fff",
    "panel": "#f6f8fa",
    "line": "#d0d5da",
    "good": "#14724b",
    "warn": "#986317",
    "bad": "#781b1e",
    "none": "#6b747d",
    "c0": "#409f86",
    "c1": "#a14919",
    "c2": "#130080",
    "c3": "#6c3448",
    "c4": "#8e59e2",
    "c5": "#3f210f",
    "c6": "#2f7386",
    "c7": "#ad8206",
}


def _named(colours: dict[str, str]) -> str:
    return "; ".join(f"--{name}:{colour}" for name, colour in colours.items())


PALETTE = f"""
:root {{ color-scheme:dark; {_named(DARK)} }}
@media (prefers-color-scheme:light) {{ :root {{ color-scheme:light; {_named(LIGHT)} }} }}
@media print {{ :root {{ color-scheme:light; {_named(LIGHT)}; --panel:#fff }} }}
"""


class Look(NamedTuple):
    """Look of a line: any one of the three tells it from its neighbours."""

    colour: str
    dash: str = ""
    marker: Marker = "circle"


def look(number: int) -> Look:
    """The look of the line of a number; those of the first 120 differ."""
    return Look(f"var(--c{number % COLOURS})", _DASHES[number % len(_DASHES)], _MARKS[number % len(_MARKS)])
