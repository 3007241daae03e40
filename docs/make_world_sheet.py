"""Draw docs/images/worlds.png: random worlds in three planes, and frames beside what the volume shows there.

Run from the repository root: python docs/make_world_sheet.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from make_phantom_sheet import INK, finish, show

from scopereg.data.worlds.sets import make_worlds
from scopereg.geometry import sample_slice

OUT = Path(__file__).parent / "images" / "worlds.png"
SEEDS = (0, 1, 2, 3, 10, 12, 20, 23)
TITLES = (
    "first plane",
    "middle plane",
    "last plane",
    "planes x width",
    "planes x depth",
    "volume there",
    "frame",
    "volume there",
    "frame",
)


def draw_row(row: np.ndarray, seed: int) -> None:
    """One world: three planes, two cuts across the planes, two frames and what the volume shows at their poses."""
    made = make_worlds(1, seed=seed, frames=2)
    volume = made.images[0].float() / 255
    planes, height, width = volume.shape
    for axes, plane in zip(row[:3], (1, planes // 2, -2), strict=True):
        show(axes, volume[plane].numpy())
    stretch = height / planes  # the thin third axis fills the tile
    show(row[3], volume[:, height // 2].numpy(), stretch)
    show(row[4], volume[:, :, width // 2].numpy(), stretch)
    assert made.frames is not None
    there = sample_slice(volume, made.frames.rotation[0], made.frames.translation[0])
    for number in range(2):
        show(row[5 + 2 * number], there[number].numpy())
        show(row[6 + 2 * number], made.frames.images[0, number].numpy() / 255)
    row[0].set_ylabel(f"seed {seed}", color=INK, fontsize=10)


def main() -> None:
    """Draw the sheet and write it."""
    figure, grid = plt.subplots(len(SEEDS), len(TITLES), figsize=(1.6 * len(TITLES), 1.62 * len(SEEDS)))
    for row, seed in zip(grid, SEEDS, strict=True):
        draw_row(row, seed)
    finish(figure, grid, TITLES, OUT)


if __name__ == "__main__":
    main()
