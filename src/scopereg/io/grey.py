"""Grey values of stored pixels: colours by their brightness, bytes from 0 to 1, everything else as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from scopereg.errors import ScopeRegError

_RED, _GREEN, _BLUE = np.float32(0.299), np.float32(0.587), np.float32(0.114)  # Rec. 601, the Y of DICOM's YBR colours


def grey_values(pixels: npt.NDArray[Any], where: str, *, colours: bool = False) -> npt.NDArray[np.float32]:
    """Pixels as float32; with `colours`, the last axis holds 2 (grey, alpha), 3 (RGB) or 4 (RGB, alpha) numbers.

    Bytes are divided by 255: they are the grey scale of ultrasound displays. Other numbers have no such scale.
    """
    grey = brightness(pixels, where) if colours else pixels.astype(np.float32, copy=False)
    if pixels.dtype == np.uint8:
        grey /= np.float32(255)  # in place: images may be large
    return grey


def brightness(pixels: npt.NDArray[Any], where: str) -> npt.NDArray[np.float32]:
    """Brightness (...) of colours (..., C), in the range of the colours; what is transparent is black."""
    channels = pixels.shape[-1]
    if channels not in (2, 3, 4):
        raise ScopeRegError(f"each pixel holds {channels} numbers", where=where, fix="store grey or RGB images")
    values = pixels.astype(np.float32)
    # Sums in a fixed order: a matrix product rounds by how the pixels lie in memory.
    red, green, blue = (values[..., min(channel, channels - 1)] for channel in range(3))
    grey = red if channels == 2 else _RED * red + _GREEN * green + _BLUE * blue
    if channels in (2, 4):
        opaque = np.float32(np.iinfo(pixels.dtype).max) if pixels.dtype.kind == "u" else np.float32(1)
        grey = grey * values[..., -1] / opaque
    brightest: npt.NDArray[np.float32] = grey
    return brightest
