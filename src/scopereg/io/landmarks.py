"""Landmarks: named points from 3D Slicer's markups, .fcsv of Slicer 4 and 5 and .mrk.json, always in LPS millimetres.

Files say themselves whether they count in RAS or LPS; one that does not say, or counts voxels, is refused. Points that
were never placed are left out and told. Names are how points of two files find each other, so that none stands twice.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from scopereg.errors import ScopeRegError
from scopereg.io.files import write_text
from scopereg.io.records import DIGITS, Limits, Record, read_json, read_within

ENDINGS = (".fcsv", ".mrk.json")
Kind = Literal["Fiducial", "Line"]
_SCHEMA = (  # by which Slicer knows its own kind of JSON
    "https://raw.githubusercontent.com/slicer/slicer/master/Modules/Loadable/Markups/Resources/Schema/"
    "markups-schema-v1.0.3.json#"
)
_MARK = "# Markups fiducial file version = "
_VERSION = re.compile(r"[45]\.\d{1,3}")
_SYSTEMS = {"0": "RAS", "1": "LPS", "RAS": "RAS", "LPS": "LPS"}  # Slicer wrote numbers up to 4.10
_TO_LPS = {"RAS": np.array([-1.0, -1.0, 1.0]), "LPS": np.ones(3)}
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_STATUS = 14  # column of the state of a point, which Slicer 5 writes and does not name
_PLACED = ("", "2", "defined")  # of its states: undefined, preview, defined, missing
_MOST_POINTS, _MOST_LETTERS = 10_000, 200
_MOST_MM = 1e6  # what lies a kilometre away is a damaged file
_LIMITS = Limits(size=4 * 2**20, depth=20, values=500_000)
_FIX = "save the landmarks from 3D Slicer again, as .mrk.json or .fcsv"


@dataclass(frozen=True)
class Landmarks:
    """Points by their names, in LPS mm, in the order of the file."""

    path: Path
    points_mm: Mapping[str, tuple[float, float, float]]
    left_out: tuple[str, ...] = ()  # names of those that were never placed

    def __len__(self) -> int:
        return len(self.points_mm)

    def array_mm(self) -> npt.NDArray[np.float64]:
        """The points (N, 3)."""
        return np.array(list(self.points_mm.values()), np.float64).reshape(-1, 3)


class _Point(NamedTuple):
    name: str
    place: tuple[float, float, float] | None  # in LPS mm; None where it was never placed


def is_landmarks(path: Path | str) -> bool:
    """Whether a file is one of landmarks, by its ending."""
    return Path(path).name.lower().endswith(ENDINGS)


def read_landmarks(path: Path | str) -> Landmarks:
    """The landmarks of a file, .fcsv or .mrk.json, in LPS mm."""
    path = Path(path)
    if not is_landmarks(path):
        raise ScopeRegError(
            f"unknown ending {path.suffix!r} of landmarks", where=str(path), fix=f"use one of {', '.join(ENDINGS)}"
        )
    points = list(_of_sheet(path) if path.name.lower().endswith(".fcsv") else _of_json(path))
    twice = [name for name, count in Counter(point.name for point in points).items() if count > 1]
    if twice:
        raise ScopeRegError(
            f"the name {twice[0]!r} stands twice",
            where=str(path),
            fix="give each landmark a name of its own: names tell which belong together",
        )
    placed = {point.name: point.place for point in points if point.place is not None}
    if not placed:
        raise ScopeRegError("it holds no landmark that was placed", where=str(path), fix="place some in 3D Slicer")
    return Landmarks(path, placed, tuple(point.name for point in points if point.place is None))


def write_landmarks(
    points_mm: Mapping[str, tuple[float, float, float]], path: Path | str, *, kind: Kind = "Fiducial", name: str = ""
) -> Path:
    """Write points in LPS mm as markups of 3D Slicer 5 (.mrk.json); a Line has two points."""
    path = Path(path)
    if not path.name.lower().endswith(".mrk.json"):
        raise ScopeRegError("landmarks are written as .mrk.json", where=str(path), fix="choose such a name")
    if kind == "Line" and len(points_mm) != 2:
        raise ScopeRegError(f"a line of {len(points_mm)} points", where=str(path), fix="pass both of its ends")
    return write_text(path, json.dumps(markups_record(points_mm, kind=kind, name=name), indent=2) + "\n")


def markups_record(
    points_mm: Mapping[str, tuple[float, float, float]], *, kind: Kind = "Fiducial", name: str = ""
) -> dict[str, Any]:
    """What a .mrk.json file of some points in LPS mm holds."""
    points = [
        {"id": str(number), "label": label, "position": [float(n) for n in place], "positionStatus": "defined"}
        for number, (label, place) in enumerate(points_mm.items(), 1)
    ]
    markup = {"type": kind, "coordinateSystem": "LPS", "coordinateUnits": "mm", "controlPoints": points}
    return {"@schema": _SCHEMA, "markups": [markup | ({"name": name} if name else {})]}


# .mrk.json


def _of_json(path: Path) -> Iterator[_Point]:
    record = Record.of(read_json(path, _FIX, limits=_LIMITS), str(path), _FIX)
    for number, content in enumerate(record.list("markups", most=_MOST_POINTS)):
        markup = Record.of(content, f"{path}: markups[{number}]", _FIX)
        units = markup.values.get("coordinateUnits", "mm")
        if units != "mm" and not (isinstance(units, list) and units[:1] == ["mm"]):
            raise markup.wrong("coordinateUnits", "mm")
        if not markup.has("coordinateSystem"):
            raise _no_system(path)
        turn = _TO_LPS[_SYSTEMS[markup.text("coordinateSystem", choices=("RAS", "LPS", "0", "1"))]]
        # Shapes such as planes and boxes have control points too, others may have none.
        held = markup.list("controlPoints", most=_MOST_POINTS) if markup.has("controlPoints") else []
        for index, each in enumerate(held):
            yield _point_of(Record.of(each, f"{markup.where}.controlPoints[{index}]", _FIX), turn)


def _point_of(record: Record, turn: npt.NDArray[np.float64]) -> _Point:
    key = next((key for key in ("label", "id") if record.has(key)), "label")
    name = _name(record.text(key, most=_MOST_LETTERS), record.where)
    status = record.text("positionStatus", most=20) if record.has("positionStatus") else "defined"
    if status != "defined":
        return _Point(name, None)
    return _Point(name, _place(record.numbers("position", 3), turn, record.where))


# .fcsv


def _of_sheet(path: Path) -> Iterator[_Point]:
    text = _text(path)
    head = [line for line in text.split("\n") if line.startswith("#")]
    columns = _columns(head, path)
    turn = _TO_LPS[_system(head, path)]
    body = "\n".join(line for line in text.split("\n") if line.strip() and not line.startswith("#"))
    try:
        rows = list(csv.reader(io.StringIO(body), strict=True))
    except csv.Error as error:
        raise ScopeRegError(f"its lines are no table: {error}", where=str(path), fix=_FIX) from None
    if len(rows) > _MOST_POINTS:
        raise ScopeRegError(f"it holds more than {_MOST_POINTS} points", where=str(path), fix="pass fewer")
    for number, cells in enumerate(rows, 1):
        yield _point_of_row(cells, columns, turn, f"{path}, point {number}")


def _point_of_row(cells: list[str], columns: list[str], turn: npt.NDArray[np.float64], where: str) -> _Point:
    if len(cells) < 4 or len(cells) > max(len(columns), _STATUS) + 6:
        raise ScopeRegError(f"it has {len(cells)} cells for {len(columns)} columns", where=where, fix=_FIX)
    row = dict(zip(columns, cells, strict=False))
    name = _name(row.get("label") or row.get("id", ""), where)
    if len(columns) <= _STATUS < len(cells) and cells[_STATUS].strip() not in _PLACED:
        return _Point(name, None)
    words = [row.get(axis, "").strip() for axis in "xyz"]
    for word in words:
        if len(word) > DIGITS or not _NUMBER.fullmatch(word):
            raise ScopeRegError(f"no decimal number: {word[:DIGITS]!r}", where=where, fix=_FIX)
    return _Point(name, _place([float(word) for word in words], turn, where))


def _columns(head: list[str], path: Path) -> list[str]:
    """The names of the columns, in a file that begins as Slicer's do."""
    version = head[0].removeprefix(_MARK).rstrip(" ,\r") if head and head[0].startswith(_MARK) else ""
    if not _VERSION.fullmatch(version):
        raise ScopeRegError(f"it does not begin with {_MARK}4 or 5", where=str(path), fix=_FIX)
    listed = [line.partition("=")[2] for line in head if line.startswith("# columns")]
    columns = [word.strip() for word in listed[0].split(",")] if len(listed) == 1 else []
    if len(columns) > 40 or len(set(columns)) < len(columns) or not {"x", "y", "z"} <= set(columns):
        raise ScopeRegError("it does not name the columns x, y, z, each once", where=str(path), fix=_FIX)
    return columns


