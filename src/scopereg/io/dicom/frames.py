"""Ultrasound frames of DICOM files: single images and cines, cropped to the picture, in millimetres.

Regions tell which part of the screen is the picture, and how large its pixels are.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pydicom.dataset import Dataset

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.image_fields import as_pair
from scopereg.io.cine import Cine, Stored
from scopereg.io.dicom.header import (
    SPACINGS_MM,
    identifiers,
    number,
    numbers,
    pixel_spacing_mm,
    place_mm,
    read_dataset,
    reading,
)
from scopereg.io.dicom.pixels import StoredPixels
from scopereg.io.overlays import Picture, Stillness, check_single, picture_of
from scopereg.io.stored import depths_note, given_spacing_note

PATIENT = "Patient"  # frame of reference of DICOM's positions
_TWO_D, _CM = 1, 3  # RegionSpatialFormat, PhysicalUnitsXDirection
_KINDS = {1: "tissue", 2: "colour flow"}  # RegionDataType; the others are curves
_SLACK = 2  # pixels that scanners let a region reach beyond the image
_RIVAL = 0.5  # share of the largest region's area from which another counts as a second picture


class Region(NamedTuple):
    """A calibrated 2D part of the image."""

    item: int  # number in the file's sequence of regions, from 0
    kind: str
    box: tuple[int, int, int, int]  # x, y of the first pixel, x, y after the last
    spacing_mm: tuple[float, float]  # x, y

    @property
    def area(self) -> int:
        left, top, right, bottom = self.box
        return max(right - left, 0) * max(bottom - top, 0)

    def __str__(self) -> str:
        left, top, right, bottom = self.box
        return f"{self.item} ({self.kind}, {right - left} x {bottom - top} pixels at {left}, {top})"


class _View(NamedTuple):
    """Which part of the image counts, the size of its pixels, and how that is known."""

    box: tuple[int, int, int, int]  # x, y of the first pixel, x, y after the last
    spacing_mm: tuple[float, float]
    facts: dict[str, Any]
    each_mm: tuple[tuple[float, float] | None, ...] = ()  # of each frame, where they differ; None: it does not say


def read_dicom_cine(
    path: Path, *, spacing_mm: float | Sequence[float] | None = None, region: int | None = None
) -> Cine:
    """The frames of a DICOM file. Pixels measure what the chosen ultrasound region says, else PixelSpacing.

    `spacing_mm` (x, y) is used instead where it is given; `region` chooses between several pictures on one screen.
    """
    dataset = read_dataset(path)
    with reading(path):
        if not (number(dataset, "Columns") and number(dataset, "Rows")):
            raise ScopeRegError(
                "it holds no image", where=str(path), fix="pass an ultrasound image, not a report or a plan"
            )
    pixels = StoredPixels(dataset, str(path))
    count, rows, columns, *_ = pixels.layout
    with reading(path):
        view = _view(dataset, (columns, rows), spacing_mm, region, str(path))
        pose, times_s = _plane_pose(dataset), _times_s(dataset, count)
        facts = {**view.facts, **identifiers(dataset)}
    left, top, right, bottom = view.box
    colours = pixels.layout.photometric not in ("MONOCHROME1", "MONOCHROME2")

    def cut(index: int) -> npt.NDArray[Any]:
        return pixels.frame(index)[top:bottom, left:right]

    still = Stillness(count if pixels.is_quick else 1, cut, str(path), colours=colours)

    def decode(index: int) -> Picture:
        picture = picture_of(cut(index), str(path), colours=colours, still=still.bits)
        if "region" not in view.facts:
            check_single(picture, str(path))
        return picture

    return Cine(
        path,
        count,
        view.spacing_mm,
        decode,
        spacings_mm=tuple(step or view.spacing_mm for step in view.each_mm) if view.each_mm else None,
        faults={row: "it does not say how large a pixel is" for row, step in enumerate(view.each_mm) if step is None},
        origin_mm=(left * view.spacing_mm[0], top * view.spacing_mm[1]),
        times_s=times_s,
        poses=(pose,) if pose is not None and count == 1 else None,
        facts=facts,
        stored=Stored((rows, columns), lambda drawn: drawn[top:bottom, left:right]),
    )


def _view(
    dataset: Dataset, size: tuple[int, int], given: float | Sequence[float] | None, wanted: int | None, where: str
) -> _View:
    region = choose_region(dataset, where, wanted)
    box = fitted_box(region, size) if region is not None else None
    stated = region.spacing_mm if region is not None and box is not None else _stated_spacing(dataset)
    source = f"ultrasound region {region.item}" if region is not None and box is not None else "PixelSpacing"
    each_mm: tuple[tuple[float, float] | None, ...] = ()
    if stated is None and region is None:
        each_mm, source = _spacings_of_frames(dataset), "PixelSpacing of each frame"
        stated = next(filter(None, each_mm), None)
        each_mm = each_mm if len(set(each_mm)) > 1 and given is None else ()
    if given is not None:
        spacing = as_pair(given, "read_frame(spacing_mm)")
        facts: dict[str, Any] = {"spacing_from": "given", **given_spacing_note(spacing, stated, source)}
    elif region is not None and box is None:
        raise _resized(region, size, where)
    elif stated is not None:
        notes = {"notes": [depths_note(filter(None, each_mm))]} if each_mm else {}
        spacing, facts = stated, {"spacing_from": source, **notes}
    else:
        raise ScopeRegError(
            "it does not say how large a pixel is: no calibrated 2D ultrasound region, no PixelSpacing",
            where=where,
            fix="give the size of a pixel in mm: spacing_mm=",
        )
    if region is None or box is None:
        return _View((0, 0, *size), spacing, facts, each_mm)
    return _View(box, spacing, {**facts, "region": region.item, "region_kind": region.kind, "crop_px": list(box)})


def _stated_spacing(dataset: Dataset) -> tuple[float, float] | None:
    """PixelSpacing of the image, or of the functional group that all frames of an enhanced image share."""
    found = pixel_spacing_mm(dataset)
    for group in dataset.get("SharedFunctionalGroupsSequence") or ():
        for measures in group.get("PixelMeasuresSequence") or ():
            found = found or pixel_spacing_mm(measures)
    return found


def _spacings_of_frames(dataset: Dataset) -> tuple[tuple[float, float] | None, ...]:
    """PixelSpacing of each frame of an enhanced image whose depth may change; nothing where there is none."""
    groups = dataset.get("PerFrameFunctionalGroupsSequence") or ()
    found = tuple(
        next(filter(None, map(pixel_spacing_mm, group.get("PixelMeasuresSequence") or ())), None) for group in groups
    )
    return found if len(found) == (number(dataset, "NumberOfFrames") or 1) else ()


def _resized(region: Region, size: tuple[int, int], where: str) -> ScopeRegError:
    return ScopeRegError(
        f"ultrasound region {region} reaches beyond the image of {size[0]} x {size[1]} pixels: "
        "it was resized or cropped after it was recorded, and its spacing no longer holds",
        where=where,
        fix="use the original file, or give the size of a pixel in mm: spacing_mm=",
    )


def _times_s(dataset: Dataset, count: int) -> tuple[float, ...] | None:
    steps_ms = numbers(dataset, "FrameTimeVector", count)
    if steps_ms is not None and count > 1:
        return tuple(float(time) / 1e3 for time in np.cumsum(steps_ms))
    step_ms = number(dataset, "FrameTime")
    return tuple(index * step_ms / 1e3 for index in range(count)) if step_ms and step_ms > 0 else None


def _plane_pose(dataset: Dataset) -> Pose | None:
    """ImageToPatient of an image that tells its plane, as few ultrasound images do."""
    position = place_mm(dataset, "ImagePositionPatient")
    axes = numbers(dataset, "ImageOrientationPatient", 6)
    if position is None or axes is None:
        return None
    try:
        return Pose(np.stack([axes[:3], axes[3:], np.cross(axes[:3], axes[3:])], 1), position, "Image", PATIENT)
    except ScopeRegError:
        return None  # some scanners write zeros


def choose_region(dataset: Dataset, where: str, wanted: int | None = None) -> Region | None:
    """The region that is the picture; None if the file describes none in centimetres.

    Of the 2D regions in cm those of tissue count, and only without any those of colour flow. Of several, the largest
    is taken; if another is at least half as large and not inside of it (two views side by side), the caller must tell
    which is `wanted`.
    """
    regions = list(_two_d_regions(dataset))
    if wanted is not None:
        chosen = [region for region in regions if region.item == wanted]
        if not chosen:
            held = ", ".join(map(str, regions)) or "none"
            raise ScopeRegError(f"there is no 2D region {wanted}; there are: {held}", where=where, fix="pass region=")
        return chosen[0]
    if not regions:
        return None
    best = min(region.kind != "tissue" for region in regions)
    regions = [region for region in regions if (region.kind != "tissue") == best]
    largest = max(regions, key=lambda region: region.area)
    rivals = [r for r in regions if r is not largest and r.area >= _RIVAL * largest.area and not _inside(r, largest)]
    if rivals:
        held = ", ".join(map(str, [largest, *rivals]))
        raise ScopeRegError(f"it shows several pictures: {held}", where=where, fix="choose one by its number: region=")
    return largest


def fitted_box(region: Region, size: tuple[int, int]) -> tuple[int, int, int, int] | None:
    """The box within an image of size x, y; None if it reaches beyond, which resized and cropped copies show."""
    left, top, right, bottom = region.box
    if left < 0 or top < 0 or right > size[0] + _SLACK or bottom > size[1] + _SLACK:
        return None
    return left, top, min(right, size[0]), min(bottom, size[1])


def _two_d_regions(dataset: Dataset) -> list[Region]:
    found = []
    for item, entry in enumerate(dataset.get("SequenceOfUltrasoundRegions") or ()):
        kind = _KINDS.get(int(number(entry, "RegionDataType") or 0))
        units = [number(entry, f"PhysicalUnits{axis}Direction") for axis in "XY"]
        steps = [abs(number(entry, f"PhysicalDelta{axis}") or 0.0) for axis in "XY"]
        edges = [number(entry, f"RegionLocation{edge}") for edge in ("MinX0", "MinY0", "MaxX1", "MaxY1")]
        sized = SPACINGS_MM[0] <= 10 * min(steps) <= 10 * max(steps) <= SPACINGS_MM[1]
        spatial = number(entry, "RegionSpatialFormat") == _TWO_D and units == [_CM, _CM] and sized
        if kind is None or not spatial or None in edges:
            continue
        left, top, right, bottom = (int(edge or 0) for edge in edges)
        region = Region(item, kind, (left, top, right + 1, bottom + 1), (10 * steps[0], 10 * steps[1]))
        if region.area:
            found.append(region)
    return found


def _inside(inner: Region, outer: Region) -> bool:
    return (
        inner.box[0] >= outer.box[0]
        and inner.box[1] >= outer.box[1]
        and inner.box[2] <= outer.box[2]
        and inner.box[3] <= outer.box[3]
    )
