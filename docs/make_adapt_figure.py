"""Draw docs/images/adapt.png: a volume as a sweep leaves it, what is made of it, and frames drawn in it to learn from.

Run from the repository root: python docs/make_adapt_figure.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from torch import Tensor

from scopereg.data import phantom
from scopereg.data.mismatch import FanOptions, draw_fans
from scopereg.geometry import sample_slice
from scopereg.images import Volume
from scopereg.training.scene import Scene

OUT = Path(__file__).parent / "images" / "adapt.png"
SEED, FRAMES = 1, 6
FAN = FanOptions(full_chance=0.0, apex_above=(0.2, 0.2), apex_shift=0.0, heading_deg=0.0, opening=(1.0, 1.0))
INK, PAPER = "#e8e8e8", "#101010"


def swept() -> Volume:
    """A phantom as the fan of a probe saw it, black beside."""
    patient = phantom.create("abdomen", seed=SEED)
    seen = draw_fans(1, patient.shape[1:], torch.Generator().manual_seed(0), FAN)[0]
    return Volume(patient.volume.array * seen, patient.spacing_mm)


def tiles(scene: Scene) -> dict[str, Tensor]:
    """Titles and pictures (H, W): the volume at the pose of the first frame, the same filled, and the frames."""
    batch = scene.draw(1, FRAMES, torch.Generator().manual_seed(6))
    first = batch.rotation[0], batch.translation[0]
    shown = {
        "the volume at a pose": sample_slice(scene.volume, *first),
        "filled": sample_slice(scene.filled, *first, padding="reflection"),
        "as frame 1": batch.slices[0],
    }
    return shown | {f"frame {row + 1}": batch.slices[row] for row in range(1, FRAMES)}


def main() -> None:
    """Draw the figure and write it."""
    volume = swept()
    scene = Scene.of(volume, volume.shape, 10.0, 0, torch.device("cpu"))
    shown = tiles(scene)
    figure, rows = plt.subplots(2, 4, figsize=(9.6, 5.2))
    figure.patch.set_facecolor(PAPER)
    for axes, (title, picture) in zip(rows.flatten(), shown.items(), strict=True):
        axes.imshow(picture.numpy(), cmap="gray", vmin=0, vmax=1, interpolation="bilinear")
        axes.set_title(title, color=INK, fontsize=11)
        axes.set(xticks=[], yticks=[], facecolor=PAPER)
        axes.spines[:].set_visible(False)
    figure.tight_layout(pad=0.6)
    figure.savefig(OUT, dpi=100, facecolor=PAPER)


if __name__ == "__main__":
    main()
