"""Draw docs/images/modalities.png from benchmarks/modalities.csv: errors before and after, every case.

python docs/make_modalities_figure.py
"""

from __future__ import annotations

import csv
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

ROOT = Path(__file__).parents[1]
TABLE, PICTURE = ROOT / "benchmarks" / "modalities.csv", ROOT / "docs" / "images" / "modalities.png"
BEST_MM = {"02": 1.39, "24": 0.83}  # what the best rigid pose leaves at the landmarks
TEAL, ORANGE, GREY = "#0f766e", "#d97706", "#9ca3af"
GOAL_MM = 2.5
REACHES = {0.0: "nearest maximum", 10.0: "within 10 mm"}

Row = dict[str, str]


def main() -> None:
    with TABLE.open() as file:
        rows = list(csv.DictReader(file))
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.4), constrained_layout=True, width_ratios=(1.5, 1, 1))
    draw_brains(axes[0], [row for row in rows if row["part"] == "brains"])
    draw_scatter(axes[1], [row for row in rows if row["set"] == "trus-mr"], "landmarks_")
    axes[1].set_title("whole volumes, prostate")
    frames = [row for row in rows if row["what"] == "frame" and row["truth"] == "landmarks"]
    draw_scatter(axes[2], frames, "")
    axes[2].set_title("single frames, brain")
    figure.savefig(PICTURE, dpi=110)


def draw_brains(axes: Axes, rows: list[Row]) -> None:
    """A line for each start: where it began, and where both reaches ended."""
    keys = list(dict.fromkeys((row["case"], row["start"]) for row in rows))
    for place, key in enumerate(keys):
        own = [row for row in rows if (row["case"], row["start"]) == key]
        start = float(own[0]["landmarks_start_mm"])
        found = {float(row["reach_mm"]): float(row["landmarks_found_mm"]) for row in own}
        axes.plot([place, place], [start, found[10.0]], color=GREY, linewidth=1)
        axes.plot(place, start, "o", color=GREY, label="start" if place == 0 else None)
        axes.plot(place, found[0.0], "x", color=ORANGE, label=REACHES[0.0] if place == 0 else None)
        axes.plot(place, found[10.0], "o", color=TEAL, label=REACHES[10.0] if place == 0 else None)
    for case, best in BEST_MM.items():
        places = [place for place, key in enumerate(keys) if key[0] == case]
        axes.hlines(best, min(places) - 0.4, max(places) + 0.4, color="black", linewidth=0.8, linestyle=":")
    axes.axhline(GOAL_MM, color=GREY, linewidth=0.6, linestyle="--")
    axes.set_xticks(range(len(keys)), [f"{case}\n{start}" for case, start in keys], fontsize=7)
    axes.set(ylabel="error at the landmarks, mm", ylim=(0, None), title="whole volumes, brain; dotted: best rigid pose")
    axes.legend(fontsize=8)


def draw_scatter(axes: Axes, rows: list[Row], prefix: str) -> None:
    """After against before; below the line it is better."""
    groups = dict.fromkeys((row["method"], row["reach_mm"]) for row in rows)
    for (method, reach), colour, mark in zip(groups, (ORANGE, TEAL, GREY), ("x", "o", "^"), strict=False):
        own = [row for row in rows if (row["method"], row["reach_mm"]) == (method, reach)]
        before, after = ([float(row[f"{prefix}{name}_mm"]) for row in own] for name in ("start", "found"))
        label = REACHES[float(reach)] if reach else method
        axes.plot(before, after, mark, color=colour, markersize=4, label=label, fillstyle="none")
    most = max(float(row[f"{prefix}{name}_mm"]) for row in rows for name in ("start", "found")) + 1
    axes.plot([0, most], [0, most], color="black", linewidth=0.6)
    axes.set(xlabel="start, mm", ylabel="found, mm", xlim=(0, most), ylim=(0, most), aspect="equal")
    axes.legend(fontsize=7, loc="lower right")


if __name__ == "__main__":
    main()
