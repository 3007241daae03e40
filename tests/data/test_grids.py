"""Resampling along axes: exact where it can be, averaging where it must, mirrored beyond the ends."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from scopereg.data.grids import as_label_bytes, centred_start, inner, mirrored, regrid, regrid_labels, to_uint8
from scopereg.errors import ScopeRegError

RNG = np.random.default_rng(0)


def centred(size: int, step: float, count: int) -> tuple[list[float], list[float], list[int]]:
    return [centred_start(size, step, count)], [step], [count]


def test_the_same_grid_gives_the_same_values() -> None:
    image = RNG.random((4, 5, 6), np.float32)
    assert np.array_equal(regrid(image, [0.0] * 3, [1.0] * 3, [4, 5, 6]), image)
    assert np.allclose(regrid(image, [1.0, 2.0, 3.0], [1.0] * 3, [2, 2, 2]), image[1:3, 2:4, 3:5])


def test_a_coarser_grid_averages_whole_blocks() -> None:
    line = RNG.random(12, np.float32)
    assert np.allclose(regrid(line, *centred(12, 3.0, 4)), line.reshape(4, 3).mean(1))
    assert np.allclose(regrid(line, *centred(12, 2.0, 6)), line.reshape(6, 2).mean(1))


def test_a_finer_grid_interpolates_linearly() -> None:
    line = np.arange(10, dtype=np.float32)
    assert np.allclose(regrid(line, [0.0], [0.3], [31]), 0.3 * np.arange(31), atol=1e-5)


@pytest.mark.parametrize("step", [0.4, 1.0, 1.7])
def test_a_constant_stays_and_a_ramp_stays_centred(step: float) -> None:
    assert np.allclose(regrid(np.full(9, 2.5, np.float32), *centred(9, step, 20)), 2.5)
    ramp = regrid(np.arange(21, dtype=np.float32), *centred(21, step, 5))
    # Whole old voxels are averaged, as if flat: a fractional step moves content by less than a tenth of one.
    assert np.allclose(ramp, 10 + step * np.arange(-2, 3), atol=1e-4 if step <= 1 else 0.1)


def test_beyond_the_ends_lies_the_mirror() -> None:
    assert mirrored(np.arange(-4, 8), 3).tolist() == [2, 2, 1, 0, 0, 1, 2, 2, 1, 0, 0, 1]
    line = np.array([1.0, 2.0, 3.0], np.float32)
    assert np.allclose(regrid(line, [-2.0], [1.0], [7]), [2, 1, 1, 2, 3, 3, 2])
    assert regrid_labels(line.astype(np.uint8), [-2.0], [1.0], [7]).tolist() == [2, 1, 1, 2, 3, 3, 2]


def test_labels_stay_classes() -> None:
    labels = RNG.integers(0, 4, (6, 7), np.uint8)
    assert set(np.unique(regrid_labels(labels, [0.0, 0.0], [0.37, 0.61], [14, 10]))) <= set(range(4))
    with pytest.raises(ScopeRegError, match="4"):
        as_label_bytes(np.array([0, 4]), "labels", highest=3)
    for bad in (np.array([0.5, 1]), np.array([-1, 1]), np.array([0, 300])):
        with pytest.raises(ScopeRegError, match="labels run"):
            as_label_bytes(bad, "labels")


def test_percentiles_of_the_field_alone_set_the_scale() -> None:
    image = np.full((20, 20), 1000.0)
    field = inner(image.shape, (5, 5))
    image[field] = np.linspace(0, 100, 100).reshape(10, 10)
    pixels = to_uint8(image, field, "image")
    assert (pixels[field].min(), pixels[field].max(), pixels[0, 0]) == (0, 255, 255)
    assert abs(int(pixels[field][5, 0]) - 128) < 3
    with pytest.raises(ScopeRegError, match="empty"):
        to_uint8(np.zeros((4, 4)), inner((4, 4), (0, 0)), "image")


def test_bytes_do_not_depend_on_the_number_of_threads() -> None:
    words = (
        "import hashlib, numpy as np; from scopereg.data.grids import regrid; "
        "voxels = np.random.default_rng(0).integers(0, 256, (20, 300, 400)).astype(np.uint8); "
        "made = regrid(voxels, [0.0, 20.3, 11.1], [19 / 31, 1.7, 1.9], [32, 128, 176]); "
        "print(hashlib.sha256(made.tobytes()).hexdigest())"
    )
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    made = {
        subprocess.check_output([sys.executable, "-c", words], env={**os.environ, **dict.fromkeys(names, count)})
        for count in ("1", "2", "4")
    }
    assert len(made) == 1
