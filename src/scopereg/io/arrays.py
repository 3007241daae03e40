"""Arrays: headers of .npy files, read by the one form in which NumPy writes those of plain numbers.

NumPy's own reader parses them as Python text, and falls back to its tokenizer, with errors of many kinds.
"""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from typing import IO, NamedTuple

import numpy as np

_HEADER = re.compile(
    r"\{'descr': '(?P<kind>[<|](?:[ui][1248]|f[248]))', 'fortran_order': (?P<fortran>False|True), "
    r"'shape': \((?P<shape>[0-9, ]*)\),? ?\} *\n"
)
_AXES, _MOST = 8, 2**62
# What reading a damaged .npz archive of such files raises.
BROKEN_ARCHIVE = (
    *(OSError, EOFError, ValueError, KeyError, RuntimeError, NotImplementedError, OverflowError),
    *(zipfile.BadZipFile, zlib.error, struct.error),
)


class NpyHeader(NamedTuple):
    """What an .npy file says of the numbers behind its header, in C order unless it says otherwise."""

    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    offset: int  # bytes before the first number
    fortran_order: bool = False

    @property
    def size(self) -> int:
        """Bytes of the numbers."""
        count = 1
        for length in self.shape:
            count *= length
        return count * self.dtype.itemsize


def read_npy_header(file: IO[bytes], *, any_order: bool = False) -> NpyHeader:
    """The header at the start of a file; a ValueError if it is none of numbers, in C order but for `any_order`."""
    start = file.read(10)
    if start[:8] != b"\x93NUMPY\x01\x00" or len(start) < 10:
        raise ValueError("it does not begin as an .npy file of version 1.0 does")
    length = int.from_bytes(start[8:], "little")
    found = _HEADER.fullmatch(file.read(length).decode("latin-1"))
    if found is None or (found["fortran"] == "True" and not any_order):
        raise ValueError("its header is not that of an array of plain numbers")
    shape = tuple(int(word) for word in found["shape"].split(",") if word.strip())
    header = NpyHeader(np.dtype(found["kind"]), shape, 10 + length, found["fortran"] == "True")
    if len(shape) > _AXES or header.size > _MOST:
        raise ValueError(f"{len(shape)} axes and {header.size} bytes are too many")
    return header
