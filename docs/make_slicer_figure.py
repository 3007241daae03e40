"""Draw docs/images/slicer.png: what the module shows in 3D Slicer, computed by the module from what scopereg sends.

Run from the repository root: python docs/make_slicer_figure.py
"""

from __future__ import annotations

import sys
from itertools import combinations, product
from pathlib import Path
from textwrap import fill
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch
from scipy.ndimage import map_coordinates

import scopereg
from scopereg import Frame, Volume
from scopereg.data import phantom
from scopereg.geometry import sample_poses
from scopereg.live.loop import Rates, Update
from scopereg.live.messages import HEADER_BYTES, Message, read_header, read_message, text_of
from scopereg.live.publish import messages_of
from scopereg.registration.result import Result

sys.path.append(str(Path(__file__).parents[1] / "slicer" / "ScopeRegLive"))
from ScopeRegLiveLib.light import Light, light_of
from ScopeRegLiveLib.placement import Placement, field_of_view_mm, placement_of
from ScopeRegLiveLib.report import Report, report_of_text

OUT = Path(__file__).parent / "images" / "slicer.png"
VIEW_PX = (420, 420)
RAS = np.array([-1.0, -1.0, 1.0])


def located() -> tuple[Volume, list[tuple[Frame, Result]]]:
    """What a network says of frames of a phantom heart, of an abdomen, which is hard for it, and of another heart."""
    hearts = [phantom.create("echo", seed=seed) for seed in (100_000, 100_003)]
    abdomen = phantom.create("abdomen", seed=40_000)
    model = scopereg.load()
    session, unsure = (model.prepare(patient.volume) for patient in (hearts[0], abdomen))
    found = []
    for patient, sought in ((hearts[0], session), (abdomen, unsure), (hearts[1], session)):
        drawn = sample_poses(1, 10, patient.shape, torch.Generator().manual_seed(0))
        frame = Frame(patient.acquire(*drawn, seed=0).images[0], patient.spacing_mm)
        sought.register(frame)  # the first one takes longer
        found.append((frame, sought.register(frame)))
    return hearts[0].volume, found


def sent(number: int, frame: Frame, result: Result) -> dict[str, Message]:
    """The messages that scopereg sends of a result."""
    done_s, rates = result.time_ms / 1e3, Rates(1e3 / result.time_ms, result.time_ms, result.time_ms)
    update = Update(number, frame, result, None, number, 0.0, 0.0, done_s, result.time_ms, rates)
    found = [read_message(read_header(each), each[HEADER_BYTES:]) for each in messages_of(update)]
    return {message.header.name: message for message in found}


def placed(messages: dict[str, Message]) -> Placement:
    image = messages["Image_Volume"].content
    found = placement_of(image.ijk_to_world_matrix, image.image.shape[:0:-1])
    assert found is not None
    return found


def draw_panel(axes: Axes, light: Light, report: Report | None) -> None:
    """The light as the panel has it on top."""
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.set_axis_off()
    box = FancyBboxPatch((0.03, 0.52), 0.94, 0.42, boxstyle="round,pad=0.0,rounding_size=0.04", color=light.rgb)
    axes.add_patch(box)
    ink = "black" if "color: black" in light.style.replace("background-color", "") else "white"
    axes.text(0.5, 0.73, light.word, color=ink, fontsize=15, fontweight="bold", ha="center", va="center")
    words = [light.reason, report.details if report is not None else ""]
    axes.text(0.03, 0.45, "\n".join(fill(each, 42) for each in words if each), fontsize=8.5, va="top")


def cut(volume: Volume, points_ras: np.ndarray) -> np.ndarray:
    """The volume at points (..., 3), as 3D Slicer would show it."""
    index = ((points_ras * RAS - volume.origin_mm) @ volume.direction) / volume.spacing_mm
    values = volume.array.numpy()
    return np.asarray(map_coordinates(values, np.moveaxis(index[..., ::-1], -1, 0), order=1, cval=0))


