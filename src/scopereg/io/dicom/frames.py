"""Ultrasound frames of DICOM files: single images and cines, cropped to the picture, in millimetres."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pydicom.dataset import Dataset

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import as_pair
from scopereg.io.cine import Cine
from scopereg.io.dicom.header import frame_count, identifiers, number, numbers, pixel_spacing_mm, read_dataset
from scopereg.io.dicom.pixels import decode_frame
from scopereg.io.dicom.regions import Region, choose_region, fitted_box
from scopereg.io.grey import grey_values
from scopereg.io.stored import given_spacing_note

PATIENT = "Patient"  # frame of reference of DICOM's positions


class _View(NamedTuple):
    """Which part of the image counts, the size of its pixels, and how that is known."""

    box: tuple[int, int, int, int]  # x, y of the first pixel, x, y after the last
    spacing_mm: tuple[float, float]
    facts: dict[str, Any]


def read_dicom_cine(
    path: Path, *, spacing_mm: float | Sequence[float] | None = None, region: int | None = None
) -> Cine:
    """The frames of a DICOM file. Pixels measure what the chosen ultrasound region says, else PixelSpacing.

    `spacing_mm` (x, y) is used instead where it is given; `region` chooses between several pictures on one screen.
    """
    dataset = read_dataset(path)
    size = tuple(int(number(dataset, key) or 0) for key in ("Columns", "Rows"))
    if min(size) < 1:
        raise ScopeRegError(
            "it holds no image", where=str(path), fix="pass an ultrasound image, not a report or a plan"
        )
    view = _view(dataset, (size[0], size[1]), spacing_mm, region, str(path))
    left, top, right, bottom = view.box
    count = frame_count(dataset)
    pose = _plane_pose(dataset)

    def decode(index: int) -> npt.NDArray[np.float32]:
        pixels = decode_frame(dataset, index, str(path))
        return grey_values(pixels[top:bottom, left:right], str(path), colours=pixels.ndim == 3)

    return Cine(
        path,
        count,
        view.spacing_mm,
        decode,
        origin_mm=(left * view.spacing_mm[0], top * view.spacing_mm[1]),
        times_s=_times_s(dataset, count),
        poses=(pose,) if pose is not None and count == 1 else None,
        facts={**view.facts, **identifiers(dataset)},
    )


def _view(
    dataset: Dataset, size: tuple[int, int], given: float | Sequence[float] | None, wanted: int | None, where: str
) -> _View:
    region = choose_region(dataset, where, wanted)
    box = fitted_box(region, size) if region is not None else None
    stated = region.spacing_mm if region is not None and box is not None else _stated_spacing(dataset)
    source = f"ultrasound region {region.item}" if region is not None and box is not None else "PixelSpacing"
    if given is not None:
        spacing = as_pair(given, "read_frame(spacing_mm)")
        facts: dict[str, Any] = {"spacing_from": "given", **given_spacing_note(spacing, stated, source)}
    elif region is not None and box is None:
        raise _resized(region, size, where)
    elif stated is not None:
        spacing, facts = stated, {"spacing_from": source}
    else:
        raise ScopeRegError(
            "it does not say how large a pixel is: no calibrated 2D ultrasound region, no PixelSpacing",
            where=where,
            fix="give the size of a pixel in mm: spacing_mm=",
        )
    if region is None or box is None:
        return _View((0, 0, *size), spacing, facts)
    return _View(box, spacing, {**facts, "region": region.item, "region_kind": region.kind, "crop_px": list(box)})


def _stated_spacing(dataset: Dataset) -> tuple[float, float] | None:
    """PixelSpacing of the image, or of the functional group that all frames of an enhanced image share."""
    found = pixel_spacing_mm(dataset)
    for group in dataset.get("SharedFunctionalGroupsSequence") or ():
        for measures in group.get("PixelMeasuresSequence") or ():
            found = found or pixel_spacing_mm(measures)
    return found


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
    return tuple(index * step_ms / 1e3 for index in range(count)) if step_ms else None


def _plane_pose(dataset: Dataset) -> Pose | None:
    """ImageToPatient of an image that tells its plane, as few ultrasound images do."""
    position = numbers(dataset, "ImagePositionPatient", 3)
    axes = numbers(dataset, "ImageOrientationPatient", 6)
    if position is None or axes is None:
        return None
    try:
        return Pose(np.stack([axes[:3], axes[3:], np.cross(axes[:3], axes[3:])], 1), position, "Image", PATIENT)
    except ScopeRegError:
        return None  # some scanners write zeros
