"""Draw docs/images/confidence.png: what a confidence promises and what comes true, and the error of the surest frames.

Run from the repository root, after benchmarks/confidence.py: python docs/make_confidence_figure.py
"""

from __future__ import annotations

import csv
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from scopereg.evaluation.reliability import calibration_curve, doubt_of, kept_curve

ROOT = Path(__file__).parents[1]
FRAMES = ROOT / "benchmarks" / "confidence-frames.csv"
OUT = ROOT / "docs" / "images" / "confidence.png"
COLOURS = ("#1f5fa8", "#c0392b", "#1e8449", "#e08e0b", "#6c3483", "#555555", "#17a2a2", "#a0522d")
CLOSE_MM = 3.0

Array = npt.NDArray[np.float64]


def read() -> dict[str, tuple[Array, Array, Array]]:
    """Errors, doubts and confidences of own frames by set, as `register` leaves them."""
    with FRAMES.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["kind"] == "own" and row["stage"] == "refined"]
    names = ("error_mm", "expected_mm", "confidence")
    found = {}
    for name in dict.fromkeys(row["set"] for row in rows):
        own = [row for row in rows if row["set"] == name]
        error, expected, sure = (np.array([float(row[column] or "nan") for row in own]) for column in names)
        sure = np.nan_to_num(sure)  # of frames that were refused
        found[name] = error, doubt_of(expected, sure), sure
    return found


def draw_calibration(axes: Axes, sets: dict[str, tuple[Array, Array, Array]]) -> None:
    """Share of frames within 3 mm against the confidence stated."""
    axes.plot([0, 1], [0, 1], color="#999999", linewidth=1, linestyle="--")
    for colour, (name, (error, _, sure)) in zip(COLOURS, sets.items(), strict=False):
        stated, true = calibration_curve(sure, (error <= CLOSE_MM).astype(float))
        axes.plot(stated, true, "o-", color=colour, linewidth=1.6, markersize=5, label=name)
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
    axes.set_xlabel("confidence stated")
    axes.set_ylabel(f"share of frames within {CLOSE_MM:g} mm")
    axes.set_title("Stated and true, for each fifth of the frames", fontsize=11)


def draw_kept(axes: Axes, sets: dict[str, tuple[Array, Array, Array]]) -> None:
    """Mean error of the frames with the least expected errors."""
    for colour, (name, (error, doubt, _)) in zip(COLOURS, sets.items(), strict=False):
        axes.plot(*kept_curve(error, doubt), color=colour, label=name)
    axes.set(xlim=(0, 1.0), ylim=(0, None))
    axes.set_xlabel("share of frames kept, the surest first")
    axes.set_ylabel("mean error of those (mm)")
    axes.set_title("Error against share kept", fontsize=11)
    axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.02, 1))


def main() -> None:
    sets = read()
    figure, (left, right) = plt.subplots(1, 2, figsize=(12.5, 4.6), width_ratios=(1, 1.15))
    draw_calibration(left, sets)
    draw_kept(right, sets)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    figure.tight_layout()
    OUT.parent.mkdir(exist_ok=True)
    figure.savefig(OUT, dpi=110)


if __name__ == "__main__":
    main()
