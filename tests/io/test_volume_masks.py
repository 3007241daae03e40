"""Masks of volumes: label maps of any grid in the same world; what is labelled counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.io import read_volume

GREY = np.random.default_rng(3).integers(20, 250, (6, 8, 10)).astype(np.uint8)
DRAWN = np.zeros((6, 8, 10), np.uint8)
DRAWN[1:4, 2:7, 3:9] = 3
TURNED = Pose.from_euler_deg((10, 20, 30), (0, 0, 0)).rotation
PLACE = ((0.5, 0.6, 0.7), (10.0, -20.0, 30.0))


def saved(pixels: np.ndarray, path: Path, spacing: tuple = PLACE[0], origin: tuple = PLACE[1], axes=TURNED) -> Path:
    image = sitk.GetImageFromArray(pixels)
    image.SetSpacing(spacing)
    image.SetOrigin(origin)
    image.SetDirection(np.asarray(axes).ravel().tolist())
    sitk.WriteImage(image, str(path))
    return path


@pytest.mark.parametrize("ending", [".nii.gz", ".nrrd", ".mha"])
@pytest.mark.parametrize("handed", [1, -1])
def test_what_is_labelled_counts(tmp_path: Path, ending: str, handed: int) -> None:
    """Also where slices are read in the opposite order."""
    axes = TURNED * [1, 1, handed]
    volume = saved(GREY, tmp_path / f"a{ending}", axes=axes)
    read = read_volume(volume, volume_mask=saved(DRAWN, tmp_path / f"mask{ending}", axes=axes))
    assert read.mask is not None
    assert np.array_equal(read.mask.numpy(), DRAWN[::handed] > 0)
    assert np.array_equal(read.numpy(), read_volume(volume).numpy())
    assert f"by the volume mask mask{ending} 19% of the volume counts" in read.facts["notes"]
    assert read.facts["volume_mask"] == f"mask{ending}"
    assert len(read.facts["volume_mask_sha256"]) == 64


def test_a_mask_of_another_grid_lies_where_it_says(tmp_path: Path) -> None:
    """Finer and larger than the volume: part of it lies outside, which is told."""
    volume = saved(GREY, tmp_path / "a.nii.gz")
    fine = np.kron(np.pad(DRAWN, ((0, 0), (0, 0), (0, 4)), mode="edge"), np.ones((2, 2, 2), np.uint8))
    fine[2:8, 4:14, 16:] = 1
    half = np.array(PLACE[0]) / 2
    first = np.array(PLACE[1]) - TURNED @ (half / 2)
    read = read_volume(volume, volume_mask=saved(fine, tmp_path / "mask.nrrd", tuple(half), tuple(first)))
    assert read.mask is not None
    assert np.array_equal(read.mask.numpy()[..., :8], DRAWN[..., :8] > 0)
    assert read.facts["notes"][-1] == "36% of the mask lies outside of the volume"


def test_everything(tmp_path: Path) -> None:
    volume = saved(GREY, tmp_path / "a.nii.gz")
    read = read_volume(volume, volume_mask=saved(0 * DRAWN + 1, tmp_path / "all.mha"))
    assert "by the volume mask all.mha nothing of the volume is left out" in read.facts["notes"]


def test_masks_that_cannot_be(tmp_path: Path) -> None:
    dark = GREY * (np.arange(10) < 3)
    volume, half = saved(GREY, tmp_path / "a.nii.gz"), saved(dark.astype(np.uint8), tmp_path / "dark.nii.gz")
    (tmp_path / "mask.doc").write_text("mask")
    bad = {
        "all of it is 0": saved(0 * DRAWN, tmp_path / "empty.nrrd"),
        "none of its labelled voxels lies in the volume": saved(DRAWN, tmp_path / "far.mha", origin=(500, 0, 0)),
        "numbers that are not whole": saved(DRAWN * np.float32(0.3), tmp_path / "shares.nii.gz"),
        "unknown ending": tmp_path / "mask.doc",
        "there is no such file": tmp_path / "none.nrrd",
    }
    for words, mask in bad.items():
        with pytest.raises(ScopeRegError, match=words) as caught:
            read_volume(volume, volume_mask=mask)
        assert str(mask) in caught.value.where
    with pytest.raises(ScopeRegError, match="nothing of the volume counts: it is black there"):
        read_volume(half, volume_mask=saved(DRAWN, tmp_path / "mask.mha"))


def test_where_a_file_says_nothing_of_its_place_the_grid_must_be_the_same(tmp_path: Path) -> None:
    volume = saved(GREY, tmp_path / "a.nrrd", origin=(0, 0, 0), axes=np.eye(3))
    content = (tmp_path / "a.nrrd").read_bytes()
    head, body = content.split(b"\n\n", 1)
    lines = [b"spacings: 0.5 0.6 0.7" if b"space directions" in line else line for line in head.split(b"\n")]
    plain = b"\n".join(line for line in lines if not line.startswith((b"space", b"kinds")))
    if b"spacings" not in plain:
        plain += b"\nspacings: 0.5 0.6 0.7"
    (tmp_path / "a.nrrd").write_bytes(plain + b"\n\n" + body)
    same = saved(DRAWN, tmp_path / "same.mha", origin=(0, 0, 0), axes=np.eye(3))
    assert read_volume(volume, volume_mask=same).mask is not None
    other = saved(DRAWN, tmp_path / "other.mha", origin=(0.1, 0, 0), axes=np.eye(3))
    with pytest.raises(ScopeRegError, match="nobody can tell where its labels lie"):
        read_volume(volume, volume_mask=other)
