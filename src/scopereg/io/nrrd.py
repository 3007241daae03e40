"""NRRD in one file (.nrrd) or with the voxels in a second (.nhdr): header and voxels in, volumes out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from scopereg.errors import ScopeRegError
from scopereg.io.formats import GET_AGAIN, NO_PLACE, Format, ImageFile, ImageHeader, Matrix, checked_grid, numbers_kind
from scopereg.io.packed import BZIP2, GZIP, RAW, TEXT, Packed, packed_parts, voxels_beside, voxels_elsewhere
from scopereg.io.text_header import TextFields, header_line

_MAGIC = re.compile(rb"NRRD000[1-5]\r?\n")
_LONGEST_HEADER = 2**20
_ALIASES = {
    "datafile": "data file",
    "lineskip": "line skip",
    "byteskip": "byte skip",
    "centerings": "centers",
    "axismins": "axis mins",
    "axismaxs": "axis maxs",
    "sampleunits": "sample units",
    "blocksize": "block size",
    "oldmin": "old min",
    "oldmax": "old max",
}
_KNOWN = {
    *("dimension", "type", "sizes", "encoding", "endian", "space", "space dimension", "space directions"),
    *("space origin", "space units", "spacings", "units", "kinds", "centers", "axis mins", "axis maxs", "data file"),
    *("line skip", "byte skip", "content", "labels", "thicknesses", "measurement frame", "number", "block size"),
    *("old min", "old max", "min", "max", "sample units"),
}
_TYPES = {
    "i1": ("signed char", "int8", "int8_t"),
    "u1": ("uchar", "unsigned char", "uint8", "uint8_t"),
    "i2": ("short", "short int", "signed short", "signed short int", "int16", "int16_t"),
    "u2": ("ushort", "unsigned short", "unsigned short int", "uint16", "uint16_t"),
    "i4": ("int", "signed int", "int32", "int32_t"),
    "u4": ("uint", "unsigned int", "uint32", "uint32_t"),
    "i8": ("longlong", "long long", "long long int", "signed long long", "signed long long int", "int64", "int64_t"),
    "u8": ("ulonglong", "unsigned long long", "unsigned long long int", "uint64", "uint64_t"),
    "f4": ("float",),
    "f8": ("double",),
}
_TYPE_OF = {name: kind for kind, names in _TYPES.items() for name in names}
_ENCODINGS = {
    **dict.fromkeys(("raw",), RAW),
    **dict.fromkeys(("gzip", "gz"), GZIP),
    **dict.fromkeys(("bzip2", "bz2"), BZIP2),
    **dict.fromkeys(("txt", "text", "ascii"), TEXT),
}
_DOMAIN = ("domain", "space", "time", "???", "none")  # kinds of axes along which voxels lie; all others hold numbers
_SPACES = {  # signs that take them to LPS
    "left-posterior-superior": (1, 1, 1),
    "right-anterior-superior": (-1, -1, 1),
    "left-anterior-superior": (1, -1, 1),
}
_SPACES[""] = (1, 1, 1)
_SHORT = {"lps": "left-posterior-superior", "ras": "right-anterior-superior", "las": "left-anterior-superior"}
_UNPLACED = ("scanner-xyz", "3d-right-handed", "3d-left-handed")  # millimetres of nobody knows what
_UNITS = ("mm", "millimeter", "millimeters", "millimetre", "millimetres", "???", "none", "")
_VECTOR = re.compile(r"none|\([^()]*\)")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_FARTHEST = 2**30  # bytes of an unpacked stream that are skipped


class _Axes(NamedTuple):
    """Axes along which voxels lie, in the order of the file, and where the header puts them."""

    rows: tuple[int, ...]
    spacing: tuple[float, ...]  # NaN where not stated
    direction: Matrix
    origin: tuple[float, ...]
    notes: tuple[str, ...]


def read_header(path: Path, detached: bool) -> ImageHeader:
    """The grid of an NRRD file, in LPS."""
    try:
        with path.open("rb") as file:
            fields = _fields(file, path)
            start = file.tell()
    except OSError as error:
        raise ScopeRegError(f"it cannot be read: {error}", where=str(path), fix=GET_AGAIN) from None
    (count,) = fields.whole("dimension", 1)
    if not 1 <= count <= 16:
        raise fields.error(f"it has {count} axes", "store one plane, volume or series of them")
    sizes = fields.whole("sizes", count)
    if min(sizes) < 1:
        raise fields.error(f"its sizes are {sizes}")
    axes = _axes(fields, count)
    components = int(np.prod([sizes[row] for row in range(count) if row not in axes.rows], dtype=object))
    packed = _packed(fields, path, sizes, start, detached)
    stated = all(np.isfinite(step) for step, row in zip(axes.spacing, axes.rows, strict=True) if sizes[row] > 1)
    header = ImageHeader(
        tuple(sizes[row] for row in axes.rows),
        tuple(step if np.isfinite(step) else 1.0 for step in axes.spacing),
        axes.direction,
        numbers_kind(packed.dtype, components),
        components,
        axes.origin,
        stated,
        axes.notes,
        (path,) if packed.path == path else (path, packed.path),
        packed,
        modality=fields.get("modality", ""),
    )
    return checked_grid(header, str(path))


def read_voxels(header: ImageHeader) -> npt.NDArray[Any]:
    """The voxels, slowest axis first."""
    packed: Packed = header.source
    return packed.read().reshape(header.size[::-1])


def write(path: Path, image: ImageFile) -> None:
    """A volume as compressed NRRD."""
    array, spacing, origin, direction = image[:4]
    array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    steps = np.asarray(direction) * np.asarray(spacing)
    lines = [
        "NRRD0004",
        f"type: {_TYPES[array.dtype.str[1:]][0]}",
        f"dimension: {array.ndim}",
        "space: left-posterior-superior",
        f"sizes: {' '.join(str(n) for n in array.shape[::-1])}",
        f"space directions: {' '.join(_vector(column) for column in steps.T)}",
        f"kinds: {' '.join(['domain'] * array.ndim)}",
        "endian: little",
        "encoding: gzip",
        f"space origin: {_vector(origin)}",
        *("", ""),
    ]
    with path.open("wb") as file:
        file.write("\n".join(lines).encode())
        file.writelines(packed_parts([array.tobytes()], GZIP))


FORMATS = (
    Format((".nrrd",), read_header, read_voxels, write),
    Format((".nhdr",), read_header, read_voxels, detached=True),
)


def _vector(numbers: Any) -> str:
    return f"({','.join(repr(float(number) + 0.0) for number in numbers)})"


def _fields(file: IO[bytes], path: Path) -> TextFields:
    """Fields up to the empty line, or the end of a header of its own."""
    fields = TextFields(path)
    if not _MAGIC.fullmatch(file.readline(16)):
        raise fields.error("it is no NRRD file: its first line is not NRRD0001 to NRRD0005")
    while line := header_line(file, path):
        if file.tell() > _LONGEST_HEADER:
            raise fields.error("its header does not end")
        if line.startswith("#"):
            continue
        name, mark, value = line.partition(":")
        if not mark:
            raise fields.error(f"its header holds a line that is no field: {line[:60]!r}")
        if value.startswith("="):  # words of the program that wrote it
            if name.strip().lower() == "modality":
                fields.setdefault("modality", value[1:].strip())
            continue
        name = _ALIASES.get(name.strip().lower(), name.strip().lower())
        if name not in _KNOWN:
            raise fields.error(f"its header holds {name[:60]!r}, which NRRD does not know")
        fields.add(name, value.strip())
        if name == "data file" and value.strip().upper().startswith("LIST"):
            break  # names of files follow instead of fields
    if line is None and "data file" not in fields:
        raise fields.error("it is cut short: its header does not end with an empty line")
    return fields


def _per_axis(fields: TextFields, name: str, count: int) -> list[str] | None:
    """Words of a field, one for each axis."""
    if name not in fields:
        return None
    words = fields[name].split()
    if len(words) != count:
        raise fields.error(f"{name!r} of its header holds {len(words)} entries for {count} axes")
    return [word.lower() for word in words]


def _axes(fields: TextFields, count: int) -> _Axes:
    kinds = _per_axis(fields, "kinds", count) or ["domain"] * count
    rows = tuple(row for row, kind in enumerate(kinds) if kind in _DOMAIN)
    _check_units(fields, count)
    if "space directions" in fields:
        return _placed_axes(fields, rows, count)
    for name in ("space origin", "space units"):
        if name in fields:
            raise fields.error(f"its header states {name!r} without 'space directions'")
    spacing = fields.real("spacings", count) if "spacings" in fields else (np.nan,) * count
    for row in rows:
        if np.isinf(spacing[row]) or spacing[row] <= 0:
            raise fields.error(f"its voxels measure {spacing[row]:g} mm", "store it again with positive sizes in mm")
    steps = tuple(spacing[row] for row in rows)
    note = f"the NRRD header {NO_PLACE}; its axes are taken as LPS"
    return _Axes(rows, steps, np.eye(len(rows)), _origin_of_mins(fields, rows, steps, count), (note,))


def _placed_axes(fields: TextFields, rows: tuple[int, ...], count: int) -> _Axes:
    """Axes by their directions in a space."""
    for name in ("spacings", "axis mins", "axis maxs", "units"):
        if name in fields and any(_said(word) for word in fields[name].split()):
            raise fields.error(f"its header states {name!r} beside 'space directions'")
    signs, notes = _space(fields)
    vectors = _VECTOR.findall(fields["space directions"])
    if len(vectors) != count or _VECTOR.sub("", fields["space directions"]).strip():
        raise fields.error(f"'space directions' of its header reads {fields['space directions'][:60]!r}")
    if any((vector == "none") == (row in rows) for row, vector in enumerate(vectors)):
        raise fields.error("its header gives an axis of numbers a direction in space, or an axis of voxels none")
    if len(signs) != len(rows):
        raise fields.error(f"it has {len(rows)} axes in a space of {len(signs)}", "store one plane or volume")
    steps = np.array([_numbers(fields, "space directions", vectors[row], len(signs)) for row in rows]).T
    steps = steps * np.array(signs)[:, None]
    lengths = np.linalg.norm(steps, axis=0)
    if not (np.isfinite(steps).all() and lengths.min() > 0):
        raise fields.error(
            f"'space directions' of its header reads {fields['space directions'][:60]!r}",
            "store it again with the directions of its axes in mm",
        )
    origin = np.zeros(len(signs))
    if "space origin" in fields and fields["space origin"].lower() != "none":
        origin = np.array(_numbers(fields, "space origin", fields["space origin"], len(signs))) * signs
    else:
        notes = (*notes, "the NRRD header states no origin; its first voxel is taken as 0, 0, 0")
    return _Axes(rows, tuple(lengths.tolist()), steps / lengths, tuple(origin.tolist()), notes)


def _space(fields: TextFields) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """Signs that take the axes of a space to LPS, and what is to be said of it."""
    if "space" in fields and "space dimension" in fields:
        raise fields.error("its header states both 'space' and 'space dimension'")
    if "space dimension" in fields:
        (count,) = fields.whole("space dimension", 1)
        if count not in (2, 3, 4):
            raise fields.error(f"it lies in a space of {count} dimensions", "store it in two or three")
        note = "the NRRD header does not say which way is left; its space is taken as LPS"
        return (1.0,) * count, (note,) if count > 2 else ()
    name = fields.get("space", "").lower()
    name = _SHORT.get(name, name)
    if name in _UNPLACED:
        return (1.0, 1.0, 1.0), (f"the space of the NRRD header is {name}; it is taken as LPS",)
    if name not in _SPACES or not name:
        raise fields.error(
            f"its space is {name[:40]!r}" if name else "its header lacks 'space'",
            f"store it in one of {', '.join(space for space in _SPACES if space)}",
        )
    x, y, z = _SPACES[name]
    return (float(x), float(y), float(z)), ()


def _check_units(fields: TextFields, count: int) -> None:
    for name in ("units", "space units"):
        if name not in fields:
            continue
        units = [unit.strip().lower() for unit in _QUOTED.findall(fields[name])]
        kinds = _per_axis(fields, "kinds", count) or ["domain"] * count
        for row, unit in enumerate(units):
            time = name == "units" and kinds[min(row, count - 1)] not in _DOMAIN[:2]
            if unit not in _UNITS and not time:
                raise fields.error(f"its unit is {unit[:20]!r}", "store sizes and places in millimetres")


def _origin_of_mins(fields: TextFields, rows: tuple[int, ...], steps: Any, count: int) -> tuple[float, ...]:
    """The centre of the first voxel, where a header without directions tells where the axes begin."""
    if "axis mins" not in fields:
        return (0.0,) * len(rows)
    mins = fields.real("axis mins", count)
    centers = _per_axis(fields, "centers", count) or ["cell"] * count
    origin = []
    for row, step in zip(rows, steps, strict=True):
        half = 0.0 if centers[row] == "node" else step / 2
        origin.append(mins[row] + half if np.isfinite(mins[row] + half) else 0.0)
    return tuple(origin)


def _numbers(fields: TextFields, name: str, vector: str, count: int) -> tuple[float, ...]:
    if not (vector.startswith("(") and vector.endswith(")")):
        raise fields.error(f"{name!r} of its header reads {vector[:60]!r}")
    return fields.real_of(name, vector[1:-1].split(","), count)


def _said(word: str) -> bool:
    return word.strip('"').lower() not in ("nan", "", "???", "none")


def _packed(fields: TextFields, path: Path, sizes: tuple[int, ...], start: int, detached: bool) -> Packed:
    """Where the voxels are. Skipped lines are those of the file, skipped bytes those of the unpacked stream."""
    encoding = _ENCODINGS.get(fields.get("encoding", "").lower())
    kind = _TYPE_OF.get(fields.get("type", "").lower())
    if encoding is None or kind is None:
        name = "type" if kind is None else "encoding"
        raise fields.error(
            f"{name!r} of its header reads {fields.get(name, '')[:40]!r}",
            "store real numbers, one for each voxel, raw or packed with gzip",
        )
    endian = fields.get("endian", "little" if kind[1:] == "1" or encoding == TEXT else "").lower()
    if endian not in ("little", "big"):
        raise fields.error(f"'endian' of its header reads {endian[:20]!r}", "write little or big")
    dtype = np.dtype(("<" if endian == "little" else ">") + kind)
    voxels = path
    if "data file" in fields:
        voxels, start = _data_file(fields, path, detached), 0
    lines, skip = (fields.whole(name, 1)[0] if name in fields else 0 for name in ("line skip", "byte skip"))
    if not (0 <= lines <= 2**20 and (skip >= 0 or (skip == -1 and encoding == RAW)) and skip < _FARTHEST):
        raise fields.error(f"its header says to skip {lines} lines and {skip} bytes")
    start += _lines_length(voxels, start, lines, fields) if lines else 0
    own = None if voxels == path else path
    packed = Packed(voxels, sizes[::-1], dtype, encoding, start, skip, header=own)
    if encoding in (RAW, TEXT):
        size = voxels.stat().st_size
        begin = size - packed.promised if skip == -1 else start + skip
        if not 0 <= begin <= size:
            raise fields.error(f"its header says to skip {skip} of {size} bytes")
        packed = Packed(voxels, sizes[::-1], dtype, encoding, begin, header=own)
    return packed


def _data_file(fields: TextFields, path: Path, detached: bool) -> Path:
    name = fields["data file"]
    if not detached:
        raise voxels_elsewhere(path)
    if name.upper().startswith("LIST") or "%" in name:
        raise fields.error("its voxels are in several files", "save it as one file, for example with 3D Slicer")
    return voxels_beside(path, name.removeprefix("./"))


def _lines_length(path: Path, start: int, lines: int, fields: TextFields) -> int:
    with path.open("rb") as file:
        file.seek(start)
        for line in _some_lines(file, lines):
            if not line.endswith(b"\n"):
                raise fields.error(f"its header says to skip {lines} lines, which are not there")
        return file.tell() - start


def _some_lines(file: IO[bytes], count: int) -> Iterator[bytes]:
    for _ in range(count):
        yield file.readline(2**16)
