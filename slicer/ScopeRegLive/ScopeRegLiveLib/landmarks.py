"""Landmarks: named points of markups nodes, as the file that scopereg reads, and how far they lie from a frame."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ScopeRegLiveLib.placement import Placement

ENDING = ".mrk.json"
FIDUCIAL, LINE = "Fiducial", "Line"
_SCHEMA = (
    "https://raw.githubusercontent.com/slicer/slicer/master/Modules/Loadable/Markups/Resources/Schema/"
    "markups-schema-v1.0.3.json#"
)
_RAS_TO_LPS = (-1.0, -1.0, 1.0)
_MOST_SHOWN = 8


class Distance(NamedTuple):
    """How far a landmark lies from the plane of the frame, and whether the frame shows what lies below it there."""

    name: str
    mm: float
    beside: bool

    def __str__(self) -> str:
        return f"{self.name}: {self.mm:.1f} mm" + (", beside the frame" if self.beside else "")


def named(names: Sequence[str], points: Any) -> dict[str, tuple[float, float, float]]:
    """Points by their names; a ValueError in words where names do not tell them apart."""
    if not len(names):
        raise ValueError("No landmark of it is placed.")
    found = {}
    for name, point in zip(names, points):
        if not name.strip():
            raise ValueError("A landmark has no name: name it in the Markups module.")
        if name.strip() in found:
            raise ValueError(f"Two landmarks are called {name.strip()}: rename one in the Markups module.")
        found[name.strip()] = (float(point[0]), float(point[1]), float(point[2]))
    return found


def landmarks_text(points_ras: Mapping[str, Sequence[float]], *, kind: str = FIDUCIAL, name: str = "") -> str:
    """What a file of markups (.mrk.json) holds, in LPS."""
    if kind == LINE and len(points_ras) != 2:
        raise ValueError("A line needs both of its ends.")
    points = [
        {
            "id": str(number),
            "label": label,
            "position": [float(turn * x) + 0.0 for turn, x in zip(_RAS_TO_LPS, place)],
            "positionStatus": "defined",
        }
        for number, (label, place) in enumerate(points_ras.items(), 1)
    ]
    markup = {"type": kind, "coordinateSystem": "LPS", "coordinateUnits": "mm", "controlPoints": points}
    if name:
        markup["name"] = name
    return json.dumps({"@schema": _SCHEMA, "markups": [markup]}, indent=2) + "\n"


def distances(placement: Placement, points_ras: Mapping[str, Sequence[float]]) -> list[Distance]:
    """Those of all landmarks, the nearest first."""
    ras_to_slice = np.linalg.inv(placement.slice_to_ras)
    width_mm, height_mm = placement.extent_mm
    found = []
    for name, point in points_ras.items():
        right_mm, up_mm, out_mm, _ = ras_to_slice @ (*point, 1.0)
        beside = abs(right_mm) > width_mm / 2 or abs(up_mm) > height_mm / 2
        found.append(Distance(name, abs(float(out_mm)), bool(beside)))
    return sorted(found, key=lambda each: each.mm)


def in_words(found: Sequence[Distance]) -> str:
    """A line for each of the nearest."""
    more = len(found) - _MOST_SHOWN
    return "\n".join([*map(str, found[:_MOST_SHOWN]), *([f"and {more} more"] if more > 0 else [])])
