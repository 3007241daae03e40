"""Grids by the command, the shortest of runs, and what they have written; no tests."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scopereg.cli import main
from scopereg.grid.plan import Run, expand
from scopereg.grid.reading import read_plan

Write = Callable[..., Path]
SECONDS = 120  # after which something counts as hung


def grid(plan: Path, output: Path, *words: Any) -> int:
    return main(["grid", str(plan), "-o", str(output), *map(str, words)])


def written(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file with its time and content, but for the tables, which are made again."""
    files = [path for path in folder.rglob("*") if path.is_file() and "tables" not in path.parts]
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def only_identity(write_plan: Write, **values: Any) -> Run:
    (run,) = expand(read_plan(write_plan(methods={"identity": None}, **values)))
    return run
