"""Draw docs/images/coordinates.png: a frame in its own millimetres, and the same frame in place in the volume.

Run from the repository root: python docs/make_coordinates_figure.py
"""

from __future__ import annotations

from itertools import combinations, product
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch

from scopereg.data import phantom
from scopereg.geometry import Pose, sample_slice
from scopereg.images import Frame, Volume, pose_to_voxels

OUT = Path(__file__).parent / "images" / "coordinates.png"
ANATOMY, SEED = "abdomen", 1
ANGLES_DEG, OFF_CENTRE_MM = (18.0, -14.0, 10.0), (1.0, 2.0, 1.0)
POINT_PX = (60, 62)  # column and row of the point that is followed from the frame to the volume
X, Y, Z, POINT, PATH = "#c0392b", "#1e8449", "#1f5fa8", "#e08e0b", "#6c3483"


def scene() -> tuple[Frame, Volume, Pose]:
    """A phantom volume, a pose near its middle, and the frame there, its mm counted from its first pixel."""
    volume = phantom.create(ANATOMY, seed=SEED).volume
    volume = Volume(volume.array, volume.spacing_mm, (20.0, 30.0, 10.0))
    spacing = volume.isotropic_spacing_mm
    height, width = volume.shape[1:]
    frame = Frame(np.zeros((height, width)), spacing_mm=spacing, origin_mm=(0, 0))
    turn = Pose.from_euler_deg(ANGLES_DEG, (0, 0, 0)).rotation
    pose = Pose(turn, volume.centre_mm + OFF_CENTRE_MM - turn @ frame.centre_mm)
    cut = sample_slice(volume.array, *pose_to_voxels(pose, frame, volume), slice_shape=(height, width))
    return Frame(cut, spacing, (0, 0)), volume, pose


def draw_frame(axes: Axes, frame: Frame) -> tuple[float, float]:
    """The frame with its axes; gives the point back in mm."""
    step = frame.isotropic_spacing_mm
    width, height = ((n - 0.5) * step for n in frame.size)
    axes.imshow(frame.numpy(), cmap="gray", vmin=0, vmax=1, extent=(-step / 2, width, height, -step / 2))
    arrow = {"arrowstyle": "-|>", "linewidth": 2.2, "mutation_scale": 16}
    for tip, colour, name, place in (
        ((0.38 * width, 0), X, "x", (0.4, 0.02)),
        ((0, 0.38 * height), Y, "y", (0.02, 0.42)),
    ):
        axes.annotate("", tip, (0, 0), arrowprops={**arrow, "color": colour})
        axes.text(place[0] * width, place[1] * height, name, color=colour, fontsize=14, fontweight="bold", va="top")
    point = POINT_PX[0] * step, POINT_PX[1] * step
    axes.plot(0, 0, "o", color="white", markeredgecolor="black", markersize=7)
    axes.plot(*point, "o", color=POINT, markeredgecolor="white", markersize=9)
    label = {"facecolor": "black", "edgecolor": "none", "alpha": 0.65, "pad": 2}
    words = f"p = ({point[0]:.0f}, {point[1]:.0f}, 0)"
    axes.text(point[0] + 5, point[1] - 4, words, color=POINT, fontsize=12, fontweight="bold", bbox=label)
    axes.set(xlabel="column x pixel size (mm)", ylabel="row x pixel size (mm)")
    axes.set_title("Image: the frame's own millimetres\nfirst pixel (0, 0, 0), x right, y down, z = 0", fontsize=11)
    return point


