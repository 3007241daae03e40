"""PNG bytes that other libraries read, and differences that show what they should."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk
import torch

from scopereg.errors import ScopeRegError
from scopereg.io.files import write_bytes
from scopereg.io.pictures import difference_pixels, grey_pixels, png_bytes


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
