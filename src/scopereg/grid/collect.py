"""Collect: the results of a grid as tables; accuracy with tests, capture range, and what each network costs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from scopereg import networks
from scopereg.errors import ScopeRegError
from scopereg.evaluation.compare import MAIN, choose_reference, compare, main_table, print_table, write_tables
from scopereg.evaluation.cost import network_cost
from scopereg.evaluation.published_numbers import published_tables
from scopereg.evaluation.results import FrameResult, Group, group_results, read_results
from scopereg.evaluation.tables import Cell, Column, Table, TableBlock
from scopereg.grid.folder import TABLES, RunFolder
from scopereg.grid.plan import Run
from scopereg.io.files import output_folder, write_text
from scopereg.io.records import Record, read_json
from scopereg.progress import say

_COUNTED = "operations.json"  # beside the tables: counting takes a forward pass on the CPU
_ACCURACY = [
    Column("method", "Method", brief=True),
    Column("mtre_mm", "mTRE (mm)", ".2f", "low", brief=True),
    Column("p95_mm", "p95", ".2f", "low"),
    Column("max_mm", "max", ".2f", "low"),
    Column("success_percent", "≤ 3 mm (%)", ".1f", "high"),
]
COST = [
    *_ACCURACY,
    Column("parameters_m", "parameters (M)", ".2f", "low", brief=True),
    Column("gflops", "GFLOPs", ".1f", "low", brief=True),
    Column("fps", "FPS", ".0f", "high", brief=True),
    Column("memory_mib", "memory (MiB)", ".0f", "low", brief=True),
    Column("minutes", "training (min)", ".1f"),
    Column("steps", "steps", ".0f"),
]


class Done(NamedTuple):
    """A finished run and its marker."""

    run: Run
    marker: dict[str, Any]
    folder: RunFolder


class Kind(NamedTuple):
    """What the runs of one set of tables have in common."""

    size: int | None
    trained_for: str | None  # None where nothing was trained

    @property
    def words(self) -> str:
        parts = [] if self.trained_for is None else [f"trained for {self.trained_for}"]
        return ", ".join([*parts, *([] if self.size is None else [f"{self.size} pixels"])])

    @property
    def facts(self) -> dict[str, str]:
        return {"trained_for": self.trained_for or "", "pixels": "" if self.size is None else str(self.size)}


def collect(
    runs: Sequence[Run],
    output: Path,
    *,
    whole: int | None = None,
    reference: str | None = None,
    with_published: bool = False,
) -> list[Path]:
    """Write the tables of the runs that are done into OUTPUT/tables, and show the main ones; the paths written.

    While fewer than `whole` are done methods are compared on the frames that all of them have, and the tables say so.
    """
    done = finished(runs, output)
    if not done:
        raise ScopeRegError("no run is done yet", where=str(output), fix="run the plan first: scopereg grid PLAN")
    _check_one_dataset(done)
    folder = output_folder(output / TABLES)
    counted = _Counted(folder / _COUNTED)
    complete, tables = len(done) == (whole or len(runs)), list[Table]()
    for kind in kinds(done):
        try:
            tables += _tables_of(kind, done, counted, reference, complete, with_published)
        except ScopeRegError as error:
            if complete:
                raise
            say(f"no tables of what is {kind.words or 'done'} yet: {error}")
    if with_published:
        tables += published_tables()
    console = Console()
    for table in tables:
        if table.name == "main":
            print_table(table, console)
    return write_tables(tables, folder)


def finished(runs: Iterable[Run], output: Path) -> list[Done]:
    """Those that are done under all protocols asked for."""
    folders = [RunFolder(run, output) for run in runs]
    markers = [(folder, folder.found()) for folder in folders]
    return [Done(folder.run, marker, folder) for folder, marker in markers if marker and not folder.missing()]


def kinds(done: Sequence[Done]) -> list[Kind]:
    """What there are tables of: every resolution and protocol that networks were trained for."""
    trained = dict.fromkeys(Kind(one.run.size, one.run.trained_for) for one in done if one.run.settings is not None)
    return list(trained) or list(dict.fromkeys(Kind(one.run.size, None) for one in done))


def _tables_of(
    kind: Kind, done: Sequence[Done], counted: _Counted, reference: str | None, complete: bool, with_published: bool
) -> list[Table]:
    members = [one for one in done if one.run.size == kind.size and one.run.trained_for in (None, kind.trained_for)]
    rows = _rows(members, kind)
    made = compare(rows, reference=reference, intersect=not complete, with_published=with_published)
    tables = [table for table in made if not table.name.startswith("published")]  # these come once
    groups = group_results(rows, intersect=not complete)
    if any(one.run.settings is not None for one in members):
        chosen = choose_reference(rows, reference)
        tables += [cost_table(group, chosen, members, counted) for group in groups]
    return [_labelled(table, kind) for table in tables]


def _rows(members: Sequence[Done], kind: Kind) -> list[FrameResult]:
    """Rows under the names of the plan. Methods without training are shown where networks were tested."""
    leading = [one.run for one in members if one.run.trained_for == kind.trained_for]
    shown = {protocol for run in leading for protocol in run.tested_under}
    return [
        replace(row, method=one.run.method)
        for one in members
        for protocol in one.run.tested_under
        if protocol in shown
        for row in read_results(one.folder.results / one.marker["results"][protocol])[0]
    ]


def cost_table(group: Group, reference: str, members: Sequence[Done], counted: _Counted) -> Table:
    """Accuracy beside what it costs, as the paper's ablation shows it."""
    (block,) = main_table(group, reference).blocks
    places = [[column.key for column in MAIN].index(column.key) for column in _ACCURACY]
    rows, devices = [], list[str]()
    for row in block.rows:
        alike = [one for one in members if one.run.method == row[0].value and one.run.magnitude == group.magnitude]
        trained = [one.marker for one in alike if one.run.settings is not None]
        devices += [str(marker["device"]) for marker in trained]
        rows.append([*(row[place] for place in places), *_cost_cells(trained, counted)])
    notes = [
        "FPS and memory: one frame and its volume at a time, in single precision, on a GPU; – where there was none.",
        "GFLOPs: multiply-adds of this implementation without those inside of the scans.",
        f"Trained on {', '.join(dict.fromkeys(devices))}.",
        *group.notes,
    ]
    facts = {**group.facts, "source": "results"}
    return Table("cost", f"Accuracy and cost: {group.label}", COST, [TableBlock(block.label, facts, rows)], notes)