def _system(head: list[str], path: Path) -> str:
    said = [line.partition("=")[2].strip(" ,\r") for line in head if line.startswith("# CoordinateSystem")]
    if not said:
        raise _no_system(path)
    if len(said) > 1 or said[0] not in _SYSTEMS:
        told = ", ".join(said)[:60]
        raise ScopeRegError(f"its coordinate system is {told!r}, not RAS or LPS", where=str(path), fix=_FIX)
    return _SYSTEMS[said[0]]


def _text(path: Path) -> str:
    content = read_within(path, _FIX, _LIMITS)
    try:
        if len(content) > _LIMITS.size:
            raise ValueError(f"it has more than {_LIMITS.size // 1024} kB")
        return content.decode().replace("\r\n", "\n")
    except ValueError as error:
        raise ScopeRegError(f"cannot be read as text: {error}", where=str(path), fix=_FIX) from None


# both


def _no_system(path: Path) -> ScopeRegError:
    return ScopeRegError(
        "it does not say whether it counts in RAS or in LPS",
        where=str(path),
        fix=f"{_FIX}, or write the coordinate system into it",
    )


def _name(text: str, where: str) -> str:
    name = text.strip()
    if not name or len(name) > _MOST_LETTERS or not name.isprintable():
        raise ScopeRegError(f"a landmark is called {name[:40]!r}", where=where, fix="name it by letters and digits")
    return name


def _place(
    numbers: list[float] | tuple[float, ...], turn: npt.NDArray[np.float64], where: str
) -> tuple[float, float, float]:
    if not all(abs(number) <= _MOST_MM for number in numbers):  # NaN too
        raise ScopeRegError(f"a place beyond {_MOST_MM:g} mm", where=where, fix=_FIX)
    x, y, z = (float(number) + 0.0 for number in np.array(numbers) * turn)
    return x, y, z
