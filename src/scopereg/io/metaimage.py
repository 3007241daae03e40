"""MetaImage sequences (.mha, .mhd) as PLUS has them: fields of the file, fields of every frame, pixels.

ITK reads such a file as a volume and drops the fields of the frames, so the header is read and written here.
"""

from __future__ import annotations

import re
import zlib
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from scopereg.errors import ScopeRegError
from scopereg.io.files import write_bytes

_TYPES = {
    "MET_CHAR": "i1",
    "MET_UCHAR": "u1",
    "MET_SHORT": "i2",
    "MET_USHORT": "u2",
    "MET_INT": "i4",
    "MET_UINT": "u4",
    "MET_FLOAT": "f4",
    "MET_DOUBLE": "f8",
}
_FRAME_FIELD = re.compile(r"Seq_Frame(\d+)_(\w+)")
_LONGEST_HEADER = 2**28
_GET_AGAIN = "copy or record the file again"


class MetaSequence(NamedTuple):
    """What a file holds: fields as text, pixels as stored."""

    fields: dict[str, str]
    frames: list[dict[str, str]]  # one per frame
    images: npt.NDArray[Any]  # (F, H, W) or, with colours, (F, H, W, C)


def read_metaimage(path: Path | str) -> MetaSequence:
    """A sequence of 2D images; damaged, truncated and other files are refused."""
    path = Path(path)
    if not path.is_file():
        raise ScopeRegError("there is no such file", where=str(path), fix="check the name and the folder")
    fields, by_frame, offset = _read_header(path)
    shape, kind = _layout(fields, path)
    content = _pixel_bytes(fields, path, offset, prod(shape) * kind.itemsize)
    images = np.frombuffer(content, kind).reshape(shape[:3] if shape[3] == 1 else shape)
    return MetaSequence(fields, [by_frame.get(number, {}) for number in range(shape[0])], images)


def is_sequence(path: Path) -> bool:
    """Whether a file is a MetaImage with fields of frames."""
    if not path.name.lower().endswith((".mha", ".mhd")):
        return False
    _, by_frame, _ = _read_header(path)
    return bool(by_frame)


def write_metaimage(sequence: MetaSequence, path: Path | str, *, compressed: bool = True) -> Path:
    """Write a sequence to one .mha file, pixels included. The layout of the pixels follows `images`, not the fields."""
    path = Path(path)
    if path.suffix.lower() != ".mha":
        raise ScopeRegError(f"unknown ending {path.suffix!r}", where=str(path), fix="use .mha or .igs.mha")
    images = np.ascontiguousarray(sequence.images, sequence.images.dtype.newbyteorder("<"))
    kinds = {kind: name for name, kind in _TYPES.items()}
    content = images.tobytes()
    content = zlib.compress(content) if compressed else content
    count, height, width = images.shape[:3]
    layout = {
        "ObjectType": "Image",
        "NDims": "3",
        "BinaryData": "True",
        "BinaryDataByteOrderMSB": "False",
        "CompressedData": str(compressed),
        **({"CompressedDataSize": str(len(content))} if compressed else {}),
        **({"ElementNumberOfChannels": str(images.shape[3])} if images.ndim == 4 else {}),
        "DimSize": f"{width} {height} {count}",
        "ElementType": kinds[images.dtype.str[1:]],
    }
    replaced = {*layout, "ElementByteOrderMSB", "ElementDataFile", "CompressedDataSize", "ElementNumberOfChannels"}
    layout |= {name: value for name, value in sequence.fields.items() if name not in replaced}
    lines = [f"{name} = {value}" for name, value in layout.items()]
    for number, fields in enumerate(sequence.frames):
        lines += [f"Seq_Frame{number:04d}_{name} = {value}" for name, value in fields.items()]
    header = "\n".join([*lines, "ElementDataFile = LOCAL", ""])
    return write_bytes(path, header.encode("latin-1") + content)


def _read_header(path: Path) -> tuple[dict[str, str], dict[int, dict[str, str]], int]:
    """Fields of the file, fields of the frames by number, and where the pixels begin."""
    fields: dict[str, str] = {}
    frames: dict[int, dict[str, str]] = {}
    with path.open("rb") as file:
        while file.tell() < _LONGEST_HEADER and (line := file.readline(2**16)):
            name, mark, value = (part.strip() for part in line.decode("latin-1").partition("="))
            if not fields and name != "ObjectType":
                break
            if match := _FRAME_FIELD.fullmatch(name):
                frames.setdefault(int(match[1]), {})[match[2]] = value
            elif mark:
                fields[name] = value
            if name == "ElementDataFile":
                return fields, frames, file.tell()
    raise ScopeRegError(
        "not a MetaImage file: its header does not run from ObjectType to ElementDataFile",
        where=str(path),
        fix="pass the .mha or .mhd file of a recorded sequence",
    )


def _layout(fields: dict[str, str], path: Path) -> tuple[tuple[int, int, int, int], np.dtype[Any]]:
    """Shape (F, H, W, C) and type of the pixels."""
    try:
        sizes = [int(size) for size in fields["DimSize"].split()]
        channels = int(fields.get("ElementNumberOfChannels", "1"))
        kind = np.dtype(_TYPES[fields["ElementType"]])
    except (KeyError, ValueError) as error:
        raise ScopeRegError(f"the header lacks or garbles {error}", where=str(path), fix=_GET_AGAIN) from None
    if len(sizes) == 4 and sizes[2] == 1:
        del sizes[2]  # PLUS may write 2D images as volumes of one plane
    if len(sizes) != 3 or min(sizes) < 1 or channels < 1:
        raise ScopeRegError(
            f"the pixels have sizes {fields['DimSize']}",
            where=str(path),
            fix="pass a sequence of 2D images with pixels",
        )
    if fields.get("BinaryData", "True").lower() != "true":
        raise ScopeRegError("the pixels are written as text", where=str(path), fix="store them with BinaryData = True")
    big = fields.get("BinaryDataByteOrderMSB", fields.get("ElementByteOrderMSB", "False")).lower() == "true"
    width, height, count = sizes
    return (count, height, width, channels), kind.newbyteorder(">" if big else "<")


def _pixel_bytes(fields: dict[str, str], path: Path, offset: int, expected: int) -> bytes:
    """The pixels, taken from the file itself or the one it names, and inflated; an error if any are missing."""
    source = fields["ElementDataFile"]
    place = path if source == "LOCAL" else path.with_name(Path(source).name)
    try:
        with place.open("rb") as file:
            file.seek(offset if source == "LOCAL" else 0)
            content = file.read()
        if fields.get("CompressedData", "False").lower() == "true":
            content = zlib.decompressobj().decompress(content, expected)
    except (OSError, zlib.error) as error:
        raise ScopeRegError(f"its pixels cannot be read: {error}", where=str(place), fix=_GET_AGAIN) from None
    if len(content) < expected:
        raise ScopeRegError(
            f"it is cut short: {len(content)} of {expected} bytes of pixels", where=str(place), fix=_GET_AGAIN
        )
    return content[:expected]