def draw_view(axes: Axes, volume: Volume, frame: Frame, placement: Placement, light: Light) -> None:
    """The slice view: the volume where the view lies, half of the frame over it, its edge."""
    width_mm, height_mm = field_of_view_mm(placement.extent_mm, VIEW_PX)
    right = (np.arange(VIEW_PX[0]) + 0.5) / VIEW_PX[0] * width_mm - width_mm / 2
    up = height_mm / 2 - (np.arange(VIEW_PX[1]) + 0.5) / VIEW_PX[1] * height_mm
    x, y = np.meshgrid(right, up)
    points = np.stack([x, y, 0 * x], -1) @ placement.slice_to_ras[:3, :3].T + placement.centre_ras
    shown = cut(volume, points)
    columns, rows = frame.size
    pixel = [y / -frame.spacing_mm[1] + (rows - 1) / 2, x / frame.spacing_mm[0] + (columns - 1) / 2]
    over = map_coordinates(frame.numpy(), pixel, order=1, cval=np.nan)
    picture = np.where(np.isnan(over) | (x < 0), shown, over)
    extent = (-width_mm / 2, width_mm / 2, -height_mm / 2, height_mm / 2)
    axes.imshow(picture, cmap="gray", vmin=0, vmax=1, extent=extent)
    half = np.array(placement.extent_mm) / 2
    axes.plot(*np.array([(-1, 1), (1, 1), (1, -1), (-1, -1), (-1, 1)]).T * half[:, None], color=light.rgb, linewidth=2)
    axes.axvline(0, color="white", linewidth=0.8, linestyle=":")
    axes.set(xticks=[], yticks=[], facecolor="black")
    axes.set_title("Slice view: it lies on the frame\nleft the volume there, right the frame", fontsize=10)


def draw_solid(axes: Any, volume: Volume, frame: Frame, placement: Placement, light: Light) -> None:
    """The 3D view: the frame in the box of the volume, its edge in the colour of the light."""
    edges = [(-0.5, n - 0.5) for n in volume.shape[::-1]]
    corners = np.array(list(product(*edges))) * volume.spacing_mm @ volume.direction.T + volume.origin_mm
    for (i, one), (j, other) in combinations(enumerate(corners * RAS), 2):
        if bin(i ^ j).count("1") == 1:
            axes.plot(*np.stack([one, other], 1), color="#888888", linewidth=0.9)
    x_mm, y_mm = placement.extent_mm
    x, y = np.meshgrid(np.linspace(-x_mm / 2, x_mm / 2, 129), np.linspace(y_mm / 2, -y_mm / 2, 129))
    points = np.stack([x, y, 0 * x], -1) @ placement.slice_to_ras[:3, :3].T + placement.centre_ras
    grey = np.repeat(frame.numpy()[..., None], 3, -1)
    drawn = {"rcount": 129, "ccount": 129, "shade": False, "antialiased": False}
    axes.plot_surface(*np.moveaxis(points, -1, 0), facecolors=grey, **drawn)
    edge = np.vstack([placement.corners_ras, placement.corners_ras[:1]])
    axes.plot(*edge.T, color=light.rgb, linewidth=3, zorder=10)
    foot = (corners * RAS).min(0) - 6
    for axis, (name, colour) in enumerate((("R", "#c0392b"), ("A", "#1e8449"), ("S", "#1f5fa8"))):
        step = 22.0 * np.eye(3)[axis]
        axes.quiver(*foot, *step, color=colour, linewidth=2, arrow_length_ratio=0.2)
        axes.text(*(foot + 1.25 * step), name, color=colour, fontsize=10, fontweight="bold")
    axes.set_box_aspect(np.ptp(corners, axis=0), zoom=1.08)
    axes.view_init(elev=22, azim=-62)
    axes.set_axis_off()
    axes.set_title("3D view: the frame in the volume", fontsize=10, y=0.95)


def main() -> None:
    """Locate, send, read as the module does, draw."""
    volume, found = located()
    messages = [sent(20 + number, frame, result) for number, (frame, result) in enumerate(found)]
    reports = [report_of_text(text_of(each["RegistrationInfo"])) for each in messages]
    lights = [light_of(report, 0.0, connected=True) for report in reports]
    print([(light.word, light.reason) for light in lights])
    figure = plt.figure(figsize=(11.5, 6.4))
    shown = volume, found[0][0], placed(messages[0]), lights[0]
    draw_view(figure.add_axes((0.02, 0.31, 0.44, 0.6)), *shown)
    draw_solid(figure.add_axes((0.46, 0.25, 0.54, 0.72), projection="3d", computed_zorder=False), *shown)
    panels = [*zip(lights, reports, strict=True), (light_of(reports[0], 3.2, connected=True), reports[0])]
    for number, (light, report) in enumerate(panels):
        draw_panel(figure.add_axes((0.02 + 0.245 * number, 0.0, 0.225, 0.25)), light, report)
    figure.savefig(OUT, dpi=100, facecolor="white")
    print(f"{OUT.name}: {OUT.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
