"""Published numbers: the tables of the SCoPE-Reg paper, to stand beside results, never to be mistaken for them.

Means and deviations are the paper's five-fold ones (ddof 0). The capture range has no deviations here: the paper's
figure takes them with ddof 1, which its tables do not.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

from scopereg.evaluation.tables import Cell, Column, Table, TableBlock

TableName = Literal["main", "capture", "ablation", "cost"]
_LABELS = ("table", "dataset", "protocol", "magnitude", "resolution", "method", "source")


@dataclass(frozen=True)
class PublishedRow:
    """A method in one of the published tables; `values` holds the numbers that are given, by column."""

    table: str
    dataset: str
    protocol: str
    magnitude: float | None  # None for costs
    resolution: int  # pixels along a side
    method: str
    source: str
    values: dict[str, float]


def published(table: TableName, dataset: str | None = None, magnitude: float | None = None) -> list[PublishedRow]:
    """Rows of a table in published order, of one dataset and magnitude where these are given."""
    return [
        row
        for row in _rows()
        if row.table == table and dataset in (None, row.dataset) and magnitude in (None, row.magnitude)
    ]


def published_dataset(name: str) -> str | None:
    """The published dataset that a set of this name is close to ("CAMUS" for "CAMUS-M" and "camus"), or None.

    Close is not the same: `is_published_dataset` tells.
    """
    plain = _plain(name)
    return next((dataset for dataset in _datasets() if plain.startswith(_plain(dataset))), None)


def is_published_dataset(name: str) -> bool:
    """True if a set has the name of a published dataset, ignoring dashes and capitals."""
    return _plain(name) in map(_plain, _datasets())


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower().replace("µ", "mu").replace("μ", "mu") if letter.isalnum())


def _datasets() -> list[str]:
    return list(dict.fromkeys(row.dataset for row in _rows()))


@cache
def _rows() -> tuple[PublishedRow, ...]:
    text = resources.files("scopereg.evaluation").joinpath("published.csv").read_text(encoding="utf-8")
    return tuple(_row(values) for values in csv.DictReader(text.splitlines()))


def _row(values: dict[str, str]) -> PublishedRow:
    return PublishedRow(
        table=values["table"],
        dataset=values["dataset"],
        protocol=values["protocol"],
        magnitude=float(values["magnitude"]) if values["magnitude"] else None,
        resolution=int(values["resolution"]),
        method=values["method"],
        source=values["source"],
        values={name: float(value) for name, value in values.items() if value and name not in _LABELS},
    )


_ABLATION = [
    Column("method", "Method"),
    Column("mtre_mm", "mTRE (mm)", ".2f", "low"),
    Column("p95_mm", "p95", ".2f", "low"),
    Column("max_mm", "max", ".2f", "low"),
    Column("memory_mib", "memory (MiB)", ".0f", "low"),
    Column("fps", "FPS", ".0f", "high"),
]
_COST = [
    Column("method", "Method"),
    Column("resolution", "pixels", "d"),
    Column("parameters_m", "parameters (M)", ".2f", "low"),
    Column("gflops", "GFLOPs", ".1f", "low"),
    Column("fps", "FPS", ".0f", "high"),
    Column("memory_mib", "memory (MiB)", ".0f", "low"),
]


def published_block(
    table: Literal["main", "capture"],
    dataset: str,
    protocol: str,
    magnitudes: Sequence[float],
    columns: Sequence[Column],
) -> tuple[list[TableBlock], list[str]]:
    """The block to set below results with these columns, none where nothing was published, and the note to it."""
    near = published_dataset(dataset)
    rows = [row for magnitude in magnitudes for row in _published(table, near, magnitude)] if near else []
    if not rows:
        span = ", ".join(f"{magnitude:g}" for magnitude in magnitudes)
        return [], [f"Nothing was published to set beside {dataset} at pm {span}."]
    source, under = rows[0].source, rows[0].protocol
    span = f", pm {magnitudes[0]:g}" if table == "main" else ""
    label = f"{near}, {under} protocol{span}: from the {source}, not measured here"
    facts = {"dataset": str(near), "protocol": under, "magnitude": f"{magnitudes[0]:g}", "source": source}
    if table == "capture":
        del facts["magnitude"]
    cells = _capture_rows(rows, columns) if table == "capture" else [_cells(row, columns) for row in rows]
    return [TableBlock(label, facts, cells)], [_note(dataset, protocol, str(near), under)]


def published_tables() -> list[Table]:
    """The published ablation and costs, which stand alone."""
    ablation, cost = published("ablation"), published("cost")
    return [
        _alone("published_ablation", "Published ablation (CAMUS, paper protocol, pm 10, 128²)", _ABLATION, [ablation]),
        _alone(
            "published_cost",
            "Published cost on an A100 (CAMUS geometry, batch 1)",
            _COST,
            [[row for row in cost if row.resolution == size] for size in (128, 192, 384, 512)],
        ),
    ]


def _published(table: Literal["main", "capture"], dataset: str, magnitude: float) -> list[PublishedRow]:
    """Rows of a table; the capture range has the mTRE at magnitudes that the main table lacks."""
    return published(table, dataset, magnitude) or published("capture", dataset, magnitude)


def _alone(name: str, title: str, columns: list[Column], parts: Sequence[Sequence[PublishedRow]]) -> Table:
    blocks = [
        TableBlock(
            f"{rows[0].resolution}²",
            {"dataset": rows[0].dataset, "protocol": rows[0].protocol, "source": rows[0].source},
            [_cells(row, columns) for row in rows],
        )
        for rows in parts
    ]
    return Table(name, title, columns, blocks, [f"From the {parts[0][0].source}; not measured here."])


def _cells(row: PublishedRow, columns: Sequence[Column]) -> list[Cell]:
    labels: dict[str, Cell] = {"method": Cell(row.method), "resolution": Cell(row.resolution)}
    return [
        labels.get(column.key) or Cell(row.values.get(column.key), row.values.get(f"{column.key}_std"))
        for column in columns
    ]


def _capture_rows(rows: Sequence[PublishedRow], columns: Sequence[Column]) -> list[list[Cell]]:
    methods: dict[str, dict[str, float]] = {}
    for row in rows:
        methods.setdefault(row.method, {})[f"pm{row.magnitude:g}_mtre_mm"] = row.values["mtre_mm"]
    return [[Cell(name), *(Cell(found.get(column.key)) for column in columns[1:])] for name, found in methods.items()]


def _note(dataset: str, protocol: str, near: str, under: str) -> str:
    ours, theirs = f"{dataset} under the {protocol} protocol", f"{near} under the {under} protocol"
    if is_published_dataset(dataset) and protocol == under:
        return f"Published numbers are of {theirs} too, with test poses of their own draw."
    return f"Published numbers are of {theirs}, the results of {ours}: not the same test, differences say little."
