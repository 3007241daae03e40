"""Files of the module, read back by scopereg: frames and a volume where 3D Slicer has them, in LPS."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk
from ScopeRegLiveLib.recording import Recording, turned, write_pose, write_volume, write_whole

from scopereg import Frame, Pose
from scopereg.errors import ScopeRegError
from scopereg.geometry import ras_from_lps
from scopereg.io import read_volume
from scopereg.io.frames import read_cine
from scopereg.io.sweeps import read_sweep
from scopereg.io.transforms import read_pose

LPS_TO_RAS = np.diag([-1.0, -1.0, 1.0, 1.0])


def recorded(frame: Frame, poses: list[Pose], *, colours: bool = False) -> Recording:
    """Frames as 3D Slicer has them: noise of the size of `frame`, its pixels placed in RAS."""
    rng = np.random.default_rng(3)
    shape = (len(poses), *frame.size[::-1], *([3] if colours else []))
    x_mm, y_mm = frame.spacing_mm
    pixel_to_image = np.diag([x_mm, y_mm, 1.0, 1.0])
    matrices = np.stack([LPS_TO_RAS @ pose.matrix @ pixel_to_image for pose in poses])
    placed, times_s = [True] * len(poses), [0.1 * row for row in range(len(poses))]
    return Recording(rng.integers(0, 256, shape, dtype=np.uint8), matrices, placed, times_s)


@pytest.fixture
def poses(pose: Pose) -> list[Pose]:
    return [pose, *(Pose.from_euler_deg((10 * row, 5, -row), (row, 2, -3 * row)) for row in range(3))]


def test_a_recording_is_read_back_as_it_lay_in_slicer(frame: Frame, poses: list[Pose], tmp_path: Path) -> None:
    made = recorded(frame, poses)
    sweep = read_sweep(made.write(tmp_path / "sweep.igs.mha"))
    assert sweep.spacing_mm == pytest.approx(frame.spacing_mm)
    assert np.allclose(sweep.image_to_world, [pose.matrix for pose in poses], atol=1e-9)
    assert np.array_equal(sweep.images.numpy(), made.images)
    assert sweep.facts["world"] == "Reference"
    assert read_cine(tmp_path / "sweep.igs.mha").times_s == pytest.approx((0, 0.1, 0.2, 0.3))


def test_frames_without_a_place_keep_their_number(frame: Frame, poses: list[Pose], tmp_path: Path) -> None:
    made = recorded(frame, poses)._replace(placed=[True, False, True, True])
    cine = read_cine(made.write(tmp_path / "sweep.igs.mha"))
    assert cine.poses is not None
    assert [pose is not None for pose in cine.poses] == [True, False, True, True]
    assert len(read_sweep(tmp_path / "sweep.igs.mha")) == 3


def test_colours_are_kept(frame: Frame, poses: list[Pose], tmp_path: Path) -> None:
    made = recorded(frame, poses, colours=True)
    grey = read_sweep(made.write(tmp_path / "sweep.igs.mha")).images.numpy()
    assert np.abs(grey - made.images @ (0.299, 0.587, 0.114)).max() <= 0.51


def test_a_recording_without_a_pixel_size_is_refused_by_scopereg(
    frame: Frame, poses: list[Pose], tmp_path: Path
) -> None:
    made = recorded(Frame(frame.numpy(), 1.0, (0, 0)), poses)
    with pytest.raises(ScopeRegError, match="hold no pixel size"):
        read_sweep(made.write(tmp_path / "sweep.igs.mha"))


@pytest.mark.parametrize("kind", ["uint8", "int16", ">i2", "uint16", "int32", "float32", "float64"])
def test_a_volume_is_read_back_where_it_lay_in_slicer(pose: Pose, tmp_path: Path, kind: str) -> None:
    voxels = np.arange(5 * 4 * 3).reshape(5, 4, 3).astype(kind)
    ijk_to_ras = LPS_TO_RAS @ pose.matrix @ np.diag([0.5, 0.8, 1.25, 1.0])
    path = write_volume(tmp_path / "volume.mha", voxels, ijk_to_ras)
    volume = read_volume(path)
    scale = 255 if kind == "uint8" else 1  # bytes are the grey scale of displays
    assert np.allclose(volume.numpy() * scale, voxels, atol=1e-5)
    assert volume.spacing_mm == pytest.approx((0.5, 0.8, 1.25))
    assert np.allclose(volume.direction, pose.rotation)
    assert volume.origin_mm == pytest.approx(tuple(pose.translation_mm))
    other = sitk.ReadImage(str(path))  # and by the library that 3D Slicer reads with
    assert np.array_equal(sitk.GetArrayFromImage(other), voxels)
    there = (LPS_TO_RAS @ ijk_to_ras @ (2, 3, 4, 1))[:3]
    assert other.TransformIndexToPhysicalPoint((2, 3, 4)) == pytest.approx(there)


@pytest.mark.parametrize(
    ("voxels", "matrix", "what"),
    [
        (np.zeros((2, 3, 4, 3), np.uint8), np.eye(4), "no volume of grey values"),
        (np.zeros((2, 3, 4), np.uint8), np.zeros((4, 4)), "no volume of grey values"),
        (np.zeros((2, 3, 4), complex), np.eye(4), "complex128"),
    ],
)
def test_what_is_no_volume_is_not_written(tmp_path: Path, voxels: np.ndarray, matrix: np.ndarray, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        write_volume(tmp_path / "volume.mha", voxels, matrix)
    assert list(tmp_path.iterdir()) == []


def test_a_pose_is_read_back_in_lps(pose: Pose, tmp_path: Path) -> None:
    path = write_pose(tmp_path / "world.txt", ras_from_lps(pose.matrix))
    assert np.allclose(read_pose(path).matrix, pose.matrix)
    assert np.array_equal(turned(pose.matrix), ras_from_lps(pose.matrix))  # the same in both


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = write_whole(tmp_path / "kept", [b"before"])

    def broken() -> object:
        yield b"half"
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        write_whole(path, broken())  # type: ignore[arg-type]
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("kept", b"before")]
