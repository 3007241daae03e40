"""One door for frames: pictures only with a pixel size, planes of images with their place, everything else refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.io import read_cine, read_frame
from scopereg.io.files import write_bytes
from scopereg.io.pictures import png_bytes

GREY = np.random.default_rng(0).integers(0, 256, (12, 16)).astype(np.uint8)
COLOURS = np.random.default_rng(1).integers(0, 256, (12, 16, 3)).astype(np.uint8)


def test_pictures_need_a_spacing(tmp_path: Path) -> None:
    path = write_bytes(tmp_path / "a.png", png_bytes(GREY))
    with pytest.raises(ScopeRegError, match="how large a pixel is") as caught:
        read_frame(path)
    assert "spacing_mm=" in caught.value.fix
    frame = read_frame(path, spacing_mm=(0.2, 0.3))
    assert np.allclose(frame.numpy(), GREY / 255)
    assert (frame.spacing_mm, frame.origin_mm) == ((0.2, 0.3), (0.0, 0.0))
    assert (frame.path, frame.facts["spacing_from"]) == (path, "given")
    assert frame.resampled(0.1).facts == frame.facts  # what is known of a frame stays with its copies


def test_a_resolution_for_printers_is_no_spacing(tmp_path: Path) -> None:
    image = sitk.GetImageFromArray(GREY)
    image.SetSpacing((0.35, 0.35))  # 72 dots per inch
    sitk.WriteImage(image, str(tmp_path / "a.png"))
    assert sitk.ReadImage(str(tmp_path / "a.png")).GetSpacing()[0] == pytest.approx(0.35, abs=0.01)
    with pytest.raises(ScopeRegError, match="how large a pixel is"):
        read_frame(tmp_path / "a.png")


@pytest.mark.parametrize("ending", [".png", ".bmp", ".tif"])
def test_coloured_pictures_become_grey(tmp_path: Path, ending: str) -> None:
    sitk.WriteImage(sitk.GetImageFromArray(COLOURS, isVector=True), str(tmp_path / f"a{ending}"))
    frame = read_frame(tmp_path / f"a{ending}", spacing_mm=0.3)
    assert np.allclose(frame.numpy(), COLOURS @ [0.299, 0.587, 0.114] / 255, atol=1e-6)


def test_what_is_transparent_is_black(tmp_path: Path) -> None:
    clear = np.concatenate([COLOURS, np.zeros((12, 16, 1), np.uint8)], -1)
    clear[:, 8:, 3] = 255
    sitk.WriteImage(sitk.GetImageFromArray(clear, isVector=True), str(tmp_path / "a.png"))
    values = read_frame(tmp_path / "a.png", spacing_mm=0.3).numpy()
    assert values[:, :8].max() == 0
    assert np.allclose(values[:, 8:], COLOURS[:, 8:] @ [0.299, 0.587, 0.114] / 255, atol=1e-6)


def test_jpeg_and_deep_pictures(tmp_path: Path) -> None:
    smooth = (np.add.outer(np.arange(12), np.arange(16)) * 8).astype(np.uint8)
    sitk.WriteImage(sitk.GetImageFromArray(smooth), str(tmp_path / "a.jpg"))
    assert np.abs(read_frame(tmp_path / "a.jpg", spacing_mm=1).numpy() * 255 - smooth).mean() < 2
    deep = GREY.astype(np.uint16) * 16
    sitk.WriteImage(sitk.GetImageFromArray(deep), str(tmp_path / "b.png"))
    assert np.array_equal(read_frame(tmp_path / "b.png", spacing_mm=1).numpy(), deep)


@pytest.mark.parametrize("ending", [".nii.gz", ".nrrd", ".mha"])
def test_the_planes_of_an_image_are_placed_by_its_header(tmp_path: Path, ending: str) -> None:
    stack = np.random.default_rng(2).random((4, 6, 8)).astype(np.float32)
    axes = Pose.from_euler_deg((10, 20, 30), (0, 0, 0)).rotation
    for handed in (1, -1):
        image = sitk.GetImageFromArray(stack)
        image.SetSpacing((0.5, 0.6, 2.0))
        image.SetOrigin((1.0, 2.0, 3.0))
        image.SetDirection((axes * [1, 1, handed]).ravel().tolist())
        sitk.WriteImage(image, str(tmp_path / f"a{ending}"))
        cine = read_cine(tmp_path / f"a{ending}")
        assert len(cine) == 4
        frame = read_frame(tmp_path / f"a{ending}", index=2)
        assert np.array_equal(frame.numpy(), stack[2])
        assert frame.spacing_mm == pytest.approx((0.5, 0.6))
        assert frame.pose is not None
        place = image.TransformIndexToPhysicalPoint((5, 4, 2))
        assert np.allclose(frame.pose.apply((5 * 0.5, 4 * 0.6, 0)), place, atol=1e-5)


def test_flat_images_keep_the_origin_of_their_header(tmp_path: Path) -> None:
    image = sitk.GetImageFromArray(GREY)
    image.SetSpacing((0.5, 0.6))
    image.SetOrigin((-4.0, 3.0))
    sitk.WriteImage(image, str(tmp_path / "a.mha"))
    frame = read_frame(tmp_path / "a.mha")
    assert (frame.origin_mm, frame.pose) == ((-4.0, 3.0), None)
    image.SetDirection((-1, 0, 0, -1))
    sitk.WriteImage(image, str(tmp_path / "b.mha"))
    turned = read_frame(tmp_path / "b.mha")
    assert turned.origin_mm == (0, 0)
    assert turned.pose is not None
    assert np.allclose(turned.pose.apply((0.5, 0.6, 0)), (-4.5, 2.4, 0))


def test_images_without_a_pixel_size_are_asked_about(tmp_path: Path) -> None:
    header = "ObjectType = Image\nNDims = 2\nBinaryData = True\nDimSize = 16 12\nElementType = MET_UCHAR\n"
    (tmp_path / "a.mha").write_bytes(header.encode() + b"ElementDataFile = LOCAL\n" + GREY.tobytes())
    with pytest.raises(ScopeRegError, match="how large a pixel is"):
        read_frame(tmp_path / "a.mha")
    assert read_frame(tmp_path / "a.mha", spacing_mm=0.5).spacing_mm == (0.5, 0.5)


def test_arrays_of_a_sweep_are_a_cine(tmp_path: Path) -> None:
    poses = np.stack([Pose.from_euler_deg((k, 0, 0), (0, 0, k)).matrix for k in range(3)])
    np.savez(tmp_path / "a.npz", frames=np.stack([GREY] * 3), image_mm_to_world=poses, spacing_xy_mm=(0.3, 0.3))
    frame = read_frame(tmp_path / "a.npz", index=2)
    assert frame.pose is not None
    assert np.allclose(frame.pose.matrix, poses[2])
    assert np.allclose(frame.numpy(), GREY / 255)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ScopeRegError, match="no such file"):
        read_frame(tmp_path / "none.png", spacing_mm=1)
    with pytest.raises(ScopeRegError, match="it is a folder"):
        read_frame(tmp_path)
    for name in ("a.png", "a.jpg", "a.nii.gz", "a.mha", "a.npz", "a.dcm"):
        (tmp_path / name).write_bytes(b"hello")
        with pytest.raises(ScopeRegError, match=name):
            read_frame(tmp_path / name, spacing_mm=1)
    (tmp_path / "film.gif").write_bytes(b"hello")
    with pytest.raises(ScopeRegError, match="unknown kind of frame"):
        read_frame(tmp_path / "film.gif", spacing_mm=1)
