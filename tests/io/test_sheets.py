"""Sheets: rows as CSV that anything reads back, whole or not at all."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from scopereg.io.files import sheet_text, write_sheet

ROWS = [{"name": 'a "quoted", name', "mm": 1.5}, {"name": "lines\nwithin", "mm": None}]


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = write_sheet(tmp_path / "deep" / "sheet.csv", ROWS)
    with path.open(newline="", encoding="utf-8") as file:
        assert list(csv.DictReader(file)) == [
            {"name": 'a "quoted", name', "mm": "1.5"},
            {"name": "lines\nwithin", "mm": ""},
        ]
    assert b"\r" not in path.read_bytes()


def test_columns_are_in_the_order_asked_for_and_may_be_empty() -> None:
    assert sheet_text(iter([{"b": 2, "a": 1}, {"a": 3}]), ["a", "b"]) == "a,b\n1,2\n3,\n"
    assert sheet_text([], ["a", "b"]) == "a,b\n"
    assert sheet_text([{"a": 1, "b": 2}], ["b", "a"], header=False) == "2,1\n"


def test_a_row_with_other_columns_is_refused_and_the_old_sheet_stays(tmp_path: Path) -> None:
    path = write_sheet(tmp_path / "sheet.csv", [{"a": 1}])
    with pytest.raises(ValueError, match="fields not in fieldnames"):
        write_sheet(path, [{"a": 1}, {"c": 2}])
    assert path.read_text() == "a\n1\n"
    assert [file.name for file in tmp_path.iterdir()] == ["sheet.csv"]
