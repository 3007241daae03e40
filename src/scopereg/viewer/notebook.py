"""Notebook: notes at finished results, those that recordings hold and those that are kept beside the results."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from scopereg.errors import ScopeRegError
from scopereg.io.notes import Note, check_room, note_text, now_utc, read_notes, write_notes
from scopereg.viewer.finished import Finished


class Notebook:
    """Notes of some results. Any thread may call anything."""

    def __init__(self, results: Sequence[Finished], *, writes: bool = False) -> None:
        """What is beside the results is read; it is written only where `writes` says so."""
        self.writes = writes
        self._results = tuple(results)
        self._lock = threading.Lock()
        folders = {result.source.parent for result in results}
        self._kept = {folder: read_notes(folder) for folder in folders}

    def listed(self) -> list[dict[str, Any]]:
        """Notes in the order of the results, ready for JSON; those with a key can be taken away."""
        rows: dict[tuple[Path, str, int], int] = {}
        for row, result in enumerate(self._results):
            rows.setdefault(_place(result), row)
        found = [{"key": None, "result": row, "text": text} for row, text in self._recorded()]
        for folder, notes in self._kept.items():
            for note in notes:
                row = rows.get((folder, note.file, note.index), -1)
                if row >= 0:
                    found.append({"key": _key(note), "result": row, "text": note.text})
        return sorted(found, key=lambda each: each["result"])

    def add(self, row: int, text: object) -> None:
        """Write a note at a result; a ScopeRegError where it cannot be kept."""
        folder, file, index = _place(self._results[row])
        note = Note(file, index, note_text(text), now_utc())
        with self._lock:
            notes = self._read(folder)
            check_room(len(notes))
            self._write(folder, (*(other for other in notes if _key(other) != _key(note)), note))

    def drop(self, key: object) -> None:
        """Take away a note that is kept beside its result."""
        with self._lock:
            for folder in self._kept:
                notes = self._read(folder)
                left = tuple(note for note in notes if _key(note) != key)
                if len(left) < len(notes):
                    self._write(folder, left)
                    return
        raise ScopeRegError("there is no such note", where="note", fix="choose one of the list")

    def _recorded(self) -> Iterator[tuple[int, str]]:
        for row, result in enumerate(self._results):
            for text in result.notes:
                yield row, text

    def _read(self, folder: Path) -> tuple[Note, ...]:
        """Those of now: another program may have written some."""
        if not self.writes:
            raise ScopeRegError(
                "this page keeps no notes", where="note", fix="start scopereg view with notes=True, where it may write"
            )
        return read_notes(folder)

    def _write(self, folder: Path, notes: Sequence[Note]) -> None:
        write_notes(folder, notes)
        self._kept[folder] = tuple(notes)


def _place(result: Finished) -> tuple[Path, str, int]:
    return result.source.parent, result.frame_file, result.index or 0


def _key(note: Note) -> str:
    return f"{note.file} {note.index} {note.text}"
