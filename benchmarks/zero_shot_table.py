"""The tables of docs/results.md from zero_shot.csv, as Markdown: one for each size of offsets.

python benchmarks/zero_shot_table.py
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

TABLE = Path(__file__).with_name("zero_shot.csv")
SPACINGS = {"liver": "1.2", "uterus": "0.6", "resect": "0.45", "camus-m": "0.62", "trus-b": "0.8"}
PHANTOMS = {"phantom-echo": "0.62", "phantom-prostate": "0.8", "phantom-abdomen": "1.2"}

Row = dict[str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, nargs="?", default=TABLE)
    parser.add_argument("--methods", nargs="+", help="columns; by default all")
    options = parser.parse_args()
    with options.table.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for magnitude in sorted({row["magnitude"] for row in rows}, key=float):
        print(f"Offsets up to {magnitude}\n\n{markdown(rows, magnitude, options.methods)}\n")


def markdown(rows: Sequence[Row], magnitude: str, methods: Sequence[str] | None = None) -> str:
    """A line per set and a column per method: mean mTRE and share within 3 mm, each with its interval, best in bold."""
    rows = [row for row in rows if row["magnitude"] == magnitude]
    columns = [name for name in methods or names_of(rows) if any(row["method"] == name for row in rows)]
    lines = ["| set, mm a voxel | frames, patients | start | " + " | ".join(f"`{name}`" for name in columns) + " |"]
    lines.append("|---|---|---:|" + "---|" * len(columns))
    for name in dict.fromkeys(row["set"] for row in rows):
        own = {row["method"]: row for row in rows if row["set"] == name}
        first = next(iter(own.values()))
        best = min(float(row["mean_mm"]) for method, row in own.items() if method in columns)
        cells = [cell(own[column], best) if column in own else "" for column in columns]
        told = f"| {name}, {(SPACINGS | PHANTOMS)[name]} | {first['frames']}, {first['patients']} | "
        lines.append(told + " | ".join([f"{float(first['start_mm']):.1f}", *cells]) + " |")
    times = [np.median([float(row["ms"]) for row in rows if row["method"] == column]) for column in columns]
    lines.append("| ms a frame, median of the sets | | | " + " | ".join(f"{time:.0f}" for time in times) + " |")
    return "\n".join(lines)


def names_of(rows: Sequence[Row]) -> list[str]:
    """Methods with the classical ones first, then networks alone, refined and wide."""
    names = dict.fromkeys(row["method"] for row in rows)
    return sorted(names, key=lambda name: (not name.startswith("simpleitk"), ":" in name, "+" in name, name))


def cell(row: Row, best: float) -> str:
    """Mean in mm (interval), and share within 3 mm in per cent (interval)."""
    numbers = {key: float(value) for key, value in row.items() if key.endswith("_mm") or key.startswith("within")}
    mean = f"{numbers['mean_mm']:.2f}"
    mean = f"**{mean}**" if numbers["mean_mm"] == best else mean
    low, high = (f"{100 * numbers[key]:.0f}" for key in ("within_3_low", "within_3_high"))
    between = f"({numbers['mean_low_mm']:.1f} to {numbers['mean_high_mm']:.1f})"
    return f"{mean} {between}<br>{100 * numbers['within_3_mm']:.0f} % ({low} to {high})"


if __name__ == "__main__":
    main()
