"""Deformation section: what rigid poses leave, as numbers and as a grid that is drawn deformed over the frame."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from scopereg.images import Frame, unit_range
from scopereg.io.pictures import data_uri, grey_pixels
from scopereg.registration.batch import Row
from scopereg.registration.deformable.displacement import Deformation
from scopereg.report.page import Report

DRAWN = 3.0  # times as large as they are displacements are drawn
_LINES = 10  # of the grid along the longer side
_POINTS = 6  # of a line between two of the other way
_FULL_MM = 2.0  # off the plane, where colours are full
_FLAT, _ABOVE, _BELOW = (235, 235, 235), (255, 150, 40), (70, 150, 255)

Array = npt.NDArray[np.float64]


def add_deformations(report: Report, found: Sequence[Row]) -> None:
    """A table of all frames whose deformation was sought."""
    rows = [(row, row.found.deformation) for row in found if row.found.deformation is not None]
    if not rows:
        return
    report.heading(
        "Deformation",
        "What the rigid pose leaves: displacements of the frame's points over its field of view, without any rigid "
        "part, and by what factors areas change (Jacobian; 0 would be a fold). Beside it, how far the frame as a whole "
        "would lie elsewhere if it is taken for deformed; the pose stays as it is. Where nothing stands out from the "
        "noise nothing is displaced.",
    )
    columns = ["file", "frame", "mean mm", "largest mm", "off the plane mm", "Jacobian", "folds", "elsewhere mm", ""]
    report.table(columns, [_cells(row, deformation) for row, deformation in rows], style="tight")


def _cells(row: Row, deformation: Deformation) -> list[str]:
    told = deformation.facts
    low, high = told["jacobian"]
    lengths = [f"{told[name]:.2f}" for name in ("mean_mm", "max_mm", "out_of_plane_mm")]
    rest = [f"{low:.2f} to {high:.2f}", str(told["folds"]), f"{told['step_mm']:.2f}"]
    state = "" if deformation.is_significant else "none that stands out"
    return [row.task.shown, str(row.task.index), *lengths, *rest, state]


def deformed_grid(frame: Frame, deformation: Deformation) -> str:
    """The frame under a grid of squares that is displaced, drawn larger than it is; SVG in mm of the frame."""
    (left, top), (right, bottom) = deformation.low_mm, deformation.high_mm
    width, height = right - left, bottom - top
    step = max(width, height) / _LINES
    picture = data_uri(grey_pixels(unit_range(frame.array)))
    parts = [
        f"<svg viewBox='{left:.2f} {top:.2f} {width:.2f} {height:.2f}' role='img' aria-label='deformed grid' "
        "style='background:#000'>",
        f"<image href='{picture}' x='{left:.2f}' y='{top:.2f}' width='{width:.2f}' height='{height:.2f}' "
        "preserveAspectRatio='none' opacity='0.55'/>",
    ]
    for across in (True, False):
        for line in _lines((left, top), (right, bottom), step, across):
            parts += _strokes(line, deformation, width=step / 25)
    return "".join([*parts, "</svg>"])


def _lines(low: tuple[float, float], high: tuple[float, float], step: float, across: bool) -> list[Array]:
    """Points (N, 2) of the lines of a grid that run across, or down."""
    along, aside = (0, 1) if across else (1, 0)
    count = max(round((high[aside] - low[aside]) / step), 1)
    points = max(round((high[along] - low[along]) / step), 1) * _POINTS + 1
    lines = []
    for place in np.linspace(low[aside], high[aside], count + 1):
        line = np.empty((points, 2))
        line[:, along], line[:, aside] = np.linspace(low[along], high[along], points), place
        lines.append(line)
    return lines


def _strokes(line: Array, deformation: Deformation, width: float) -> list[str]:
    """A line where it was, faint, and displaced, in the colours of how far it lies off the plane."""
    moved = deformation.displacement.at(line)
    there = line + DRAWN * moved[:, :2]
    faint = (
        f"<polyline points='{_places(line)}' fill='none' stroke='#fff' stroke-opacity='.25' "
        f"stroke-width='{width / 2:.3f}'/>"
    )
    pieces = [
        f"<polyline points='{_places(there[first : first + 2])}' fill='none' stroke='{_colour(off)}' "
        f"stroke-width='{width:.3f}' stroke-linecap='round'/>"
        for first, off in enumerate((moved[1:, 2] + moved[:-1, 2]) / 2)
    ]
    return [faint, *pieces]


def _places(points: Array) -> str:
    return " ".join(f"{x:.2f},{y:.2f}" for x, y in points)


def _colour(off_mm: float) -> str:
    """Grey in the plane, orange above it and blue below."""
    share = min(abs(off_mm) / _FULL_MM, 1.0)
    ends = zip(_FLAT, _ABOVE if off_mm > 0 else _BELOW, strict=True)
    return "#" + "".join(f"{round(one + share * (other - one)):02x}" for one, other in ends)
