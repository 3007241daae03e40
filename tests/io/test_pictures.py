"""Pictures are read as they were written or refused; PNG bytes that other libraries read; differences."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk
import torch
from mutations import survive
from PIL import Image

from scopereg.errors import ScopeRegError
from scopereg.io.files import write_bytes
from scopereg.io.limits import limit_of
from scopereg.io.pictures import difference_pixels, grey_pixels, png_bytes, read_picture


@pytest.mark.parametrize("shape", [(5, 7), (1, 1), (6, 3, 3)])
def test_png_reads_back_through_itk(tmp_path: Path, shape: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    path = write_bytes(tmp_path / "a.png", png_bytes(pixels))
    assert np.array_equal(sitk.GetArrayFromImage(sitk.ReadImage(str(path))), pixels)


@pytest.mark.parametrize("pixels", [np.zeros((4, 4)), np.zeros((4, 4, 2), np.uint8), np.zeros(4, np.uint8)])
def test_other_pixels_are_refused(pixels: np.ndarray) -> None:
    with pytest.raises(ScopeRegError, match="png_bytes"):
        png_bytes(pixels)


def test_grey_is_clamped() -> None:
    assert grey_pixels(torch.tensor([[-1.0, 0.5, 2.0]])).tolist() == [[0, 128, 255]]


def test_difference_is_black_for_a_mere_change_of_gain_and_coloured_for_a_shift() -> None:
    image = torch.rand(16, 16, generator=torch.Generator().manual_seed(0))
    assert difference_pixels(image, 0.5 * image + 0.2).max() <= 1
    brighter = image.clone()
    brighter[4, 4] += 2
    red, _, blue = difference_pixels(brighter, image)[4, 4].tolist()
    assert red > 100 > blue


def test_difference_ignores_what_is_not_seen() -> None:
    image = torch.rand(8, 8, generator=torch.Generator().manual_seed(1))
    other = image.clone()
    other[:, :4] = 5.0
    seen = torch.zeros(8, 8, dtype=torch.bool)
    seen[:, 4:] = True
    assert difference_pixels(image, other, seen).max() <= 1


PIXELS = np.random.default_rng(3).integers(0, 256, (24, 32)).astype(np.uint8)
COLOURS = np.random.default_rng(4).integers(0, 256, (24, 32, 3)).astype(np.uint8)
DEEP = np.random.default_rng(5).integers(0, 2**16, (24, 32, 3)).astype(np.uint16)


@pytest.mark.parametrize(
    ("pixels", "name", "options"),
    [
        (PIXELS, "a.png", {}),
        (COLOURS, "a.png", {}),
        (PIXELS, "a.bmp", {}),
        (COLOURS, "a.bmp", {}),
        (PIXELS, "a.tif", {}),
        (COLOURS, "a.tif", {"compression": "tiff_lzw"}),
        (PIXELS, "a.tiff", {"compression": "tiff_deflate"}),
        (DEEP[..., 0], "a.png", {}),
        (DEEP[..., 0], "a.tif", {}),
        (PIXELS.astype(np.float32), "a.tif", {}),
        (PIXELS > 128, "a.png", {}),
    ],
)
def test_pictures_are_read_as_they_were_written(
    tmp_path: Path, pixels: np.ndarray, name: str, options: dict[str, Any]
) -> None:
    Image.fromarray(pixels).save(tmp_path / name, **options)
    wanted = pixels.astype(np.uint8) * 255 if pixels.dtype == bool else pixels
    read = read_picture(tmp_path / name)
    assert np.array_equal(read, wanted[None])
    assert read.dtype == wanted.dtype


@pytest.mark.parametrize("name", ["a.png", "a.tif"])
def test_colours_of_sixteen_bits_keep_them(tmp_path: Path, name: str) -> None:
    sitk.WriteImage(sitk.GetImageFromArray(DEEP, isVector=True), str(tmp_path / name))
    assert np.array_equal(read_picture(tmp_path / name), DEEP[None])


def test_palettes_and_transparent_colours_are_looked_up(tmp_path: Path) -> None:
    palette = Image.fromarray(COLOURS).quantize(64)
    palette.save(tmp_path / "a.png")
    assert np.array_equal(read_picture(tmp_path / "a.png")[0], np.asarray(palette.convert("RGB")))
    palette.save(tmp_path / "b.png", transparency=3)
    clear = read_picture(tmp_path / "b.png")[0]
    assert clear.shape == (24, 32, 4)
    assert np.array_equal(clear[..., 3] == 0, np.asarray(palette) == 3)


def test_the_pages_of_a_tiff_are_a_cine(tmp_path: Path) -> None:
    pages = [Image.fromarray(np.roll(PIXELS, page, 0)) for page in range(3)]
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    assert np.array_equal(read_picture(tmp_path / "a.tif"), np.stack([np.asarray(page) for page in pages]))
    pages[0].save(tmp_path / "b.tif", save_all=True, append_images=[Image.fromarray(PIXELS[:9])])
    with pytest.raises(ScopeRegError, match="pages differ in size"):
        read_picture(tmp_path / "b.tif")


@pytest.mark.parametrize(("ending", "share"), [("jpg", 0.2), ("jpg", 0.9), ("bmp", 0.9), ("png", 0.9), ("tif", 0.5)])
def test_pictures_cut_short_are_refused(tmp_path: Path, ending: str, share: float) -> None:
    """JPEG cut to a fifth and BMP cut to nine tenths were read, grey where nothing was."""
    path = tmp_path / f"a.{ending}"
    Image.fromarray(np.tile(COLOURS, (8, 8, 1))).save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(ScopeRegError, match=r"cannot be read as a picture|cut short"):
        read_picture(path)


def test_every_flipped_bit_of_a_png_is_found(tmp_path: Path) -> None:
    content = png_bytes(PIXELS)
    rng = np.random.default_rng(0)
    for place in rng.choice(len(content) - 12, 60, replace=False):
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        (tmp_path / "a.png").write_bytes(damaged)
        with pytest.raises(ScopeRegError, match=r"a\.png"):
            read_picture(tmp_path / "a.png")


def test_pictures_larger_than_the_limit_take_no_memory(tmp_path: Path) -> None:
    """A PNG of 30,000 x 30,000 took 10 GB."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    for size, colour in ((30_000, 2), (2**31 - 1, 0)):
        head = struct.pack(">IIBBBBB", size, size, 8, colour, 0, 0, 0)
        data = zlib.compress(bytes(2**20), 9) * 3
        whole = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
        (tmp_path / "a.png").write_bytes(whole)
        with limit_of(1), pytest.raises(ScopeRegError, match=r"the limit is 1 GB|cannot be read"):
            read_picture(tmp_path / "a.png")


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16])
@pytest.mark.parametrize(("columns", "rows"), [(1, 1), (3, 5), (9, 8), (33, 2)])
def test_interlaced_pictures_are_as_long_as_they_say(tmp_path: Path, bits: int, columns: int, rows: int) -> None:
    """Pillow writes none: seven passes of black, and one byte more or less, which is refused."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    grid = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    length = 0
    for x, y, dx, dy in grid:
        across, down = len(range(x, columns, dx)), len(range(y, rows, dy))
        length += down * (1 + (across * bits + 7) // 8) if across else 0
    for more in (0, 1, -1):
        head = chunk(b"IHDR", struct.pack(">IIBBBBB", columns, rows, bits, 0, 0, 0, 1))
        data = chunk(b"IDAT", zlib.compress(bytes(length + more)))
        (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + head + data + chunk(b"IEND", b""))
        if more:
            with pytest.raises(ScopeRegError, match="pixels are damaged"):
                read_picture(tmp_path / "a.png")
        else:
            assert read_picture(tmp_path / "a.png").shape == (1, rows, columns)


@pytest.mark.parametrize("mode", ["CMYK", "LAB"])
def test_other_colours_are_refused_with_words(tmp_path: Path, mode: str) -> None:
    Image.new(mode, (5, 4)).save(tmp_path / "a.tif")
    with pytest.raises(ScopeRegError, match=mode) as caught:
        read_picture(tmp_path / "a.tif")
    assert "grey or RGB" in caught.value.fix


@pytest.mark.parametrize("ending", ["png", "jpg", "bmp", "tif"])
def test_mutated_pictures_are_read_or_refused(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.{ending}"
    Image.fromarray(COLOURS).save(path)

    def plausible(pixels: np.ndarray) -> None:
        assert pixels.ndim in (3, 4)
        assert 0 < pixels.size < 2**24

    with limit_of(0.05):
        ends = survive(read_picture, path.read_bytes(), path, 200, check=plausible)
    assert set(ends) <= {"read", "refused"}
    assert ends["refused"] > 50
