"""Any folder of volumes becomes a set of one spacing and shape, or an error that names the odd ones."""

from __future__ import annotations

import locale
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk
import torch

from scopereg.data.folder import load_folder
from scopereg.errors import ScopeRegError

WriteSeries = Callable[..., np.ndarray]
RNG = np.random.default_rng(0)


def write(path: Path, shape: tuple[int, ...] = (16, 24, 32), spacing: Any = 1.0, array: Any = None) -> np.ndarray:
    """A volume (z, y, x) of noise around its middle's brightness, spacing x, y, z."""
    array = RNG.integers(0, 256, shape).astype(np.uint8) if array is None else array
    image = sitk.GetImageFromArray(array)
    image.SetSpacing([float(spacing)] * array.ndim if np.ndim(spacing) == 0 else spacing)
    path.parent.mkdir(parents=True, exist_ok=True)
    sitk.WriteImage(image, str(path))
    return array


def test_every_format_is_read_in_order(tmp_path: Path) -> None:
    for name in ("b.nrrd", "a.nii.gz", "p1/c.mha", "p1/d.mhd", "p1/deep/e.nii"):
        write(tmp_path / name)
    volumes = load_folder(tmp_path)
    assert volumes.cases == ("a", "b", "p1/c", "p1/d", "p1/deep/e")
    assert volumes.patients == ("a", "b", "p1", "p1", "p1")
    assert (volumes.shape, volumes.spacing_mm, volumes.margin) == ((16, 24, 32), 1.0, (0, 0, 0))
    assert volumes.labels is None
    assert load_folder(tmp_path, patient_of=lambda case: case[-1]).patients == ("a", "b", "c", "d", "e")


def test_voxels_are_scaled_by_percentiles(tmp_path: Path) -> None:
    array = write(tmp_path / "a.nii.gz").astype(float)
    low, high = np.percentile(array, (1, 99))
    expected = ((array - low) / (high - low)).clip(0, 1)
    assert np.abs(load_folder(tmp_path).references(torch.tensor([0]))[0].numpy() - expected).max() < 0.51 / 255


def test_one_spacing_for_all(tmp_path: Path) -> None:
    write(tmp_path / "fine.nii.gz", (32, 48, 64), 0.5)
    write(tmp_path / "coarse.nii.gz", (16, 24, 32), (1.0, 1.0, 1.0))
    write(tmp_path / "flat.nii.gz", (8, 24, 32), (1.0, 1.0, 2.0))
    volumes = load_folder(tmp_path)
    assert (volumes.shape, volumes.spacing_mm) == ((16, 24, 32), 1.0)
    assert load_folder(tmp_path, spacing_mm=0.5).shape == (32, 48, 64)


def test_a_size_makes_square_slices(tmp_path: Path) -> None:
    write(tmp_path / "a.nii.gz", (16, 24, 32))
    volumes = load_folder(tmp_path, size=16)
    assert (volumes.shape, volumes.spacing_mm) == ((8, 16, 16), 2.0)
    assert volumes.facts["notes"] == {"padded with black": ["a"]}
    assert (volumes.images[0, :, :2] == 0).all()
    assert (volumes.images[0, :, 2:-2] > 0).float().mean() > 0.9
    assert load_folder(tmp_path, size=24, spacing_mm=1.0).shape == (16, 24, 24)


def test_sizes_become_multiples_of_eight(tmp_path: Path) -> None:
    write(tmp_path / "a.nii.gz", (10, 27, 33))
    assert load_folder(tmp_path).shape == (10, 24, 32)


def test_odd_shapes_are_named_and_can_be_mended(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"{name}.nii.gz")
    write(tmp_path / "odd.nii.gz", (16, 40, 26))
    with pytest.raises(ScopeRegError, match="2 of 3 volumes have 16 x 24 x 32 voxels") as caught:
        load_folder(tmp_path)
    assert "odd (16 x 40 x 26)" in caught.value.what
    assert "shape=(16, 24, 24)" in caught.value.fix
    volumes = load_folder(tmp_path, shape=(16, 32, 32))
    assert (len(volumes), volumes.shape) == (3, (16, 32, 32))
    assert (volumes.images[2, :, :, :3] == 0).all()
    assert (volumes.images[0, :, :4] == 0).all()


def test_a_margin_is_taken_from_the_volume_and_mirrored_beyond(tmp_path: Path) -> None:
    array = write(tmp_path / "a.nii.gz", (24, 40, 48))
    inside = load_folder(tmp_path, margin=(4, 8, 8))
    assert (inside.shape, tuple(inside.images.shape[1:])) == ((16, 24, 32), (24, 40, 48))
    low, high = np.percentile(array[4:-4, 8:-8, 8:-8].astype(float), (1, 99))
    assert np.abs(inside.images[0].numpy() - (255 * (array - low) / (high - low)).clip(0, 255)).max() < 0.51
    beyond = load_folder(tmp_path, shape=(24, 40, 48), margin=(2, 0, 0)).images[0]
    assert torch.equal(beyond[:2], beyond[2:4].flip(0))


