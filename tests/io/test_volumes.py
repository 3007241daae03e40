"""Volumes as files: what cannot be stored is refused, and nothing half-written stays."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk
import torch

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Volume
from scopereg.io import read_volume, write_volume
from scopereg.io.read_image import endings
from scopereg.io.stored import is_anatomical
from scopereg.io.volumes import read_foreign, write_labels


@pytest.mark.parametrize("ending", endings(written=True))
def test_a_volume_reads_back_in_its_place(tmp_path: Path, ending: str) -> None:
    volume = Volume(torch.rand(3, 4, 5), spacing_mm=(0.5, 0.6, 0.7), origin_mm=(1.0, -2.0, 3.0))
    image = sitk.ReadImage(str(write_volume(volume, tmp_path / f"v{ending}")))
    assert np.allclose(sitk.GetArrayFromImage(image), volume.numpy())
    assert np.allclose(image.GetSpacing(), volume.spacing_mm)
    assert np.allclose(image.GetOrigin(), volume.origin_mm)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("name", ["v.mhd", "v.png", "V.NII.GZ"])
def test_other_endings_are_refused_and_leave_nothing(tmp_path: Path, name: str) -> None:
    with pytest.raises(ScopeRegError, match=name):
        write_volume(Volume(torch.rand(3, 4, 5), spacing_mm=1.0), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_labels_that_do_not_fit_a_byte_are_refused(tmp_path: Path) -> None:
    volume = Volume(torch.rand(2, 2, 2), spacing_mm=1.0, labels=torch.full((2, 2, 2), 300))
    with pytest.raises(ScopeRegError, match="300"):
        write_labels(volume, tmp_path / "l.nii.gz")
    with pytest.raises(ScopeRegError, match="no labels"):
        write_labels(Volume(torch.rand(2, 2, 2), spacing_mm=1.0), tmp_path / "l.nii.gz")


VOXELS = np.random.default_rng(0).random((4, 6, 8)).astype(np.float32)
AXES = Pose.from_euler_deg((15, -25, 35), (0, 0, 0)).rotation
SPACING, ORIGIN = (0.5, 0.6, 0.7), (1.0, -2.0, 3.0)


def write(path: Path, axes: np.ndarray = AXES, voxels: np.ndarray = VOXELS) -> sitk.Image:
    image = sitk.GetImageFromArray(voxels)
    image.SetSpacing(SPACING)
    image.SetOrigin(ORIGIN)
    image.SetDirection(axes.ravel().tolist())
    sitk.WriteImage(image, str(path))
    return image


def edited(path: Path, *changes: tuple[int, str, Any]) -> Path:
    """The NIfTI header with numbers at some bytes replaced."""
    content = bytearray(path.read_bytes())
    for at, form, values in changes:
        struct.pack_into(f"<{form}", content, at, *np.atleast_1d(values).tolist())
    path.write_bytes(content)
    return path


def sform(axes: np.ndarray, spacing: tuple[float, ...] = SPACING) -> tuple[int, str, Any]:
    """The sform that puts the first voxel to the origin, for `edited`."""
    rows = np.column_stack([np.diag([-1, -1, 1]) @ axes @ np.diag(spacing), np.array(ORIGIN) * [-1, -1, 1]])
    return 280, "12f", rows.ravel()


@pytest.mark.parametrize("handed", [1, -1])
@pytest.mark.parametrize("ending", [".nii.gz", ".nrrd", ".mha", ".mhd"])
def test_every_voxel_keeps_its_place(tmp_path: Path, ending: str, handed: int) -> None:
    image = write(tmp_path / f"v{ending}", AXES * [1, 1, handed])
    volume = read_volume(tmp_path / f"v{ending}")
    assert np.linalg.det(volume.direction) == pytest.approx(1)
    steps = volume.direction * np.array(volume.spacing_mm)
    for x, y, z in ((0, 0, 0), (7, 0, 0), (3, 4, 1)):
        place = np.array(volume.origin_mm) + steps @ (x, y, z)
        there = image.TransformPhysicalPointToIndex(place.tolist())
        assert np.allclose(image.TransformIndexToPhysicalPoint(there), place, atol=1e-4)
        assert volume.numpy()[z, y, x] == pytest.approx(image[there])
    assert any("left-handed" in note for note in volume.facts["notes"]) == (handed == -1)


def test_a_written_volume_reads_back(tmp_path: Path) -> None:
    write(tmp_path / "a.mha")
    first = read_volume(tmp_path / "a.mha")
    again = read_volume(write_volume(first, tmp_path / "b.nii.gz"))
    assert np.array_equal(again.numpy(), first.numpy())
    assert np.allclose(again.direction, first.direction, atol=1e-6)
    assert np.allclose(again.origin_mm, first.origin_mm, atol=1e-5)


def test_ras_headers_become_lps(tmp_path: Path) -> None:
    header = (
        "NRRD0004\ntype: uchar\ndimension: 3\nspace: right-anterior-superior\nsizes: 2 2 2\nencoding: raw\n"
        "space directions: (0.5,0,0) (0,0.6,0) (0,0,0.7)\nspace origin: (1,2,3)\n\n"
    )
    (tmp_path / "a.nrrd").write_bytes(header.encode() + bytes(range(0, 240, 30)))
    volume = read_volume(tmp_path / "a.nrrd")
    assert volume.origin_mm == (-1, -2, 3)
    assert np.allclose(volume.direction, np.diag([-1, -1, 1]))
    assert float(volume.array.max()) == pytest.approx(210 / 255)  # bytes become 0 to 1


def test_sheared_axes_are_refused(tmp_path: Path) -> None:
    sheared = np.array([[1, 0.2, 0], [0, np.sqrt(0.96), 0], [0, 0, 1]])
    for name in ("a.nrrd", "a.mha"):
        write(tmp_path / name, sheared)
        with pytest.raises(ScopeRegError, match="sheared: cosines"):
            read_volume(tmp_path / name)
    write(tmp_path / "a.nii", np.eye(3))
    path = edited(tmp_path / "a.nii", (252, "2h", [0, 1]), sform(sheared))
    with pytest.raises(ScopeRegError, match="orthonormal"):
        read_volume(path)


def test_two_orientations_that_disagree_are_told(tmp_path: Path) -> None:
    write(tmp_path / "a.nii", np.eye(3))
    assert read_volume(tmp_path / "a.nii").facts["notes"] == []
    for codes, used, expected in (([1, 1], "sform", AXES), ([1, 2], "qform", np.eye(3))):
        volume = read_volume(edited(tmp_path / "a.nii", (252, "2h", codes), sform(AXES)))
        assert np.allclose(volume.direction, expected, atol=1e-5)
        assert volume.facts["notes"] == [f"sform and qform of the NIfTI header disagree; the {used} is used"]
    unknown = read_volume(edited(tmp_path / "a.nii", (252, "2h", [0, 0])))
    assert "states no orientation" in unknown.facts["notes"][0]


def test_an_oblique_header_does_not_disagree_with_itself(tmp_path: Path) -> None:
    for handed in (1, -1):
        write(tmp_path / "a.nii", AXES * [1, 1, handed])
        assert not any("disagree" in note for note in read_volume(tmp_path / "a.nii").facts["notes"])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ([(80, "3f", [0, 0, 0]), (252, "2h", [0, 0])], "how large a voxel is"),
        ([(252, "2h", [0, 1]), sform(AXES, (0.3, 0.3, 0.3))], "contradicts itself"),
        ([(123, "B", 3)], "micrometres"),
    ],
)
def test_nifti_sizes_are_never_made_up(tmp_path: Path, changes: list[Any], reason: str) -> None:
    write(tmp_path / "a.nii", np.eye(3))
    with pytest.raises(ScopeRegError, match=reason):
        read_volume(edited(tmp_path / "a.nii", *changes))


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("a.mha", "ObjectType = Image\nNDims = 3\nDimSize = 2 2 2\nElementType = MET_UCHAR\nElementDataFile = LOCAL\n"),
        ("a.nrrd", "NRRD0004\ntype: uchar\ndimension: 3\nsizes: 2 2 2\nencoding: raw\n\n"),
    ],
)
def test_files_without_a_voxel_size_are_asked_about(tmp_path: Path, name: str, header: str) -> None:
    (tmp_path / name).write_bytes(header.encode() + bytes(range(8)))
    with pytest.raises(ScopeRegError, match="how large a voxel is") as caught:
        read_volume(tmp_path / name)
    assert "spacing_mm=" in caught.value.fix
    assert read_volume(tmp_path / name, spacing_mm=(1, 2, 3)).spacing_mm == (1, 2, 3)


def test_a_given_spacing_wins_and_says_so(tmp_path: Path) -> None:
    write(tmp_path / "a.mha")
    volume = read_volume(tmp_path / "a.mha", spacing_mm=0.25)
    assert volume.spacing_mm == (0.25, 0.25, 0.25)
    assert "0.5 x 0.6 x 0.7" in volume.facts["notes"][0]


def test_points_in_time_are_chosen(tmp_path: Path) -> None:
    times = np.random.default_rng(1).random((3, 4, 6, 8)).astype(np.float32)
    image = sitk.JoinSeries([sitk.GetImageFromArray(volume) for volume in times])
    sitk.WriteImage(image, str(tmp_path / "a.nii.gz"))
    assert np.array_equal(read_volume(tmp_path / "a.nii.gz", index=1).numpy(), times[1])
    for index in (None, 3):
        with pytest.raises(ScopeRegError, match="3 volumes"):
            read_volume(tmp_path / "a.nii.gz", index=index)
    write(tmp_path / "b.mha")
    with pytest.raises(ScopeRegError, match="it holds one volume"):
        read_volume(tmp_path / "b.mha", index=1)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ScopeRegError, match="no such file or folder"):
        read_volume(tmp_path / "none.nii.gz")
    (tmp_path / "a.png").write_bytes(b"hello")
    with pytest.raises(ScopeRegError, match="unknown kind of volume"):
        read_volume(tmp_path / "a.png")
    write(tmp_path / "flat.mha", voxels=VOXELS[:1])
    with pytest.raises(ScopeRegError, match="8 x 6 x 1 pixels, which is no volume"):
        read_volume(tmp_path / "flat.mha")
    write(tmp_path / "a.mha")
    with pytest.raises(ScopeRegError, match="not a folder of series"):
        read_volume(tmp_path / "a.mha", series="1.2")
    text = (
        (tmp_path / "a.mha").read_bytes().replace(b"ElementDataFile", b"Seq_Frame0000_Timestamp = 1\nElementDataFile")
    )
    (tmp_path / "a.mha").write_bytes(text)
    with pytest.raises(ScopeRegError, match="a sequence of frames"):
        read_volume(tmp_path / "a.mha")


def test_importing_the_package_imports_no_reader() -> None:
    import subprocess
    import sys

    code = "import sys, scopereg.io; print([m for m in ('SimpleITK', 'pydicom', 'torch') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_a_patients_axes_are_told_from_those_of_a_phantom(tmp_path: Path) -> None:
    """Every NIfTI form says left, back and head: what lies in no patient says so besides."""
    made = Volume(np.random.default_rng(0).random((4, 5, 6)), 0.5)
    phantom = read_volume(write_volume(made, tmp_path / "phantom.nii.gz"))
    assert not is_anatomical(phantom)
    assert not is_anatomical(made)
    image = sitk.GetImageFromArray(made.numpy())
    image.SetSpacing((0.5, 0.5, 0.5))
    sitk.WriteImage(image, tmp_path / "patient.nii.gz")
    patient = read_volume(tmp_path / "patient.nii.gz")
    assert is_anatomical(patient)
    assert is_anatomical(read_foreign(tmp_path / "patient.nii.gz"))
    assert not is_anatomical(read_foreign(tmp_path / "phantom.nii.gz"))
    again = write_volume(patient, tmp_path / "again.nii")
    assert is_anatomical(read_volume(again))
    assert not is_anatomical(read_volume(write_volume(patient, tmp_path / "again.mha")))  # it always says the same
