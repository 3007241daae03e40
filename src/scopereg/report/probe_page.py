"""Probe page: a calibration of a probe as one HTML file: what was found, how well it is known, every frame."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from scopereg.geometry import SUCCESS_MM
from scopereg.images import Frame, Volume
from scopereg.registration.probe.calibrated import (
    KEPT_ASIDE,
    LEFT_OUT,
    NOT_FOUND,
    USED,
    FrameResidual,
    ProbeCalibration,
)
from scopereg.registration.probe.certainty import FARTHEST
from scopereg.registration.probe.words import facts_of
from scopereg.report.charts import scatter_chart
from scopereg.report.drawing import Curve
from scopereg.report.frame_pictures import cut_at, pictures_of, small
from scopereg.report.page import Picture, Report
from scopereg.report.palette import Look, look

_MARK = (SUCCESS_MM, f"{SUCCESS_MM:g} mm")
_LOOKS = {
    USED: look(0),
    KEPT_ASIDE: Look("var(--c2)", marker="square"),
    LEFT_OUT: Look("var(--warn)", marker="triangle"),
}
_WIDEST = 200  # pixels of a picture
_TITLES = ("frame", "volume", "difference")
_OK = {True: "ok", False: "not ok", None: "not judged"}


def make_page(
    found: ProbeCalibration,
    facts: dict[str, Any],
    volume: Volume | None = None,
    frame_of: Callable[[FrameResidual], Frame] | None = None,
) -> Report:
    """Cards, what speaks against it, the matrix, residuals frame after frame, how it was made.

    With the volume, and frames as they were stored, some of them beside the volume where the calibration puts them.
    """
    lead = (
        "Where the image lies on the tracked probe, from where its frames were found in a volume. Distances are means "
        "over five points of the image: its middle and four towards its corners."
    )
    report = Report("Calibration of a probe", lead)
    report.cards(_cards(found))
    if not found.ok:
        report.alert("Not to be relied on", [f"{reason[0].upper()}{reason[1:]}." for reason in found.reasons])
    report.notes(found.notes)
    report.heading("What was found")
    report.table(["", ""], [[name, said] for name, said in facts_of(found).items()], style="words")
    report.subheading("ImageToProbe", "Pixels (column, row) to mm of the probe, as PLUS has it.")
    cells = [[axis, *(f"{number:.8g}" for number in row)] for axis, row in zip("xyz", found.matrix, strict=False)]
    report.table(["", "column", "row", "through the plane", "first pixel, mm"], cells, style="tight")
    _add_residuals(report, found)
    if volume is not None and frame_of is not None:
        _add_pictures(report, found, volume, frame_of)
    _add_frames(report, found)
    report.facts(facts)
    return report


def _cards(found: ProbeCalibration) -> dict[str, str]:
    known = found.certainty
    error = "" if math.isnan(found.error_mm) else f"{found.error_mm:.2f} mm"
    return {
        "may be relied on": "yes" if found.ok else "no",
        "median error of frames that it does not rest on": error or "not known",
        "offset known to": _known(known.worst_offset_mm, "mm"),
        "turn known to": _known(known.worst_turn_deg, "°"),
        "frames it rests on": f"{len(found.of_state(USED))} of {len(found.frames)}",
    }


def _known(half: float, unit: str) -> str:
    return f"± {half:.1f} {unit}" if half < FARTHEST else "not at all"


def _add_residuals(report: Report, found: ProbeCalibration) -> None:
    clouds = []
    for state, own in _LOOKS.items():
        rows = [(place, row.apart_mm) for place, row in enumerate(found.frames) if row.state == state]
        known = [(float(place), value) for place, value in rows if math.isfinite(value)]
        if known:
            clouds.append(Curve(state, [x for x, _ in known], [y for _, y in known], *own))
    if clouds:
        report.heading(
            "Residuals", "From where the calibration puts each frame to where it was found by itself, in order."
        )
        report.chart(scatter_chart(clouds, x_label="frame", y_label="distance, mm (logarithmic)", mark=_MARK))


def _add_pictures(
    report: Report, found: ProbeCalibration, volume: Volume, frame_of: Callable[[FrameResidual], Frame]
) -> None:
    report.heading(
        "Pictures",
        "The frame, the volume where the calibration puts it, and their difference: black where they agree, orange "
        "where the frame is brighter, blue where it is darker, gain taken out. Of each state the farthest, and one "
        "between.",
    )
    for place in _shown(found):
        row, frame = found.frames[place], frame_of(found.frames[place])
        fitting = small(replace(frame, spacing_mm=found.spacing_mm), widest=_WIDEST)
        images = zip(_TITLES, pictures_of(fitting, cut_at(volume, fitting, found.places[place])), strict=True)
        title = f"{row.state}, {_number(row.apart_mm)} mm" if math.isfinite(row.apart_mm) else row.state
        report.strip(title, row.label, [Picture(name, pixels) for name, pixels in images])


def _shown(found: ProbeCalibration) -> list[int]:
    """Numbers of some frames, in order."""
    places: set[int] = set()
    for state in (USED, KEPT_ASIDE, LEFT_OUT):
        own = [number for number, row in enumerate(found.frames) if row.state == state and row.apart_mm >= 0]
        own.sort(key=lambda number: found.frames[number].apart_mm)
        places |= {own[-1], own[len(own) // 2]} if own else set()
    return sorted(places)


def _add_frames(report: Report, found: ProbeCalibration) -> None:
    report.heading(
        "Frames",
        "Without it: by a calibration from the other frames alone. Similarity: to the volume where it is put.",
    )
    cells = [
        [
            row.label,
            row.state,
            _number(row.apart_mm),
            _number(row.without_mm),
            _number(row.similarity),
            "" if row.state == NOT_FOUND else _OK[row.ok],
            row.reason,
        ]
        for row in found.frames
    ]
    columns = ["frame", "", "distance mm", "without it mm", "similarity", "pose", "why"]
    report.table(columns, cells, style="words")


def _number(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else ""
