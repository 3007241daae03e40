"""MetaImage (.mha, .mhd): images, and sequences as PLUS has them, with fields of the file and of every frame."""

from __future__ import annotations

import re
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from scopereg.errors import ScopeRegError
from scopereg.io.files import write_bytes
from scopereg.io.formats import GET_AGAIN, Format, ImageFile, ImageHeader, checked_grid, numbers_kind
from scopereg.io.packed import RAW, TEXT, ZLIB, Packed, packed_parts, voxels_beside, voxels_elsewhere
from scopereg.io.text_header import TextFields, header_line

_TYPES = {
    "MET_CHAR": "i1",
    "MET_UCHAR": "u1",
    "MET_SHORT": "i2",
    "MET_USHORT": "u2",
    "MET_INT": "i4",
    "MET_UINT": "u4",
    "MET_LONG_LONG": "i8",
    "MET_ULONG_LONG": "u8",
    "MET_FLOAT": "f4",
    "MET_DOUBLE": "f8",
    "MET_LONG": "i4",  # as MetaIO has it
    "MET_ULONG": "u4",
}
_KINDS = {kind: name for name, kind in reversed(_TYPES.items())}
_FRAME_FIELD = re.compile(r"Seq_Frame(\d{1,9})_(\w+)")
_ORIGIN = ("Offset", "Position", "Origin")
_AXES = ("TransformMatrix", "Orientation", "Rotation")
_BYTE_ORDER = ("BinaryDataByteOrderMSB", "ElementByteOrderMSB")
_FIRST_FIELDS = (
    b"ObjectType",
    b"NDims",
    b"Comment",
)  # headers written by hand often leave ObjectType out, as ITK allows
_LONGEST_HEADER = 2**26  # bytes; 100,000 frames with three transforms each


class MetaSequence(NamedTuple):
    """What a file holds: fields as text, pixels as stored."""

    fields: dict[str, str]
    frames: list[dict[str, str]]  # one per frame
    images: npt.NDArray[Any]  # (F, H, W) or, with colours, (F, H, W, C)


class _Header(NamedTuple):
    """Fields of the file, fields of the frames by number, and where the pixels begin."""

    fields: TextFields
    frames: dict[int, dict[str, str]]
    start: int


def read_header(path: Path, detached: bool) -> ImageHeader:
    """The grid of a MetaImage file."""
    text = _text(path)
    fields = text.fields
    (axes,) = fields.whole("NDims", 1)
    sizes = fields.whole("DimSize", axes)
    channels = _channels(fields)
    if fields.get("DistanceUnits", "mm").lower() not in ("mm", "?"):
        raise fields.error(f"its unit is {fields['DistanceUnits'][:20]!r}", "store sizes and places in millimetres")
    name = "ElementSpacing" if "ElementSpacing" in fields else "ElementSize"
    spacing = fields.real(name, axes) if name in fields else (1.0,) * axes
    origin = _numbers(fields, _ORIGIN, axes) or (0.0,) * axes
    rows = _numbers(fields, _AXES, axes * axes)
    packed = _packed(text, path, (*sizes[::-1], *([channels] if channels > 1 else [])), detached)
    header = ImageHeader(
        sizes,
        spacing,
        np.eye(axes) if rows is None else np.reshape(rows, (axes, axes)).T,
        numbers_kind(packed.dtype, channels),
        channels,
        origin,
        name in fields,
        (),
        (path,) if packed.path == path else (path, packed.path),
        packed,
        modality=fields.get("Modality", ""),
    )
    return checked_grid(header, str(path))


def read_voxels(header: ImageHeader) -> npt.NDArray[Any]:
    """The voxels, slowest axis first."""
    packed: Packed = header.source
    return packed.read()


def write(path: Path, image: ImageFile) -> None:
    """A volume as compressed MetaImage."""
    fields = {
        "TransformMatrix": _words(np.asarray(image.direction).T.ravel()),
        "Offset": _words(image.origin_mm),
        "CenterOfRotation": _words([0] * image.array.ndim),
        "ElementSpacing": _words(image.spacing_mm),
    }
    path.write_bytes(_encoded(image.array, fields, [], compressed=True, channels=1))


