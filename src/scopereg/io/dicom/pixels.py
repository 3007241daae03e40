"""Pixels of DICOM files, one frame at a time, with their sizes checked before any of them is decoded.

Uncompressed ones and run lengths (RLE) are decoded here, by pydicom in Python and numpy. All other codings are decoded
apart, in a child process: by pydicom with the plugins that are installed, else by GDCM (in SimpleITK).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from contextlib import suppress
from io import BytesIO
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pydicom.dataset import Dataset, FileDataset, FileMetaDataset
from pydicom.encaps import encapsulate, get_frame, parse_fragments
from pydicom.pixels import apply_color_lut, get_decoder, pixel_array
from pydicom.uid import UID, RLELossless, SecondaryCaptureImageStorage

from scopereg.errors import ScopeRegError
from scopereg.io.apart import Allowance, read_apart
from scopereg.io.dicom.header import frame_count, number, reading
from scopereg.io.limits import check_size

Pixels = npt.NDArray[Any]
_PLUGINS, _GDCM = "scopereg.io.apart.plugins:dicom_frames", "scopereg.io.apart.itk:dicom_frame"
_KEYWORDS = {"PixelData": 0, "FloatPixelData": 32, "DoubleFloatPixelData": 64}  # and bits that they always have
_GREY = ("MONOCHROME1", "MONOCHROME2", "PALETTE COLOR")
_COLOURS = ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT", "YBR_PARTIAL_420", "YBR_PARTIAL_422")
_LAYOUT = (
    "SamplesPerPixel",
    "PlanarConfiguration",
    "Rows",
    "Columns",
    "BitsAllocated",
    "BitsStored",
    "HighBit",
    "PixelRepresentation",
)
_AHEAD_BYTES = 2**23  # of frames that are decoded together when a cine is read one by one
_FILMS = ("MPEG", "HEVC", "SMPTE")  # their frames are not pieces of their own, and no decoder here knows them
_FRAME_HEADS = {*range(0xC0, 0xD0), 0xF7} - {0xC4, 0xC8, 0xCC}  # marks of JPEG, and that of JPEG-LS
_JPEG_2000_BEGIN = b"\xff\x4f\xff\x51"
_JPEG_END = b"\xff\xd9"
_HELP = {"High-Throughput": "pip install pylibjpeg-openjpeg", "JPEG 2000": "pip install pylibjpeg-openjpeg"}
_ELSEWHERE = "export the file uncompressed, or decompress it with dcmdjpeg of DCMTK or gdcmconv --raw"
_GET_AGAIN = "copy or export the file again"


class Layout(NamedTuple):
    """What the header promises of the pixels."""

    frames: int
    rows: int
    columns: int
    samples: int  # numbers in a pixel
    bits: int  # of each, as stored
    photometric: str

    @property
    def frame_shape(self) -> tuple[int, ...]:
        return (self.rows, self.columns) if self.samples == 1 else (self.rows, self.columns, self.samples)

    @property
    def frame_bytes(self) -> int:
        return prod(self.frame_shape) * -(-self.bits // 8)


class StoredPixels:
    """The pixels of a file, which hold what the header promises: neither less nor more."""

    def __init__(self, dataset: FileDataset, where: str) -> None:
        self._dataset, self._where = dataset, where
        self._ahead: tuple[int, tuple[Pixels, ...]] = (-2, ())  # the frame asked for last, and those after it
        with reading(where):
            self.syntax = _syntax(dataset, where)
            self.layout = layout_of(dataset, where)
            (self._fragments if self.syntax.is_encapsulated else self._length)()

    @property
    def is_quick(self) -> bool:
        """Whether any frame can be had without another process, so that some may be looked at beforehand."""
        return not self.syntax.is_encapsulated

    def frame(self, index: int) -> Pixels:
        """Stored values (H, W) of one frame, or its colours (H, W, 3) as RGB; black is 0 whatever the file says."""
        if not self.syntax.is_encapsulated or self.syntax == RLELossless:
            try:
                with reading(self._where):
                    pixels = _by_pydicom(self._dataset, index)
            except ScopeRegError as error:
                what = f"its pixels cannot be read: {error.what.removeprefix('its header cannot be read: ')}"
                raise ScopeRegError(what, where=self._where, fix=_GET_AGAIN) from None
        else:
            pixels = self._decoded(index)
        if pixels.shape != self.layout.frame_shape:
            raise ScopeRegError(
                f"frame {index} has the shape {pixels.shape}, its header says {self.layout.frame_shape}",
                where=self._where,
                fix=_GET_AGAIN,
            )
        if pixels.dtype.kind == "f" and not np.isfinite(pixels).all():
            raise ScopeRegError(
                f"{int((~np.isfinite(pixels)).sum())} of {pixels.size} values are NaN or infinite",
                where=self._where,
                fix="replace them and store the file again",
            )
        with reading(self._where):
            return _plain(pixels, self._dataset)

    def _decoded(self, index: int) -> Pixels:
        """One frame from the child; with it come the next ones if the one before was asked for just now."""
        ahead, self._ahead = self._ahead, (index, ())
        if 0 <= index - ahead[0] - 1 < len(ahead[1]):
            self._ahead = (index, ahead[1][index - ahead[0] :])
            return ahead[1][index - ahead[0] - 1]
        most = max(_AHEAD_BYTES // self.layout.frame_bytes, 1) if index == ahead[0] + 1 else 1
        with reading(self._where):
            count = min(most, self.layout.frames - index)
            pixels, *following = _by_child(self._dataset, index, self.layout, self._where, count)
        self._ahead = (index, tuple(following))
        return pixels

    def _length(self) -> None:
        layout = self.layout
        keyword = next(keyword for keyword in _KEYWORDS if keyword in self._dataset)
        half = layout.photometric in ("YBR_FULL_422", "YBR_PARTIAL_422")  # two pixels share their colour
        numbers = layout.frames * layout.rows * layout.columns * (2 if half else layout.samples)
        promised, found = -(-numbers * layout.bits // 8), len(self._dataset[keyword].value)
        if not promised <= found <= promised + promised % 2:
            raise ScopeRegError(
                f"it holds {found} bytes of pixels, its header promises {promised}: {_words(layout)}",
                where=self._where,
                fix=_GET_AGAIN,
            )

    def _fragments(self) -> None:
        if any(word in self.syntax.name for word in _FILMS):
            raise _undecoded(self.syntax, "it is a film", self._where)
        data: bytes = self._dataset.PixelData
        count, _ = parse_fragments(data)
        held = count - 1  # the first is a table
        if held < self.layout.frames:
            raise ScopeRegError(
                f"it holds {held} pieces of compressed pixels, its header promises {self.layout.frames} frames",
                where=self._where,
                fix=_GET_AGAIN,
            )


def layout_of(dataset: Dataset, where: str) -> Layout:
    """The layout of the pixels, an error if the header contradicts itself or promises more than the limit."""
    keyword = next((keyword for keyword in _KEYWORDS if keyword in dataset), None)
    if keyword is None:
        raise ScopeRegError("it holds no pixels", where=where, fix="pass an image, not a report or a plan")
    rows, columns = (_whole(dataset, key, range(1, 2**16), where) for key in ("Rows", "Columns"))
    samples = _whole(dataset, "SamplesPerPixel", (1, 3), where)
    bits = _KEYWORDS[keyword] or _whole(dataset, "BitsAllocated", (1, 8, 16, 32), where)
    if keyword == "PixelData":
        stored = _whole(dataset, "BitsStored", range(1, bits + 1), where)
        _whole(dataset, "HighBit", (stored - 1,), where)
        _whole(dataset, "PixelRepresentation", (0, 1), where)
    photometric = str(dataset.get("PhotometricInterpretation") or "")
    if photometric not in (_GREY if samples == 1 else _COLOURS):
        raise ScopeRegError(
            f"its PhotometricInterpretation is {photometric!r}, with {samples} numbers in each pixel",
            where=where,
            fix="export it again, in grey or RGB",
        )
    frames = frame_count(dataset)
    check_size((frames, rows, columns), samples * bits / 8, where, in_use=False)
    return Layout(frames, rows, columns, samples, bits, photometric)


def _whole(dataset: Dataset, keyword: str, allowed: Sequence[int], where: str) -> int:
    value = number(dataset, keyword)
    if value is None or int(value) != value or int(value) not in allowed:
        said = "not told" if value is None else f"{value:g}"
        few = f": it must be one of {', '.join(map(str, allowed))}" if len(allowed) < 5 else ""
        raise ScopeRegError(f"its {keyword} is {said}{few}", where=where, fix=_GET_AGAIN)
    return int(value)


def _words(layout: Layout) -> str:
    return f"{layout.frames} x {layout.rows} x {layout.columns} x {layout.samples} numbers of {layout.bits} bits"


def _syntax(dataset: FileDataset, where: str) -> UID:
    syntax = dataset.file_meta.get("TransferSyntaxUID") if hasattr(dataset, "file_meta") else None
    if syntax is None:
        raise ScopeRegError("it does not say how its pixels are coded", where=where, fix="export the file again")
    if not UID(syntax).is_transfer_syntax:
        raise ScopeRegError(f"its transfer syntax is {str(syntax)[:64]!r}, which is none", where=where, fix=_GET_AGAIN)
    return UID(syntax)


def _by_pydicom(dataset: FileDataset, index: int) -> Pixels:
    return pixel_array(dataset, index=index, decoding_plugin="pydicom")


def _by_child(dataset: FileDataset, index: int, layout: Layout, where: str, count: int = 1) -> list[Pixels]:
    """Up to `count` frames from `index` on, at least one: of several, plugins alone decode more than the first."""
    syntax = UID(dataset.file_meta.TransferSyntaxUID)
    packed = [_stream(dataset, index, layout, syntax, where)]
    with suppress(Exception):  # whatever is wrong with a later frame is told when that one is asked for
        packed.extend(_stream(dataset, row, layout, syntax, where) for row in range(index + 1, index + count))
    count = len(packed)
    if _has_plugin(syntax):
        told = {**_told(dataset, layout), "number_of_frames": count}
        allowance = Allowance.for_bytes(count * layout.frame_bytes)
        try:
            options = {"syntax": str(syntax), "layout": told}
            (pixels,) = read_apart(_PLUGINS, encapsulate(packed), where, allowance, options=options).arrays
            return list(_as_promised(pixels, count, layout, syntax, where))
        except ScopeRegError:
            pass  # plugins do not know every variant of their coding, GDCM may
    if layout.samples == 3 and layout.bits > 8:
        raise _undecoded(syntax, "GDCM garbles colours of more than 8 bits", where)
    allowance = Allowance.for_bytes(layout.frame_bytes)
    try:
        (pixels,) = read_apart(_GDCM, _one_frame(dataset, layout, packed[0], syntax), where, allowance).arrays
    except ScopeRegError as error:
        raise _undecoded(syntax, error.what, where) from None
    return list(_as_promised(pixels, 1, layout, syntax, where))


def _as_promised(pixels: Pixels, count: int, layout: Layout, syntax: UID, where: str) -> Pixels:
    """So many frames of what a child answered, if they are as the header says."""
    if pixels.dtype.kind not in "iu" or pixels.dtype.itemsize != -(-layout.bits // 8):
        raise _undecoded(syntax, f"it becomes numbers of the kind {pixels.dtype}, not of {layout.bits} bits", where)
    shape = (count, *layout.frame_shape)
    if pixels.shape != shape[count == 1 :]:
        raise _undecoded(syntax, f"it becomes {pixels.shape}, the header says {layout.frame_shape}", where)
    return pixels.reshape(shape)


def _told(dataset: Dataset, layout: Layout) -> dict[str, Any]:
    """What a decoder of pydicom asks for."""
    told: dict[str, Any] = {"pixel_keyword": "PixelData", "photometric_interpretation": layout.photometric}
    names = {keyword: re.sub(r"(?<!^)([A-Z])", r"_\1", keyword).lower() for keyword in _LAYOUT if keyword != "HighBit"}
    return told | {name: int(number(dataset, keyword) or 0) for keyword, name in names.items() if keyword in dataset}


def _stream(dataset: FileDataset, index: int, layout: Layout, syntax: UID, where: str) -> bytes:
    packed = get_frame(dataset.PixelData, index, number_of_frames=layout.frames)
    if "JPEG" in syntax.name and "XL" not in syntax.name:
        _check_stream(packed, (layout.rows, layout.columns), syntax, f"{where}, frame {index}")
    return packed


def _check_stream(packed: bytes, size: tuple[int, int], syntax: UID, where: str) -> None:
    """An error unless a JPEG stream ends as one, and says itself to be as large as the header of DICOM does."""
    if not packed.rstrip(b"\0\xff").endswith(_JPEG_END):
        raise _undecoded(syntax, "it is cut short", where)
    try:
        found = _jpeg_2000_size(packed) if "2000" in syntax.name else _jpeg_size(packed)
    except (struct.error, IndexError):
        found = None
    if found != size:
        said = "no size" if found is None else f"{found[1]} x {found[0]} pixels"
        raise _undecoded(syntax, f"the stream says {said}, the header {size[1]} x {size[0]}", where)


def _jpeg_2000_size(packed: bytes) -> tuple[int, int] | None:
    at = packed.find(_JPEG_2000_BEGIN)
    right, bottom, left, top = struct.unpack_from(">4I", packed, at + len(_JPEG_2000_BEGIN) + 4)
    return (bottom - top, right - left) if at >= 0 else None


def _jpeg_size(packed: bytes) -> tuple[int, int] | None:
    """Rows and columns by the first frame header of JPEG or JPEG-LS."""
    at = 2
    while packed[at] == 0xFF:
        kind = packed[at + 1]
        if kind == 0xFF:  # filled up
            at += 1
            continue
        if kind in _FRAME_HEADS:
            rows, columns = struct.unpack_from(">HH", packed, at + 5)
            return rows, columns
        at += 2 + int(struct.unpack_from(">H", packed, at + 2)[0])
    return None


def _one_frame(dataset: FileDataset, layout: Layout, packed: bytes, syntax: UID) -> bytes:
    """A DICOM file of one compressed frame and what decoding it needs, nothing else of the header."""
    plain = Dataset()
    for keyword in _LAYOUT:
        if keyword in dataset:
            setattr(plain, keyword, dataset[keyword].value)
    plain.PhotometricInterpretation = layout.photometric if layout.samples == 3 else "MONOCHROME2"
    plain.SOPClassUID, plain.SOPInstanceUID = SecondaryCaptureImageStorage, UID("1.2.3")
    plain.PixelData = encapsulate([packed])
    plain["PixelData"].VR = "OB"
    plain.file_meta = FileMetaDataset()
    plain.file_meta.TransferSyntaxUID = syntax
    whole = BytesIO()
    plain.save_as(whole, enforce_file_format=True)
    return whole.getvalue()


def _has_plugin(syntax: UID) -> bool:
    try:
        return bool(get_decoder(syntax).available_plugins)
    except NotImplementedError:
        return False


def _plain(pixels: Pixels, dataset: Dataset) -> Pixels:
    """Colours looked up, and white on black turned back to black on white."""
    photometric = dataset.get("PhotometricInterpretation", "")
    if photometric == "PALETTE COLOR" and pixels.ndim == 2:
        colours = apply_color_lut(pixels, dataset)
        return (colours >> 8).astype(np.uint8) if colours.dtype == np.uint16 else colours
    if photometric == "MONOCHROME1":
        bits = int(number(dataset, "BitsStored") or 8 * pixels.dtype.itemsize)
        signed = pixels.dtype.kind == "i"
        total = -1 if signed else 2**bits - 1  # the sum of the least and the greatest value
        return (total - pixels.astype(np.int64)).astype(pixels.dtype)
    return pixels


def _undecoded(syntax: UID, reason: str, where: str) -> ScopeRegError:
    extra = [f"{command}; or " for word, command in _HELP.items() if word in syntax.name][:1]
    return ScopeRegError(
        f"its pixels are compressed as {syntax.name} ({syntax}), which cannot be decoded here, or damaged: {reason}",
        where=where,
        fix="".join(extra) + _ELSEWHERE,
    )
