"""Phantom patients as files: they open elsewhere, in the right place, with what is needed to use them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk

from scopereg.cli import main
from scopereg.data import phantom

SHAPE = (16, 48, 48)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("phantoms")
    words = ["data", "phantom", "prostate", "--count", "2", "--frames", "2", "--protocol", "paper", "--seed", "3"]
    assert main([*words, "--shape", *map(str, SHAPE), "-o", str(path)]) == 0
    return path


def test_each_patient_has_its_files(folder: Path) -> None:
    assert sorted(p.name for p in folder.iterdir()) == ["prostate0003", "prostate0004"]
    for patient in folder.iterdir():
        names = ["frame_00.png", "frame_01.png", "labels.nii.gz", "patient.json", "volume.nii.gz"]
        assert sorted(p.name for p in patient.iterdir()) == names


def test_the_volume_reads_back_as_it_was(folder: Path) -> None:
    image = sitk.ReadImage(str(folder / "prostate0003" / "volume.nii.gz"))
    made = phantom.create("prostate", seed=3, shape=SHAPE).volume
    assert np.allclose(sitk.GetArrayFromImage(image), made.numpy())
    assert np.allclose(image.GetSpacing(), made.spacing_mm)
    assert np.allclose(image.GetOrigin(), made.origin_mm, atol=1e-4)
    labels = sitk.GetArrayFromImage(sitk.ReadImage(str(folder / "prostate0003" / "labels.nii.gz")))
    names = json.loads((folder / "prostate0003" / "patient.json").read_text())["labels"]
    assert set(np.unique(labels).astype(str)) <= {*names, "0"}


def test_the_stored_pose_puts_the_frame_in_place(folder: Path) -> None:
    """Resampling the volume in ITK at the stored pose gives the stored frame."""
    patient = json.loads((folder / "prostate0003" / "patient.json").read_text())
    volume = sitk.ReadImage(str(folder / "prostate0003" / "volume.nii.gz"))
    entry = patient["frames"][1]
    frame = sitk.ReadImage(str(folder / "prostate0003" / entry["file"]))
    matrix = np.array(entry["image_to_volume"])
    grid = sitk.Image(frame.GetWidth(), frame.GetHeight(), 1, sitk.sitkFloat32)
    grid.SetSpacing([patient["spacing_mm"]] * 3)
    grid.SetOrigin((matrix @ [*entry["origin_mm"], 0, 1])[:3].tolist())
    grid.SetDirection(matrix[:3, :3].ravel().tolist())
    cut = sitk.GetArrayFromImage(sitk.Resample(volume, grid, sitk.Transform(), sitk.sitkLinear, 0.0))[0]
    stored = sitk.GetArrayFromImage(frame) / 255
    inside = cut > 0
    assert inside.mean() > 0.2
    # The border row is left to the two libraries' own rules; inside they agree to the rounding of a PNG.
    assert np.median(np.abs(cut - stored)[inside]) < 0.005
    assert np.quantile(np.abs(cut - stored)[inside], 0.95) < 0.01


def test_no_patients_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "phantom", "--count", "0", "-o", str(tmp_path)]) == 2
    assert "at least one" in capsys.readouterr().err


def test_frames_may_be_thick(tmp_path: Path) -> None:
    words = ["data", "phantom", "prostate", "--frames", "1", "--seed", "3", "--shape", *map(str, SHAPE)]
    for thick in ("0", "6"):
        assert main([*words, "--thickness-mm", thick, "-o", str(tmp_path / thick)]) == 0
    thin, thick = (json.loads((tmp_path / name / "prostate0003" / "patient.json").read_text()) for name in "06")
    assert thick["thickness"] == "6 mm"
    assert "thickness" not in thin
    pictures = [
        sitk.GetArrayFromImage(sitk.ReadImage(str(tmp_path / n / "prostate0003" / "frame_00.png"))) for n in "06"
    ]
    assert (pictures[0] != pictures[1]).mean() > 0.1
    assert main([*words, "--thickness-mm", "6", "--protocol", "paper", "-o", str(tmp_path / "cut")]) == 2