def _cost_cells(markers: Sequence[dict[str, Any]], counted: _Counted) -> list[Cell]:
    if not markers:
        return [Cell() for _ in COST[len(_ACCURACY) :]]
    costs = [marker["cost"] for marker in markers]
    return [
        Cell(costs[0]["parameters"] / 1e6),
        Cell(counted.gflops(markers[0])),
        Cell(_mean(cost.get("fps") for cost in costs)),
        Cell(_mean(cost.get("memory_mib") for cost in costs)),
        Cell(_mean(marker["training"]["minutes"] for marker in markers)),
        Cell(_mean(marker["training"]["steps"] for marker in markers)),
    ]


def _mean(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return sum(found) / len(found) if found else None


class _Counted:
    """Multiply-adds of networks, counted once for each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known: dict[str, float] = {}
        if path.exists():
            fix = "remove it: what it holds is counted again"
            counts = Record.of(read_json(path, fix), str(path), fix)
            self.known = {key: counts.number(key, 0) for key in counts.values}

    def gflops(self, marker: dict[str, Any]) -> float:
        network, shape = marker["network"], tuple(marker["data"]["shape"])
        key = json.dumps([network["name"], network["options"], shape], sort_keys=True)
        if key not in self.known:
            say(f"counting the operations of {network['name']} at {shape[-1]} pixels")
            made = networks.create(network["name"], **network["options"])
            self.known[key] = network_cost(made, shape).gflops
            write_text(self.path, json.dumps(self.known, indent=1, sort_keys=True) + "\n")
        return self.known[key]


def _labelled(table: Table, kind: Kind) -> Table:
    """A table that tells, in its title and for every row of its sheet, what its networks were trained for."""
    words = f"; {kind.words}" if kind.words else ""
    blocks = [replace(block, label=block.label + words, facts=kind.facts | block.facts) for block in table.blocks]
    return replace(table, title=table.title + words, blocks=blocks)


def _check_one_dataset(done: Sequence[Done]) -> None:
    """Results on different data must not stand in one table."""
    first: dict[tuple[Any, ...], Done] = {}
    for one in done:
        # Phantoms are made for a magnitude.
        key = (one.run.size, one.run.magnitude if one.run.phantoms else None)
        other = first.setdefault(key, one)
        if one.marker["data"]["sha256"] != other.marker["data"]["sha256"]:
            raise ScopeRegError(
                f"{one.run.name} and {other.run.name} were done on different data",
                where=str(one.folder.marker),
                fix=f"remove {one.folder.work} and {one.folder.results} and do it again",
            )
