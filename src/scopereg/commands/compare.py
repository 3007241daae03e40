"""`scopereg compare`: methods side by side, as tables on the terminal and in files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from scopereg.commands.output import tell
from scopereg.commands.shared import Folder, FormatName, Intersect, Positional, Reference, WithPublished
from scopereg.errors import ScopeRegError
from scopereg.io.files import output_folder

if TYPE_CHECKING:
    from scopereg.evaluation.tables import Table


@dataclass(frozen=True)
class CompareOptions:
    """Set methods side by side: tables, paired tests and intervals from what scopereg evaluate or score wrote."""

    results: Positional[tuple[Path, ...]] = ()
    """Files that scopereg evaluate or scopereg score wrote, or folders of them."""
    output: Folder = Path("out/compare")
    """Folder for comparison.md, comparison.tex and a .csv for each kind of table; not one of the results."""
    reference: Reference = None
    intersect: Intersect = False
    with_published: WithPublished = False
    format: FormatName = "all"
    """What to write: Markdown, LaTeX (packages booktabs and graphicx), CSV, or all three."""


def run(options: CompareOptions) -> int:
    """The verb: tables on the terminal and in files."""
    from scopereg.evaluation.compare import compare, print_table, write_tables
    from scopereg.evaluation.results import read_many

    _check_output(options)
    tables = compare(
        read_many(options.results),
        reference=options.reference,
        intersect=options.intersect,
        with_published=options.with_published,
    )
    paths = write_tables(tables, output_folder(options.output), options.format)
    tell(files=paths, tables=[_told(table) for table in tables])
    console = Console()
    for table in tables:
        if table.name == "main":
            print_table(table, console)
    for path in paths:
        console.print(escape(str(path)), soft_wrap=True)
    return 0


def _told(table: Table) -> dict[str, Any]:
    """A table for JSON: its rows by the names of its columns."""
    keys = [column.key for column in table.columns]
    blocks = [
        {**block.facts, "rows": [dict(zip(keys, (cell.value for cell in row), strict=True)) for row in block.rows]}
        for block in table.blocks
    ]
    return {"name": table.name, "title": table.title, "blocks": blocks, "notes": table.notes}


def _check_output(options: CompareOptions) -> None:
    """Tables within a folder of results would be read as results the next time."""
    output = options.output.resolve()
    for path in options.results:
        if path.is_dir() and (output == path.resolve() or path.resolve() in output.parents):
            raise ScopeRegError(
                f"lies in {path}, whose .csv files are all read as results",
                where=f"--output {options.output}",
                fix="choose a folder outside of it",
            )
