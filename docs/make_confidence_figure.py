"""Draw docs/images/confidence.png: what a confidence promises and what comes true, and the error of the surest frames.

Run from the repository root, after benchmarks/confidence.py: python docs/make_confidence_figure.py

And docs/images/confidence-failures.png: the frames of phantoms that were wrong and ok, each beside the volume at the
pose that was found and at the true one. Real patients are not shown.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from scopereg.evaluation.reliability import calibration_curve, doubt_of, kept_curve
from scopereg.images import Frame, Volume, pose_from_voxels
from scopereg.registration.locator import Locator
from scopereg.registration.result import apart_mm
from scopereg.report.frame_pictures import cut_at

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))

from development_sets import DATA, QUICK_MAGNITUDE, development_set  # noqa: E402
from development_sets import OUT as SETS_OUT  # noqa: E402

SETS_FOLDER = SETS_OUT / "sets"
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


def failures() -> list[dict[str, str]]:
    """Rows of frames of phantoms, refined, that are ok and wrong."""
    with FRAMES.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["set"].startswith("phantom-") and row["stage"] == "refined"]
    own = [row for row in rows if row["kind"] == "own"]
    return [row for row in own if row["ok"] == "1" and float(row["error_mm"]) > CLOSE_MM]


def draw_failure(axes: npt.NDArray[np.object_], row: dict[str, str]) -> None:
    """The frame as it was drawn, the volume where it was found, and where it lies."""
    made = development_set(row["set"], QUICK_MAGNITUDE, DATA, SETS_FOLDER)
    case = next(case for case in made.cases if case.name == row["case"])
    volume = Volume(case.volume.float() / 255, made.spacing_mm)
    locator = Locator(volume, "universal", refine=True, device="cpu")
    frames = [Frame(image.float() / 255, made.spacing_mm) for image in case.frames]
    found = [locator.locate(frame) for frame in frames]
    truths = [
        pose_from_voxels(*where, frame, volume)
        for *where, frame in zip(case.rotation, case.translation, frames, strict=True)
    ]
    errors = [apart_mm(frame, result.pose, true) for frame, result, true in zip(frames, found, truths, strict=True)]
    worst = int(np.argmax(errors))
    titles = (
        f"{row['case']}: the frame",
        f"found, {row['error_mm']} mm off, {float(row['confidence']):.0%} sure",
        "where it lies",
    )
    cuts = (cut_at(volume, frames[worst], pose) for pose in (found[worst].pose, truths[worst]))
    for one, title, image in zip(axes, titles, (frames[worst].array, *cuts), strict=True):
        one.imshow(image.numpy(), cmap="gray", vmin=0, vmax=1)
        one.set_title(title, fontsize=9)
        one.axis("off")


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
    wrong = failures()
    if wrong:
        figure, rows = plt.subplots(len(wrong), 3, figsize=(9, 3.3 * len(wrong)), squeeze=False)
        for axes, row in zip(rows, wrong, strict=True):
            draw_failure(axes, row)
        figure.tight_layout()
        figure.savefig(OUT.with_stem("confidence-failures"), dpi=110)


if __name__ == "__main__":
    main()
