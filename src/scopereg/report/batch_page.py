"""Batch page: what a batch found, as one HTML file with a table and pictures of some frames."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

import torch
from torch import Tensor

from scopereg.images import Frame, Volume, field_of_view, unit_range
from scopereg.io.pictures import difference_pixels, grey_pixels
from scopereg.io.placement import resliced_image
from scopereg.provenance import provenance
from scopereg.registration.batch import Job, Row, cine_of
from scopereg.registration.reading import image_line
from scopereg.registration.result import YES_NO, Result
from scopereg.report.charts import line_chart
from scopereg.report.drawing import Series
from scopereg.report.page import Picture, Report

SHOWN = 12  # frames with pictures
_WORST = 4  # of these, the least similar
_MOST_ROWS = 1000
_WIDEST = 320  # pixels of a picture


def make_page(rows: Sequence[Row], volume: Volume, job: Job, notes: Sequence[str]) -> Report:
    """Cards, failures, similarity along the frames, all poses, pictures, how it was made."""
    found = [row for row in rows if row.result is not None]
    refined = " and refined" if job.refine else ""
    report = Report(
        f"{len(found)} of {len(rows)} frames located in {job.reading.volume.name}",
        f"By {job.method}{refined}. {image_line(volume)}. Poses are ImageToVolume in LPS mm: points of the frame, "
        "counted from its first pixel, to points of the volume; angles are about x, y, z, R = Rz Ry Rx. Similarity is "
        "the method's own measure; it is no proof that a pose is right. Where a network is calibrated, the error to "
        "expect, a bound that 95 % of errors are below, and whether the pose is reliable stand beside it. "
        "Not for clinical use.",
    )
    report.cards(_cards(rows, found))
    report.notes(notes)
    _add_failures(report, [row for row in rows if row.error])
    _add_unreliable(report, [row for row in found if row.found.ok is False])
    if len(found) > 2:
        report.heading("Similarity", "Frame after frame, of those that were located.")
        values = [0.0 if math.isnan(row.found.similarity) else row.found.similarity for row in found]
        report.chart(line_chart([Series("similarity", values, "var(--c0)")], x_label="frame", y_label="similarity"))
    _add_pictures(report, chosen(found), volume, job)
    _add_poses(report, found)
    report.facts(provenance(device="cpu"))
    return report


def _cards(rows: Sequence[Row], found: Sequence[Row]) -> dict[str, str]:
    cards = {"frames located": f"{len(found)} of {len(rows)}"}
    if found:
        cards["median similarity"] = f"{median(row.found.similarity for row in found):.3f}"
        cards["median time per frame"] = f"{median(row.found.time_ms for row in found):.0f} ms"
    judged = [row for row in found if row.found.ok is not None]
    if judged:
        cards["ok"] = f"{sum(row.found.ok is True for row in judged)} of {len(judged)}"
        cards["median expected error"] = f"{median(row.found.expected_mm for row in judged):.1f} mm"
    return cards


def _add_failures(report: Report, failed: Sequence[Row]) -> None:
    if failed:
        report.heading("Frames that failed")
        cells = [[row.task.shown, str(row.task.index), row.error] for row in failed[:_MOST_ROWS]]
        report.table(["file", "frame", "why"], cells, style="words")


def _add_unreliable(report: Report, unreliable: Sequence[Row]) -> None:
    if unreliable:
        report.heading("Unreliable poses", "Located, but the quality features speak against the pose.")
        cells = [
            [row.task.shown, str(row.task.index), f"{row.found.expected_mm:.1f}", row.found.reason]
            for row in unreliable[:_MOST_ROWS]
        ]
        report.table(["file", "frame", "expected mm", "why"], cells, style="words")


def _add_poses(report: Report, found: Sequence[Row]) -> None:
    if not found:
        return
    report.heading("Poses", "All of them, with notes, are in poses.csv." if len(found) > _MOST_ROWS else "")
    judged = any(row.found.ok is not None for row in found)
    columns = ["file", "frame", "x mm", "y mm", "z mm", "rx deg", "ry deg", "rz deg", "similarity"]
    columns += ["ok", "expected mm", "95 % below"] if judged else []
    cells = [_pose_cells(row, judged) for row in found[:_MOST_ROWS]]
    report.table([*columns, "ms", "notes"], cells, style="tight")


def _pose_cells(row: Row, judged: bool) -> list[str]:
    result = row.found
    numbers = [f"{n:.2f}" for n in (*result.pose.translation_mm, *result.pose.euler_deg)]
    return [
        row.task.shown,
        str(row.task.index),
        *numbers,
        f"{result.similarity:.3f}",
        *(_verdict_cells(result) if judged else ()),
        f"{result.time_ms:.0f}",
        "; ".join(row.notes),
    ]


def _verdict_cells(result: Result) -> tuple[str, str, str]:
    if result.ok is None:
        return "", "", ""
    return YES_NO[result.ok], f"{result.expected_mm:.1f}", f"{result.bound_mm:.1f}"


def chosen(found: Sequence[Row]) -> list[Row]:
    """Some frames to look at, in order: the least sure or similar, and others from the first to the last."""
    if len(found) <= SHOWN:
        return list(found)
    places = set(sorted(range(len(found)), key=lambda place: _rank(found[place]))[:_WORST])
    others = [place for place in range(len(found)) if place not in places]
    count = SHOWN - len(places)
    places |= {others[round(k * (len(others) - 1) / (count - 1))] for k in range(count)}
    return [found[place] for place in sorted(places)]


def _rank(row: Row) -> tuple[float, float]:
    """By what is expected where there are verdicts, else by similarity."""
    result = row.found
    expected = 0.0 if result.ok is None else -result.expected_mm
    return expected, -math.inf if math.isnan(result.similarity) else result.similarity


def _add_pictures(report: Report, rows: Sequence[Row], volume: Volume, job: Job) -> None:
    if not rows:
        return
    report.heading(
        "Pictures",
        "The frame, the volume cut at the pose found, and their difference: black where they agree, orange where the "
        "frame is brighter, blue where it is darker, gain taken out. The number is the similarity; the frames with "
        "the largest expected error, or else the least similar ones, are among them.",
    )
    for row in rows:
        frame = small(cine_of(job.reading, row.task.path)[row.task.index])
        cut = torch.from_numpy(resliced_image(volume, frame, row.found.pose).array)[0]
        report.strip(f"{row.found.similarity:.3f}", row.task.label, _strip(frame.array, cut))


def _strip(image: Tensor, cut: Tensor) -> list[Picture]:
    both = field_of_view(image) & (cut > 0)
    return [
        Picture("frame", grey_pixels(unit_range(image))),
        Picture("volume at the pose", grey_pixels(unit_range(cut))),
        Picture("difference", difference_pixels(image, cut, both)),
    ]


def small(frame: Frame) -> Frame:
    """The frame with square pixels, and not more of them than a picture needs."""
    step = max(min(frame.spacing_mm), max(frame.extent_mm) / _WIDEST)
    return frame.resampled(step)
