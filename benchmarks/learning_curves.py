"""Draw learning curves: the error on each development set over the minutes of training.

    python benchmarks/learning_curves.py CURVE.csv -o docs/images/zero-shot-curves.png

CURVE.csv is what `zero_shot.py --quick --curve` or a training run with `quick_sets.append_curve` wrote.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from scopereg.errors import ScopeRegError
from scopereg.io.files import atomic_path

OUT = Path(__file__).parents[1] / "docs" / "images" / "zero-shot-curves.png"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#4d4d9f")
PHANTOM = "phantom-"

Points = list[tuple[float, float]]  # minutes, mm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("curve", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=OUT, help="PNG or SVG file")
    options = parser.parse_args()
    draw_curves(read_curves(options.curve), options.output)


def read_curves(path: Path, measure: str = "mean_mm") -> dict[str, Points]:
    """Minutes and errors by set, in the order of the minutes; rows that tell no minutes are left out."""
    curves: dict[str, Points] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["minutes"]:
                curves.setdefault(row["set"], []).append((float(row["minutes"]), float(row[measure])))
    if not curves:
        raise ScopeRegError(
            "no row tells the minutes of its training", where=str(path), fix="pass minutes to append_curve"
        )
    return {name: sorted(points) for name, points in curves.items()}


def draw_curves(curves: dict[str, Points], path: Path) -> Path:
    """A line per set, real ones solid and phantoms dashed, the y axis logarithmic; its last error beside each line."""
    figure = Figure(figsize=(9, 4.8), layout="constrained")
    axes = figure.subplots()
    for colour, (name, points) in zip(COLOURS, sorted(curves.items()), strict=False):
        minutes, errors_mm = zip(*points, strict=True)
        dash = "--" if name.startswith(PHANTOM) else "-"
        label = f"{name}, {errors_mm[-1]:.2f} mm"
        axes.plot(minutes, errors_mm, dash, marker="o", markersize=3.5, linewidth=1.5, color=colour, label=label)
    _dress(axes)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=150)
    return path


def _dress(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("minutes of training on one H200")
    axes.set_ylabel("mean mTRE, mm: network alone, offsets up to 10")
    axes.grid(which="major", color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    main()
