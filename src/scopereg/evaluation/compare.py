"""Compare: results of several methods as tables, with tests and intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table as TerminalTable

from scopereg import __version__
from scopereg.errors import ScopeRegError, did_you_mean
from scopereg.evaluation.nothing import against_nothing, nothing_table
from scopereg.evaluation.published_numbers import published_block, published_tables
from scopereg.evaluation.results import START, FrameResult, Group, group_results, is_failure
from scopereg.evaluation.statistics import (
    Interval,
    SignedRank,
    fold_mean,
    holm,
    mean_interval,
    signed_rank,
    success_rate,
    tail,
)
from scopereg.evaluation.tables import MARK, Cell, Column, Table, TableBlock, cell_text, csv_text, latex, markdown
from scopereg.geometry import SUCCESS_MM
from scopereg.io.files import write_text
from scopereg.provenance import command_line
from scopereg.registration.settings import DEFAULT

_METHOD = Column("method", "Method", brief=True)
MAIN = [
    _METHOD,
    Column("mtre_mm", "mTRE (mm)", ".2f", "low", brief=True),
    Column("p95_mm", "p95", ".2f", "low", brief=True),
    Column("max_mm", "max", ".2f", "low", brief=True),
    Column("translation_mm", "TransErr (mm)", ".2f", "low"),
    Column("rotation_deg", "RotErr (°)", ".2f", "low"),
    Column("success_percent", f"≤ {SUCCESS_MM:g} mm (%)", ".1f", "high", brief=True),
    Column("dice", "Dice", ".3f", "high"),
    Column("hd95_mm", "HD95 (mm)", ".2f", "low"),
    Column("ncc", "NCC", ".3f", "high"),
    Column("ssim", "SSIM", ".3f", "high"),
    Column("frames", "frames", "d"),
    Column("patients", "patients", "d"),
    Column("failures", "failures", "d"),
    Column("not_located", "not located", "d", brief=True),
]
_FOLD_MEANS = ("translation_mm", "rotation_deg", "dice", "hd95_mm", "ncc", "ssim")
_TITLES = {column.key: column.title.split(" (")[0] for column in MAIN}
STATISTICS = [
    Column("method", "Against"),
    Column("difference_mm", "Δ mTRE (mm)", "+.2f"),
    Column("by_frames_mm", "95 % over frames", "+.2f"),
    Column("by_patients_mm", "95 % over patients", "+.2f"),
    Column("z", "|z|", ".1f"),
    Column("p", "p", "p"),
    Column("p_holm", "p (Holm)", "p"),
    Column("r", "r", ".2f"),
    Column("effect", "effect"),
    Column("frames", "frames", "d"),
    Column("patients", "patients", "d"),
    Column("left_out", "left out of Δ", "d"),
]


def compare(
    rows: Sequence[FrameResult], *, reference: str | None = None, intersect: bool = False, with_published: bool = False
) -> list[Table]:
    """Make all tables of some results: main, statistics, against no registration, capture range, published numbers."""
    groups = group_results(rows, intersect=intersect)
    reference = choose_reference(rows, reference)
    tables = [main_table(group, reference, with_published=with_published) for group in groups]
    tables += [statistics_table(group, reference) for group in groups if _can_test(group, reference)]
    tables += [nothing_table(group, found) for group in groups if (found := against_nothing(group))]
    for dataset, protocol in dict.fromkeys((group.dataset, group.protocol) for group in groups):
        span = [group for group in groups if (group.dataset, group.protocol) == (dataset, protocol)]
        tables += [capture_table(span, reference, with_published=with_published)] if len(span) > 1 else []
    return tables + (published_tables() if with_published else [])


def main_table(group: Group, reference: str, *, with_published: bool = False) -> Table:
    """A row per method: errors, success, overlap, likeness, and how many frames they rest on."""
    rows = [_main_row(group, method) for method in _ordered(group.methods, reference)]
    blocks = [TableBlock(f"{group.label}: these results", {**group.facts, "source": "results"}, rows)]
    folds = len(set(group.folds))
    spread = f"± standard deviation over {folds} folds (ddof 0)" if folds > 1 else "one fold, so no deviation"
    notes = [
        f"Means of folds, {spread}; p95 and max over all frames; ≤ {SUCCESS_MM:g} mm with its 95 % Wilson interval.",
        f"failures: farther off than {SUCCESS_MM:g} mm, or not located.",
        *_start_note(group),
        *([] if reference in group.methods else [f"No tests: {reference} has no results here."]),
        *group.notes,
        *_missing_notes(group),
    ]
    if with_published:
        block, note = published_block("main", group.dataset, group.protocol, [group.magnitude], MAIN)
        blocks, notes = blocks + block, notes + note
    return Table("main", f"Registration accuracy: {group.label}", MAIN, blocks, notes)


def capture_table(groups: Sequence[Group], reference: str, *, with_published: bool = False) -> Table:
    """mTRE and success of each method as the offsets grow."""
    columns, first = [_METHOD], groups[0]
    for group in groups:
        pm = f"{group.magnitude:g}"
        columns.append(Column(f"pm{pm}_mtre_mm", f"pm {pm}: mTRE (mm)", ".2f", "low"))
        columns.append(Column(f"pm{pm}_success_percent", f"≤ {SUCCESS_MM:g} mm (%)", ".1f", "high"))
    methods = _ordered(dict.fromkeys(method for group in groups for method in group.methods), reference)
    rows = [[Cell(method), *(cell for group in groups for cell in _capture_cells(group, method))] for method in methods]
    label = f"{first.dataset}, {first.protocol} protocol"
    facts = {"dataset": first.dataset, "protocol": first.protocol, "source": "results"}
    blocks = [TableBlock(f"{label}: these results", facts, rows)]
    notes = ["pm: largest offset, in voxels and degrees on each axis."]
    lost = {group.magnitude: sum(_not_located(group, method) for method in group.methods) for group in groups}
    said = ", ".join(f"{count} at pm {magnitude:g}" for magnitude, count in lost.items() if count)
    notes += [f"† leaves out frames that the method did not locate ({said}, all methods together)."] if said else []
    if with_published:
        magnitudes = [group.magnitude for group in groups]
        block, note = published_block("capture", first.dataset, first.protocol, magnitudes, columns)
        blocks, notes = blocks + block, notes + note
    return Table("capture", f"Capture range: {label}", columns, blocks, notes)


class Contest(NamedTuple):
    """The reference against one other method."""

    other: str
    difference_mm: float
    by_frames: Interval
    by_patients: Interval
    test: SignedRank
    left_out: int  # frames that one of the two did not locate


def contest(group: Group, reference: str, other: str) -> Contest:
    """Test and intervals of the paired mTRE; the mean difference is over the frames that both located."""
    first, second = group.column(reference, "mtre_mm"), group.column(other, "mtre_mm")
    both = np.isfinite(first) & np.isfinite(second)
    nothing = Interval(np.nan, np.nan)
    difference, by_frames, by_patients = np.nan, nothing, nothing
    if both.any():
        differences = (second - first)[both]
        difference = float(differences.mean())
        by_frames = mean_interval(differences)
        by_patients = mean_interval(differences, np.array(group.patients)[both])
    return Contest(other, difference, by_frames, by_patients, signed_rank(first, second), int((~both).sum()))


def statistics_table(group: Group, reference: str) -> Table:
    """The reference against each other method of a group, corrected for how many there are."""
    found = [contest(group, reference, other) for other in _ordered(group.methods, reference) if other != reference]
    adjusted = holm([each.test.p for each in found])
    patients = len(set(group.patients))
    rows = [
        [
            Cell(each.other),
            Cell(each.difference_mm),
            Cell(interval=each.by_frames),
            Cell(interval=each.by_patients),
            Cell(each.test.z),
            Cell(each.test.p),
            Cell(p_holm),
            Cell(each.test.r),
            Cell(each.test.label),
            Cell(each.test.pairs),
            Cell(patients),
            Cell(each.left_out),
        ]
        for each, p_holm in zip(found, adjusted, strict=True)
    ]
    notes = [
        f"Δ: mTRE of the other method minus that of {reference}, per frame; positive favours {reference}.",
        "Intervals: bootstrap of the mean, 1000 resamples. Frames of a patient are not independent: the interval over "
        "patients, which draws whole patients, is the one to trust; p takes frames as independent.",
        "p: two-sided Wilcoxon signed-rank test, equal errors after Pratt; Holm over the rows of this table. "
        "r: |z| over the square root of the frames; small from 0.1, medium from 0.3, large from 0.5.",
        *group.notes,
    ]
    if any(each.left_out for each in found):
        notes.append(
            "left out of Δ: frames that one of the two did not locate; in the test, the largest errors of all."
        )
    blocks = [TableBlock(group.label, {**group.facts, "reference": reference}, rows)]
    return Table("statistics", f"{reference} against the other methods: {group.label}", STATISTICS, blocks, notes)


def write_tables(tables: Sequence[Table], folder: Path, form: str = "all") -> list[Path]:
    """comparison.md, comparison.tex, and one .csv for each kind of table; the paths written."""
    made = f"Made with scopereg {__version__}: `{command_line()}`"
    paths = []
    if form in ("md", "all"):
        text = "\n".join(markdown(table) for table in tables)
        paths.append(write_text(folder / "comparison.md", f"# Comparison\n\n{text}\n{made}\n"))
    if form in ("latex", "all"):
        parts = [latex(table, f"{table.name}-{number}") for number, table in enumerate(tables, start=1)]
        head = f"% {made}\n% \\usepackage{{booktabs,graphicx}}\n\n"
        paths.append(write_text(folder / "comparison.tex", head + "\n".join(parts)))
    if form in ("csv", "all"):
        for name in dict.fromkeys(table.name for table in tables):
            alike = [table for table in tables if table.name == name]
            paths.append(write_text(folder / f"{name}.csv", csv_text(alike)))
    return paths


def print_table(table: Table, console: Console) -> None:
    """The columns that fit a terminal, block by block, and the notes on frames without numbers."""
    places = [place for place, column in enumerate(table.columns) if column.brief]
    for block in table.blocks:
        shown = TerminalTable(title=escape(block.label), title_justify="left")
        for place in places:
            shown.add_column(escape(table.columns[place].title), justify="right" if place else "left")
        best = table.best(block)
        for index, row in enumerate(block.rows):
            cells = {place: replace(row[place], interval=None) for place in places}
            words = {place: escape(cell_text(cell, table.columns[place])) for place, cell in cells.items()}
            shown.add_row(*(f"[bold]{word}[/]" if (index, place) in best else word for place, word in words.items()))
        console.print(shown)
    for note in table.notes:
        if note.startswith(MARK):
            console.print(escape(note), style="dim")


def _main_row(group: Group, method: str) -> list[Cell]:
    errors = group.column(method, "mtre_mm")
    lost, rate, far = _not_located(group, method), success_rate(errors), tail(errors)
    low, high = rate.interval
    means = {name: _mean_cell(group, method, name) for name in ("mtre_mm", *_FOLD_MEANS)}
    pooled = {
        "p95_mm": Cell(far.p95, missing=lost, contends=not lost),
        "max_mm": Cell(far.maximum, missing=lost, contends=not lost),
        "success_percent": Cell(100 * rate.fraction, interval=(100 * low, 100 * high)),
    }
    counts = {
        "frames": Cell(len(errors)),
        "patients": Cell(len(set(group.patients))),
        "failures": Cell(sum(is_failure(row, SUCCESS_MM) for row in group.methods[method])),
        "not_located": Cell(lost),
    }
    cells = {"method": Cell(method), **means, **pooled, **counts}
    return [cells[column.key] for column in MAIN]


def _mean_cell(group: Group, method: str, name: str) -> Cell:
    """A mean over folds; it cannot be the best where a method left out frames that it did not locate."""
    found = fold_mean(group.column(method, name), group.folds)
    spread = found.std if found.folds > 1 else None
    return Cell(found.mean, spread, missing=found.missing, contends=not _not_located(group, method))


def _capture_cells(group: Group, method: str) -> list[Cell]:
    if method not in group.methods:
        return [Cell(), Cell()]
    rate = success_rate(group.column(method, "mtre_mm"))
    return [_mean_cell(group, method, "mtre_mm"), Cell(100 * rate.fraction)]


def _not_located(group: Group, method: str) -> int:
    return int((~np.isfinite(group.column(method, "mtre_mm"))).sum())


def _start_note(group: Group) -> list[str]:
    start = fold_mean(group.start_mm, group.folds).mean
    return [] if np.isnan(start) else [f"mTRE before registration: {start:.2f} mm."]


def _missing_notes(group: Group) -> list[str]:
    """Explain the † marks: frames that were not located, or located where a number is undefined."""
    total, notes, undefined = len(group.folds), [], dict[tuple[int, str], list[str]]()
    for method in group.methods:
        lost = _not_located(group, method)
        if lost:
            notes.append(
                f"† {method} did not locate {lost} of {total} frames: failures, left out of its means, p95 and max, "
                "which are therefore never bold."
            )
        for name in _FOLD_MEANS:
            missing = int((~np.isfinite(group.column(method, name))).sum()) - lost
            if 0 < missing < total - lost:  # what a method has of no frame is a dash
                undefined.setdefault((missing, _TITLES[name]), []).append(method)
    return notes + [
        f"† no {title} in {missing} of {total} frames of {', '.join(methods)}: left out of the mean."
        for (missing, title), methods in undefined.items()
    ]


def _ordered(methods: Iterable[str], reference: str) -> list[str]:
    """No registration first, the reference last, as papers do."""
    return sorted(methods, key=lambda method: (method == reference) - (method == START))


def _can_test(group: Group, reference: str) -> bool:
    return reference in group.methods and len(group.methods) > 1


def choose_reference(rows: Sequence[FrameResult], wanted: str | None) -> str:
    """The method asked for; else SCoPE-Reg or the usual model where it is among them, else the first that registers."""
    methods = list(dict.fromkeys(row.method for row in rows))
    if wanted is None:
        ours = [method for method in methods if method.lower().replace("-", "").replace("_", "") == "scopereg"]
        ours += [method for method in methods if method.split("+")[0].split(":")[0].strip() == DEFAULT]
        return (ours + [method for method in methods if method != START] + methods)[0]
    if wanted not in methods:
        raise ScopeRegError(
            f"no results of {wanted!r}{did_you_mean(wanted, methods)}",
            where="reference=",
            fix=f"use one of: {', '.join(methods)}",
        )
    return wanted
