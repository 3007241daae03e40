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
from scopereg.registration.result import Result
from scopereg.report.charts import line_chart
from scopereg.report.drawing import Series
from scopereg.report.page import Picture, Report
from scopereg.report.palette import DASHED

NETWORK, CLASSICAL = "network", "SimpleITK"


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
    start, error, angle, time_ms = network.means
    report = Report(
        f"Probe sweep over a phantom: {anatomy}",
        f"{len(network.rows)} untracked frames ({protocol} protocol) located in a "
        f"{' x '.join(map(str, sweep.volume.shape))} volume by the {network.results[0].method}, beside mutual "
        "information in SimpleITK. Synthetic data, a patient that the network never saw. Not for clinical use.",
    )
    report.cards(
        {
            "mean target error": f"{error:.2f} mm",
            "SimpleITK": f"{classical.means[1]:.2f} mm",
            "before registration": f"{start:.2f} mm",
            "mean rotation error": f"{angle:.2f}°",
            f"frames within {SUCCESS_MM:g} mm": network.within,
            "time per frame": f"{time_ms:.0f} ms",
            "SimpleITK's time": f"{classical.means[3]:.0f} ms",
        }
    )
    report.heading("Error along the sweep", "Mean distance over the frame's centre and four corners.")
    lines = [
        Series("before", [r.start_mm for r in network.rows], "var(--none)", DASHED),
        Series(NETWORK, [r.error_mm for r in network.rows], "var(--c0)"),
        Series(CLASSICAL, [r.error_mm for r in classical.rows], "var(--c1)"),
    ]
    mark = (SUCCESS_MM, f"{SUCCESS_MM:g} mm")
    report.chart(line_chart(lines, x_label="frame of the sweep", y_label="error, mm", mark=mark))
    measured = [f"{outcome.method} {unit}" for outcome in outcomes for unit in ("mm", "deg", "ms")]
    report.table(
        ["frame", "start mm", *measured, "network right"],
        [_plain_cells(rows) for rows in zip(network.rows, classical.rows, strict=True)],
        marks=[row.ok for row in network.rows],
    )
    report.heading(
        "Frames",
        "Poses of the network. Difference: black where frame and volume agree, orange where the frame is brighter, "
        "blue where it is darker, gain taken out. Fresh acquisitions differ in speckle even at the true pose.",
    )
    for index, row in enumerate(network.rows):
        _add_strip(report, sweep, network.results[index].pose, index, row)
    report.facts(facts)
    return report


def _plain_cells(rows: tuple[DemoRow, DemoRow]) -> list[str]:
    cells = [cell for r in rows for cell in (f"{r.error_mm:.2f}", f"{r.error_deg:.2f}", f"{r.time_ms:.0f}")]
    return [str(rows[0].frame), f"{rows[0].start_mm:.2f}", *cells, "yes" if rows[0].ok else "no"]


def _add_strip(report: Report, sweep: ProbeSweep, found: Pose, index: int, row: DemoRow) -> None:
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
    """Difference where both show something: the black outside of the volume's own fan is no disagreement."""
    return difference_pixels(frame.array, cut, seen & (cut > 0))
