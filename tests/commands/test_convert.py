"""`scopereg convert`: poses keep their direction, images their place, and pairs that make no sense are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk

from scopereg import io
from scopereg.cli import main
from scopereg.geometry import Pose

Case = Any  # of conftest.py
POSE = Pose.from_euler_deg((10, -20, 30), (1, 2, 3))


def convert(source: Path, target: Path, *words: object) -> int:
    return main(["convert", str(source), "-o", str(target), *map(str, words)])


@pytest.mark.parametrize("first", ["tfm", "h5", "txt", "json"])
@pytest.mark.parametrize("second", ["tfm", "h5", "txt", "json"])
def test_poses_go_from_any_format_to_any_other(tmp_path: Path, first: str, second: str) -> None:
    source = POSE.save(tmp_path / f"first.{first}")
    assert convert(source, tmp_path / f"second.{second}") == 0
    assert Pose.load(tmp_path / f"second.{second}").is_close(POSE, mm=1e-6, deg=1e-5)


def test_conventions_turn_the_matrix_round(tmp_path: Path) -> None:
    """What other programs wrote for resampling becomes what Slicer wants, and back."""
    transform = sitk.AffineTransform(3)
    transform.SetMatrix(POSE.rotation.ravel().tolist())
    transform.SetTranslation(POSE.translation_mm.tolist())
    sitk.WriteTransform(transform, str(tmp_path / "theirs.tfm"))
    assert convert(tmp_path / "theirs.tfm", tmp_path / "ours.tfm", "--from-convention", "itk-resample") == 0
    held = sitk.ReadTransform(str(tmp_path / "ours.tfm"))
    point = (5.0, -6.0, 7.0)
    assert held.TransformPoint(POSE.apply(point).tolist()) == pytest.approx(point)
    assert convert(tmp_path / "ours.tfm", tmp_path / "back.h5", "--convention", "itk-resample") == 0
    back = sitk.ReadTransform(str(tmp_path / "back.h5"))
    assert back.TransformPoint(point) == pytest.approx(POSE.apply(point))


def test_a_dicom_registration_names_its_images(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = POSE.save(tmp_path / "pose.tfm")
    assert convert(source, tmp_path / "pose.dcm") == 2
    assert "names its images" in capsys.readouterr().err
    images = ["--frame", case.folder / "frame.dcm", "--volume", case.folder / "volume.nii.gz"]
    assert convert(source, tmp_path / "pose.dcm", *images) == 0
    assert convert(tmp_path / "pose.dcm", tmp_path / "back.txt") == 0
    assert Pose.load(tmp_path / "back.txt").is_close(POSE, mm=1e-3, deg=1e-3)


@pytest.mark.parametrize("ending", ["mha", "nrrd", "nii"])
def test_volumes_keep_their_place(case: Case, tmp_path: Path, ending: str) -> None:
    assert convert(case.folder / "volume.nii.gz", tmp_path / f"volume.{ending}") == 0
    volume = io.read_volume(tmp_path / f"volume.{ending}")
    assert np.allclose(volume.direction, case.volume.direction, atol=1e-5)
    assert volume.origin_mm == pytest.approx(case.volume.origin_mm, abs=1e-3)
    assert np.array_equal(volume.numpy(), case.volume.numpy())


def test_frames_become_pictures_and_planes(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert convert(case.folder / "cine.dcm", tmp_path / "a.png", "--index", 2) == 0
    assert "--pixel-mm 0.821333 0.821333" in capsys.readouterr().out
    picture = io.read_frame(tmp_path / "a.png", spacing_mm=1)
    assert np.allclose(picture.numpy(), case.frames[2].numpy(), atol=0.003)
    assert convert(case.folder / "frame.dcm", tmp_path / "a.nii.gz") == 0
    plane = io.read_frame(tmp_path / "a.nii.gz")
    original = io.read_frame(case.folder / "frame.dcm")
    assert plane.spacing_mm == pytest.approx(original.spacing_mm)
    assert plane.origin_mm == pytest.approx(original.origin_mm, abs=1e-4)  # the crop is still where it was
    assert convert(case.folder / "volume.nii.gz", tmp_path / "plane.png", "--index", 5) == 0
    middle = io.read_frame(tmp_path / "plane.png", spacing_mm=1)
    assert np.allclose(middle.numpy(), case.volume.numpy()[5], atol=0.003)


def test_a_tracked_frame_is_placed_by_its_tracker(case: Case, tmp_path: Path) -> None:
    words = ["--index", 1, "--calibration", case.folder / "scan.xml"]
    assert convert(case.folder / "scan.igs.mha", tmp_path / "placed.nrrd", *words) == 0
    image = sitk.ReadImage(str(tmp_path / "placed.nrrd"))
    frame = io.read_frame(case.folder / "scan.igs.mha", index=1, calibration=case.folder / "scan.xml")
    assert frame.pose is not None
    assert image.TransformContinuousIndexToPhysicalPoint((0.0, 0.0, 0.0)) == pytest.approx(
        frame.pose.apply((0, 0, 0)), abs=1e-3
    )


def test_pictures_and_a_table_become_a_sequence_and_back(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What users of PLUS ask for: frames and poses in one file."""
    frames, volume = case.folder / "frames", case.folder / "volume.nii.gz"
    words = ["--pixel-mm", "0.8213333", "--method", "start", "--no-report", "--device", "cpu"]
    assert main(["register", str(frames), str(volume), "-o", str(tmp_path / "out"), *words]) == 0
    table = tmp_path / "out" / "poses.csv"
    words = ["--pixel-mm", "0.8213333", "--poses", table]
    assert convert(frames, tmp_path / "made.igs.mha", *words) == 2
    assert "give the frames per second: --rate" in capsys.readouterr().err  # no times are invented
    assert convert(frames, tmp_path / "made.igs.mha", *words, "--rate", "20") == 0
    cine = io.read_cine(tmp_path / "made.igs.mha")
    assert cine.times_s == pytest.approx([row / 20 for row in range(len(cine))])
    assert cine.spacing_mm == pytest.approx((0.8213333, 0.8213333))
    for row, frame in enumerate(cine):
        assert frame.pose is not None
        assert frame.pose.is_close(Pose.load(tmp_path / "out" / f"view{row}.tfm"), mm=1e-5, deg=1e-4)
        assert np.allclose(frame.numpy(), case.frames[row].numpy(), atol=0.003)
    nowhere = tmp_path / "nope.csv"
    assert convert(frames, tmp_path / "bad.igs.mha", "--rate", "1", "--pixel-mm", "1", "--poses", nowhere) == 2
    assert f"{nowhere}: it cannot be read: No such file" in capsys.readouterr().err
    table.write_text("\n".join(table.read_text().splitlines()[:-1]) + "\n")
    assert convert(frames, tmp_path / "bad.igs.mha", "--rate", "1", "--pixel-mm", "1", "--poses", table) == 2
    assert not (tmp_path / "bad.igs.mha").exists()


@pytest.mark.parametrize(
    ("source", "target", "says"),
    [
        ("pose.tfm", "a.nii.gz", "a pose cannot be written as 'a.nii.gz'"),
        ("volume.nii.gz", "a.tfm", "a volume cannot be written as 'a.tfm'"),
        ("frame.png", "a.json", "a frame cannot be written as 'a.json'"),
        ("scan.igs.mha", "a.png", "--index"),
        ("cine.dcm", "a.nii.gz", "it holds 4 frames"),
        ("frame.png", "a.nii.gz", "how large a pixel is"),
        ("missing.tfm", "a.txt", "no such file"),
        ("pose.tfm", "pose.tfm", "it is the input"),
        ("scan.xml", "a.txt", "scan.xml"),
    ],
)
def test_pairs_that_make_no_sense_are_refused(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str, target: str, says: str
) -> None:
    POSE.save(tmp_path / "pose.tfm")
    for path in case.folder.iterdir():
        (tmp_path / path.name).symlink_to(path)
    before = sorted(tmp_path.iterdir())
    assert convert(tmp_path / source, tmp_path / target) == 2
    said = capsys.readouterr().err
    assert says in said
    assert "To fix it" in said
    assert sorted(tmp_path.iterdir()) == before
