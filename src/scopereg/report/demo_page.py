"""Demo page: a sweep over a phantom patient, located by the network and by a classical method, as one HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from scopereg.geometry import SUCCESS_MM, Pose, VoxelPoses, sample_slice
from scopereg.images import Frame, Volume, pose_from_voxels, pose_to_voxels
from scopereg.io.pictures import Pixels, difference_pixels, grey_pixels
from scopereg.registration.classical import centre_pose
from scopereg.registration.result import Assessment, Result
from scopereg.report.charts import line_chart
from scopereg.report.drawing import Series
from scopereg.report.page import Picture, Report
from scopereg.report.palette import DASHED, LIGHTS, look
from scopereg.report.volume_picture import VolumePicture, plane_of
from scopereg.report.words import brief, calibrations

NETWORK, CLASSICAL = "network", "SimpleITK"
_DRAWN = 240  # width of the drawing of a frame in the volume


@dataclass(frozen=True)
class DemoRow:
    """One frame of the sweep registered by one method, as printed and stored."""

    method: str
    frame: int
    start_mm: float  # mean target registration error before registration
    error_mm: float  # and after it
    error_deg: float
    time_ms: float
    ok: bool


@dataclass(frozen=True)
class ProbeSweep:
    """Reference, frames, and the true poses of the frames."""

    volume: Volume
    frames: list[Frame]
    seen: Tensor  # (B, H, W), what the transducer shows
    truth: VoxelPoses


@dataclass(frozen=True)
class MethodRun:
    """Results and errors of one method."""

    method: str
    results: list[Result]
    rows: list[DemoRow]

    @property
    def means(self) -> list[float]:
        """Means of start mm, error mm, error deg and time ms."""
        columns = zip(*((r.start_mm, r.error_mm, r.error_deg, r.time_ms) for r in self.rows), strict=True)
        return [sum(column) / len(self.rows) for column in columns]

    @property
    def within(self) -> str:
        """Count of frames within the threshold, in words."""
        return f"{sum(row.ok for row in self.rows)} of {len(self.rows)}"


def make_page(
    sweep: ProbeSweep, outcomes: Sequence[MethodRun], facts: dict[str, Any], *, anatomy: str, protocol: str
) -> Report:
    """Cards, the error along the sweep, a row of pictures for each frame, how it was made."""
    network, classical = outcomes
    report = Report(
        f"Probe sweep over a phantom: {anatomy}",
        f"{len(network.rows)} untracked frames ({protocol} protocol) located in a "
        f"{' x '.join(map(str, sweep.volume.size))} volume of {sweep.volume.spacing_mm[0]:.3g} mm by "
        f"{network.results[0].method}, beside mutual information in SimpleITK. Synthetic data, a patient that the "
        "network never saw. Not for clinical use.",
    )
    report.cards(_cards(network, classical))
    report.heading("Error along the sweep", "Mean distance over the frame's centre and four corners (mTRE).")
    report.chart(_error_chart(network, classical))
    report.heading(
        "Frames",
        "Poses of the network, each with what it said of it. Difference: black where frame and volume agree, orange "
        "where the frame is brighter, blue where it is darker, gain taken out. Fresh acquisitions differ in speckle "
        "even at the true pose.",
    )
    report.notes(calibrations(network.results))
    _add_strips(report, sweep, network)
    report.heading("All numbers", "Errors against the true poses, and the time of each frame.")
    _add_table(report, network, classical)
    report.facts(facts)
    return report


def _cards(network: MethodRun, classical: MethodRun) -> dict[str, str]:
    start, error, angle, time_ms = network.means
    cards = {
        "mean error": f"{error:.2f} mm",
        "before registration": f"{start:.2f} mm",
        "SimpleITK": f"{classical.means[1]:.2f} mm",
        "mean rotation error": f"{angle:.2f}°",
        f"frames within {SUCCESS_MM:g} mm": network.within,
    }
    judged = [(result.ok, row.ok) for result, row in zip(network.results, network.rows, strict=True)]
    if any(said is not None for said, _ in judged):
        called = [true for said, true in judged if said]
        cards["right of those called reliable"] = f"{sum(called)} of {len(called)}"
    return cards | {"per frame": f"{time_ms:.0f} ms", "SimpleITK, per frame": f"{classical.means[3]:.0f} ms"}


def _error_chart(network: MethodRun, classical: MethodRun) -> str:
    lines = [
        Series("before", [row.start_mm for row in network.rows], "var(--none)", DASHED, "ring"),
        Series(NETWORK, [row.error_mm for row in network.rows], *look(0)),
        Series(CLASSICAL, [row.error_mm for row in classical.rows], *look(1)),
    ]
    mark = (SUCCESS_MM, f"{SUCCESS_MM:g} mm")
    return line_chart(lines, x_label="frame of the sweep", y_label="error, mm", mark=mark)


def _add_table(report: Report, network: MethodRun, classical: MethodRun) -> None:
    measured = [f"{run.method} {unit}" for run in (network, classical) for unit in ("mm", "°", "ms")]
    columns = ["frame", "start mm", *measured, "network said", f"within {SUCCESS_MM:g} mm"]
    cells = [
        _plain_cells(rows, result) for *rows, result in zip(network.rows, classical.rows, network.results, strict=True)
    ]
    report.table(columns, cells, marks=[row.ok for row in network.rows], style="tight")


def _plain_cells(rows: Sequence[DemoRow], result: Result) -> list[str]:
    cells = [cell for r in rows for cell in (f"{r.error_mm:.2f}", f"{r.error_deg:.2f}", f"{r.time_ms:.0f}")]
    said = {True: "ok", False: "not ok", None: "not judged"}[result.ok]
    return [str(rows[0].frame), f"{rows[0].start_mm:.2f}", *cells, said, "yes" if rows[0].ok else "no"]


def _add_strips(report: Report, sweep: ProbeSweep, network: MethodRun) -> None:
    height, width = sweep.frames[0].shape
    scene = VolumePicture(sweep.volume, width=_DRAWN, height=round(_DRAWN * height / width))
    walls = report.shapes("walls", scene.walls())
    for index, (row, result) in enumerate(zip(network.rows, network.results, strict=True)):
        told = Assessment.of(result)
        plane = plane_of(sweep.frames[index], result.pose, _small(sweep.frames[index]), LIGHTS[told.light])
        place = scene.picture([plane], said=f"Frame {row.frame} in the volume", walls=walls)
        note = f"{row.error_mm:.2f} mm, {row.error_deg:.2f}° off"
        report.strip(f"Frame {row.frame}", note, _pictures(sweep, result.pose, index, place), (told.light, brief(told)))


def _pictures(sweep: ProbeSweep, found: Pose, index: int, place: str) -> list[Picture]:
    frame, volume, seen = sweep.frames[index], sweep.volume, sweep.seen[index]
    truth = pose_from_voxels(sweep.truth.rotation[index], sweep.truth.translation[index], frame, volume)
    start, cut, true = (
        sample_slice(volume.array, *pose_to_voxels(pose, frame, volume))
        for pose in (centre_pose(frame, volume), found, truth)
    )
    return [
        Picture("frame", grey_pixels(frame.array)),
        Picture("where it lies", place),
        Picture("volume at the start", grey_pixels(start)),
        Picture("volume as found", grey_pixels(cut)),
        Picture("difference as found", _difference(frame, cut, seen)),
        Picture("difference at the truth", _difference(frame, true, seen)),
    ]


def _small(frame: Frame) -> Pixels:
    return grey_pixels(frame.array[::2, ::2])


def _difference(frame: Frame, cut: Tensor, seen: Tensor) -> Pixels:
    """Difference where both show something: the black outside of the volume's own fan is no disagreement."""
    return difference_pixels(frame.array, cut, seen & (cut > 0))
