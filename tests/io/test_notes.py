"""Notes beside results: lines of words, read back as they were written, and refused where they are anything else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scopereg.errors import ScopeRegError
from scopereg.io.notes import FILE, MOST_LETTERS, MOST_NOTES, Note, check_room, note_text, read_notes, write_notes


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read_notes(tmp_path) == ()
    notes = (Note("a.mha", 0, "<b>bold</b> & 'quoted' äöü 中文"), Note("b.png", 2**31 - 1, "x" * MOST_LETTERS, "2026"))
    for kept in (notes, notes[:1], ()):
        write_notes(tmp_path, kept)
        assert read_notes(tmp_path) == kept
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


@pytest.mark.parametrize(
    ("given", "kept"), [(" a\tb\r\nc ", "a b c"), ("a\x00\x1b[31mb\u202ec", "a [31mb c"), ("x" * 500, "x" * 500)]
)
def test_a_note_is_one_printable_line(given: str, kept: str) -> None:
    assert note_text(given) == kept


@pytest.mark.parametrize("given", ["", " \n\t", "\x00", "x" * 501, None, 3, ["a"]])
def test_what_is_no_note_is_refused(given: object) -> None:
    with pytest.raises(ScopeRegError):
        note_text(given)


def test_there_is_an_end_to_them() -> None:
    check_room(MOST_NOTES - 1)
    with pytest.raises(ScopeRegError, match="300 notes already"):
        check_room(MOST_NOTES)


def test_damaged_files_are_refused_with_their_name(tmp_path: Path) -> None:
    path = write_notes(tmp_path, [Note("a.mha", 1, "words")])
    content = json.loads(path.read_text())
    for changes in ({"format": "x"}, {"notes": {}}, {"notes": [{"file": "a"}]}, {"more": 1}):
        path.write_text(json.dumps(content | changes))
        with pytest.raises(ScopeRegError, match=FILE):
            read_notes(tmp_path)
    path.write_text(path.read_text()[:-9])
    with pytest.raises(ScopeRegError, match=FILE):
        read_notes(tmp_path)
