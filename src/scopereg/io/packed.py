"""Packed voxels: where they lie in a file, how they are packed, and that they are all there and nothing else.

Streams are unpacked piece by piece into memory of the size that the header promises, which is taken after the limit,
and what the file can hold, were looked at. They are read to their end, where the checksum is.
"""

from __future__ import annotations

import bz2
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from zlib_ng import zlib_ng

from scopereg.errors import ScopeRegError
from scopereg.io.formats import GET_AGAIN
from scopereg.io.limits import check_size

GZIP, ZLIB, BZIP2, RAW, TEXT = "gzip", "zlib", "bzip2", "raw", "text"
_WINDOWS = {GZIP: 31, ZLIB: 47}  # of zlib: MetaImage may hold a stream of either kind
_PACKING = {GZIP: 31, ZLIB: 15}
_EFFORT = 2  # ITK's own: higher ones take longer than the bytes that they save are worth
_MOST_TO_ONE = 1032  # deflate cannot pack more bytes into one
_PACKED, _PIECE = 2**20, 2**22  # bytes read and unpacked at once
_TEXT, _LONGEST_WORD = 2**16, 100


@dataclass(frozen=True)
class Packed:
    """The voxels of one image."""

    path: Path  # of the file that holds them
    shape: tuple[int, ...]  # slowest axis first
    dtype: np.dtype[Any]  # as stored, with the order of its bytes
    encoding: str = RAW
    start: int = 0  # byte of the file where they, or their stream, begin
    skip: int = 0  # unpacked bytes before them
    packed_bytes: int | None = None  # of the stream, where the header tells
    header: Path | None = None  # that says all this, where it is another file

    @property
    def where(self) -> str:
        return str(self.header or self.path)

    @property
    def promised(self) -> int:
        """Bytes of the voxels."""
        return math.prod(self.shape) * self.dtype.itemsize

    def read(self, *, in_use: bool = True) -> npt.NDArray[Any]:
        """The voxels, in the byte order of this machine. `in_use` is as in `check_size`."""
        check_size(self.shape, self.dtype.itemsize, self.where, in_use=in_use)
        self.check_length()
        if self.encoding == TEXT:
            return self._read_text()
        content = np.empty(self.promised, np.uint8)
        try:
            with self.path.open("rb") as file:
                file.seek(self.start)
                if self.encoding == RAW:
                    if file.readinto(memoryview(content)) < content.size:  # type: ignore[arg-type]
                        raise EOFError
                else:
                    self._unpack(file, content)
        except EOFError:
            raise self._cut_short("its stream breaks off") from None
        except OSError as error:
            raise ScopeRegError(f"it is damaged: {error}", where=self.where, fix=GET_AGAIN) from None
        values = content.view(self.dtype)
        if not self.dtype.isnative:
            values = values.byteswap(inplace=True).view(self.dtype.newbyteorder("="))
        return values.reshape(self.shape)

    def check_length(self) -> None:
        """An error unless the file may hold the voxels, without unpacking it."""
        try:
            held = self.path.stat().st_size - self.start
            told = self._told_length() if self.encoding == GZIP else None
        except OSError as error:
            raise ScopeRegError(
                f"its voxels cannot be read: {error.strerror or error}", where=self.where, fix=GET_AGAIN
            ) from None
        wanted = self.promised if self.encoding == RAW else self.packed_bytes
        if wanted is not None and held < wanted:
            raise self._cut_short(f"{max(held, 0)} of {wanted} bytes of voxels")
        if wanted is not None and held > wanted:
            raise self._goes_on(f"{held - wanted} bytes")
        if self.encoding == TEXT and held < 2 * math.prod(self.shape) - 1:  # a digit and a blank each
            raise self._cut_short(f"{max(held, 0)} bytes for {math.prod(self.shape)} numbers")
        if self.encoding in _WINDOWS and self.promised + self.skip > _MOST_TO_ONE * max(held, 0):
            raise self._cut_short(f"{max(held, 0)} bytes cannot unpack to {self.promised}")
        if told is not None and told != (self.promised + self.skip) % 2**32:
            raise ScopeRegError(
                "it is damaged or cut short, or something follows its voxels: by its last bytes it unpacks to "
                f"{told} bytes, by its header to {self.promised + self.skip}",
                where=self.where,
                fix=GET_AGAIN,
            )

    def _told_length(self) -> int:
        """Bytes that a gzip file unpacks to, modulo 2**32, by its last four."""
        with self.path.open("rb") as file:
            file.seek(-min(4, self.path.stat().st_size), os.SEEK_END)
            return int.from_bytes(file.read(4), "little")

    def _unpack(self, file: IO[bytes], content: npt.NDArray[np.uint8]) -> None:
        at = -self.skip
        for piece in _pieces(file, self.encoding):
            part = piece[max(-at, 0) :] if at < 0 else piece
            begin = max(at, 0)
            at += len(piece)
            if at > content.size:
                raise self._goes_on("more bytes")
            if part:
                content[begin : begin + len(part)] = np.frombuffer(part, np.uint8)
        if at < content.size:
            raise self._cut_short(f"{max(at, 0)} of {content.size} bytes of voxels")
        if file.read(1):
            raise self._goes_on("something")

    def _read_text(self) -> npt.NDArray[Any]:
        """Numbers with blanks between them."""
        values = np.empty(math.prod(self.shape), self.dtype.newbyteorder("="))
        number, at = (float if self.dtype.kind == "f" else int), 0
        try:
            with self.path.open("rb") as file:
                file.seek(self.start)
                for words in _words(file):
                    if at + len(words) > values.size:
                        raise self._goes_on("numbers")
                    values[at : at + len(words)] = np.array([number(word) for word in words], values.dtype)
                    at += len(words)
        except (OSError, ValueError, OverflowError) as error:
            raise ScopeRegError(
                f"its voxels are no numbers of {self.dtype.itemsize * 8} bits: {error}", where=self.where, fix=GET_AGAIN
            ) from None
        if at < values.size:
            raise self._cut_short(f"{at} of {values.size} numbers")
        return values.reshape(self.shape)

    def _cut_short(self, how: str) -> ScopeRegError:
        return ScopeRegError(f"it is cut short: {how}", where=self.where, fix=GET_AGAIN)

    def _goes_on(self, how: str) -> ScopeRegError:
        return ScopeRegError(
            f"it goes on after its last voxel: {how} more than its header promises", where=self.where, fix=GET_AGAIN
        )


