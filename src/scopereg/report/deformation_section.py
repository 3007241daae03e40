"""Deformation section: what rigid poses leave, as numbers and as a grid that is drawn deformed over the frame."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scopereg.images import Frame, unit_range
from scopereg.io.pictures import data_uri, grey_pixels
from scopereg.registration.batch import Row
from scopereg.registration.deformable.displacement import DRAWN, Deformation, Line
from scopereg.report.page import Report

_FULL_MM = 2.0  # off the plane, where colours are full
_FLAT, _ABOVE, _BELOW = (235, 235, 235), (255, 150, 40), (70, 150, 255)


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
    picture = data_uri(grey_pixels(unit_range(frame.array)))
    parts = [
        f"<svg viewBox='{left:.2f} {top:.2f} {width:.2f} {height:.2f}' role='img' aria-label='deformed grid' "
        "style='background:#000'>",
        f"<image href='{picture}' x='{left:.2f}' y='{top:.2f}' width='{width:.2f}' height='{height:.2f}' "
        "preserveAspectRatio='none' opacity='0.55'/>",
    ]
    for line in deformation.grid():
        parts += _strokes(line, max(width, height) / 250)
    return "".join([*parts, "</svg>"])


def _strokes(line: Line, width: float) -> list[str]:
    """A line where it was, faint, and displaced, in the colours of how far it lies off the plane."""
    there, off = line.drawn(DRAWN), line.moved_mm[:, 2]
    faint = (
        f"<polyline points='{_places(line.rest)}' fill='none' stroke='#fff' stroke-opacity='.25' "
        f"stroke-width='{width / 2:.3f}'/>"
    )
    pieces = [
        f"<polyline points='{_places(there[first : first + 2])}' fill='none' stroke='{_colour(float(mean))}' "
        f"stroke-width='{width:.3f}' stroke-linecap='round'/>"
        for first, mean in enumerate((off[1:] + off[:-1]) / 2)
    ]
    return [faint, *pieces]


def _places(points: np.ndarray) -> str:
    return " ".join(f"{x:.2f},{y:.2f}" for x, y in points)


def _colour(off_mm: float) -> str:
    """Grey in the plane, orange above it and blue below."""
    share = min(abs(off_mm) / _FULL_MM, 1.0)
    ends = zip(_FLAT, _ABOVE if off_mm > 0 else _BELOW, strict=True)
    return "#" + "".join(f"{round(one + share * (other - one)):02x}" for one, other in ends)
