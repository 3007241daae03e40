"""Table: what to show, said once, and the three ways to write it: Markdown, LaTeX (booktabs) and CSV.

Numbers are rounded only when they are written: to the column's digits in Markdown and LaTeX, to six significant ones in
CSV. The best value of a block is bold, and so is every other that prints the same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeGuard

from scopereg.io.files import sheet_text

NOTHING = "–"
MARK = "†"  # behind a value that leaves frames out


@dataclass(frozen=True)
class Column:
    """Name and format of a column; `form` is a format of Python's, or "p" for p-values."""

    key: str  # its name in CSV
    title: str
    form: str = ".2f"
    better: Literal["low", "high", ""] = ""
    brief: bool = False  # also where there is little room


@dataclass(frozen=True)
class Cell:
    """A value, with what belongs to it."""

    value: float | str | None = None
    spread: float | None = None
    interval: tuple[float, float] | None = None
    missing: int = 0  # frames that the value leaves out
    contends: bool = True  # may be the best of its column


@dataclass(frozen=True)
class TableBlock:
    """Rows that belong together: only they are compared. `facts` are the columns that tell them apart in CSV."""

    label: str
    facts: dict[str, str]
    rows: list[list[Cell]]


@dataclass(frozen=True)
class Table:
    """Columns, blocks of rows, and notes without which they would mislead."""

    name: str  # of the kind of table, such as main
    title: str
    columns: list[Column]
    blocks: list[TableBlock]
    notes: list[str] = field(default_factory=list)

    def best(self, block: TableBlock) -> set[tuple[int, int]]:
        """Rows and columns of the best values of a block; none in a column where nothing can be compared."""
        found: set[tuple[int, int]] = set()
        for place, column in enumerate(self.columns):
            cells = {index: row[place] for index, row in enumerate(block.rows) if row[place].contends}
            numbers = {index: cell.value for index, cell in cells.items() if _is_number(cell.value)}
            if column.better and len(numbers) > 1:
                top = (min if column.better == "low" else max)(numbers.values())
                shown = number(top, column.form)
                found |= {(index, place) for index, value in numbers.items() if number(value, column.form) == shown}
        return found


def number(value: float | str | None, form: str) -> str:
    """A number as it is printed; a small p-value as a bound, never as 0, and no -0.00."""
    if isinstance(value, str):
        return value
    if value is None or math.isnan(value):
        return NOTHING
    if form == "p":
        return "< 0.0001" if value < 1e-4 else f"{value:.4f}"
    text = format(value, form)
    return format(abs(value), form) if float(text) == 0 else text


def cell_text(cell: Cell, column: Column) -> str:
    """A cell in plain words: value ± spread [low, high], and a mark where frames were left out."""
    parts = [] if cell.value is None and cell.interval else [number(cell.value, column.form)]
    if cell.spread is not None and _is_number(cell.spread):
        parts.append(f"± {number(cell.spread, column.form)}")
    if cell.interval is not None:
        low, high = cell.interval
        parts.append(NOTHING if math.isnan(low) else f"[{number(low, column.form)}, {number(high, column.form)}]")
    return " ".join(parts) + (f" {MARK}" if cell.missing and _is_number(cell.value) else "")


def markdown(table: Table) -> str:
    """A heading, a table with the numbers at the right, and the notes as a list."""
    lines = [f"### {_markdown_words(table.title)}", ""]
    lines.append("| " + " | ".join(_markdown_words(_heading(column)) for column in table.columns) + " |")
    lines.append("|---|" + "---:|" * (len(table.columns) - 1))
    for block in table.blocks:
        if len(table.blocks) > 1:
            lines.append(f"| *{_markdown_words(block.label)}* |" + " |" * (len(table.columns) - 1))
        best = table.best(block)
        for index, row in enumerate(block.rows):
            words = [_markdown_words(cell_text(cell, column)) for cell, column in zip(row, table.columns, strict=True)]
            words = [f"**{word}**" if (index, place) in best else word for place, word in enumerate(words)]
            lines.append("| " + " | ".join(words) + " |")
    notes = [f"- {_markdown_words(note)}" for note in table.notes]
    return "\n".join([*lines, *([""] if notes else []), *notes]) + "\n"


