"""Draw docs/images/phantoms.png: every anatomy in three planes, with labels, and frames under both protocols.

Run from the repository root: python docs/make_phantom_sheet.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scopereg.data import phantom
from scopereg.geometry import sample_poses

OUT = Path(__file__).parent / "images" / "phantoms.png"
SEEDS = {"echo": (2, 3), "prostate": (6, 4), "abdomen": (1, 3)}
TITLES = (
    "first plane",
    "middle plane",
    "last plane",
    "labels",
    "planes x width",
    "planes x depth",
    "frame, paper",
    "frame, honest",
)
POSE_MAGNITUDE = 10.0  # voxels and degrees
INK, PAPER = "#e8e8e8", "#101010"


def show(axes: Axes, image: np.ndarray, aspect: float = 1.0) -> None:
    axes.imshow(image, cmap="gray", vmin=0, vmax=1, aspect=aspect, interpolation="bilinear")


def show_labels(axes: Axes, image: np.ndarray, labels: np.ndarray) -> None:
    show(axes, image)
    classes = np.ma.masked_equal(labels, 0)
    axes.imshow(classes, cmap="Set1", vmin=1, vmax=9, alpha=0.5, interpolation="nearest")


def draw_row(row: np.ndarray, name: str, seed: int) -> None:
    """One patient: three planes, labels, two cuts across the planes, two frames at one pose."""
    patient = phantom.create(name, seed=seed)
    planes, height, width = patient.shape
    volume, labels = patient.volume.numpy(), patient.volume.labels
    assert labels is not None
    middle = planes // 2
    pose = sample_poses(1, POSE_MAGNITUDE, patient.shape, torch.Generator().manual_seed(seed))
    for axes, plane in zip(row[:3], (0, middle, -1), strict=True):
        show(axes, volume[plane])
    show_labels(row[3], volume[middle], labels[middle].numpy())
    stretch = height / planes  # the thin third axis fills the tile
    show(row[4], volume[:, height // 2], stretch)
    show(row[5], volume[:, :, width // 2], stretch)
    for axes, protocol in zip(row[6:], ("paper", "honest"), strict=True):
        show(axes, patient.acquire(*pose, protocol=protocol, seed=seed).images[0].numpy())
    row[0].set_ylabel(f"{name}, seed {seed}", color=INK, fontsize=10)


def main() -> None:
    """Draw the sheet and write it."""
    rows = [(name, seed) for name, seeds in SEEDS.items() for seed in seeds]
    figure, grid = plt.subplots(len(rows), len(TITLES), figsize=(1.75 * len(TITLES), 1.8 * len(rows)))
    for row, (name, seed) in zip(grid, rows, strict=True):
        draw_row(row, name, seed)
    finish(figure, grid, TITLES, OUT)


def finish(figure: Figure, grid: np.ndarray, titles: tuple[str, ...], path: Path) -> None:
    """Titles over the columns, nothing but pictures on black, and the file."""
    figure.patch.set_facecolor(PAPER)
    for axes, title in zip(grid[0], titles, strict=True):
        axes.set_title(title, color=INK, fontsize=10)
    for axes in grid.flat:
        axes.set(xticks=[], yticks=[], facecolor=PAPER)
        axes.spines[:].set_visible(False)
    figure.tight_layout(pad=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80, facecolor=PAPER)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
