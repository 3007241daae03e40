"""Readers of the child for pictures: by Pillow, and by ITK where Pillow would drop bits of a 16-bit picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageFile

from scopereg.errors import ScopeRegError
from scopereg.io.limits import check_size

Image.MAX_IMAGE_PIXELS = None  # `check_size` is asked instead, before any pixel is decoded
ImageFile.LOAD_TRUNCATED_IMAGES = False
_KINDS = ("PNG", "JPEG", "BMP", "TIFF")
_BYTES = {"1": 1, "L": 1, "P": 1, "LA": 2, "PA": 2, "RGB": 3, "RGBA": 4}
_BYTES |= {"I;16": 2, "I;16B": 2, "I;16L": 2, "I": 4, "F": 4}
_SAVE_GREY = "save it as a grey or RGB picture"


def picture(path: Path) -> tuple[list[Any], dict[str, Any]]:
    """Pixels (pages, H, W), colours last, of a picture; each page of a TIFF, one of the others."""
    with Image.open(path, formats=_KINDS) as image:
        pages = getattr(image, "n_frames", 1) if image.format == "TIFF" else 1
        if image.mode not in _BYTES:
            raise ScopeRegError(f"its pixels are of the kind {image.mode}", where=path.name, fix=_SAVE_GREY)
        deep = _is_deep(image)
        check_size((pages, image.height, image.width), _BYTES[image.mode] * (1 + deep), path.name)
        if deep:
            return [_by_itk(path, pages)], {}
        first = _pixels(image)
        if pages == 1:
            return [first[None]], {}
        planes = np.empty((pages, *first.shape), first.dtype)
        planes[0] = first
        for page in range(1, pages):
            image.seek(page)
            check_size(image.size, _BYTES.get(image.mode, 4), path.name)
            pixels = _pixels(image)
            if (pixels.shape, pixels.dtype) != (first.shape, first.dtype):
                raise ScopeRegError("its pages differ in size or colour", where=path.name, fix="pass one page")
            planes[page] = pixels
    return [planes], {}


def _pixels(image: Any) -> Any:
    """Pixels as ITK gave them: a palette looked up, a transparent colour as a channel of its own."""
    clear = "transparency" in image.info
    if image.mode in ("P", "PA"):
        image = image.convert("RGBA" if clear or image.mode == "PA" else "RGB")
    elif image.mode == "1":
        image = image.convert("L")
    elif clear and image.mode in ("L", "RGB"):
        image = image.convert(f"{image.mode}A")
    return np.asarray(image)


def _is_deep(image: Any) -> bool:
    """Whether it has colours or transparency of 16 bits, of which Pillow keeps eight."""
    return image.mode in ("LA", "RGB", "RGBA") and any(";16" in str(tile[3]) for tile in image.tile)


def _by_itk(path: Path, pages: int) -> Any:
    import SimpleITK as sitk

    pixels = sitk.GetArrayFromImage(sitk.ReadImage(str(path)))
    return pixels if pages > 1 else pixels[None]
