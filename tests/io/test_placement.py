"""Frames and cuts as oblique planes: every pixel where the pose puts it, read back by ITK and from the raw header."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk
import torch

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose, sample_slice
from scopereg.images import Frame, Volume, pose_to_voxels
from scopereg.io import read_frame, write_frame, write_placed_frame, write_resliced

POSE = Pose.from_euler_deg((35, -20, 65), (4, -5, 6))
PIXELS = torch.rand(7, 9, generator=torch.Generator().manual_seed(0))
FRAME = Frame(PIXELS, spacing_mm=(0.4, 0.6), origin_mm=(2.0, -1.0))


def pixel_mm(column: float, row: float) -> tuple[float, float, float]:
    return 2.0 + 0.4 * column, -1.0 + 0.6 * row, 0.0


@pytest.mark.parametrize("ending", [".nii.gz", ".nrrd", ".mha"])
def test_a_placed_frame_lies_where_the_pose_puts_it(tmp_path: Path, ending: str) -> None:
    image = sitk.ReadImage(str(write_placed_frame(FRAME, POSE, tmp_path / f"f{ending}")))
    assert image.GetSize() == (9, 7, 1)
    assert np.allclose(sitk.GetArrayFromImage(image)[0], PIXELS)
    for column, row in ((0, 0), (8, 0), (0, 6), (5, 3)):
        place = image.TransformIndexToPhysicalPoint((column, row, 0))
        assert np.allclose(place, POSE.apply(pixel_mm(column, row)), atol=1e-5)
    assert len(list(tmp_path.iterdir())) == 1


def test_the_nifti_header_is_in_ras(tmp_path: Path) -> None:
    """The sform as other programs read it, without ITK: x and y point the other way than in LPS."""
    header = write_placed_frame(FRAME, POSE, tmp_path / "f.nii").read_bytes()
    assert struct.unpack_from("<2h", header, 252)[1] > 0
    sform = np.array(struct.unpack_from("<12f", header, 280)).reshape(3, 4)
    assert np.allclose(sform @ [5, 3, 0, 1], POSE.apply(pixel_mm(5, 3)) * [-1, -1, 1], atol=1e-4)


@pytest.mark.parametrize("ending", [".nii.gz", ".nrrd", ".mha"])
def test_placed_frames_read_back_with_their_place(tmp_path: Path, ending: str) -> None:
    placed = read_frame(write_placed_frame(FRAME, POSE, tmp_path / f"f{ending}"))
    assert placed.pose is not None
    assert placed.pose.name == "ImageToWorld"
    assert np.allclose(placed.pose.apply((0.4 * 5, 0.6 * 3, 0)), POSE.apply(pixel_mm(5, 3)), atol=1e-5)
    own = read_frame(write_frame(FRAME, tmp_path / f"own{ending}"))
    assert own.pose is None
    assert own.origin_mm == pytest.approx(FRAME.origin_mm)
    assert own.spacing_mm == pytest.approx(FRAME.spacing_mm)
    assert np.allclose(own.numpy(), FRAME.numpy())


def test_the_volume_is_cut_as_torch_cuts_it(tmp_path: Path) -> None:
    z, y, x = torch.meshgrid(torch.arange(12.0), torch.arange(16.0), torch.arange(20.0), indexing="ij")
    axes = Pose.from_euler_deg((-15, 25, 5), (0, 0, 0)).rotation
    volume = Volume(3 + torch.sin(x / 3) + torch.cos(y / 4 + z / 2), 0.5, (30, 20, -10), axes)
    frame = Frame(torch.zeros(11, 13), spacing_mm=0.5)
    pose = Pose(axes @ Pose.from_euler_deg((8, -6, 20), (0, 0, 0)).rotation, volume.centre_mm + 0.2)
    image = sitk.ReadImage(str(write_resliced(volume, frame, pose, tmp_path / "cut.nii.gz")))
    cut = sample_slice(volume.array, *pose_to_voxels(pose, frame, volume), slice_shape=(11, 13))
    inside = cut.numpy() > 2.5  # pixels at the border fade to 0 in torch and end at once in ITK
    assert inside.mean() > 0.4
    assert np.allclose(sitk.GetArrayFromImage(image)[0][inside], cut.numpy()[inside], atol=1e-3)
    assert np.allclose(image.TransformIndexToPhysicalPoint((6, 5, 0)), volume.centre_mm + 0.2, atol=1e-5)


def test_a_flat_cut_through_uneven_voxels_is_the_plane_itself(tmp_path: Path) -> None:
    array = torch.rand(4, 5, 6, generator=torch.Generator().manual_seed(3))
    volume = Volume(array, spacing_mm=(0.4, 0.6, 2.0), origin_mm=(1, 2, 3))
    frame = Frame(torch.zeros(5, 6), spacing_mm=(0.4, 0.6), origin_mm=(1, 2))
    pose = Pose(np.eye(3), (0, 0, 3 + 2 * 2.0))
    image = sitk.ReadImage(str(write_resliced(volume, frame, pose, tmp_path / "cut.nii.gz")))
    assert np.allclose(sitk.GetArrayFromImage(image)[0], array[2], atol=1e-5)


def test_poses_of_other_images_and_other_endings_are_refused(tmp_path: Path) -> None:
    volume = Volume(torch.rand(3, 4, 5), spacing_mm=1.0)
    with pytest.raises(ScopeRegError, match="VolumeToImage"):
        write_placed_frame(FRAME, POSE.inverse(), tmp_path / "a.nii.gz")
    with pytest.raises(ScopeRegError, match="ImageToWorld"):
        write_resliced(volume, FRAME, Pose.identity("Image", "World"), tmp_path / "a.nii.gz")
    with pytest.raises(ScopeRegError, match="unknown ending"):
        write_placed_frame(FRAME, POSE, tmp_path / "a.png")
    assert not list(tmp_path.iterdir())
