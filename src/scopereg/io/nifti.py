"""NIfTI-1 and NIfTI-2 in one file (.nii, .nii.gz): header and voxels in, volumes out.

Which of the two orientations of a header counts is ITK's choice, so that a volume lies here where 3D Slicer shows it.
"""

from __future__ import annotations

import math
import re
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from scopereg.errors import ScopeRegError
from scopereg.io.formats import (
    GET_AGAIN,
    NO_PLACE,
    Format,
    ImageFile,
    ImageHeader,
    Matrix,
    check_sizes,
    checked_grid,
    numbers_kind,
)
from scopereg.io.packed import GZIP, RAW, Packed, first_bytes, packed_parts, voxels_elsewhere

_RAS_TO_LPS = np.diag([-1.0, -1.0, 1.0, 1.0])
_DISAGREE = 0.1  # voxels at the far corner
_COARSE_RAD = 3e-3  # what float32 leaves of an angle near half a turn
_FARTHEST_MM = 1e9
_SAME_SIZE = 0.01  # relative difference between two statements of a voxel's size
_SAME_FORM = 1e-4
_SCANNER = 1  # code of a form that the scanner wrote
_UNKNOWN, _MM = 0, 2  # units
_UNITS = {1: "metres", 3: "micrometres"}
_VECTORS = (1005, 1007)  # intents of several numbers in each voxel: symmetric matrix, vector
_STEPS_S = {8: 1.0, 16: 1e-3, 24: 1e-6}
_TYPES = {2: "u1", 4: "i2", 8: "i4", 16: "f4", 64: "f8", 256: "i1", 512: "u2", 768: "u4", 1024: "i8", 1280: "u8"}
_COLOURS = {128: 3, 2304: 4}  # bytes of a voxel
_LONGEST = 540
_LAYOUTS: dict[int, dict[str, tuple[str, int]]] = {  # by the length of the header: format and place of the fields
    348: {
        "magic": ("4s", 344),
        "dim": ("8h", 40),
        "intent": ("h", 68),
        "datatype": ("h", 70),
        "bits": ("h", 72),
        "pixdim": ("8f", 76),
        "offset": ("f", 108),
        "scale": ("2f", 112),
        "units": ("B", 123),
        "description": ("80s", 148),
        "codes": ("2h", 252),
        "quaternion": ("6f", 256),
        "rows": ("12f", 280),
    },
    540: {
        "magic": ("8s", 4),
        "dim": ("8q", 16),
        "intent": ("i", 504),
        "datatype": ("h", 12),
        "bits": ("h", 14),
        "pixdim": ("8d", 104),
        "offset": ("q", 168),
        "scale": ("2d", 176),
        "units": ("i", 500),
        "description": ("80s", 240),
        "codes": ("2i", 344),
        "quaternion": ("6d", 352),
        "rows": ("12d", 400),
    },
}
_SEQUENCE = re.compile(rb"\b(TE|TR|TI)\s*=\s*\d")  # times of an MR sequence, as converters of DICOM describe it
# In the description of a volume that is not known to lie in a patient: every form says left, back and head.
_NO_PATIENT = b"axes of no patient"
_MAGIC = {348: (b"n+1\0", b"ni1\0"), 540: (b"n+2\0\r\n\x1a\n", b"ni2\0\r\n\x1a\n")}  # one file, two files


class _Fields(NamedTuple):
    """A header as stored."""

    length: int
    order: str
    magic: bytes
    dim: tuple[int, ...]
    intent: int
    datatype: int
    bits: int
    pixdim: tuple[float, ...]
    offset: float
    scale: tuple[float, float]
    units: int
    description: bytes
    codes: tuple[int, int]  # qform, sform
    quaternion: tuple[float, ...]  # b, c, d, then the offset
    rows: tuple[float, ...]


class _Voxels(NamedTuple):
    packed: Packed
    slope: float
    intercept: float


