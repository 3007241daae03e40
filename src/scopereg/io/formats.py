"""Formats of image files: what each of them tells of an image, and what a reader and a writer are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from scopereg.errors import ScopeRegError

Matrix = npt.NDArray[np.float64]
GET_AGAIN = "copy or download the file again"
NO_PLACE = "states no orientation"  # in the note of a reader whose file says nothing of its place
_LARGEST_MM = 1e6  # a kilometre: beyond it a header holds other bytes than it should
_SMALLEST_MM = 1e-6
_SQUARE = 1e-4  # geometry.ROTATION_TOLERANCE, which needs torch: processes that only read do without


class ImageFile(NamedTuple):
    """An image as stored."""

    array: npt.NDArray[Any]  # (y, x), (z, y, x) or (t, z, y, x)
    spacing_mm: tuple[float, ...]  # x, y, z(, t)
    origin_mm: tuple[float, ...]  # x, y, z(, t) in LPS
    direction: Matrix  # columns are the axes in LPS
    anatomical: bool = False  # whether these are known to be a patient's left, back and head


class ImageHeader(NamedTuple):
    """What a file says of its voxels, axes as stored, x first."""

    size: tuple[int, ...]
    spacing_mm: tuple[float, ...]  # 1 where the file states none
    direction: Matrix  # columns are the axes in LPS
    kind: str  # of numbers, in ITK's words
    components: int = 1  # numbers in each voxel
    origin_mm: tuple[float, ...] = ()
    states_spacing: bool = True
    notes: tuple[str, ...] = ()  # sentences on what the header leaves open
    files: tuple[Path, ...] = ()  # it lies in: the header first, the file with the voxels last
    source: Any = None  # whatever the format needs to read the voxels
    anatomical: bool = False  # whether it says that its axes are a patient's
    modality: str = ""  # that it says, in its own words

    @property
    def states_place(self) -> bool:
        """Whether the file says where its voxels lie; if not, readers say so in a note."""
        return not any(NO_PLACE in note for note in self.notes)


@dataclass(frozen=True)
class Format:
    """One kind of file. `read_header` gets the path, and whether the voxels may lie in another file beside it."""

    endings: tuple[str, ...]  # in lower case, with the dot
    read_header: Callable[[Path, bool], ImageHeader]
    read_voxels: Callable[[ImageHeader], npt.NDArray[Any]]  # slowest axis first
    write: Callable[[Path, ImageFile], None] | None = None
    detached: bool = False  # its voxels may lie in another file


def numbers_kind(dtype: np.dtype[Any], components: int = 1) -> str:
    """Kind of numbers in ITK's words."""
    bits = dtype.itemsize * 8
    name = f"{bits}-bit float" if dtype.kind == "f" else f"{bits}-bit {'un' * (dtype.kind == 'u')}signed integer"
    return name if components == 1 else f"vector of {name}"


def checked_grid(header: ImageHeader, where: str) -> ImageHeader:
    """The header, or an error where its sizes and places cannot be."""
    check_sizes(header.size, where)
    axes = len(header.size)
    for words, numbers in (("sizes of its voxels", header.spacing_mm), ("place of its first voxel", header.origin_mm)):
        if len(numbers) != axes or not (np.isfinite(numbers).all() and np.abs(numbers).max() < _LARGEST_MM):
            listed = ", ".join(f"{number:g}" for number in numbers)
            raise ScopeRegError(
                f"the {words} {'are' if words.startswith('s') else 'is'} {listed}",
                where=where,
                fix="store the file again with numbers in mm",
            )
    if min(header.spacing_mm) < _SMALLEST_MM:
        listed = " x ".join(f"{step:g}" for step in header.spacing_mm)
        raise ScopeRegError(
            f"its voxels measure {listed} mm", where=where, fix="store the file again with positive sizes in mm"
        )
    _check_axes(header.direction, axes, where)
    return header


def check_stated(header: ImageHeader, where: str) -> None:
    """An error for a file that does not state the size of its voxels, where nobody can be asked for it."""
    if not header.states_spacing:
        raise ScopeRegError(
            "it does not say how large a voxel is", where=where, fix="store it again with the size of its voxels"
        )


def check_sizes(size: tuple[int, ...], where: str) -> None:
    """An error unless they are those of a plane, a volume or a series of them."""
    if len(size) not in (2, 3, 4) or min(size) < 1:
        raise ScopeRegError(
            f"it has {len(size)} axes: {' x '.join(map(str, size))}",
            where=where,
            fix="store one plane, one volume or one series of them",
        )


def _check_axes(direction: Matrix, axes: int, where: str) -> None:
    """An error unless the axes in space are at right angles, of length one, and apart from time."""
    space = min(axes, 3)
    if direction.shape == (axes, axes) and np.isfinite(direction).all():
        inner = direction[:space, :space]
        gram = inner.T @ inner
        apart = not direction[space:, :space].any() and not direction[:space, space:].any()
        if apart and np.allclose(gram, np.eye(space), atol=_SQUARE):
            return
        lengths = np.linalg.norm(direction[:, :space], axis=0)
        if apart and np.allclose(lengths, 1, atol=_SQUARE):
            named = [("x", "y"), ("x", "z"), ("y", "z")] if space == 3 else [("x", "y")]
            cosines = [round(float(gram["xyz".index(a), "xyz".index(b)]), 4) for a, b in named]
            raise ScopeRegError(
                f"its axes are sheared: cosines {cosines} between {', '.join(' and '.join(pair) for pair in named)}",
                where=where,
                fix="resample it to a square grid first, for example with 3D Slicer's Resample Scalar Volume",
            )
    raise ScopeRegError(
        f"its axes are no directions in space: {np.asarray(direction).round(4).tolist()}",
        where=where,
        fix="store the file again with the directions of its axes",
    )