def latex(table: Table, label: str) -> str:
    """A floating table, no wider than the text; needs the packages booktabs and graphicx."""
    width = len(table.columns)
    lines = [
        r"\begin{table*}[t]",
        r"\centering",
        rf"\caption{{{_latex_words(table.title)}}}",
        rf"\label{{tab:{label}}}",
        r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%",  # shrinks wide tables, never enlarges
        rf"\begin{{tabular}}{{l{'r' * (width - 1)}}}",
        r"\toprule",
        " & ".join(_latex_words(_heading(column)) for column in table.columns) + r" \\",
    ]
    for block in table.blocks:
        lines.append(r"\midrule")
        if len(table.blocks) > 1:
            lines.append(rf"\multicolumn{{{width}}}{{l}}{{\textit{{{_latex_words(block.label)}}}}} \\")
        best = table.best(block)
        for index, row in enumerate(block.rows):
            words = [_latex_words(cell_text(cell, column)) for cell, column in zip(row, table.columns, strict=True)]
            words = [rf"\textbf{{{word}}}" if (index, place) in best else word for place, word in enumerate(words)]
            lines.append(" & ".join(words) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}}"]
    if table.notes:
        notes = " ".join(_latex_words(note) for note in table.notes)
        lines.append(rf"\par\smallskip\parbox{{\textwidth}}{{\footnotesize {notes}}}")
    return "\n".join([*lines, r"\end{table*}"]) + "\n"


def csv_text(tables: Sequence[Table]) -> str:
    """Tables of one kind as one sheet; deviations, bounds and counts of left-out frames have columns of their own."""
    rows = [_csv_row(table, block, row) for table in tables for block in table.blocks for row in block.rows]
    columns = list(dict.fromkeys(column.key for table in tables for column in table.columns))
    facts = dict.fromkeys(name for table in tables for block in table.blocks for name in block.facts)
    suffixes = ("", "_std", "_low", "_high", "_missing")
    names = [
        *facts,
        *(key + suffix for key in columns for suffix in suffixes if any(key + suffix in row for row in rows)),
    ]
    return sheet_text(rows, names)


def _csv_row(table: Table, block: TableBlock, row: Iterable[Cell]) -> dict[str, str]:
    found = dict(block.facts)
    for cell, column in zip(row, table.columns, strict=True):
        low, high = cell.interval or (None, None)
        parts = {"": cell.value, "_std": cell.spread, "_low": low, "_high": high, "_missing": cell.missing or None}
        found |= {column.key + suffix: _csv_value(part) for suffix, part in parts.items() if part is not None}
    return found


def _csv_value(value: float | str) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _heading(column: Column) -> str:
    return column.title + {"low": " ↓", "high": " ↑", "": ""}[column.better]


def _is_number(value: float | str | None) -> TypeGuard[float]:
    return isinstance(value, int | float) and not math.isnan(value)


def _markdown_words(text: str) -> str:
    return re.sub(r"([\\`*_<|])", r"\\\1", text)


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    **{letter: f"${letter}$" for letter in "<>|"},
    **{letter: f"{{{letter}}}" for letter in "[]"},  # a bracket behind a line break would be its argument
    "±": r"$\pm$",
    "≤": r"$\le$",
    "Δ": r"$\Delta$",
    **dict.fromkeys("µμ", r"$\mu$"),  # the micro sign and the Greek letter
    "↓": r"$\downarrow$",
    "↑": r"$\uparrow$",
    "°": r"$^\circ$",
    "²": r"$^2$",
    "–": "--",
    MARK: r"$^\dagger$",
}


def _latex_words(text: str) -> str:
    words = "".join(_LATEX.get(letter, letter) for letter in text)
    return re.sub(r"(?<![\w-])-(?=\d)", "$-$", words)  # a minus, not a hyphen