def read_header(path: Path, detached: bool = False) -> ImageHeader:
    """The grid of a NIfTI-1 or NIfTI-2 file, in LPS."""
    encoding = GZIP if path.name.lower().endswith(".gz") else RAW
    try:
        fields = _fields(first_bytes(path, _LONGEST, encoding))
    except (OSError, struct.error) as error:
        raise ScopeRegError(f"its NIfTI header cannot be read: {error}", where=str(path), fix=GET_AGAIN) from None
    size, components = _sizes(fields, path)
    spacing, stated = _spacing(fields, size, path)
    unit = _unit_notes(fields, path)
    scale = ("the slope of the NIfTI header is NaN; values are taken as stored",) if math.isnan(fields.scale[0]) else ()
    origin, direction, notes = _placed(fields, size, spacing, stated, path)
    dtype = _dtype(fields, path)
    shape = (components, *size[::-1]) if components > 1 else size[::-1]
    start = _voxel_offset(fields, path)
    begin, skip = (0, start) if encoding == GZIP else (start, 0)
    packed = Packed(path, shape, dtype, encoding, begin, skip)
    axes = len(size)
    turned = np.eye(axes)
    turned[: min(axes, 3), : min(axes, 3)] = direction[: min(axes, 3), : min(axes, 3)]
    header = ImageHeader(
        size,
        spacing,
        turned,
        numbers_kind(dtype, components),
        components,
        (*origin[:axes], *[0.0] * (axes - 3)),
        stated,
        (*unit, *scale, *notes),
        (path,),
        _Voxels(packed, *_scale(fields, path)),
        max(fields.codes) > 0 and not fields.description.startswith(_NO_PATIENT),
        "MR" if _SEQUENCE.search(fields.description) else "",
    )
    return checked_grid(header, str(path))


def read_voxels(header: ImageHeader) -> npt.NDArray[Any]:
    """The voxels, slowest axis first, after the slope and intercept of the header, if it has some."""
    packed, slope, intercept = header.source
    values: npt.NDArray[Any] = packed.read()
    if (slope, intercept) == (1.0, 0.0):
        return values
    scaled = values.astype(np.float64 if values.dtype == np.float64 else np.float32)
    scaled *= slope
    scaled += intercept
    return scaled


def write(path: Path, image: ImageFile) -> None:
    """A volume as NIfTI-1; compressed by the ending."""
    array, spacing, origin, direction, anatomical = image
    array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    if max(array.shape) >= 2**15:
        raise ScopeRegError(
            f"{max(array.shape)} voxels in a row are too many for NIfTI", where=str(path), fix="use .nrrd or .mha"
        )
    ras = _RAS_TO_LPS[:3, :3] @ direction
    handed = 1.0 if np.linalg.det(ras) > 0 else -1.0
    place = _RAS_TO_LPS[:3, :3] @ np.asarray(origin)
    codes = {kind: code for code, kind in _TYPES.items()}
    values: dict[str, Any] = {
        "magic": (_MAGIC[348][0],),
        "dim": (array.ndim, *array.shape[::-1], *[1] * (7 - array.ndim)),
        "intent": (0,),
        "datatype": (codes[array.dtype.str[1:]],),
        "bits": (array.dtype.itemsize * 8,),
        "pixdim": (handed, *spacing, *[1.0] * (7 - array.ndim)),
        "offset": (352.0,),
        "scale": (1.0, 0.0),
        "units": (_MM,),
        "description": (b"" if anatomical else _NO_PATIENT,),
        "codes": (_SCANNER, _SCANNER),
        "quaternion": (*_quaternion(ras * [1, 1, handed]), *place),
        "rows": tuple(np.column_stack([ras * np.asarray(spacing), place]).ravel()),
    }
    content = bytearray(352)
    struct.pack_into("<i", content, 0, 348)
    for name, (form, at) in _LAYOUTS[348].items():
        struct.pack_into(f"<{form}", content, at, *values[name])
    with path.open("wb") as file:
        parts = (bytes(content), array.tobytes())
        file.writelines(packed_parts(parts, GZIP if path.name.endswith(".gz") else RAW))


FORMATS = (Format((".nii.gz", ".nii"), read_header, read_voxels, write),)


def _fields(content: bytes) -> _Fields:
    for order in "<>":
        (length,) = struct.unpack_from(f"{order}i", content)
        if length in _LAYOUTS:
            found: dict[str, Any] = {}
            for name, (form, at) in _LAYOUTS[length].items():
                numbers = struct.unpack_from(order + form, content, at)
                found[name] = numbers[0] if len(numbers) == 1 else numbers
            return _Fields(length, order, **found)
    raise struct.error("not a NIfTI header")


def _sizes(fields: _Fields, path: Path) -> tuple[tuple[int, ...], int]:
    """Voxels along x, y(, z, t), and numbers in each voxel."""
    one_file, two_files = _MAGIC[fields.length]
    if fields.magic == two_files:
        raise voxels_elsewhere(path)
    if fields.magic != one_file:
        raise ScopeRegError("it is no NIfTI file: its mark is missing", where=str(path), fix=GET_AGAIN)
    axes = fields.dim[0]
    sizes = fields.dim[1 : 1 + axes] if 1 <= axes <= 7 else ()
    if not sizes or min(sizes) < 1:
        raise ScopeRegError(f"its sizes are {fields.dim}", where=str(path), fix=GET_AGAIN)
    components = _COLOURS.get(fields.datatype, 1)
    if fields.intent in _VECTORS and axes == 5:
        components, sizes = sizes[4], sizes[:4]
    while len(sizes) > 3 and sizes[-1] == 1:
        sizes = sizes[:-1]
    check_sizes(tuple(sizes), str(path))
    return tuple(sizes), components


