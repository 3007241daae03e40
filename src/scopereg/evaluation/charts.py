"""Line charts as SVG text, for pages that must open anywhere without scripts or network."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from html import escape

Scale = Callable[[float], float]  # from data to picture coordinates

_WIDTH, _HEIGHT = 760, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 14, 42


@dataclass(frozen=True)
class Series:
    """One line of a chart."""

    name: str
    values: list[float]
    colour: str
    dashed: bool = False


def line_chart(series: list[Series], *, x_label: str, y_label: str, mark: tuple[float, str] | None = None) -> str:
    """An SVG chart of lines over 1, 2, 3, ..., the y axis from 0; `mark` draws a labelled level."""
    count = max(len(line.values) for line in series)
    top = _round_up(max([value for line in series for value in line.values] + [mark[0] if mark else 0.0, 1e-9]))

    def x(position: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (position / max(count - 1, 1) if count > 1 else 0.5)

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / top

    parts = [*_axes(count, top, x_label, y_label, x, y)]
    if mark:
        level = y(mark[0])
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{level:.1f}" y2="{level:.1f}" class="mark"/>')
        parts.append(f'<text x="{_WIDTH - _RIGHT}" y="{level - 5:.1f}" class="end">{escape(mark[1])}</text>')
    for line in series:
        points = " ".join(f"{x(i):.1f},{y(v):.1f}" for i, v in enumerate(line.values))
        dash = ' stroke-dasharray="5 4"' if line.dashed else ""
        parts.append(f'<polyline points="{points}" fill="none" stroke="{line.colour}" stroke-width="2"{dash}/>')
        parts += [
            f'<circle cx="{x(i):.1f}" cy="{y(v):.1f}" r="3.5" fill="{line.colour}">'
            f"<title>{escape(line.name)}, {i + 1}: {v:.2f}</title></circle>"
            for i, v in enumerate(line.values)
        ]
    legend = "".join(
        f'<span class="key"><i style="background:{line.colour}"></i>{escape(line.name)}</span>' for line in series
    )
    body = "\n".join(parts)
    drawing = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{body}</svg>'
    return f"<figure>{drawing}<figcaption>{legend}</figcaption></figure>"


def _axes(count: int, top: float, x_label: str, y_label: str, x: Scale, y: Scale) -> list[str]:
    parts = []
    for step in range(5):
        value = top * step / 4
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" class="grid"/>'
        )
        parts.append(f'<text x="{_LEFT - 8}" y="{y(value) + 4:.1f}" class="end">{value:g}</text>')
    every = max(1, math.ceil(count / 16))
    parts += [
        f'<text x="{x(i):.1f}" y="{_HEIGHT - _BOTTOM + 18}" class="middle">{i + 1}</text>'
        for i in range(0, count, every)
    ]
    parts.append(f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 6}" class="middle">{escape(x_label)}</text>')
    middle = (_HEIGHT - _BOTTOM + _TOP) / 2
    parts.append(f'<text transform="translate(14 {middle}) rotate(-90)" class="middle">{escape(y_label)}</text>')
    return parts


def _round_up(value: float) -> float:
    """The next of 1, 2, 4, 6, 8, 10 times a power of ten: a top whose quarters read well."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * factor for factor in (1, 2, 4, 6, 8, 10, 20) if power * factor >= value * 0.999)
