"""Tables: rounding, the best in bold, and Markdown, LaTeX and CSV that survive any name."""

from __future__ import annotations

import csv
import io
import math
import re

import pytest

from scopereg.evaluation.tables import Cell, Column, Table, TableBlock, csv_text, latex, markdown, number

NAN = math.nan

TABLE = Table(
    "main",
    "A & B_2 | 50 %",
    [
        Column("method", "Method"),
        Column("x", "x (°)", better="low"),
        Column("p", "p", "p"),
        Column("n", "n", "d", "high"),
    ],
    [
        TableBlock("first", {"source": "here"}, [
            [Cell("a_b|*"), Cell(1.004, 0.1), Cell(3e-9), Cell(3)],
            [Cell("[x]"), Cell(0.999, 0.2, missing=2), Cell(0.04), Cell(3)],
            [Cell("c"), Cell(NAN), Cell(1.0), Cell(2)],
            [Cell("d"), Cell(-5.0, interval=(-5.5, 0.25), contends=False), Cell(), Cell()],
        ]),
        TableBlock("second", {"source": "there"}, [[Cell("e"), Cell(0.5), Cell(), Cell(9)]]),
    ],
    ["costs < 5 $ & more"],
)  # fmt: skip


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (-0.001, ".2f", "0.00"),
        (-0.001, "+.2f", "+0.00"),
        (0.125, "+.2f", "+0.12"),
        (NAN, ".2f", "–"),
        (None, "d", "–"),
        (0, "d", "0"),
        (0.0, "p", "< 0.0001"),
        (0.0001, "p", "0.0001"),
        ("large", ".2f", "large"),
    ],
)
def test_rounding(value: float | str | None, form: str, text: str) -> None:
    assert number(value, form) == text


def test_the_best_are_those_that_print_the_same_and_may_win() -> None:
    assert TABLE.best(TABLE.blocks[0]) == {(0, 1), (1, 1), (0, 3), (1, 3)}
    assert TABLE.best(TABLE.blocks[1]) == set()


def test_markdown() -> None:
    lines = markdown(TABLE).splitlines()
    assert lines[0] == r"### A & B\_2 \| 50 %"
    assert lines[2] == "| Method | x (°) ↓ | p | n ↑ |"
    assert lines[4:8] == [
        "| *first* | | | |",
        r"| a\_b\|\* | **1.00 ± 0.10** | \< 0.0001 | **3** |",
        "| [x] | **1.00 ± 0.20 †** | 0.0400 | **3** |",
        "| c | – | 1.0000 | 2 |",
    ]
    assert lines[8] == "| d | -5.00 [-5.50, 0.25] | – | – |"
    assert lines[-1] == r"- costs \< 5 $ & more"
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines if line.startswith("|")} == {5}


def test_latex_is_balanced_and_escaped() -> None:
    text = latex(TABLE, "main-1")
    assert r"\caption{A \& B\_2 $|$ 50 \%}" in text
    assert r"{[}x{]} & \textbf{1.00 $\pm$ 0.20 $^\dagger$} & 0.0400 & \textbf{3} \\" in text
    assert r"d & $-$5.00 {[}$-$5.50, 0.25{]} & -- & -- \\" in text
    assert r"\multicolumn{4}{l}{\textit{second}} \\" in text
    assert r"costs $<$ 5 \$ \& more" in text
    plain = text.replace(r"\$", "").replace(r"\{", "").replace(r"\}", "")
    assert plain.count("{") == plain.count("}")
    assert plain.count("$") % 2 == 0
    assert plain.count(r"\begin{") == plain.count(r"\end{") == 2
    body = plain.split(r"\toprule")[1].split(r"\bottomrule")[0]
    rows = [line for line in body.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {3}


def test_csv_has_a_column_for_every_number() -> None:
    rows = list(csv.DictReader(io.StringIO(csv_text([TABLE]))))
    assert list(rows[0]) == ["source", "method", "x", "x_std", "x_low", "x_high", "x_missing", "p", "n"]
    assert (rows[0]["method"], rows[0]["x"], rows[0]["p"]) == ("a_b|*", "1.004", "3e-09")
    assert (rows[1]["x_missing"], rows[2]["x"], rows[3]["x_low"]) == ("2", "nan", "-5.5")
    assert [row["source"] for row in rows] == ["here"] * 4 + ["there"]
