"""Compound page: a compounded volume as one HTML file: three planes, the path of the probe, how well poses hold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from scopereg.compounding.agreement import REACH_MM as FAR_MM
from scopereg.compounding.compound import Compounded
from scopereg.compounding.fitting import FittedFrame
from scopereg.compounding.joining import Joined
from scopereg.compounding.left_out import AGREE_MM, REACH_MM, ROUGHLY_MM, LeftOut
from scopereg.compounding.totals import BRIDGED, EMPTY
from scopereg.geometry import Pose
from scopereg.images import Volume
from scopereg.io.pictures import Pixels
from scopereg.io.sweeps import TrackedSweep
from scopereg.report.charts import trace_chart
from scopereg.report.drawing import WIDTH, Curve
from scopereg.report.frame_pictures import cut_at, pictures_of, small
from scopereg.report.page import Picture, Report
from scopereg.report.palette import look
from scopereg.report.volume_picture import Plane, Stop, VolumePicture, plane_of

_WIDEST = 480  # pixels of a plane
_SMALL_VOXELS = 2**21  # of the volume in the picture of the path
_OUTLINES, _TALL, _STOPS = 7, 400, 400
_SHOWN = 3  # frames that were left out, as pictures
_MOST_ROWS = 200
_BRIDGED_COLOUR, _EMPTY_COLOUR = np.array([1.0, 0.6, 0.1]), np.array([0.07, 0.12, 0.22])
_SHARE = 0.4  # of the colour of what was bridged
_SHOWN_ABOVE = ("left_out", "agreements", "joined", "notes", "sweeps")
_AXES = (("lateral", look(0)), ("axial", look(2)), ("across the plane", look(1)))


def make_page(made: Compounded, record: Mapping[str, Any]) -> Report:
    """Cards, planes, path, frames left out, sweeps, how it was made."""
    report = Report(f"{record['volume']}: {made.frames} frames compounded", _lead(made))
    report.cards(_cards(made))
    if made.left_out is not None and not made.left_out.agree:
        report.alert("The poses", [f"{made.left_out.verdict}."])
    if doubts := [f"{line}." for line in made.doubts]:
        report.alert("The sweeps do not belong together as they lie", doubts)
    report.notes(made.notes)
    _add_planes(report, made)
    _add_path(report, made)
    if made.left_out is not None:
        _add_left_out(report, made.left_out, made.sweeps)
    _add_together(report, made)
    _add_sweeps(report, made)
    report.facts({name: told for name, told in record.items() if name not in _SHOWN_ABOVE})
    return report


def _lead(made: Compounded) -> str:
    size, extent = (" x ".join(f"{n:.4g}" for n in each) for each in (made.volume.size, made.volume.extent_mm))
    return (
        f"{size} voxels of {made.voxel_mm:g} mm, {made.why}; {extent} mm. {made.holes.words(made.settings.bridge_mm)}. "
        "The volume lies where its frames do, in LPS mm. Not for clinical use."
    )


def _cards(made: Compounded) -> dict[str, str]:
    holes = made.holes
    every = holes.image + holes.bridged + holes.empty
    cards = {"frames": str(made.frames), "size of a voxel": f"{made.voxel_mm:g} mm"}
    if made.left_out is not None:
        cards["frames left out fit best so far off (median)"] = f"{made.left_out.usual_mm:.2g} mm"
        cards["95 % of them within"] = f"{made.left_out.p95_mm:.2g} mm"
    cards["of the voxels bridged"] = f"{100 * holes.bridged / every:.1f} %"
    cards["of the voxels empty"] = f"{100 * holes.empty / every:.1f} %"
    return cards


def _add_planes(report: Report, made: Compounded) -> None:
    report.heading(
        "Three planes",
        "Through the middle of what holds an image, all at one scale. x runs along the images' rows, y down their "
        "columns, z from frame to frame.",
    )
    filled = made.states > EMPTY
    places = [int(np.average(np.arange(n), weights=_counts(filled, axis))) for axis, n in enumerate(filled.shape)]
    depth, height, width = filled.shape
    room = (max(height, depth), max(width, depth))
    pictures = []
    for axis, (plane, through) in enumerate((("x, y", "z"), ("x, z", "y"), ("z, y", "x"))):
        grey, states = (each.select(axis, places[axis]) for each in (made.volume.array, made.states))
        if axis == 2:  # depth points down in it too
            grey, states = grey.T, states.T
        high, wide = (n * made.voxel_mm for n in grey.shape)
        caption = f"{plane}: {wide:.0f} x {high:.0f} mm, at {through} = {places[axis] * made.voxel_mm:.0f} mm"
        pictures.append(Picture(caption, *_pixels(grey, states, room)))
    report.strip("Volume", "Above as it is. Below what was bridged in orange, what is empty in blue.", pictures)


def _counts(filled: torch.Tensor, axis: int) -> npt.NDArray[np.int64]:
    others = [other for other in range(3) if other != axis]
    counts: npt.NDArray[np.int64] = filled.sum(others).numpy()
    return counts


def _pixels(grey: torch.Tensor, states: torch.Tensor, room: tuple[int, int]) -> tuple[Pixels, Pixels]:
    """A plane in the middle of some room, in grey, and in colour by where its voxels come from."""
    before = [(whole - n) // 2 for whole, n in zip(room, grey.shape, strict=True)]
    after = [whole - n - start for whole, n, start in zip(room, grey.shape, before, strict=True)]
    sides = (before[1], after[1], before[0], after[0])
    parts = [grey, (states == BRIDGED).float(), (states == EMPTY).float()]
    factor = max(1, math.ceil(max(room) / _WIDEST))
    padded = (F.pad(part, sides, value=outside) for part, outside in zip(parts, (0.0, 0.0, 1.0), strict=True))
    light, bridged, empty = (F.avg_pool2d(part[None], factor, ceil_mode=True)[0].numpy() for part in padded)
    light = light.clip(0, 1)
    colour = light[..., None] * (1 - _SHARE * bridged[..., None])
    colour = colour + _SHARE * bridged[..., None] * _BRIDGED_COLOUR + empty[..., None] * _EMPTY_COLOUR
    return _bytes(light), _bytes(colour.clip(0, 1))


def _bytes(light: npt.NDArray[np.float32]) -> Pixels:
    pixels: Pixels = (light * 255).round().astype(np.uint8)
    return pixels


def _add_path(report: Report, made: Compounded) -> None:
    report.heading(
        "Path of the probe",
        f"The middles of the frames. Of the frames that were left out, circles fit best within {AGREE_MM:g} mm of the "
        f"tracker's place, triangles within {ROUGHLY_MM:g} mm, crosses farther away.",
    )
    scene = VolumePicture(_small(made), width=WIDTH, height=_TALL)
    planes, path = list[Plane](), list[Stop]()
    for number, sweep in enumerate(made.sweeps):
        planes += _outlines(sweep, f"var(--c{number % 5})")
        path += _stops(sweep, made.left_out)
    svg = scene.picture(planes, path, said="the path of the probe through the volume")
    report.chart(f"<figure>{svg}</figure>")


def _outlines(sweep: TrackedSweep, colour: str) -> list[Plane]:
    rows = np.linspace(0, len(sweep) - 1, min(_OUTLINES, len(sweep))).round().astype(int).tolist()
    return [plane_of(sweep.frame(row), sweep.pose(row), None, colour) for row in rows]


def _stops(sweep: TrackedSweep, left_out: LeftOut | None) -> list[Stop]:
    """Places of the middle of what is seen."""
    lights = {frame.row: _light(frame) for frame in (left_out.frames if left_out else ()) if frame.sweep == sweep.name}
    y, x = (index.float().mean() for index in sweep.seen.nonzero().T)
    middle = np.array([float(x) * sweep.spacing_mm[0], float(y) * sweep.spacing_mm[1], 0.0])
    every = max(1, len(sweep) // _STOPS)
    rows = [row for row in range(len(sweep)) if row % every == 0 or row in lights]
    return [Stop(sweep.pose(row).apply(middle), lights.get(row, ""), row == rows[0]) for row in rows]


def _light(frame: FittedFrame) -> str:
    if frame.distance_mm <= AGREE_MM:
        return "green"
    return "amber" if frame.distance_mm <= ROUGHLY_MM else "red"


def _small(made: Compounded) -> Volume:
    """The volume with few voxels, each a mean of several."""
    volume, factor = made.volume, 1
    while volume.array.numel() / factor**3 > _SMALL_VOXELS:
        factor += 1
    if factor == 1:
        return volume
    array = F.avg_pool3d(volume.array[None, None], factor, ceil_mode=True)[0, 0]
    shift_mm = (factor - 1) / 2 * made.voxel_mm
    origin = np.array(volume.origin_mm) + volume.direction @ np.full(3, shift_mm)
    return Volume(array, factor * made.voxel_mm, origin.tolist(), volume.direction)


def _add_left_out(report: Report, left_out: LeftOut, sweeps: Sequence[TrackedSweep]) -> None:
    report.heading(
        "Frames left out",
        f"{left_out.verdict}. Runs of up to {left_out.run_frames} frames are left out, one after the other, and "
        f"compared with the volume that the others make (voxels of {left_out.voxel_mm:.2g} mm): where the tracker has "
        f"them, and up to {REACH_MM:g} mm beside. A frame that fits best where it lies has a pose that agrees with its "
        "neighbours; what all frames have wrong alike shows only where a sweep crosses itself or another.",
    )
    for sweep in sweeps:
        frames = [frame for frame in left_out.frames if frame.sweep == sweep.name]
        if not frames:
            continue
        curves = [
            Curve(
                name,
                [float(frame.number) for frame in frames],
                [frame.shift_mm[axis] for frame in frames],
                *style,
                dots=True,
            )
            for axis, (name, style) in enumerate(_AXES)
        ]
        if len(sweeps) > 1:
            report.subheading(sweep.name)
        report.chart(trace_chart(curves, [], x_label=f"frame of {sweep.name}", y_label="fits best beside, mm"))
    _add_examples(report, left_out.frames, sweeps)
    _add_table(report, left_out)


def _add_examples(report: Report, frames: Sequence[FittedFrame], sweeps: Sequence[TrackedSweep]) -> None:
    """The one that fits best farthest away, a usual one, the nearest."""
    if len(frames) < _SHOWN:
        return
    ordered = sorted(frames, key=lambda frame: -frame.distance_mm)
    names = ("farthest", "usual", "nearest")
    chosen = [ordered[round(k * (len(ordered) - 1) / (_SHOWN - 1))] for k in range(_SHOWN)]
    by_name = {sweep.name: sweep for sweep in sweeps}
    for name, frame in zip(names, chosen, strict=True):
        sweep = by_name[frame.sweep]
        image = small(sweep.frame(frame.row), widest=220)
        pose = sweep.pose(frame.row)
        shifted = Pose(pose.rotation, pose.apply(np.array(frame.shift_mm)), pose.source, pose.target)
        here, there = (cut_at(frame.others, image, each) for each in (pose, shifted))
        frame_pixels, here_pixels, difference = pictures_of(image, here)
        pictures = [
            Picture("the frame", frame_pixels),
            Picture(f"the others there: {frame.correlation:.3f}", here_pixels),
            Picture(f"{frame.distance_mm:.1f} mm beside: {frame.best:.3f}", pictures_of(image, there)[1]),
            Picture("difference there", difference),
        ]
        report.strip(f"{frame.sweep} {frame.number}", f"{name}, {frame.distance_mm:.2f} mm", pictures)


def _add_table(report: Report, left_out: LeftOut) -> None:
    columns = ["frame", "correlation", "best", "lateral mm", "axial mm", "across mm", "off mm"]
    rows = [
        [
            f"{frame.sweep} {frame.number}",
            f"{frame.correlation:.3f}",
            f"{frame.best:.3f}",
            *(f"{part:+.2f}" for part in frame.shift_mm),
            f"{frame.distance_mm:.2f}" + " or more" * frame.is_at_edge,
        ]
        for frame in left_out.frames[:_MOST_ROWS]
    ]
    report.table(columns, rows, style="tight")


def _add_together(report: Report, made: Compounded) -> None:
    """Whether several sweeps show the same where they lie, and how they came there."""
    if made.joined:
        report.heading(
            "Joined", "Some frames of each sweep, as one rigid body, were sought in the volume of the first one."
        )
        report.table(
            ["sweep", "", "moved mm", "turned °", "reliable frames", "why not"],
            [_joined_cells(one) for one in made.joined],
            style="words",
        )
    if made.agreements:
        report.heading(
            "Where sweeps meet",
            "Frames of each sweep but the first, compared with the volume that all other sweeps make: where they lie, "
            f"and up to {FAR_MM:g} mm beside.",
        )
        names, verdicts = zip(*((each.sweep, each.verdict) for each in made.agreements), strict=True)
        report.table(["sweep", "frames and others"], list(zip(names, verdicts, strict=True)), style="words")
        _add_examples(report, [frame for each in made.agreements for frame in each.frames], made.sweeps)


def _joined_cells(one: Joined) -> list[str]:
    told = [f"{one.moved_mm:.1f}", f"{one.turned_deg:.1f}", f"{one.reliable} of {one.counted}"]
    return [one.sweep, "joined" if one.ok else "left out", *(told if one.pose is not None else [""] * 3), one.reason]


def _add_sweeps(report: Report, made: Compounded) -> None:
    report.heading("Sweeps", "What they are made of, and what was left out of them.")
    columns = ["sweep", "frames", "path mm", "step mm", "pixel mm", "world", "left out"]
    rows = []
    for told in made.facts["sweeps"]:
        out = {**told.get("dropped", {}), **({"leaps": len(told["leaps"])} if told.get("leaps") else {})}
        rows.append(
            [
                str(told["name"]),
                str(told["frames"]),
                f"{told['path_mm']:.1f}",
                f"{told['step_mm']:.2f}",
                " x ".join(f"{step:.3g}" for step in told["pixel_mm"]),
                str(told.get("world", "")),
                ", ".join(f"{count} {reason}" for reason, count in out.items()) or "nothing",
            ]
        )
    report.table(columns, rows, style="words")
