"""Sheets: rows of named values as CSV, the same everywhere: a header, commas, one kind of line end."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scopereg.io.files import write_text


def write_sheet(path: Path | str, rows: Iterable[Mapping[str, Any]], columns: Sequence[str] | None = None) -> Path:
    """Write a whole sheet, or nothing; columns are by default those of the first row."""
    return write_text(path, sheet_text(rows, columns))


def sheet_text(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] | None = None, *, header: bool = True) -> str:
    """The sheet as text; a row with other columns is an error, one that lacks some has empty cells there."""
    listed = list(rows)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(listed[0]) if columns is None else columns, lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(listed)
    return text.getvalue()
