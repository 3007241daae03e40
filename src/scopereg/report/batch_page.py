"""Batch page: what a batch found, as one HTML file with a table and pictures of some frames."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

import torch
from torch import Tensor

from scopereg.images import Volume, field_of_view, unit_range
from scopereg.io.pictures import difference_pixels, grey_pixels
from scopereg.io.placement import resliced_image
from scopereg.provenance import provenance
from scopereg.registration.batch import Job, Row, Tally, cine_of
from scopereg.registration.deformable.displacement import DRAWN
from scopereg.registration.reading import image_line
from scopereg.registration.result import Assessment, Result
from scopereg.registration.together import Together
from scopereg.report.charts import line_chart
from scopereg.report.deformation_section import add_deformations, deformed_grid
from scopereg.report.drawing import Series
from scopereg.report.frame_pictures import small
from scopereg.report.page import Picture, Report

SHOWN = 12  # frames with pictures
_WORST = 4  # of these, the least similar
_MOST_ROWS = 1000
_WIDEST = 320  # pixels of a picture


def make_page(
    rows: Sequence[Row], volume: Volume, job: Job, notes: Sequence[str], *, together: Together | None = None
) -> Report:
    """Cards, failures, similarity along the frames, all poses, pictures, how it was made.

    Of frames `together` the pose of their body and its verdict come first.
    """
    found = [row for row in rows if row.result is not None]
    title = str(Tally.of(rows)) if together is None else f"{len(found)} together, {Assessment.of(together.whole).state}"
    report = Report(
        f"{title}: frames in {job.reading.volume.name}",
        f"By {job.method}. {image_line(volume)}. Poses are ImageToVolume in LPS mm: points of the frame, "
        "counted from its first pixel, to points of the volume; angles are about x, y, z, R = Rz Ry Rx. Similarity is "
        "how alike frame and volume are at the pose, -1 to 1; it is no proof that a pose is right. Where a network is "
        "calibrated, the error to expect, a bound that 95 % of errors are below, and whether the pose is reliable "
        "stand beside it. "
        "Not for clinical use.",
    )
    report.cards(_cards(rows, found, together))
    report.notes(notes)
    if together is not None:
        _add_together(report, together, found)
    _add_failures(report, [row for row in rows if row.error])
    _add_unreliable(report, [row for row in found if not row.found.ok])
    if len(found) > 2:
        report.heading("Similarity", "Frame after frame, of those that were located.")
        values = [0.0 if math.isnan(row.found.similarity) else row.found.similarity for row in found]
        report.chart(line_chart([Series("similarity", values, "var(--c0)")], x_label="frame", y_label="similarity"))
    add_deformations(report, found)
    _add_pictures(report, chosen(found), volume, job)
    _add_poses(report, found)
    report.facts(provenance(device="cpu"))
    return report


def _add_together(report: Report, together: Together, found: Sequence[Row]) -> None:
    """The pose of the body, what is wrong with it, and how far each frame would go from where the body has it."""
    report.heading("Together", f"{together.pose}. {together.whole.verdict}.")
    rows = zip(found, together.freed_mm, together.counts, strict=True)
    cells = [
        [row.task.shown, str(row.task.index), _one_digit(freed), "" if counts else "left out", row.found.verdict]
        for row, freed, counts in rows
    ]
    report.table(["file", "frame", "mm that it goes by itself", "", "verdict"], cells, style="words")


def _one_digit(value_mm: float) -> str:
    return "" if math.isnan(value_mm) else f"{value_mm:.1f}"


def _cards(rows: Sequence[Row], found: Sequence[Row], together: Together | None) -> dict[str, str]:
    tally = Tally.of(rows)
    cards = {"may be relied on": f"{tally.ok} of {tally.frames}"}
    others = {"refused": tally.refused, "not judged": tally.silent, "failed": tally.failed}
    cards |= {name: str(count) for name, count in others.items() if count}
    if found:
        cards["median similarity"] = f"{median(row.found.similarity for row in found):.3f}"
        if together is None:
            cards["median time per frame"] = f"{median(row.found.time_ms for row in found):.0f} ms"
        else:
            cards["time of all frames"] = f"{together.whole.time_ms / 1e3:.1f} s"
    return cards


def _add_failures(report: Report, failed: Sequence[Row]) -> None:
    if failed:
        report.heading("Frames that failed")
        cells = [[row.task.shown, str(row.task.index), row.error] for row in failed[:_MOST_ROWS]]
        report.table(["file", "frame", "why"], cells, style="words")


def _add_unreliable(report: Report, unreliable: Sequence[Row]) -> None:
    if unreliable:
        report.heading("Poses that may not be relied on", "The frame was placed, but nobody should trust where.")
        cells = [
            [row.task.shown, str(row.task.index), Assessment.of(row.result).text] for row in unreliable[:_MOST_ROWS]
        ]
        report.table(["file", "frame", "what is known of the pose"], cells, style="words")


def _add_poses(report: Report, found: Sequence[Row]) -> None:
    if not found:
        return
    report.heading("Poses", "All of them, with notes, are in poses.csv." if len(found) > _MOST_ROWS else "")
    columns = ["file", "frame", "x mm", "y mm", "z mm", "rx deg", "ry deg", "rz deg", "similarity"]
    columns += ["verdict", "expected mm", "95 % below", "confidence", "calibrated on"]
    cells = [_pose_cells(row) for row in found[:_MOST_ROWS]]
    report.table([*columns, "ms", "notes"], cells, style="tight")


def _pose_cells(row: Row) -> list[str]:
    result = row.found
    numbers = [f"{n:.2f}" for n in (*result.pose.translation_mm, *result.pose.euler_deg)]
    return [
        row.task.shown,
        str(row.task.index),
        *numbers,
        f"{result.similarity:.3f}",
        *_verdict_cells(result),
        f"{result.time_ms:.0f}",
        "; ".join(row.notes),
    ]


def _verdict_cells(result: Result) -> tuple[str, ...]:
    told = Assessment.of(result)
    lengths = ("" if value is None else f"{value:.1f}" for value in (told.expected_mm, told.bound_mm))
    return told.state, *lengths, "" if told.confidence is None else f"{told.confidence:.2f}", told.calibrated_on


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
    """What is not ok first; by what is expected where there are verdicts, else by similarity."""
    result = row.found
    doubt = result.expected_mm if math.isfinite(result.expected_mm) else 0.0 if result.ok is None else math.inf
    return -doubt, -math.inf if math.isnan(result.similarity) else result.similarity


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
        frame = small(cine_of(job.reading, row.task.path)[row.task.index], widest=_WIDEST)
        cut = torch.from_numpy(resliced_image(volume, frame, row.found.pose).array)[0]
        pictures = _strip(frame.array, cut)
        deformation = row.found.deformation
        if deformation is not None and deformation.is_significant:
            pictures.append(Picture(f"deformation, drawn {DRAWN:g} times as large", deformed_grid(frame, deformation)))
        report.strip(f"{row.found.similarity:.3f}", row.task.label, pictures)


def _strip(image: Tensor, cut: Tensor) -> list[Picture]:
    both = field_of_view(image) & (cut > 0)
    return [
        Picture("frame", grey_pixels(unit_range(image))),
        Picture("volume at the pose", grey_pixels(unit_range(cut))),
        Picture("difference", difference_pixels(image, cut, both)),
    ]