def packed_parts(parts: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """The stream of some bytes, for writers."""
    engine = zlib_ng.compressobj(_EFFORT, wbits=_PACKING[encoding]) if encoding != RAW else None
    for part in parts:
        yield engine.compress(part) if engine else part
    if engine:
        yield engine.flush()


def first_bytes(path: Path, count: int, encoding: str = RAW) -> bytes:
    """The beginning of a file, unpacked; fewer bytes where it is shorter."""
    with path.open("rb") as file:
        if encoding == RAW:
            return file.read(count)
        content = b""
        try:
            for piece in _pieces(file, encoding, count):
                content += piece
                if len(content) >= count:
                    break
        except EOFError:
            pass
    return content[:count]


def voxels_beside(header: Path, name: str) -> Path:
    """The file with the voxels that a header names: a plain file in the same folder, and no way out of it."""
    path = header.with_name(name) if name not in ("", ".", "..") and not set(name) & set("/\\\0") else None
    if path is None:
        raise ScopeRegError(
            f"its voxels are said to lie in {name[:100]!r}",
            where=str(header),
            fix="put both files into one folder, and name the second without a folder",
        )
    if not path.exists():
        raise ScopeRegError(f"its voxels are missing: {path.name}", where=str(header), fix="copy both files")
    if not path.is_file() or path.resolve().parent != header.parent.resolve():
        raise ScopeRegError(
            f"{path.name} is no file of this folder", where=str(header), fix="put the voxels themselves beside it"
        )
    return path


def voxels_elsewhere(path: Path) -> ScopeRegError:
    """The error for a file whose voxels lie in another, where that is not taken."""
    return ScopeRegError(
        "its voxels are in another file", where=str(path), fix="save the volume as one file and try again"
    )


def _pieces(file: IO[bytes], encoding: str, size: int = _PIECE) -> Iterator[bytes]:
    """What a stream unpacks to, up to its end; the checksum is looked at there. EOFError where it breaks off."""
    if encoding == BZIP2:
        packer = bz2.BZ2Decompressor()
        while not packer.eof:
            packed = file.read(_PACKED) if packer.needs_input else b""
            if packer.needs_input and not packed:
                raise EOFError
            yield packer.decompress(packed, size)
        rest = packer.unused_data
    else:
        engine = zlib_ng.decompressobj(_WINDOWS[encoding])
        while not engine.eof:
            packed = engine.unconsumed_tail or file.read(_PACKED)
            try:
                piece = engine.decompress(packed, size)
            except zlib_ng.error as error:  # type: ignore[misc]
                raise OSError(str(error)) from None
            if not packed and not piece:
                raise EOFError
            yield piece
        rest = engine.unused_data
    file.seek(-len(rest), os.SEEK_CUR)  # for who looks whether something follows


def _words(file: IO[bytes]) -> Iterator[list[bytes]]:
    """Words between blanks, some at a time."""
    rest = b""
    while chunk := file.read(_TEXT):
        words = (rest + chunk).split()
        rest = b"" if chunk[-1:].isspace() or not words else words.pop()
        if len(rest) > _LONGEST_WORD:
            raise ValueError(f"{rest[:20]!r}...")
        yield words
    if rest:
        yield [rest]
