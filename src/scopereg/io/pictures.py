"""Small pictures for reports: grey images, differences, PNG bytes. No plotting library needed."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from scopereg.errors import ScopeRegError

Pixels = npt.NDArray[np.uint8]


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

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, colour_type, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b"")


def data_uri(pixels: Pixels) -> str:
    """The picture as text that an HTML page can hold."""
    return "data:image/png;base64," + base64.b64encode(png_bytes(pixels)).decode()
