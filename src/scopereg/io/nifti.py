"""Headers of NIfTI files, for what ITK does not tell: sizes it makes up, and two orientations that disagree."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from scopereg.errors import ScopeRegError

Matrix = npt.NDArray[np.float64]
_RAS_TO_LPS = np.diag([-1.0, -1.0, 1.0, 1.0])
_DISAGREE = 0.1  # voxels at the far corner
_SAME_SIZE = 0.01  # relative difference between two statements of a voxel's size
_MILLIMETRES = (0, 2)  # unit codes: not stated, millimetres
_UNITS = {1: "metres", 3: "micrometres"}


class NiftiHeader(NamedTuple):
    """What a header says of the grid; matrices take voxels x, y, z to RAS mm, None where not stated."""

    size: tuple[int, ...]  # x, y, z
    spacing: tuple[float, ...]  # x, y, z, of up to three axes
    units: int
    qform: Matrix | None
    sform: Matrix | None


def read_nifti_header(path: Path) -> NiftiHeader:
    """The grid of a NIfTI-1 or NIfTI-2 file."""
    opener: Any = gzip.open if path.name.lower().endswith(".gz") else open
    try:
        with opener(path, "rb") as file:
            return _parse(file.read(540))
    except (OSError, EOFError, zlib.error, struct.error) as error:
        raise ScopeRegError(
            f"its header cannot be read: {error}", where=str(path), fix="copy or download the file again"
        ) from None


def orientation_notes(header: NiftiHeader, origin_mm: Any, direction: Matrix, path: Path) -> list[str]:
    """Sentences on the orientation that ITK chose (origin and direction in LPS); an error where sizes contradict."""
    if header.units not in _MILLIMETRES:
        raise ScopeRegError(
            f"its unit is {_UNITS.get(header.units, f'unknown, code {header.units}')}",
            where=str(path),
            fix="store sizes and places in millimetres",
        )
    forms = {"sform": header.sform, "qform": header.qform}
    stated = {name: _RAS_TO_LPS @ form for name, form in forms.items() if form is not None}
    if not stated:
        return ["the NIfTI header states no orientation; its axes are taken as LPS"]
    used = min(stated, key=lambda name: _distance(stated[name], origin_mm, direction, header))
    sizes = np.linalg.norm(stated[used][:3, :3], axis=0)[: len(header.spacing)]
    if used == "sform" and not np.allclose(sizes, header.spacing, rtol=_SAME_SIZE, atol=0):
        listed = [" x ".join(f"{step:.4g}" for step in steps) for steps in (sizes, header.spacing)]
        raise ScopeRegError(
            f"the NIfTI header contradicts itself: voxels of {listed[0]} mm by its sform, {listed[1]} mm by pixdim",
            where=str(path),
            fix="store the volume again with the right size of a voxel",
        )
    if len(stated) == 2 and _corner_gap(stated["sform"], stated["qform"], header) > _DISAGREE * min(header.spacing):
        return [f"sform and qform of the NIfTI header disagree; the {used} is used"]
    return []


def _parse(header: bytes) -> NiftiHeader:
    for order in "<>":
        (length,) = struct.unpack_from(f"{order}i", header)
        if length in (348, 540):
            return _parse_version(header, order, first=length == 348)
    raise struct.error("not a NIfTI header")


def _parse_version(header: bytes, order: str, *, first: bool) -> NiftiHeader:
    def numbers(form: str, at: int) -> tuple[Any, ...]:
        return struct.unpack_from(order + form, header, at)

    dims = numbers("8h", 40) if first else numbers("8q", 16)
    pixdim = numbers("8f", 76) if first else numbers("8d", 104)
    codes = numbers("2h", 252) if first else numbers("2i", 344)
    rotation = numbers("6f", 256) if first else numbers("6d", 352)  # quaternion b, c, d, then the offset
    rows = numbers("12f", 280) if first else numbers("12d", 400)
    (units,) = numbers("B", 123) if first else numbers("i", 500)
    axes = min(max(int(dims[0]), 0), 3)
    size = tuple(max(int(n), 1) for n in dims[1:4])
    spacing = tuple(float(step) for step in pixdim[1 : 1 + axes])
    qform = _quaternion_matrix(rotation, pixdim) if codes[0] > 0 else None
    sform = np.vstack([np.reshape(rows, (3, 4)), [0, 0, 0, 1]]) if codes[1] > 0 else None
    return NiftiHeader(size, spacing, int(units) & 7, qform, sform)


def _quaternion_matrix(rotation: tuple[float, ...], pixdim: tuple[float, ...]) -> Matrix:
    b, c, d, *offset = rotation
    a = np.sqrt(max(1 - b * b - c * c - d * d, 0.0))
    matrix = np.eye(4)
    matrix[:3, :3] = [
        [a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c)],
        [2 * (b * c + a * d), a * a + c * c - b * b - d * d, 2 * (c * d - a * b)],
        [2 * (b * d - a * c), 2 * (c * d + a * b), a * a + d * d - b * b - c * c],
    ]
    handed = -1.0 if pixdim[0] < 0 else 1.0
    matrix[:3, :3] *= [pixdim[1], pixdim[2], handed * pixdim[3]]
    matrix[:3, 3] = offset
    return matrix


def _distance(form: Matrix, origin_mm: Any, direction: Matrix, header: NiftiHeader) -> float:
    axes = direction.shape[0]
    taken = np.eye(4)
    taken[:axes, :axes] = direction * np.array(header.spacing)
    taken[:axes, 3] = origin_mm
    return _corner_gap(form, taken, header)


def _corner_gap(one: Matrix, other: Matrix, header: NiftiHeader) -> float:
    """Largest distance in mm between where two matrices put a corner of the grid."""
    last = [n - 1 for n in header.size]
    corners = np.array([[x, y, z, 1] for x in (0, last[0]) for y in (0, last[1]) for z in (0, last[2])], np.float64)
    return float(np.linalg.norm(corners @ (one - other).T, axis=1).max())
