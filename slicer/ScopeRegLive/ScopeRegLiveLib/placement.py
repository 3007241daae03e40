"""Placement: where the frame lies in RAS, and how a slice view has to lie to show it upright and whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

_SQUARE = 1e-3  # cosine between rows and columns that is taken for rounding
_SAME_EXTENT = 0.02  # share that a frame may grow or shrink by before a view is fitted to it again
_MARGIN = 1.1  # of the view around the frame


class Placement(NamedTuple):
    """A frame in its place. All points are RAS, in mm, as everything in the scene of 3D Slicer."""

    slice_to_ras: Any  # (4, 4): origin in the middle of the frame, x along its rows, y up the picture, z out of it
    corners_ras: Any  # (4, 3): outer corners around the frame, from that at the first pixel along the first row
    extent_mm: tuple[float, float]  # width and height, with the halves of the pixels at the edges

    @property
    def centre_ras(self) -> Any:
        return self.slice_to_ras[:3, 3]

    def lies_in(self, bounds_ras: Sequence[float]) -> bool:
        """Whether the middle of the frame lies in a box: smallest and largest R, A and S, as VTK tells them."""
        low, high = np.asarray(bounds_ras, dtype=float).reshape(3, 2).T
        return bool(np.all((low <= self.centre_ras) & (self.centre_ras <= high)))


def same_extent(one: Placement | None, other: Placement | None) -> bool:
    """Whether two frames are about as large, so that a view that shows one shows the other."""
    if one is None or other is None:
        return one is other
    return all(abs(a - b) <= _SAME_EXTENT * max(a, b) for a, b in zip(one.extent_mm, other.extent_mm))


def placement_of(ijk_to_ras: Any, size: Sequence[int]) -> Placement | None:
    """The placement of an image of `size` columns and rows; None if its matrix places nothing."""
    matrix = np.asarray(ijk_to_ras, dtype=float)
    columns, rows = int(size[0]), int(size[1])
    if matrix.shape != (4, 4) or not np.isfinite(matrix).all() or min(columns, rows) < 1:
        return None
    along, down = matrix[:3, 0], matrix[:3, 1]
    pixel_mm = np.linalg.norm(along), np.linalg.norm(down)
    if min(pixel_mm) <= 0 or abs(along @ down) > _SQUARE * pixel_mm[0] * pixel_mm[1]:
        return None
    right, up = along / pixel_mm[0], -down / pixel_mm[1]  # a view has y up, a picture has its rows downwards
    slice_to_ras = np.eye(4)
    slice_to_ras[:3, :3] = np.column_stack([right, up, np.cross(right, up)])
    slice_to_ras[:3, 3] = (matrix @ ((columns - 1) / 2, (rows - 1) / 2, 0, 1))[:3]
    edges = np.array([(-0.5, -0.5), (columns - 0.5, -0.5), (columns - 0.5, rows - 0.5), (-0.5, rows - 0.5)])
    corners = edges @ matrix[:3, :2].T + matrix[:3, 3]
    return Placement(slice_to_ras, corners, (float(columns * pixel_mm[0]), float(rows * pixel_mm[1])))


def field_of_view_mm(extent_mm: Sequence[float], view_px: Sequence[int]) -> tuple[float, float]:
    """Width and height that a view of so many pixels must show so that all of the frame is in it."""
    width_px, height_px = max(int(view_px[0]), 1), max(int(view_px[1]), 1)
    mm_per_px = _MARGIN * max(extent_mm[0] / width_px, extent_mm[1] / height_px)
    return mm_per_px * width_px, mm_per_px * height_px