def _spacing(fields: _Fields, size: tuple[int, ...], path: Path) -> tuple[tuple[float, ...], bool]:
    """Size of a voxel along all axes, and whether the header states it: 0 is said to state nothing."""
    space = [float(step) for step in fields.pixdim[1 : 1 + min(len(size), 3)]]
    if not all(math.isfinite(step) and step >= 0 for step in space):
        listed = " x ".join(f"{step:g}" for step in space)
        raise ScopeRegError(
            f"its voxels measure {listed} mm", where=str(path), fix="store the file again with positive sizes in mm"
        )
    stated = all(step > 0 for step, count in zip(space, size, strict=False) if count > 1)
    spacing = [step or 1.0 for step in space]
    for step in fields.pixdim[4 : 1 + len(size)]:
        seconds = step * _STEPS_S.get(fields.units & 0x38, 1.0)
        spacing.append(seconds if math.isfinite(seconds) and seconds > 1e-6 else 1.0)
    return tuple(spacing), stated


def _unit_notes(fields: _Fields, path: Path) -> tuple[str, ...]:
    unit = fields.units & 7
    if unit == _UNKNOWN:
        return ("the NIfTI header states no unit; its sizes are taken as mm",)
    if unit != _MM:
        raise ScopeRegError(
            f"its unit is {_UNITS.get(unit, f'unknown, code {unit}')}",
            where=str(path),
            fix="store sizes and places in millimetres",
        )
    return ()


def _dtype(fields: _Fields, path: Path) -> np.dtype[Any]:
    kind = "u1" if fields.datatype in _COLOURS else _TYPES.get(fields.datatype)
    if kind is None:
        raise ScopeRegError(
            f"its voxels are of NIfTI's type {fields.datatype}",
            where=str(path),
            fix="store whole or real numbers of 8 to 64 bits, one for each voxel",
        )
    dtype = np.dtype(fields.order + kind)
    if fields.bits not in (0, dtype.itemsize * 8 * _COLOURS.get(fields.datatype, 1)):
        raise ScopeRegError(
            f"the NIfTI header contradicts itself: {fields.bits} bits a voxel of type {fields.datatype}",
            where=str(path),
            fix=GET_AGAIN,
        )
    return dtype


def _voxel_offset(fields: _Fields, path: Path) -> int:
    least = fields.length + 4
    if not (math.isfinite(fields.offset) and least <= fields.offset < 2**40 and fields.offset == int(fields.offset)):
        raise ScopeRegError(
            f"its voxels are said to begin at byte {fields.offset:g}, its header is {least} bytes long",
            where=str(path),
            fix=GET_AGAIN,
        )
    return int(fields.offset)


def _scale(fields: _Fields, path: Path) -> tuple[float, float]:
    """Slope and intercept; a slope of 0 says that there are none, and so do programs by NaN."""
    slope, intercept = fields.scale
    if slope == 0 or math.isnan(slope):
        return 1.0, 0.0
    if not (math.isfinite(slope) and math.isfinite(intercept)):
        raise ScopeRegError(
            f"its values are scaled by {slope:g} and {intercept:g}",
            where=str(path),
            fix="set scl_slope and scl_inter of the header to 1 and 0, if its values are not scaled",
        )
    return slope, intercept


def _placed(
    fields: _Fields, size: tuple[int, ...], spacing: tuple[float, ...], stated: bool, path: Path
) -> tuple[tuple[float, ...], Matrix, list[str]]:
    """Origin and direction in LPS by the form that ITK takes, and notes; an error where sizes contradict."""
    forms = {}
    if fields.codes[1] > 0:
        forms["sform"] = np.vstack([np.reshape(fields.rows, (3, 4)), [0, 0, 0, 1]])
    if fields.codes[0] > 0:
        forms["qform"] = _qform(fields, (*spacing, 1.0, 1.0)[:3], path)
    if not forms:
        return (0.0, 0.0, 0.0), np.eye(3), [f"the NIfTI header {NO_PLACE}; its axes are taken as LPS"]
    for name, form in forms.items():
        if not np.abs(form).max() < _FARTHEST_MM:  # NaN is not either
            raise ScopeRegError(
                f"its {name} holds numbers that are no places", where=str(path), fix="store its orientation again"
            )
    lps = {name: _RAS_TO_LPS @ form for name, form in forms.items()}
    used = _chosen(fields, lps, path)
    lengths = np.linalg.norm(lps[used][:3, :3], axis=0)
    space = spacing[: min(len(size), 3)]
    if stated and used == "sform" and not np.allclose(lengths[: len(space)], space, rtol=_SAME_SIZE, atol=0):
        listed = [" x ".join(f"{step:.4g}" for step in steps) for steps in (lengths[: len(space)], space)]
        raise ScopeRegError(
            f"the NIfTI header contradicts itself: voxels of {listed[0]} mm by its sform, {listed[1]} mm by pixdim",
            where=str(path),
            fix="store the volume again with the right size of a voxel",
        )
    notes = []
    if len(lps) == 2 and _disagree(lps["sform"], lps["qform"], size, fields):
        notes.append(f"sform and qform of the NIfTI header disagree; the {used} is used")
    return tuple(lps[used][:3, 3].tolist()), lps[used][:3, :3] / lengths, notes


