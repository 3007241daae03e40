"""`scopereg demo`: a phantom patient, a probe sweep, every frame registered, a report to look at."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

from scopereg.data import phantom
from scopereg.data.poses import sample_sweep
from scopereg.devices import resolve_device
from scopereg.errors import ScopeRegError
from scopereg.evaluation.charts import Series, line_chart
from scopereg.evaluation.metrics import SUCCESS_MM, geodesic_error_deg, mtre_mm
from scopereg.evaluation.report import Picture, Report
from scopereg.geometry import Pose, VoxelPoses, sample_slice
from scopereg.images import Frame, Volume, pose_from_voxels, pose_to_voxels
from scopereg.io.files import output_folder, write_text
from scopereg.io.pictures import Pixels, difference_pixels, grey_pixels
from scopereg.options import DemoOptions
from scopereg.provenance import provenance, tensors_sha256
from scopereg.registration.classical import centre_pose, register_mutual_information
from scopereg.registration.result import Result


@dataclass(frozen=True)
class Row:
    """One frame of the sweep, as printed and stored."""

    frame: int
    start_mm: float  # mean target registration error before registration
    error_mm: float  # and after it
    error_deg: float
    time_ms: float
    ok: bool


@dataclass(frozen=True)
class Sweep:
    """What was registered: the reference, the frames and where they truly lie."""

    volume: Volume
    frames: list[Frame]
    seen: Tensor  # (B, H, W), what the transducer shows
    truth: VoxelPoses


def run(options: DemoOptions) -> int:
    console = Console()
    folder = output_folder(options.output)
    if options.frames < 1:
        raise ScopeRegError(f"{options.frames} frames", where="--frames", fix="ask for at least one")
    sweep = make_sweep(options)
    results = [
        register_mutual_information(frame, sweep.volume, seen=seen)
        for frame, seen in track(
            list(zip(sweep.frames, sweep.seen, strict=True)), "registering", console=console, transient=True
        )
    ]
    rows = [score(sweep, index, result) for index, result in enumerate(results)]
    console.print(as_table(rows, f"{options.anatomy} phantom, {options.protocol} frames, {results[0].method}"))
    facts = provenance(
        seed=options.seed,
        data_sha256=tensors_sha256(sweep.volume.array, *(f.array for f in sweep.frames)),
        device=str(resolve_device(options.device)),
    )
    write_results(folder, rows, results, facts, options)
    report = make_report(sweep, results, rows, facts, options).save(folder / "report.html")
    console.print(f"report: {report}", soft_wrap=True)
    return 0


def make_sweep(options: DemoOptions) -> Sweep:
    """A patient and frames acquired along a smooth sweep, all from one seed."""
    device = resolve_device(options.device)
    patient = phantom.create(options.anatomy, seed=options.seed, device=str(device))
    generator = torch.Generator().manual_seed(options.seed)
    truth = sample_sweep(options.frames, options.magnitude, patient.shape, generator)
    acquired = patient.acquire(*truth, protocol=options.protocol, seed=options.seed)
    frames = [Frame(image.cpu(), spacing_mm=patient.spacing_mm) for image in acquired.images]
    return Sweep(patient.volume.to("cpu"), frames, acquired.fan.cpu(), truth)


def score(sweep: Sweep, index: int, result: Result) -> Row:
    """Errors of one frame against where it truly lies, before and after."""
    frame, volume = sweep.frames[index], sweep.volume
    truth = VoxelPoses(sweep.truth.rotation[index : index + 1], sweep.truth.translation[index : index + 1])
    found = _batched(pose_to_voxels(result.pose, frame, volume))
    start = _batched(pose_to_voxels(centre_pose(frame, volume), frame, volume))
    spacing = volume.isotropic_spacing_mm
    start_mm, error_mm = (float(mtre_mm(guess, truth, frame.shape, spacing)) for guess in (start, found))
    error_deg = float(geodesic_error_deg(found, truth))
    return Row(index + 1, start_mm, error_mm, error_deg, result.time_ms, error_mm <= SUCCESS_MM)


def _batched(poses: VoxelPoses) -> VoxelPoses:
    return VoxelPoses(poses.rotation[None], poses.translation[None])


def as_table(rows: list[Row], title: str) -> Table:
    table = Table(title=title)
    for name in ("frame", "start mm", "error mm", "error deg", "ms", f"<= {SUCCESS_MM:g} mm"):
        table.add_column(name, justify="right")
    for row in rows:
        mark = "[green]yes[/]" if row.ok else "[red]no[/]"
        table.add_row(*_cells(row), mark)
    means = _means(rows)
    table.add_section()
    table.add_row(
        "mean", *(f"{v:.2f}" for v in means[:3]), f"{means[3]:.0f}", f"{sum(r.ok for r in rows)} of {len(rows)}"
    )
    return table


def _cells(row: Row) -> list[str]:
    return [str(row.frame), *(f"{v:.2f}" for v in (row.start_mm, row.error_mm, row.error_deg)), f"{row.time_ms:.0f}"]


def _means(rows: list[Row]) -> list[float]:
    columns = zip(*((r.start_mm, r.error_mm, r.error_deg, r.time_ms) for r in rows), strict=True)
    return [sum(column) / len(rows) for column in columns]


def write_results(
    folder: Path, rows: list[Row], results: list[Result], facts: dict[str, object], options: DemoOptions
) -> None:
    """frames.csv for people and result.json with the poses and how they were made."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(asdict(rows[0])))
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    write_text(folder / "frames.csv", text.getvalue())
    frames = [
        {**asdict(row), "image_to_volume": result.pose.matrix.tolist(), "similarity": result.similarity}
        for row, result in zip(rows, results, strict=True)
    ]
    settings = {key: str(value) if isinstance(value, Path) else value for key, value in asdict(options).items()}
    content = {"frames": frames, "options": settings, "method": results[0].method, "made_with": facts}
    write_text(folder / "result.json", json.dumps(content, indent=2) + "\n")


