"""Drawing: what charts consist of, as SVG text: axes, grids, lines, dots, bands, boxes, legends."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape

import numpy as np

from scopereg.report.palette import PALETTE, Marker

WIDTH, HEIGHT = 760, 260
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 14, 42
_DECADES = 4  # of a logarithmic axis: what is smaller stands at its edge
_QUARTERS = (0, 25, 50, 75, 100)


@dataclass(frozen=True)
class Axis:
    """Maps data to picture coordinates; values beyond the ends stand at the edge."""

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


SVG_STYLE = """
svg text { fill:var(--dim); font-size:12px } .end { text-anchor:end } svg .name { fill:var(--ink) }
.ring { fill:var(--panel); stroke:var(--ink); stroke-width:1.5 } .middle { text-anchor:middle }
.grid { stroke:var(--line) } .mark { stroke:var(--dim); stroke-dasharray:2 4 }
"""

_DOTS = 3000  # more only make the page slow
_LABEL = 90  # room for the label of an upright line

_LINE, _KEY = 24, 290  # height of a line of text, width of a name in a legend

Mark = tuple[float, str]  # a level and its label
_MARKERS: dict[str, tuple[tuple[float, float], ...]] = {  # corners of those that are not round
    "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    "triangle": ((0, -1.2), (1.1, 0.8), (-1.1, 0.8)),
    "diamond": ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
}
_HATCH = 7  # distance of the lines of a hatched span


@dataclass(frozen=True)
class Series:
    """One line of a chart."""

    name: str
    values: list[float]
    colour: str
    dash: str = ""  # lengths of strokes and gaps, such as DASHED
    marker: Marker = "circle"


@dataclass(frozen=True)
class Curve:
    """A line through points, with a band around it where there is one."""

    name: str
    x: list[float]
    y: list[float]
    colour: str
    dash: str = ""  # lengths of strokes and gaps, such as DASHED
    marker: Marker = "circle"
    band: list[tuple[float, float]] | None = None  # low and high at each point
    dots: bool = False


@dataclass(frozen=True)
class Span:
    """A part of the x axis with a colour of its own."""

    name: str
    start: float
    stop: float
    colour: str
    hatched: bool = False


@dataclass(frozen=True)
class BoxPlot:
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
    dots = "".join(draw_marker(cloud.marker, x(a), y(b), 3, cloud.colour) for a, b in pairs)
    return [f'<g opacity="0.65">{dots}</g>']


def draw_line(xs: Sequence[float], ys: Sequence[float], x: Axis, y: Axis, style: Series | Curve) -> str:
    points = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in zip(xs, ys, strict=True) if math.isfinite(b))
    return f'<polyline points="{points}" fill="none" {_stroke_look(style)}/>'


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
        draw_marker(style.marker, x(a), y(b), radius, style.colour, f"{style.name}, {a:g}: {b:.2f}")
        for a, b in zip(xs, ys, strict=True)
        if math.isfinite(b)
    ]


def draw_marks(curve: Curve, x: Axis, y: Axis, number: int) -> list[str]:
    """Some markers along a long curve, those of each `number` at other places."""
    first, step = len(curve.x) // 16, max(len(curve.x) // 6, 1)
    places = range((first + number * step // 4) % step, len(curve.x), step)
    return [draw_marker(curve.marker, x(curve.x[k]), y(curve.y[k]), 3.5, curve.colour) for k in places]


def draw_marker(shape: Marker, x: float, y: float, radius: float, colour: str, said: str = "") -> str:
    """A dot, or what tells a line from others where colours do not."""
    title = f"<title>{escape(said)}</title>" if said else ""
    if shape in ("circle", "ring"):
        look = f"fill:{colour}" if shape == "circle" else f"fill:none;stroke:{colour};stroke-width:1.5"
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" style="{look}">{title}</circle>'
    if shape == "cross":
        strokes = f"M{x - radius:.1f} {y - radius:.1f}l{2 * radius:g} {2 * radius:g}m0 -{2 * radius:g}l-{2 * radius:g} "
        look = f'style="stroke:{colour};stroke-width:2;fill:none"'
        return f'<path d="{strokes}{2 * radius:g}" {look}>{title}</path>'
    corners = " ".join(f"{x + radius * a:.1f},{y + radius * b:.1f}" for a, b in _MARKERS[shape])
    return f'<polygon points="{corners}" style="fill:{colour}">{title}</polygon>'


def draw_span(span: Span, left: float, right: float, top: float, bottom: float) -> str:
    """A coloured area with its name, hatched where its colour is not enough."""
    box = f'x="{left:.1f}" y="{top:g}" width="{max(right - left, 0):.1f}" height="{bottom - top:g}"'
    title = f"<title>{escape(span.name)}</title>"
    area = f'<rect {box} style="fill:{span.colour}" opacity="0.25">{title}</rect>'
    return area + (draw_hatch(left, right, top, bottom, span.colour) if span.hatched else "")


def draw_hatch(left: float, right: float, top: float, bottom: float, colour: str) -> str:
    """Slanted lines within a box."""
    height, lines = bottom - top, []
    start = left - height
    while start < right:
        low, high = max(start, left), min(start + height, right)
        if high > low:
            lines.append(f"M{low:.1f} {bottom - (low - start):.1f}L{high:.1f} {bottom - (high - start):.1f}")
        start += _HATCH
    return f'<path d="{"".join(lines)}" style="stroke:{colour};stroke-width:1;fill:none" opacity="0.5"/>'


def draw_band(curve: Curve, x: Axis, y: Axis) -> list[str]:
    """The area between the bounds; a point without bounds has none."""
    known = [(a, *span) for a, span in zip(curve.x, curve.band or [], strict=False) if all(map(math.isfinite, span))]
    if not known:
        return []
    edge = [(a, low) for a, low, _ in known] + [(a, high) for a, _, high in reversed(known)]
    points = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in edge)
    return [f'<polygon points="{points}" style="fill:{curve.colour}" opacity="0.18"/>']


def draw_strokes(curve: Curve, x: Axis, y: Axis) -> list[str]:
    """The bounds as an upright stroke at each point."""
    look = f'style="stroke:{curve.colour}" stroke-width="1.5" opacity="0.7"'
    spans = zip(curve.x, curve.band or [], strict=False)
    return [draw_stroke(x(a), x(a), y(low), y(high), look) for a, (low, high) in spans]


def draw_box(box: BoxPlot, x: Axis, middle: float) -> list[str]:
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


def draw_legend(lines: Sequence[Series | Curve | Span], *, clouds: bool = False) -> str:
    """Names behind a piece of what is drawn: line with dash and marker, dots alone, or an area."""
    keys = ((_sample(line, clouds), line.name) for line in lines)
    return "".join(f'<span class="key">{sample}{escape(name)}</span>' for sample, name in keys)


def _sample(line: Series | Curve | Span, cloud: bool) -> str:
    if isinstance(line, Span):
        parts = draw_span(replace(line, name=""), 0, 22, 0, 12).replace("<title></title>", "")
    else:
        marked = isinstance(line, Series) or line.dots or cloud
        parts = "" if cloud else draw_stroke(0, 34, 6, 6, _stroke_look(line))
        parts += draw_marker(line.marker, 17, 6, 4, line.colour) if marked else ""
    return f'<svg viewBox="0 0 {22 if isinstance(line, Span) else 34} 12" aria-hidden="true">{parts}</svg>'


def _stroke_look(line: Series | Curve) -> str:
    dash = f' stroke-dasharray="{line.dash}"' if line.dash else ""
    return f'style="stroke:{line.colour}" stroke-width="2"{dash}'


def draw_figure(parts: Sequence[str], height: float, legend: str = "") -> str:
    caption = f"<figcaption>{legend}</figcaption>" if legend else ""
    return f"<figure><div class='scroll'>{draw_svg(parts, height)}</div>{caption}</figure>"


def draw_svg(parts: Sequence[str], height: float, place: str = "") -> str:
    """A picture of the usual width; `place` is where it stands in another one."""
    body = "\n".join(parts)
    return f'<svg {place}viewBox="0 0 {WIDTH} {height:g}" role="img">{body}</svg>'


def svg_file(title: str, panels: Sequence[Sequence[str]], lines: Sequence[Curve]) -> str:
    """Panels side by side with a title above and a legend below, as a file of its own for light and dark pages."""
    width, columns = len(panels) * WIDTH, (len(panels) * WIDTH - LEFT) // _KEY
    rows = math.ceil(len(lines) / columns)
    height = 2 * _LINE + HEIGHT + _LINE * rows
    placed = [
        draw_svg(parts, HEIGHT, f'x="{index * WIDTH}" y="{_LINE}" width="{WIDTH}" height="{HEIGHT}" ')
        for index, parts in enumerate(panels)
    ]
    keys = [
        _key(line, LEFT + _KEY * (index % columns), 1.7 * _LINE + HEIGHT + _LINE * (index // columns))
        for index, line in enumerate(lines)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="system-ui,sans-serif"><style>{PALETTE}{SVG_STYLE}</style>'
        f'<rect width="100%" height="100%" style="fill:var(--back)"/>'
        f'<text x="{width / 2}" y="{0.7 * _LINE:.1f}" class="middle name">{escape(title)}</text>'
        + "\n".join([*placed, *keys])
        + "</svg>\n"
    )


def _key(line: Curve, x: float, y: float) -> str:
    """A line of a legend: a piece of it with its marker, and its name."""
    return (
        draw_stroke(x, x + 34, y, y, _stroke_look(line))
        + draw_marker(line.marker, x + 17, y, 4, line.colour)
        + f'<text x="{x + 42}" y="{y + 4}">{escape(line.name)}</text>'
    )
