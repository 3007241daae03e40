"""Drawing: what charts consist of, as SVG text: grids, lines, dots, bands, boxes, legends."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

WIDTH, HEIGHT = 760, 260
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 14, 42
_DECADES = 4  # of a logarithmic axis: what is smaller stands at its edge
_QUARTERS = (0, 25, 50, 75, 100)


@dataclass(frozen=True)
class Axis:
    """From data to picture coordinates; what lies beyond the ends stands at the edge."""

    low: float
    high: float
    start: float  # picture coordinate of low
    stop: float
    ticks: tuple[float, ...]
    log: bool = False

    def __call__(self, value: float) -> float:
        scale = math.log10 if self.log else float
        low, high, at = map(scale, (self.low, self.high, min(max(value, self.low), self.high)))
        return self.start + (self.stop - self.start) * (at - low) / (high - low)


def log_axis(values: Iterable[float], start: float = LEFT, stop: float = WIDTH - RIGHT) -> Axis:
    """A logarithmic axis between round numbers, over four decades at most below the largest value."""
    positive = [value for value in values if value > 0] or [1.0]
    top = max(positive)
    low, high = _round(max(min(positive), top / 10**_DECADES), down=True), _round(top)
    if low == high:
        low, high = _round(low * 0.6, down=True), _round(high * 1.6)
    powers = range(math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9) + 1)
    ticks = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
    return Axis(low, high, start, stop, tuple(t for t in ticks if low * 0.999 <= t <= high * 1.001), log=True)


def zero_axis(values: Iterable[float], start: float = HEIGHT - BOTTOM, stop: float = TOP) -> Axis:
    """An axis, upright unless told, from 0 to a number whose quarters read well."""
    top = max([*values, 1e-9])
    power = 10.0 ** math.floor(math.log10(top))
    high = next(power * factor for factor in (1, 2, 4, 6, 8, 10, 20) if power * factor >= top * 0.999)
    return Axis(0, high, start, stop, tuple(high * step / 4 for step in range(5)))


def percent_axis(start: float = HEIGHT - BOTTOM, stop: float = TOP) -> Axis:
    """An axis, upright unless told, from 0 to 100 %."""
    return Axis(0, 100, start, stop, _QUARTERS)


def plain_axis(values: Sequence[float], ticks: tuple[float, ...] | None = None) -> Axis:
    """A level axis around the values, with some air at both ends and round ticks."""
    low, high = min(values), max(values)
    air = 0.04 * (high - low) or 0.5 * abs(low) or 0.5
    low, high = low - air, high + air
    step = next(n for n in _steps((high - low) / 7) if (high - low) / n <= 7)
    found = tuple(step * n for n in range(math.ceil(low / step), math.floor(high / step) + 1))
    return Axis(low, high, LEFT, WIDTH - RIGHT, ticks or found)


def _steps(near: float) -> list[float]:
    power = 10.0 ** math.floor(math.log10(near))
    return [power * factor for factor in (1, 2, 5, 10)]


def _round(value: float, *, down: bool = False) -> float:
    """The next of 1, 2, 5 times a power of ten, up or down."""
    power = math.floor(math.log10(value) + 1e-9)
    steps = [factor * 10.0**p for p in (power - 1, power, power + 1) for factor in (1, 2, 5)]
    if down:
        return max(step for step in steps if step <= value * 1.001)
    return min(step for step in steps if step >= value * 0.999)


_DOTS = 3000  # more only make the page slow
_LABEL = 90  # room for the label of an upright line

Mark = tuple[float, str]  # a level and its label


@dataclass(frozen=True)
class Series:
    """One line of a chart."""

    name: str
    values: list[float]
    colour: str
    dashed: bool = False


@dataclass(frozen=True)
class Curve:
    """A line through points, with a band around it where there is one."""

    name: str
    x: list[float]
    y: list[float]
    colour: str
    dashed: bool = False
    band: list[tuple[float, float]] | None = None  # low and high at each point
    dots: bool = False


@dataclass(frozen=True)
class Span:
    """A part of the x axis with a colour of its own."""

    name: str
    start: float
    stop: float
    colour: str


@dataclass(frozen=True)
class Box:
    """Values of which a box plot shows the spread; what is not finite must be left out beforehand."""

    name: str
    values: list[float]
    colour: str


def draw_grid(
    x: Axis, y: Axis, x_label: str, y_label: str, *, height: float = HEIGHT, vertical: bool = True
) -> list[str]:
    parts = []
    for tick in y.ticks:
        parts.append(draw_stroke(x.start, x.stop, y(tick), y(tick), 'class="grid"'))
        parts.append(f'<text x="{x.start - 8}" y="{y(tick) + 4:.1f}" class="end">{tick:g}</text>')
    for tick in x.ticks:
        if vertical:
            parts.append(draw_stroke(x(tick), x(tick), TOP, height - BOTTOM, 'class="grid"'))
        parts.append(f'<text x="{x(tick):.1f}" y="{height - BOTTOM + 18}" class="middle">{tick:.6g}</text>')
    centre = (x.start + x.stop) / 2
    parts.append(f'<text x="{centre:.1f}" y="{height - 6}" class="middle">{escape(x_label)}</text>')
    if y_label:
        middle = (height - BOTTOM + TOP) / 2
        parts.append(f'<text transform="translate(14 {middle}) rotate(-90)" class="middle">{escape(y_label)}</text>')
    return parts


def draw_level(mark: Mark | None, x: Axis, y: Axis) -> list[str]:
    if mark is None:
        return []
    level = y(mark[0])
    return [
        draw_stroke(x.start, x.stop, level, level, 'class="mark"'),
        f'<text x="{x.stop}" y="{level - 5:.1f}" class="end">{escape(mark[1])}</text>',
    ]


def draw_upright(mark: Mark | None, x: Axis, height: float) -> list[str]:
    if mark is None:
        return []
    place = x(mark[0])
    at_the_end = place > x.stop - _LABEL
    label = f'x="{place - 4:.1f}" class="end"' if at_the_end else f'x="{place + 4:.1f}"'
    return [
        draw_stroke(place, place, TOP - 4, height - BOTTOM, 'class="mark"'),
        f'<text {label} y="{TOP - 3}">{escape(mark[1])}</text>',
    ]


def draw_diagonal(x: Axis, y: Axis) -> str:
    return draw_stroke(x.start, x.stop, y.start, y.stop, 'class="mark"')


def draw_cloud(cloud: Curve, x: Axis, y: Axis) -> list[str]:
    """Dots; of very many only an even part."""
    step = math.ceil(len(cloud.x) / _DOTS) or 1
    pairs = zip(cloud.x[::step], cloud.y[::step], strict=True)
    look = f'r="3" style="fill:{cloud.colour}" opacity="0.6"'
    return [f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" {look}/>' for a, b in pairs]


def draw_line(xs: Sequence[float], ys: Sequence[float], x: Axis, y: Axis, style: Series | Curve) -> str:
    points = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in zip(xs, ys, strict=True) if math.isfinite(b))
    dash = ' stroke-dasharray="5 4"' if style.dashed else ""
    return f'<polyline points="{points}" fill="none" style="stroke:{style.colour}" stroke-width="2"{dash}/>'


def draw_pieces(curve: Curve, x: Axis, y: Axis) -> list[str]:
    """A line for each run of known values: what is not known is not bridged."""
    runs: list[list[tuple[float, float]]] = [[]]
    for a, b in zip(curve.x, curve.y, strict=True):
        if math.isfinite(b):
            runs[-1].append((a, b))
        elif runs[-1]:
            runs.append([])
    return [draw_line([a for a, _ in run], [b for _, b in run], x, y, curve) for run in runs if run]


def draw_dots(
    xs: Sequence[float], ys: Sequence[float], x: Axis, y: Axis, style: Series | Curve, radius: float = 3.5
) -> list[str]:
    if isinstance(style, Curve) and not style.dots:
        return []
    return [
        f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="{radius:g}" style="fill:{style.colour}">'
        f"<title>{escape(style.name)}, {a:g}: {b:.2f}</title></circle>"
        for a, b in zip(xs, ys, strict=True)
        if math.isfinite(b)
    ]


def draw_band(curve: Curve, x: Axis, y: Axis) -> list[str]:
    """The area between the bounds; a point without bounds has none."""
    known = [(a, *span) for a, span in zip(curve.x, curve.band or [], strict=False) if all(map(math.isfinite, span))]
    if not known:
        return []
    edge = [(a, low) for a, low, _ in known] + [(a, high) for a, _, high in reversed(known)]
    points = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in edge)
    return [f'<polygon points="{points}" style="fill:{curve.colour}" opacity="0.18"/>']


def draw_box(box: Box, x: Axis, middle: float) -> list[str]:
    values = np.asarray(box.values)
    low, first, median, third, high = (float(q) for q in np.percentile(values, [5, 25, 50, 75, 95]))
    mean, paint, half = float(values.mean()), f'style="stroke:{box.colour}"', 10
    said = f"{box.name}: median {median:.2f}, quartiles {first:.2f} to {third:.2f}, 5 to 95 % {low:.2f} to {high:.2f}"
    whiskers = [draw_stroke(x(a), x(b), middle, middle, paint) for a, b in ((low, first), (third, high))]
    whiskers += [draw_stroke(x(end), x(end), middle - 5, middle + 5, paint) for end in (low, high)]
    body = (
        f'<rect x="{x(first):.1f}" y="{middle - half:.1f}" width="{max(x(third) - x(first), 1):.1f}" '
        f'height="{2 * half}" style="stroke:{box.colour};fill:{box.colour}" fill-opacity="0.25">'
        f"<title>{escape(said)}, mean {mean:.2f}</title></rect>"
    )
    line = draw_stroke(x(median), x(median), middle - half, middle + half, f'{paint} stroke-width="3"')
    beyond = np.sort(values[(values < low) | (values > high)])
    dots = [
        f'<circle cx="{x(float(value)):.1f}" cy="{middle:.1f}" r="2" style="fill:{box.colour}" opacity="0.6"/>'
        for value in beyond[:: math.ceil(len(beyond) / _DOTS) or 1]
    ]
    return [*whiskers, body, line, *dots, f'<circle cx="{x(mean):.1f}" cy="{middle:.1f}" r="4" class="ring"/>']


def draw_stroke(x1: float, x2: float, y1: float, y2: float, look: str) -> str:
    return f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}" {look}/>'


def draw_legend(lines: Sequence[Series | Curve]) -> str:
    return "".join(
        f'<span class="key"><i style="background:{line.colour}"></i>{escape(line.name)}</span>' for line in lines
    )


def draw_figure(parts: Sequence[str], height: float, legend: str = "") -> str:
    body = "\n".join(parts)
    drawing = f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img">{body}</svg>'
    caption = f"<figcaption>{legend}</figcaption>" if legend else ""
    return f"<figure><div class='scroll'>{drawing}</div>{caption}</figure>"