def make_report(
    sweep: Sweep, results: list[Result], rows: list[Row], facts: dict[str, object], options: DemoOptions
) -> Report:
    start, error, angle, time_ms = _means(rows)
    report = Report(
        f"Probe sweep over a phantom: {options.anatomy}",
        f"{len(rows)} untracked frames ({options.protocol} protocol) located in a "
        f"{' x '.join(map(str, sweep.volume.shape))} volume by {results[0].method}. "
        "Synthetic data: not for clinical use.",
    )
    report.cards(
        {
            "mean target error": f"{error:.2f} mm",
            "before registration": f"{start:.2f} mm",
            "mean rotation error": f"{angle:.2f}°",
            f"frames within {SUCCESS_MM:g} mm": f"{sum(r.ok for r in rows)} of {len(rows)}",
            "time per frame": f"{time_ms:.0f} ms",
        }
    )
    report.heading("Error along the sweep", "Mean distance over the frame's centre and four corners.")
    lines = [
        Series("before", [r.start_mm for r in rows], "#7f8a96", dashed=True),
        Series("after", [r.error_mm for r in rows], "#4cc38a"),
    ]
    mark = (SUCCESS_MM, f"{SUCCESS_MM:g} mm")
    report.chart(line_chart(lines, x_label="frame of the sweep", y_label="error, mm", mark=mark))
    report.table(
        ["frame", "start mm", "error mm", "error deg", "ms", f"within {SUCCESS_MM:g} mm"],
        [[*_cells(r), "yes" if r.ok else "no"] for r in rows],
        marks=[r.ok for r in rows],
    )
    report.heading(
        "Frames",
        "Difference: black where frame and volume agree, orange where the frame is brighter, blue where it is darker, "
        "gain taken out. Fresh acquisitions differ in speckle even at the true pose.",
    )
    for index, row in enumerate(rows):
        _add_strip(report, sweep, results[index].pose, index, row)
    report.facts(facts)
    return report


def _add_strip(report: Report, sweep: Sweep, found: Pose, index: int, row: Row) -> None:
    frame, volume, seen = sweep.frames[index], sweep.volume, sweep.seen[index]
    truth = pose_from_voxels(sweep.truth.rotation[index], sweep.truth.translation[index], frame, volume)
    slices = {
        name: sample_slice(volume.array, *pose_to_voxels(pose, frame, volume))
        for name, pose in (("start", centre_pose(frame, volume)), ("found", found), ("true", truth))
    }
    report.strip(
        f"Frame {row.frame}",
        f"{row.error_mm:.2f} mm, {row.error_deg:.2f}°",
        [
            Picture("frame", grey_pixels(frame.array)),
            Picture("volume at the start", grey_pixels(slices["start"])),
            Picture("volume at the found pose", grey_pixels(slices["found"])),
            Picture("difference at the found pose", _difference(frame, slices["found"], seen)),
            Picture("difference at the true pose", _difference(frame, slices["true"], seen)),
        ],
    )


def _difference(frame: Frame, cut: Tensor, seen: Tensor) -> Pixels:
    """Only where both have a picture: what the volume's own fan left black is no disagreement."""
    return difference_pixels(frame.array, cut, seen & (cut > 0))