FORMATS = (
    Format((".mha",), read_header, read_voxels, write),
    Format((".mhd",), read_header, read_voxels, detached=True),
)


def is_sequence(path: Path) -> bool:
    """Whether a file is a MetaImage with fields of frames."""
    return path.name.lower().endswith((".mha", ".mhd")) and bool(_text(path).frames)


def read_metaimage(path: Path | str) -> MetaSequence:
    """A sequence of 2D images; damaged, truncated and other files are refused."""
    path = Path(path)
    if not path.is_file():
        raise ScopeRegError("there is no such file", where=str(path), fix="check the name and the folder")
    text = _text(path)
    shape = _sequence_shape(text.fields)
    beyond = [number for number in text.frames if number >= shape[0]]
    if beyond:
        raise text.fields.error(f"its header tells of frame {beyond[0]}, of {shape[0]}")
    images = _packed(text, path, shape, path.name.lower().endswith(".mhd")).read(in_use=False)
    return MetaSequence(
        dict(text.fields),
        [text.frames.get(number, {}) for number in range(shape[0])],
        images.reshape(shape[:3] if shape[3] == 1 else shape),
    )


def write_metaimage(sequence: MetaSequence, path: Path | str, *, compressed: bool = True) -> Path:
    """Write a sequence to one .mha file, pixels included. The layout of the pixels follows `images`, not the fields."""
    path = Path(path)
    if path.suffix.lower() != ".mha":
        raise ScopeRegError(f"unknown ending {path.suffix!r}", where=str(path), fix="use .mha or .igs.mha")
    images = sequence.images
    channels = images.shape[3] if images.ndim == 4 else 1
    content = _encoded(images, sequence.fields, sequence.frames, compressed=compressed, channels=channels)
    return write_bytes(path, content)


def _encoded(
    array: npt.NDArray[Any],
    fields: dict[str, str],
    frames: list[dict[str, str]],
    *,
    compressed: bool,
    channels: int,
) -> bytes:
    """A whole file; fields on the layout of the pixels give way to what they are."""
    array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    content = array.tobytes()
    content = b"".join(packed_parts([content], ZLIB if compressed else RAW))
    sizes = array.shape[: array.ndim - (channels > 1)][::-1]
    layout = {
        "ObjectType": "Image",
        "NDims": str(len(sizes)),
        "BinaryData": "True",
        "BinaryDataByteOrderMSB": "False",
        "CompressedData": str(compressed),
        **({"CompressedDataSize": str(len(content))} if compressed else {}),
        **({"ElementNumberOfChannels": str(channels)} if channels > 1 else {}),
        "DimSize": " ".join(map(str, sizes)),
        "ElementType": _KINDS[array.dtype.str[1:]],
    }
    replaced = {*layout, "ElementByteOrderMSB", "ElementDataFile", "CompressedDataSize", "ElementNumberOfChannels"}
    layout |= {name: value for name, value in fields.items() if name not in {*replaced, "HeaderSize"}}
    lines = [f"{name} = {value}" for name, value in layout.items()]
    for number, values in enumerate(frames):
        lines += [f"Seq_Frame{number:04d}_{name} = {value}" for name, value in values.items()]
    header = "\n".join([*lines, "ElementDataFile = LOCAL", ""])
    return header.encode("latin-1") + content


def _words(numbers: Any) -> str:
    return " ".join(repr(float(number) + 0.0) for number in numbers)


def _text(path: Path) -> _Header:
    try:
        with path.open("rb") as file:
            return _parsed(file, path)
    except OSError as error:
        raise ScopeRegError(f"it cannot be read: {error}", where=str(path), fix=GET_AGAIN) from None


