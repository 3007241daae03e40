"""Notes: what people wrote at frames; a line each, kept beside results as notes.json, whole or not at all.

They are words and nothing else, whoever shows them: one line, printable, bounded in length and number.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from scopereg.errors import ScopeRegError
from scopereg.io.files import write_text
from scopereg.io.records import Limits, Record, read_json

FILE = "notes.json"  # in the folder of the results
MOST_NOTES, MOST_LETTERS = 300, 500  # of a file, of a note
_FORMAT = "scopereg-notes-1"
_LIMITS = Limits(size=2**20, depth=4, values=10_000)
_MOST_FRAMES, _LONGEST_NAME = 2**31, 1000
_FIX = f"repair it, or take {FILE} away and write the notes anew"


@dataclass(frozen=True)
class Note:
    """What was written at a frame of a file, and when."""

    file: str
    index: int  # of the frame in its file
    text: str
    written: str = ""  # date and time, UTC


def note_text(given: object) -> str:
    """A note as it is kept: one line without blanks at its ends; an error where nothing is left, or it is too long."""
    if not isinstance(given, str):
        raise ScopeRegError("a note that is no text", where="note", fix="write words")
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in given).split())
    if not line:
        raise ScopeRegError("an empty note", where="note", fix="write what there is to say")
    if len(line) > MOST_LETTERS:
        raise ScopeRegError(
            f"a note of {len(line)} letters", where="note", fix=f"write at most {MOST_LETTERS}, or several notes"
        )
    return line


def check_room(count: int) -> None:
    """An error where there are so many notes that there is no room for one more."""
    if count >= MOST_NOTES:
        raise ScopeRegError(f"there are {count} notes already", where="note", fix="take some away first")


def now_utc() -> str:
    """Date and time of a note that is written now."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def read_notes(folder: Path) -> tuple[Note, ...]:
    """The notes of a folder of results; none where nobody wrote any."""
    path = folder / FILE
    if not path.exists():
        return ()
    record = Record.of(read_json(path, _FIX, limits=_LIMITS), str(path), _FIX).only("format", "notes")
    record.text("format", choices=(_FORMAT,))
    listed = record.list("notes", most=MOST_NOTES)
    return tuple(_note(Record.of(each, f"{path}: notes[{row}]", _FIX)) for row, each in enumerate(listed))


def write_notes(folder: Path, notes: Sequence[Note]) -> Path:
    """Keep the notes of a folder of results, in place of those that were there."""
    listed: list[dict[str, Any]] = [
        {"file": note.file, "index": note.index, "text": note.text, "written": note.written} for note in notes
    ]
    content = {"format": _FORMAT, "notes": listed}
    return write_text(folder / FILE, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def _note(record: Record) -> Note:
    record.only("file", "index", "text", "written")
    text = record.text("text", most=MOST_LETTERS)
    if not text or note_text(text) != text:
        raise record.wrong("text", "one line of words")
    file, written = record.text("file", most=_LONGEST_NAME), record.text("written", most=40)
    if not (file.isprintable() and written.isprintable()):
        raise record.wrong("file", "printable letters")
    return Note(file, record.whole("index", high=_MOST_FRAMES), text, written)