def _chosen(fields: _Fields, lps: dict[str, Matrix], path: Path) -> str:
    """The form that ITK takes: a square sform of the scanner, or one that says what the qform says, else the qform."""
    sform, qform = lps.get("sform"), lps.get("qform")
    if sform is not None and _is_square(sform):
        alike = qform is not None and np.allclose(sform, qform, atol=_SAME_FORM)
        if qform is None or fields.codes[1] == _SCANNER or alike:
            return "sform"
    if qform is not None:
        return "qform"
    raise ScopeRegError(
        "its axes are sheared: those of its sform are not orthonormal",
        where=str(path),
        fix="resample it to a square grid first, for example with 3D Slicer's Resample Scalar Volume",
    )


def _is_square(form: Matrix) -> bool:
    lengths = np.linalg.norm(form[:3, :3], axis=0)
    if lengths.min() == 0:
        return False
    axes = form[:3, :3] / lengths
    return bool(np.allclose(axes.T @ axes, np.eye(3), atol=1e-4))


def _qform(fields: _Fields, spacing: tuple[float, ...], path: Path) -> Matrix:
    b, c, d, *offset = fields.quaternion
    length = b * b + c * c + d * d
    if not length < 1.02:  # NaN too
        raise ScopeRegError(
            f"its qform is no rotation: {b:g}, {c:g}, {d:g}", where=str(path), fix="store its orientation again"
        )
    if length > 1 - 1e-7:
        b, c, d = (part / math.sqrt(length) for part in (b, c, d))
    a = math.sqrt(max(1 - length, 0.0)) if length <= 1 - 1e-7 else 0.0
    matrix = np.eye(4)
    matrix[:3, :3] = [
        [a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c)],
        [2 * (b * c + a * d), a * a + c * c - b * b - d * d, 2 * (c * d - a * b)],
        [2 * (b * d - a * c), 2 * (c * d + a * b), a * a + d * d - b * b - c * c],
    ]
    handed = -1.0 if fields.pixdim[0] < 0 else 1.0
    matrix[:3, :3] *= [spacing[0], spacing[1], handed * spacing[2]]
    matrix[:3, 3] = offset
    return matrix


def _quaternion(rotation: Matrix) -> tuple[float, float, float]:
    """b, c, d of a rotation, a not negative: the eigenvector of Bar-Itzhack's matrix, stable for any rotation."""
    xx, xy, xz, yx, yy, yz, zx, zy, zz = rotation.ravel()
    matrix = np.array(
        [
            [xx - yy - zz, yx + xy, zx + xz, zy - yz],
            [yx + xy, yy - xx - zz, zy + yz, xz - zx],
            [zx + xz, zy + yz, zz - xx - yy, yx - xy],
            [zy - yz, xz - zx, yx - xy, xx + yy + zz],
        ]
    )
    b, c, d, a = np.linalg.eigh(matrix / 3)[1][:, -1]
    sign = -1.0 if a < 0 else 1.0
    return float(sign * b), float(sign * c), float(sign * d)


def _disagree(sform: Matrix, qform: Matrix, size: tuple[int, ...], fields: _Fields) -> bool:
    """Whether the two put a corner elsewhere by more than a qform is good for: near half a turn its angle is coarse."""
    steps = np.linalg.norm(qform[:3, :3], axis=0)
    extent = float(np.linalg.norm(steps * [n - 1 for n in (*size, 1)[:3]]))
    half_turn = sum(part * part for part in fields.quaternion[:3]) > 1 - 1e-6
    allowed = _DISAGREE * min(steps[: len(size)]) + (_COARSE_RAD if half_turn else 0.0) * extent
    return _corner_gap(sform, qform, size) > allowed


def _corner_gap(one: Matrix, other: Matrix, size: tuple[int, ...]) -> float:
    """Largest distance in mm between where two matrices put a corner of the grid."""
    last = [n - 1 for n in (*size[:3], 1)[:3]]
    corners = np.array([[x, y, z, 1] for x in (0, last[0]) for y in (0, last[1]) for z in (0, last[2])], np.float64)
    return float(np.linalg.norm(corners @ (one - other).T, axis=1).max())
