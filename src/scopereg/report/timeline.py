"""Timeline: the frames of a sequence over time: some of them as pictures, the verdict of each as a band, and the frame
under the cursor in every chart, without a script."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from html import escape
from itertools import groupby, pairwise
from statistics import median
from typing import NamedTuple

from scopereg.images import Frame, Volume, unit_range
from scopereg.io.pictures import Pixels, data_uri, grey_pixels
from scopereg.registration.result import Assessment
from scopereg.registration.track import Step
from scopereg.report.drawing import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    draw_figure,
    draw_hatch,
    draw_stroke,
    plain_axis,
)
from scopereg.report.frame_pictures import cut_at, small
from scopereg.report.palette import LIGHTS, SIGNS
from scopereg.report.volume_picture import Plane, Stop, VolumePicture, plane_of
from scopereg.report.words import brief

_SHOTS, _THUMBNAILS = 30, 12  # frames under the cursor, and of these in the strip
_WIDEST = 96  # pixels of a frame
_GREYS = 31  # more only make the page heavy
_POP, _LINE, _LETTERS = 86, 13, 32  # width of a picture under the cursor, height of a line of words below, its letters
_BAND, _AIR = 16, 18  # height of the band of verdicts, room above it for the lines to it
_OUTLINES = 7  # frames on the path through the volume

INVALID = "INVALID"  # as sequences call it: no picture stands behind the pose
_COLOURS = {**LIGHTS, INVALID: "var(--none)"}
_SHARE = {"green": 1.0, "amber": 0.7, "red": 0.4, INVALID: 1.0}  # of the band's height: it tells without colours


class Shot(NamedTuple):
    """A frame with its picture, the cut where it lies, and what is said of it."""

    row: int
    time_s: float
    light: str
    words: str
    frame: Pixels
    cut: Pixels | None
    plane: Plane | None


def light_of(step: Step) -> str:
    """The light of a frame that was placed; without a picture behind its pose it is INVALID."""
    return Assessment.of(step.result).light if step.is_placed else INVALID


def _verdict_of(step: Step) -> tuple[str, str]:
    light = light_of(step)
    return light, INVALID if light == INVALID else Assessment.of(step.result).word


def _sample(light: str) -> str:
    """A piece of the band."""
    share = 12 * _SHARE[light]
    faint, hatch = (" opacity='0.35'", draw_hatch(0, 22, 0, 12, "var(--ink)")) if light == INVALID else ("", "")
    box = f"y='{12 - share:.1f}' width='22' height='{share:.1f}'"
    return f"<rect {box} style='fill:{_COLOURS[light]}'{faint}/>{hatch}"


def take_shots(steps: Sequence[Step], frame_of: Callable[[Step], Frame], volume: Volume | None) -> list[Shot]:
    """Some of the frames that can be read, from the first to the last; `frame_of` may raise."""
    readable = [step for step in steps if step.state != "unreadable" and math.isfinite(step.time_s)]
    count = min(len(readable), _SHOTS)
    places = {round(k * (len(readable) - 1) / max(count - 1, 1)) for k in range(count)}
    shots = []
    for place in sorted(places):
        try:
            frame = frame_of(readable[place])
        except Exception:  # a damaged file may fail anywhere in a reader, and the table names it
            continue
        shots.append(_shot(readable[place], frame, volume))
    return shots


def _shot(step: Step, frame: Frame, volume: Volume | None) -> Shot:
    shown = small(frame, widest=_WIDEST)
    light = light_of(step)
    told = Assessment.of(step.result) if step.is_placed else None
    words = brief(told) if told is not None else f"{INVALID}: {step.state}. {step.reason}"
    pixels, cut, plane = _few_greys(shown), None, None
    if step.pose is not None:
        plane = plane_of(frame, step.pose, None, _COLOURS[light])
        if volume is not None and step.state != "lost":
            cut = _few_greys(Frame(cut_at(volume, shown, step.pose), shown.spacing_mm))
    return Shot(step.row, step.time_s, light, words, pixels, cut, plane)


def _few_greys(frame: Frame) -> Pixels:
    image = unit_range(frame.array.detach().cpu())
    return grey_pixels((image * _GREYS).round() / _GREYS)


class Timeline:
    """Draws what belongs to a sequence; of several on a page each has its `name`."""

    def __init__(self, steps: Sequence[Step], shots: Sequence[Shot], name: str = "t") -> None:
        self._steps = [step for step in steps if math.isfinite(step.time_s)]
        self._shots, self._name = shots, name
        times = [step.time_s for step in self._steps]
        gaps = [b - a for a, b in pairwise(times) if b > a]
        self.half_s = median(gaps) / 2 if gaps else 0.5  # of a step
        self.x = plain_axis([times[0] - self.half_s, times[-1] + self.half_s] if times else [0.0, 1.0])
        ratio = max((shot.frame.shape[0] / shot.frame.shape[1] for shot in shots), default=1.0)
        self._ratio = min(ratio, 1.3)  # of the height of pictures to their width

    def figure(self) -> str:
        """The strip of frames, and below it the band of verdicts over time."""
        step = (WIDTH - LEFT - RIGHT) / _THUMBNAILS
        wide = step - 5
        high = wide * self._ratio if self._shots else 0.0
        band = TOP + high + (_AIR if self._shots else 0)
        height = band + _BAND + BOTTOM
        parts = [self._pictures(), *self._strip(step, wide, high, band), *self._bands(band)]
        for tick in self.x.ticks:
            parts.append(draw_stroke(self.x(tick), self.x(tick), band + _BAND, band + _BAND + 4, 'class="grid"'))
            parts.append(f'<text x="{self.x(tick):.1f}" y="{band + _BAND + 17:.1f}" class="middle">{tick:.6g}</text>')
        centre = (LEFT + WIDTH - RIGHT) / 2
        parts.append(f'<text x="{centre:.1f}" y="{height - 6:.1f}" class="middle">time, s</text>')
        return draw_figure(parts, height, self._legend())

    def over(self, height: float = HEIGHT) -> str:
        """A layer over a chart with this time axis: it shows the frame under the cursor."""
        shots, x = self._shots, self.x
        if not shots:
            return ""
        middles = [(a.time_s + b.time_s) / 2 for a, b in pairwise(shots)]
        ends = [x.low, *middles, x.high]
        hits = [
            f"<g class='hit'><rect x='{x(left):.1f}' y='{TOP}' width='{max(x(right) - x(left), 0):.1f}' "
            f"height='{height - BOTTOM - TOP:g}'/>{self._pop(shot, height)}</g>"
            for shot, (left, right) in zip(shots, pairwise(ends), strict=True)
        ]
        return f"<g class='hits'>{''.join(hits)}</g>"

    def _pop(self, shot: Shot, height: float) -> str:
        place, lines = self.x(shot.time_s), _wrapped(shot.words)
        wide, high = 2 * _POP + 16, _POP * self._ratio + 26 + _LINE * len(lines)
        left = place + 12 if place + 12 + wide < WIDTH else place - 12 - wide
        top = max(2.0, min(TOP + 4.0, height - high))
        texts = [f"<tspan class='name'>frame {shot.row}, {shot.time_s:.2f} s</tspan>", *map(escape, lines)]
        words = "".join(
            f"<text x='{left + 6:.1f}' y='{top + _POP * self._ratio + 20 + _LINE * k:.1f}'>{text}</text>"
            for k, text in enumerate(texts)
        )
        line = draw_stroke(place, place, TOP, height - BOTTOM, "style='stroke:var(--ink)'")
        back = f"<rect class='pad' x='{left:.1f}' y='{top:.1f}' width='{wide}' height='{high:.1f}' rx='6'/>"
        pictures = f"<use href='#{self._id(shot)}' x='{left + 6:.1f}' y='{top + 6:.1f}'/>"
        return f"<g class='pop'>{line}{back}{pictures}{words}</g>"

    def _pictures(self) -> str:
        """Every picture once; charts refer to them."""
        groups = [
            f"<g id='{self._id(shot)}'>{self._image(shot.frame, 0)}"
            + (self._image(shot.cut, _POP + 4) if shot.cut is not None else "")
            + "</g>"
            for shot in self._shots
        ]
        return f"<defs>{''.join(groups)}</defs>"

    def _image(self, pixels: Pixels, left: float) -> str:
        size = f"width='{_POP}' height='{_POP * self._ratio:.1f}'"
        return f"<image href='{data_uri(pixels)}' x='{left}' {size} preserveAspectRatio='xMidYMin meet'/>"

    def _strip(self, step: float, wide: float, high: float, band: float) -> list[str]:
        count = min(len(self._shots), _THUMBNAILS)
        chosen = [self._shots[round(k * (len(self._shots) - 1) / max(count - 1, 1))] for k in range(count)]
        parts = []
        for place, shot in enumerate(chosen):
            left, x = LEFT + place * step, self.x(shot.time_s)
            size = f"x='{left:.1f}' y='{TOP}' width='{wide:.1f}' height='{high:.1f}'"
            dash = " stroke-dasharray='3 3'" if shot.light == INVALID else ""
            look = f"style='stroke:{_COLOURS[shot.light]};fill:none' stroke-width='2'{dash}"
            said = f"<title>{escape(f'frame {shot.row}, {shot.time_s:.2f} s. {shot.words}')}</title>"
            middle, foot = left + wide / 2, TOP + high
            parts.append(f"<image href='{data_uri(shot.frame)}' {size} preserveAspectRatio='xMidYMin slice'/>")
            parts.append(f"<rect {size} {look} pointer-events='all'>{said}</rect>")
            parts.append(draw_stroke(middle, x, foot + 1, band - 1, "style='stroke:var(--dim)' opacity='0.6'"))
        return parts

    def _bands(self, top: float) -> list[str]:
        parts = []
        for (light, word), run in groupby(self._steps, _verdict_of):
            steps = list(run)
            left, right = self.x(steps[0].time_s - self.half_s), self.x(steps[-1].time_s + self.half_s)
            low, colour = top + _BAND * (1 - _SHARE[light]), _COLOURS[light]
            box = f"x='{left:.1f}' y='{low:.1f}' width='{right - left:.1f}' height='{_BAND * _SHARE[light]:.1f}'"
            said = f"<title>{word}: {len(steps)} frames from {steps[0].time_s:.2f} s</title>"
            faint = " opacity='0.35'" if light == INVALID else ""
            parts.append(f"<rect {box} style='fill:{colour}'{faint}>{said}</rect>")
            if light == INVALID:
                parts.append(draw_hatch(left, right, top, top + _BAND, "var(--ink)"))
        return parts

    def _legend(self) -> str:
        counts = Counter(map(_verdict_of, self._steps))
        order = sorted(counts, key=lambda verdict: list(_COLOURS).index(verdict[0]))
        return "".join(
            f"<span class='key'><svg viewBox='0 0 22 12' aria-hidden='true'>{_sample(light)}</svg>"
            f"{SIGNS.get(light, '–')} {word}: {counts[light, word]}</span>"
            for light, word in order
        )

    def _id(self, shot: Shot) -> str:
        return f"{self._name}-{shot.row}"


def path_picture(steps: Sequence[Step], shots: Sequence[Shot], frame: Frame, volume: Volume) -> str:
    """The way of the frames' middles through the volume, with some frames on it, and the middle one as it looks."""
    placed = [step for step in steps if step.pose is not None and step.state != "lost"]
    path = [Stop(step.pose.apply(frame.centre_mm), "" if light_of(step) == INVALID else light_of(step))
            for step in placed if step.pose is not None]  # fmt: skip
    planes = [shot.plane for shot in shots if shot.plane is not None and shot.light != INVALID]
    pixels = [shot.frame for shot in shots if shot.plane is not None and shot.light != INVALID]
    count = min(len(planes), _OUTLINES)
    chosen = [round(k * (len(planes) - 1) / max(count - 1, 1)) for k in range(count)]
    drawn = [
        planes[place]._replace(pixels=pixels[place] if place == chosen[len(chosen) // 2] else None) for place in chosen
    ]
    scene = VolumePicture(volume, width=WIDTH, height=_TALL)
    svg = scene.picture(drawn, path, said="the way of the frames through the volume")
    return f"<figure>{svg}</figure>"


_TALL = 400  # height of the picture of the path


def _wrapped(words: str) -> list[str]:
    """At most three lines."""
    lines = [""]
    for word in words.split():
        if len(lines[-1]) + len(word) + 1 > _LETTERS and lines[-1]:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()[:_LETTERS]
    return lines[:3] if len(lines) <= 3 else [*lines[:2], lines[2][: _LETTERS - 1] + "…"]