def test_labels_beside_their_volumes(tmp_path: Path) -> None:
    labels = RNG.integers(0, 3, (16, 24, 32)).astype(np.uint8)
    write(tmp_path / "a.nii.gz")
    write(tmp_path / "a_seg.nii.gz", array=labels)
    write(tmp_path / "echo0000" / "volume.nii.gz")
    write(tmp_path / "echo0000" / "labels.nii.gz", array=labels)
    volumes = load_folder(tmp_path)
    assert volumes.cases == ("a", "echo0000/volume")
    assert volumes.labels is not None
    assert np.array_equal(volumes.labels[0], labels)
    assert np.array_equal(volumes.labels[1], labels)
    write(tmp_path / "b.nii.gz")
    with pytest.raises(ScopeRegError, match="1 of 3 cases have no labels: b"):
        load_folder(tmp_path)
    assert len(load_folder(tmp_path, skip_bad=True)) == 2
    assert load_folder(tmp_path, labels=False).labels is None
    write(tmp_path / "b_gt.nii.gz", array=labels[:8])
    with pytest.raises(ScopeRegError, match="grid of their volume"):
        load_folder(tmp_path)


def test_bad_files_are_named_or_counted(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write(tmp_path / f"{name}.nii.gz")
    (tmp_path / "b.nii.gz").write_bytes((tmp_path / "b.nii.gz").read_bytes()[:3000])
    with pytest.raises(ScopeRegError, match=r"b\.nii\.gz"):
        load_folder(tmp_path)
    (tmp_path / "c.nii.gz").write_bytes(b"no image")
    write(tmp_path / "picture.nii.gz", (24, 32))
    write(tmp_path / "zeros.nii.gz", array=np.zeros((16, 24, 32), np.uint8))
    volumes = load_folder(tmp_path, skip_bad=True)
    assert volumes.cases == ("a",)
    assert sorted(volumes.facts["skipped"]) == ["b", "c", "picture", "zeros"]
    assert str(tmp_path) not in str(volumes.facts)


def test_a_volume_without_the_size_of_its_voxels_is_none(tmp_path: Path) -> None:
    header = "NRRD0004\ntype: uchar\ndimension: 3\nsizes: 32 24 16\nencoding: raw\n\n"
    (tmp_path / "a.nrrd").write_bytes(header.encode() + RNG.bytes(32 * 24 * 16))
    with pytest.raises(ScopeRegError, match="how large a voxel is"):
        load_folder(tmp_path)


def test_empty_and_wrong_folders(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing here")
    with pytest.raises(ScopeRegError, match="no volumes"):
        load_folder(tmp_path)
    (tmp_path / "a.nii.gz").write_bytes(b"no image")
    with pytest.raises(ScopeRegError, match="none of 1 volumes"):
        load_folder(tmp_path, skip_bad=True)
    write(tmp_path / "a.nii.gz")
    for options in ({"margin": (8, 0, 0)}, {"spacing_mm": 5.0}, {"shape": (2, 24, 32)}):
        with pytest.raises(ScopeRegError, match="reference field"):
            load_folder(tmp_path, **options)
    with pytest.raises(ScopeRegError, match="spacing_mm"):
        load_folder(tmp_path, spacing_mm=0)


def test_dicom_series(tmp_path: Path, write_series: WriteSeries) -> None:
    before = locale.setlocale(locale.LC_ALL)
    array = write_series(tmp_path)
    volumes = load_folder(tmp_path)
    assert locale.setlocale(locale.LC_ALL) == before
    assert (len(volumes), volumes.shape, volumes.spacing_mm) == (1, (8, 24, 32), pytest.approx(1.0))
    assert np.corrcoef(volumes.images[0].numpy().ravel(), array.ravel())[0, 1] > 0.99
    assert len(volumes.facts["sources_sha256"]) == 8


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({3: None}, "missing or uneven"),
        ({3: {"PatientID": "P2"}}, "different patients"),
        ({3: {"SeriesInstanceUID": "1.2.4"}}, "missing or uneven"),  # the slice is another series, which leaves a gap
        ({3: {"ImagePositionPatient": [0, 0, 2]}}, "another one does"),
        ({3: {"PixelSpacing": None}}, "does not tell its place, its axes and its pixel size"),
    ],
)
def test_dicom_series_with_wrong_slices_are_bad_cases(
    tmp_path: Path, write_series: WriteSeries, changes: dict[int, Any], reason: str
) -> None:
    """ITK's reader takes all of these for whole volumes."""
    write_series(tmp_path / "good")
    write_series(tmp_path / "wrong", changes)
    with pytest.raises(ScopeRegError, match=reason):
        load_folder(tmp_path)
    volumes = load_folder(tmp_path, skip_bad=True)
    assert volumes.cases == ("good",)
    assert reason in volumes.facts["skipped"]["wrong"]


# Nothing, before the mark of DICOM, within the first words, and before the size of the image.
@pytest.mark.parametrize("length", [0, 100, 140, 400])
def test_a_damaged_slice_spoils_its_series_alone(tmp_path: Path, write_series: WriteSeries, length: int) -> None:
    write_series(tmp_path / "good")
    write_series(tmp_path / "wrong")
    damaged = tmp_path / "wrong" / "slice7.dcm"
    damaged.write_bytes(damaged.read_bytes()[:length])
    with pytest.raises(ScopeRegError, match=r"slice7\.dcm: (no slice of a volume|not a DICOM file)"):
        load_folder(tmp_path)
    assert load_folder(tmp_path, skip_bad=True).cases == ("good",)
