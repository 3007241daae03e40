"""Recording: frames of a tracked sweep and a volume beside them, as MetaImage files that scopereg reads.

3D Slicer counts in RAS, the files in LPS. A recording is written as PLUS does, from pixels to mm of a frame of
reference called Reference, so that the size of a pixel, colours and crooked calibrations are judged by scopereg alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

_LPS_TO_RAS = np.diag([-1.0, -1.0, 1.0, 1.0])
_TYPES = {
    "i1": "MET_CHAR",
    "u1": "MET_UCHAR",
    "i2": "MET_SHORT",
    "u2": "MET_USHORT",
    "i4": "MET_INT",
    "u4": "MET_UINT",
    "i8": "MET_LONG_LONG",
    "u8": "MET_ULONG_LONG",
    "f4": "MET_FLOAT",
    "f8": "MET_DOUBLE",
}


class Recording(NamedTuple):
    """Frames as they were recorded; those of which the tracker knew nothing have no place."""

    images: Any  # (F, H, W), or (F, H, W, C) with colours
    pixel_to_reference_ras: Any  # (F, 4, 4): column and row to mm of the frame of reference, RAS
    placed: Sequence[bool]
    times_s: Sequence[float]
    note: str = ""  # what is left out, and why

    def write(self, path: Path) -> Path:
        """As a sequence of PLUS (.igs.mha)."""
        lines = [
            "Kinds = domain domain list",
            "UltrasoundImageOrientation = MF",
            "ElementSpacing = 1 1 1",  # the size of a pixel is in the transforms
        ]
        matrices_lps = _LPS_TO_RAS @ np.asarray(self.pixel_to_reference_ras)
        for row, (matrix, placed, time_s) in enumerate(zip(matrices_lps, self.placed, self.times_s)):
            field = f"Seq_Frame{row:04d}_ImageToReferenceTransform"
            lines += [
                f"{field} = {_words(matrix.ravel())}",
                f"{field}Status = {'OK' if placed else 'INVALID'}",
                f"Seq_Frame{row:04d}_Timestamp = {time_s!r}",
                f"Seq_Frame{row:04d}_ImageStatus = OK",
            ]
        return _write(path, np.asarray(self.images), lines, channels=np.ndim(self.images) == 4)


def write_volume(path: Path, voxels: Any, ijk_to_ras: Any) -> Path:
    """The voxels (K, J, I) of a volume node, in their place."""
    matrix = _LPS_TO_RAS @ np.asarray(ijk_to_ras, dtype=float)
    voxel_mm = np.linalg.norm(matrix[:3, :3], axis=0)
    if np.ndim(voxels) != 3 or voxel_mm.min() <= 0:
        raise ValueError("It is no volume of grey values in a place.")
    lines = [
        f"TransformMatrix = {_words((matrix[:3, :3] / voxel_mm).T.ravel())}",  # one axis after the other
        f"Offset = {_words(matrix[:3, 3])}",
        "CenterOfRotation = 0 0 0",
        f"ElementSpacing = {_words(voxel_mm)}",
    ]
    return _write(path, np.asarray(voxels), lines, channels=False)


def write_pose(path: Path, matrix_ras: Any) -> Path:
    """A rigid 4x4 matrix between spaces that 3D Slicer counts in RAS, as text between the same in LPS."""
    return write_whole(path, ["\n".join(_words(row) for row in turned(matrix_ras)).encode()])


def turned(matrix: Any) -> Any:
    """A transform between LPS spaces as one between RAS spaces, or back: both ends are turned."""
    return _LPS_TO_RAS @ np.asarray(matrix, dtype=float) @ _LPS_TO_RAS


def write_whole(path: Path, parts: Iterable[bytes]) -> Path:
    """Write a file whole or not at all."""
    aside = path.with_name(path.name + ".part")
    try:
        with aside.open("wb") as file:
            file.writelines(parts)
        os.replace(aside, path)
    finally:
        if aside.exists():
            aside.unlink()
    return path


def _write(path: Path, array: Any, lines: Sequence[str], *, channels: bool) -> Path:
    kind = array.dtype.newbyteorder("<").str[1:]
    if kind not in _TYPES:
        raise ValueError(f"Its pixels are {array.dtype}, which cannot be stored.")
    sizes = array.shape[: array.ndim - channels][::-1]
    head = [
        "ObjectType = Image",
        f"NDims = {len(sizes)}",
        "BinaryData = True",
        "BinaryDataByteOrderMSB = False",
        "CompressedData = False",
        *([f"ElementNumberOfChannels = {array.shape[-1]}"] if channels else []),
        f"DimSize = {' '.join(map(str, sizes))}",
        f"ElementType = {_TYPES[kind]}",
        *lines,
        "ElementDataFile = LOCAL\n",
    ]
    stored = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return write_whole(path, ["\n".join(head).encode(), stored.tobytes()])


def _words(numbers: Any) -> str:
    return " ".join(repr(float(number) + 0.0) for number in numbers)
