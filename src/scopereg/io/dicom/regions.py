"""Regions of ultrasound images: which part of the screen is the picture, and how large its pixels are."""

from __future__ import annotations

from typing import NamedTuple

from pydicom.dataset import Dataset

from scopereg.errors import ScopeRegError
from scopereg.io.dicom.header import number

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
        spatial = number(entry, "RegionSpatialFormat") == _TWO_D and units == [_CM, _CM] and min(steps) > 0
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
