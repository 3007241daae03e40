"""Recorded: what a recording tells of its frames besides pixels and poses, in fields of their own in a PLUS sequence.

Values are JSON in plain letters: a header has no others. PLUS and 3D Slicer keep fields that they do not know.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scopereg.errors import ScopeRegError
from scopereg.images import Volume
from scopereg.io.notes import MOST_LETTERS, MOST_NOTES, note_text
from scopereg.io.records import Limits, Record, parse_json
from scopereg.io.stored import identity
from scopereg.registration.result import VERDICT, Result

RESULT, NOTES, VOLUME = "ScopeRegResult", "ScopeRegNotes", "ScopeRegVolume"
_CELLS = (*VERDICT, "similarity", "time_ms", "method")
_LIMITS = Limits(size=2**18, depth=4, values=2_000)
_LONGEST = 10_000  # letters of a cell
_FIX = "take the fields that begin with ScopeReg out of its header"


@dataclass(frozen=True)
class Told:
    """Of a frame: cells of a table by their names, and notes."""

    cells: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def fields_of(result: Result | None, notes: Sequence[str] = ()) -> dict[str, str]:
    """The fields of a frame; nothing is told of one that was not found."""
    found = {}
    if result is not None:
        row = result.row()
        found[RESULT] = json.dumps({name: row[name] for name in _CELLS if row[name]})
    if notes:
        found[NOTES] = json.dumps(list(notes))
    return found


def told_of(fields: Mapping[str, str], where: str) -> Told:
    """What `fields_of` wrote; nothing where it wrote nothing."""
    cells: dict[str, str] = {}
    if RESULT in fields:
        record = Record.of(parse_json(fields[RESULT], where, _FIX, limits=_LIMITS), where, _FIX)
        cells = {name: record.text(name, most=_LONGEST) for name in record.only(*_CELLS).values}
    if NOTES not in fields:
        return Told(cells)
    listed = parse_json(fields[NOTES], where, _FIX, limits=_LIMITS)
    if not isinstance(listed, list) or len(listed) > MOST_NOTES:
        raise ScopeRegError("its notes are no list of texts", where=where, fix=_FIX)
    return Told(cells, tuple(_checked(text, where) for text in listed))


def volume_field(volume: Volume, name: str = "") -> dict[str, str]:
    """The field of the file: which volume its frames were found in, without the folder of this machine."""
    told = {key: value for key, value in identity(volume).items() if key in ("file", "pixels_sha256", "size")}
    return {VOLUME: json.dumps(told | ({"file": name} if name else {}))}


def volume_of(fields: Mapping[str, str], where: str) -> Mapping[str, Any]:
    """What `volume_field` wrote; empty where nobody told."""
    if VOLUME not in fields:
        return {}
    record = Record.of(parse_json(fields[VOLUME], where, _FIX, limits=_LIMITS), where, _FIX)
    record.only("file", "pixels_sha256", "size")
    if record.has("file"):
        record.text("file", most=1000)
    record.text("pixels_sha256", most=64)
    return record.values


def _checked(text: object, where: str) -> str:
    if not isinstance(text, str) or len(text) > MOST_LETTERS or note_text(text) != text:
        raise ScopeRegError("one of its notes is no line of words", where=where, fix=_FIX)
    return text