def draw_volume(axes: Any, frame: Frame, volume: Volume, pose: Pose, point: tuple[float, float]) -> None:
    """The box of the volume, the frame as an oblique plane in it, and the axes of LPS."""
    low = np.array(volume.origin_mm)
    high = low + np.array(volume.extent_mm)
    corners = np.array(list(product(*zip(low, high, strict=True))))
    for one, other in combinations(corners, 2):
        if np.count_nonzero(one != other) == 1:
            axes.plot(*np.stack([one, other], 1), color="#777777", linewidth=0.9)
    stride = 1
    rows, columns = np.mgrid[0 : frame.shape[0] : stride, 0 : frame.shape[1] : stride]
    step = frame.isotropic_spacing_mm
    places = pose.apply(np.stack([columns * step, rows * step, 0 * rows], -1))
    grey = np.repeat(frame.numpy()[::stride, ::stride, None], 3, -1)
    axes.plot_surface(
        *np.moveaxis(places, -1, 0), facecolors=grey, rcount=200, ccount=200, shade=False, antialiased=False
    )
    width, height = frame.extent_mm
    for tip, colour, name in (((0.38 * width, 0, 0), X, "x"), ((0, 0.38 * height, 0), Y, "y")):
        start, end = pose.apply((0, 0, 0)), pose.apply(tip)
        axes.quiver(*start, *(end - start), color=colour, linewidth=2.2, arrow_length_ratio=0.16, zorder=10)
        axes.text(*(end + 0.08 * (end - start)), name, color=colour, fontsize=13, fontweight="bold", zorder=11)
    place = pose.apply((*point, 0))
    axes.plot(*place[:, None], "o", color=POINT, markeredgecolor="white", markersize=9, zorder=12)
    label = {"facecolor": "black", "edgecolor": "none", "alpha": 0.65, "pad": 2}
    axes.text(*(place + np.array([6, -4, 0])), "q", color=POINT, fontsize=14, fontweight="bold", zorder=12, bbox=label)
    draw_compass(axes, np.array([low[0] - 46, high[1] - 18, low[2]]))
    axes.set(xlim=(low[0] - 46, high[0]), ylim=(low[1], high[1]), zlim=(low[2], high[2]))
    axes.set_box_aspect((high[0] - low[0] + 46, high[1] - low[1], high[2] - low[2]), zoom=1.02)
    axes.view_init(elev=-52, azim=-80, roll=0)
    axes.set_axis_off()
    axes.set_title("Volume: the world of its file\nLPS millimetres", fontsize=11)


def draw_compass(axes: Any, foot: np.ndarray) -> None:
    """Where L, P and S lead."""
    names = ((X, "L (left)", "left"), (Y, "P (back)", "center"), (Z, "S (head)", "center"))
    for axis, (colour, name, side) in enumerate(names):
        step = 26.0 * np.eye(3)[axis]
        axes.quiver(*foot, *step, color=colour, linewidth=2, arrow_length_ratio=0.2)
        axes.text(*(foot + 1.15 * step), name, color=colour, fontsize=10.5, fontweight="bold", ha=side, va="center")


def draw_arrows(figure: Any) -> None:
    """The two directions between the panels, and which file holds which."""
    style = {"transform": figure.transFigure, "mutation_scale": 20, "linewidth": 2}
    there = FancyArrowPatch(
        (0.395, 0.60), (0.605, 0.60), arrowstyle="-|>", connectionstyle="arc3,rad=-0.18", color=POINT, **style
    )
    back = FancyArrowPatch(
        (0.605, 0.38), (0.395, 0.38), arrowstyle="-|>", connectionstyle="arc3,rad=-0.18", color=PATH, **style
    )
    figure.patches.extend([there, back])
    words = {"ha": "center", "va": "center"}
    figure.text(0.5, 0.735, "ImageToVolume", color=POINT, fontsize=13, fontweight="bold", **words)
    figure.text(0.5, 0.685, "q = R p + t", color=POINT, fontsize=12, **words)
    figure.text(
        0.5, 0.545, ".json  .txt  .dcm  .igs.mha\n.tfm .h5 with itk-resample", color="#333333", fontsize=9.5, **words
    )
    figure.text(0.5, 0.435, ".tfm  .h5 for 3D Slicer", color="#333333", fontsize=9.5, **words)
    figure.text(0.5, 0.275, "VolumeToImage", color=PATH, fontsize=13, fontweight="bold", **words)
    figure.text(0.5, 0.225, "its inverse", color=PATH, fontsize=11, **words)


def main() -> None:
    """Draw the picture and write it."""
    frame, volume, pose = scene()
    figure = plt.figure(figsize=(12.5, 5.0))
    flat = figure.add_axes((0.055, 0.13, 0.33, 0.72))
    solid = figure.add_axes((0.565, -0.02, 0.42, 0.92), projection="3d", computed_zorder=False)
    point = draw_frame(flat, frame)
    draw_volume(solid, frame, volume, pose, point)
    draw_arrows(figure)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(OUT, dpi=100, facecolor="white")
    print(f"{OUT}: {OUT.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
