"""Images from files: whole ones as they are, damaged ones never."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk

from scopereg.errors import ScopeRegError
from scopereg.io.read_image import content_sha256, endings, files_of, read_header, read_image

VOXELS = np.random.default_rng(0).integers(0, 256, (5, 12, 14)).astype(np.uint8)
ENDINGS = tuple(ending for ending in endings() if ending != ".nhdr")


def write(path: Path, voxels: np.ndarray = VOXELS) -> Path:
    image = sitk.GetImageFromArray(voxels)
    image.SetSpacing([0.5, 0.6, 0.7][: image.GetDimension()] + [1.0] * (image.GetDimension() - 3))
    sitk.WriteImage(image, str(path))
    return path


@pytest.mark.parametrize("ending", ENDINGS)
def test_whole_files_are_read(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"v{ending}")
    image = read_image(path)
    assert np.array_equal(image.array, VOXELS)
    assert image.spacing_mm == pytest.approx((0.5, 0.6, 0.7))
    assert np.allclose(image.direction, np.eye(3))
    size, spacing_mm, *_ = read_header(path)
    assert (size, spacing_mm) == ((14, 12, 5), pytest.approx((0.5, 0.6, 0.7)))


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("share", [0.2, 0.6, 0.998])
def test_files_cut_short_are_refused(tmp_path: Path, ending: str, share: float) -> None:
    path = write(tmp_path / f"v{ending}")
    voxels = files_of(path)[-1]
    content = voxels.read_bytes()
    voxels.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ScopeRegError) as caught:
        read_image(path)
    assert caught.value.where == str(path)
    assert str(tmp_path) not in caught.value.what


def test_a_whole_archive_of_half_a_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "v.nii.gz")
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-10]))
    with pytest.raises(ScopeRegError, match="cut short"):
        read_image(path)


def test_big_endian_headers_are_understood(tmp_path: Path) -> None:
    path = write(tmp_path / "v.nii")
    content = bytearray(path.read_bytes())
    shorts = [*range(40, 56, 2), 70, 72, 252, 254]  # dim, datatype, bitpix, qform and sform codes
    floats = [0, *range(76, 120, 4), *range(256, 328, 4)]  # header size, pixdim, offset, scale, quaternion, sform
    for start, length in [*((s, 2) for s in shorts), *((s, 4) for s in floats)]:
        content[start : start + length] = content[start : start + length][::-1]
    path.write_bytes(content)
    assert np.array_equal(read_image(path).array, VOXELS)
    path.write_bytes(content[:-1])
    with pytest.raises(ScopeRegError, match="cut short"):
        read_image(path)


def test_other_bad_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ScopeRegError, match="no such file"):
        read_image(tmp_path / "absent.nii.gz")
    for name in ("junk.nii.gz", "junk.nii", "junk.nrrd", "junk.mha"):
        (tmp_path / name).write_bytes(b"hello")
        with pytest.raises(ScopeRegError, match=name):
            read_image(tmp_path / name)
    holes = VOXELS.astype(np.float32)
    holes[0, 0, 0] = np.nan
    with pytest.raises(ScopeRegError, match="1 of 840 values"):
        read_image(write(tmp_path / "nan.mha", holes))
    colours = sitk.GetImageFromArray(np.zeros((3, 4, 5, 3), np.uint8), isVector=True)
    sitk.WriteImage(colours, str(tmp_path / "rgb.mha"))
    with pytest.raises(ScopeRegError, match="3 numbers"):
        read_image(tmp_path / "rgb.mha")


def test_hashes_follow_the_voxels_not_the_header_alone(tmp_path: Path) -> None:
    first = write(tmp_path / "a.mhd")
    assert [path.name for path in files_of(first)] == ["a.mhd", "a.raw"]
    before = content_sha256(files_of(first))
    voxels = bytearray((tmp_path / "a.raw").read_bytes())
    voxels[7] ^= 1
    (tmp_path / "a.raw").write_bytes(voxels)
    assert content_sha256(files_of(first)) != before
