"""Pictures: those of files as pixels, and small ones for reports as PNG bytes, without a plotting library."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from zlib_ng import zlib_ng

from scopereg.errors import ScopeRegError
from scopereg.io.apart import Allowance, read_apart
from scopereg.io.limits import check_size, largest_bytes

Pixels = npt.NDArray[np.uint8]
_CHILD = "scopereg.io.apart.pictures:picture"
_PNG_MARK = b"\x89PNG\r\n\x1a\n"
_PNG_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # numbers in a pixel by kind of colour
_ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
_EXPORT_AGAIN = "copy or export it again"


def read_picture(path: Path) -> npt.NDArray[Any]:
    """Pixels (pages, H, W), colours last, of a PNG, JPEG, BMP or TIFF file; decoded in a child process."""
    size, is_png = _look_at(path)
    content = _unpacked_png(path.read_bytes(), str(path)) if is_png else path
    most = largest_bytes()
    allowance = Allowance(memory=2**28 + 2 * most, answer=most, seconds=8.0 + size / 2**20)
    try:
        (pixels,) = read_apart(_CHILD, content, str(path), allowance, ending=path.suffix.lower()).arrays
    except ScopeRegError as error:
        words = error.what.removeprefix("it cannot be read: ")
        raise ScopeRegError(f"it cannot be read as a picture: {words}", where=str(path), fix=error.fix) from None
    if pixels.ndim not in (3, 4) or not pixels.size:
        raise ScopeRegError(f"it holds pixels of the shape {pixels.shape}", where=str(path), fix=_EXPORT_AGAIN)
    return pixels


def _look_at(path: Path) -> tuple[int, bool]:
    """Bytes of a file within the limit, and whether it is a PNG."""
    try:
        size = path.stat().st_size
        check_size((size,), 1, str(path), in_use=False)
        with path.open("rb") as file:
            return size, file.read(len(_PNG_MARK)) == _PNG_MARK
    except OSError as error:
        raise ScopeRegError(
            f"it cannot be read: {error.strerror or error}", where=str(path), fix=_EXPORT_AGAIN
        ) from None


def _unpacked_png(content: bytes, where: str) -> bytes:
    """A PNG of what tells pixels alone, unpacked, with checksums and sizes looked at: Pillow passes over some."""
    parts = list(_png_parts(content, where))
    kinds = [kind for kind, _ in parts]
    first = kinds.index(b"IDAT") if b"IDAT" in kinds else 0
    if kinds[0] != b"IHDR" or len(parts[0][1]) != 13 or not first:
        raise ScopeRegError("it has no size, or no pixels", where=where, fix=_EXPORT_AGAIN)
    promised = _png_bytes(parts[0][1], where)
    packed, unpacker = b"".join(part for kind, part in parts if kind == b"IDAT"), zlib_ng.decompressobj()
    try:
        raw = unpacker.decompress(packed, promised + 1)
        if len(raw) != promised or not unpacker.eof:
            raise ValueError(f"{len(raw)} of {promised} bytes" if unpacker.eof else "they go on, or end too early")
    except (ValueError, zlib_ng.error) as error:  # type: ignore[misc]
        raise ScopeRegError(f"its pixels are damaged: {error}", where=where, fix=_EXPORT_AGAIN) from None
    kept = [(kind, part) for kind, part in parts[:first] if kind in (b"IHDR", b"PLTE", b"tRNS")]
    return _png((*kept, (b"IDAT", zlib_ng.compress(raw, 0))))


def _png_parts(content: bytes, where: str) -> Iterator[tuple[bytes, memoryview]]:
    """Kind and content of each part of a PNG up to its end mark, if its checksum is right."""
    at, whole = len(_PNG_MARK), memoryview(content)
    while at + 12 <= len(content):
        length, kind = struct.unpack_from(">I4s", content, at)
        end = at + 12 + length
        if (
            end > len(content)
            or zlib_ng.crc32(whole[at + 4 : end - 4]) != struct.unpack_from(">I", content, end - 4)[0]
        ):
            break
        yield kind, whole[at + 8 : end - 4]
        if kind == b"IEND":
            return
        at = end
    raise ScopeRegError("it is damaged or cut short: a checksum is wrong", where=where, fix=_EXPORT_AGAIN)


def _png_bytes(head: memoryview, where: str) -> int:
    """Bytes of the unpacked lines, each with one for its filter; an interlaced picture comes as seven smaller ones."""
    width, height, bits, colours, packing, filters, interlaced = struct.unpack(">IIBBBBB", head)
    samples = _PNG_SAMPLES.get(colours)
    if samples is None or bits not in (1, 2, 4, 8, 16) or packing or filters or interlaced > 1 or not width * height:
        raise ScopeRegError("its header is that of no PNG", where=where, fix=_EXPORT_AGAIN)
    check_size((height, width), samples * bits / 8, where)
    passes = _ADAM7 if interlaced else ((0, 0, 1, 1),)
    sizes = [(-(-(width - x) // step_x), -(-(height - y) // step_y)) for x, y, step_x, step_y in passes]
    return sum(rows * (1 + -(-columns * samples * bits // 8)) for columns, rows in sizes if columns > 0 and rows > 0)


def _png(parts: Iterable[tuple[bytes, bytes | memoryview]]) -> bytes:
    """A PNG file of parts, each with its length and checksum."""
    pieces: list[bytes | memoryview] = [_PNG_MARK]
    for kind, content in (*parts, (b"IEND", b"")):
        checksum = zlib_ng.crc32(content, zlib_ng.crc32(kind))
        pieces += [struct.pack(">I", len(content)), kind, content, struct.pack(">I", checksum)]
    return b"".join(pieces)


def grey_pixels(image: Tensor) -> Pixels:
    """Pixels (H, W) of an image in [0, 1]."""
    pixels: Pixels = (image.detach().cpu().clamp(0, 1) * 255).round().to(torch.uint8).numpy()
    return pixels


def difference_pixels(first: Tensor, second: Tensor, seen: Tensor | None = None) -> Pixels:
    """Colours (H, W, 3) of first - second: black where they agree, orange where the first is brighter, else blue.

    Both are brought to mean 0 and spread 1 over the pixels that are `seen`, so that gain does not show as error.
    """
    seen = torch.ones_like(first, dtype=torch.bool) if seen is None else seen
    gap = (_standardised(first, seen) - _standardised(second, seen)) * seen
    gap = (gap / 3).clamp(-1, 1).cpu()
    orange, blue = torch.tensor([1.0, 0.62, 0.2]), torch.tensor([0.25, 0.6, 1.0])
    colours = gap.clamp_min(0)[..., None] * orange + (-gap).clamp_min(0)[..., None] * blue
    pixels: Pixels = (colours * 255).round().to(torch.uint8).numpy()
    return pixels


def red_difference_pixels(first: Tensor, second: Tensor) -> Pixels:
    """Colours (H, W, 3) of |first - second| of images in [0, 1]: black where they agree, full red from a half on."""
    gap = (2 * (first - second).abs()).clamp(0, 1).detach().cpu()
    pixels: Pixels = (gap[..., None] * torch.tensor([255.0, 40.0, 30.0])).round().to(torch.uint8).numpy()
    return pixels


def _standardised(image: Tensor, seen: Tensor) -> Tensor:
    values = image[seen]
    if values.numel() < 2:
        return torch.zeros_like(image)
    return (image - values.mean()) / values.std().clamp_min(1e-6)


def png_bytes(pixels: Pixels) -> bytes:
    """A PNG file of grey (H, W) or colour (H, W, 3) pixels."""
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] != 3):
        raise ScopeRegError(
            f"pixels are {pixels.dtype} of shape {pixels.shape}",
            where="png_bytes(pixels)",
            fix="pass uint8 (H, W) for grey or (H, W, 3) for colour",
        )
    height, width = pixels.shape[:2]
    colour_type = 0 if pixels.ndim == 2 else 2
    lines = pixels.reshape(height, -1)
    raw = np.concatenate([np.zeros((height, 1), np.uint8), lines], 1).tobytes()  # filter byte 0 before each line

    header = struct.pack(">IIBBBBB", width, height, 8, colour_type, 0, 0, 0)
    return _png(((b"IHDR", header), (b"IDAT", zlib.compress(raw, 9))))


def data_uri(pixels: Pixels) -> str:
    """The picture as text that an HTML page can hold."""
    return "data:image/png;base64," + base64.b64encode(png_bytes(pixels)).decode()
