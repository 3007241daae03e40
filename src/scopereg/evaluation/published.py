"""Published numbers: the tables of the SCoPE-Reg paper, to stand beside results, never to be mistaken for them.

Means and deviations are the paper's five-fold ones (ddof 0). The capture range has no deviations here: the paper's
figure takes them with ddof 1, which its tables do not.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

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
    """Whether a set goes by the very name of a published dataset, whatever its dashes and capitals."""
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