def _parsed(file: IO[bytes], path: Path) -> _Header:
    fields, frames = TextFields(path), dict[int, dict[str, str]]()
    first = file.readline(64)
    if first.partition(b"=")[0].strip() in _FIRST_FIELDS:
        file.seek(0)
        while file.tell() < _LONGEST_HEADER and (line := header_line(file, path)) is not None:
            name, mark, value = (part.strip() for part in line.partition("="))
            if not mark and name:
                if not file.read(1):
                    break  # cut short in the middle of a word
                raise fields.error(f"its header holds a line that is no field: {name[:60]!r}")
            match = _FRAME_FIELD.fullmatch(name)
            if match and match[2] in frames.setdefault(int(match[1]), {}):
                raise fields.error(f"its header states {name!r} twice")
            if match:
                frames[int(match[1])][match[2]] = value
            elif name:
                fields.add(name, value)
            if name == "ElementDataFile":
                if (kind := fields.get("ObjectType", "Image")) != "Image":
                    raise fields.error(f"it holds no image but {kind[:40]!r}")
                return _Header(fields, frames, file.tell())
    raise ScopeRegError(
        "not a MetaImage file: its header does not run from ObjectType or NDims to ElementDataFile",
        where=str(path),
        fix="pass a whole .mha or .mhd file",
    )


def _channels(fields: TextFields) -> int:
    (channels,) = fields.whole("ElementNumberOfChannels", 1) if "ElementNumberOfChannels" in fields else (1,)
    if not 1 <= channels <= 2**16:
        raise fields.error(f"each of its pixels holds {channels} numbers")
    return channels


def _numbers(fields: TextFields, names: tuple[str, ...], count: int) -> tuple[float, ...] | None:
    """Numbers of the one field of these that is there."""
    value = fields.only(names)
    name = next((name for name in names if name in fields), "")
    return None if value is None else fields.real(name, count)


def _sequence_shape(fields: TextFields) -> tuple[int, int, int, int]:
    """Frames, rows, columns, channels."""
    sizes = list(fields.whole("DimSize"))
    if len(sizes) == 4 and sizes[2] == 1:
        del sizes[2]  # PLUS may write 2D images as volumes of one plane
    if len(sizes) != 3 or min(sizes) < 1:
        raise fields.error(
            f"the pixels have sizes {fields['DimSize'][:60]}", "pass a sequence of 2D images with pixels"
        )
    width, height, count = sizes
    return count, height, width, _channels(fields)


def _packed(text: _Header, path: Path, shape: tuple[int, ...], detached: bool) -> Packed:
    """Where the pixels are."""
    fields = text.fields
    kind = _TYPES.get(fields.get("ElementType", "").removesuffix("_ARRAY"))
    if kind is None:
        raise fields.error(
            f"'ElementType' of its header reads {fields.get('ElementType', '')[:40]!r}", "store real numbers"
        )
    if min(shape) < 1:
        raise fields.error(f"the pixels have sizes {fields['DimSize'][:60]}")
    order = fields.only(_BYTE_ORDER)
    big = order is not None and fields.truth(next(name for name in _BYTE_ORDER if name in fields), False)
    dtype = np.dtype((">" if big else "<") + kind)
    voxels, start = _data_file(text, path, detached)
    own = None if voxels == path else path
    if fields.truth("CompressedData", False):
        told = fields.whole("CompressedDataSize", 1)[0] if "CompressedDataSize" in fields else None
        return Packed(voxels, shape, dtype, ZLIB, start, 0, told, own)
    binary = fields.truth("BinaryData", True)
    start = _behind_header(fields, voxels, start, Packed(voxels, shape, dtype).promised) if binary else start
    return Packed(voxels, shape, dtype, RAW if binary else TEXT, start, header=own)


def _data_file(text: _Header, path: Path, detached: bool) -> tuple[Path, int]:
    name = text.fields["ElementDataFile"]
    if name.upper() == "LOCAL":
        return path, text.start
    if not detached:
        raise voxels_elsewhere(path)
    if name.upper().startswith("LIST") or "%" in name:
        raise text.fields.error("its voxels are in several files", "save it as one file, for example with 3D Slicer")
    return voxels_beside(path, name.removeprefix("./")), 0


def _behind_header(fields: TextFields, voxels: Path, start: int, promised: int) -> int:
    """Where raw voxels begin in a file that may have a header of its own; -1 says that they end it."""
    skip = fields.whole("HeaderSize", 1)[0] if "HeaderSize" in fields else 0
    size = voxels.stat().st_size
    begin = size - promised if skip == -1 else start + skip
    if skip < -1 or not start <= begin <= size:
        raise fields.error(f"its header says to skip {skip} of {size} bytes")
    return begin
