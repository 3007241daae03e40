"""`scopereg register --deformable`: the deformation that a pose leaves, beside the pose."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk

from scopereg.cli import main
from scopereg.geometry import Pose

Case = Any  # of conftest.py
STEP = "0.8213333"


def register(*words: object) -> int:
    return main(["register", *map(str, words), "--device", "cpu", "--deformable"])


@pytest.fixture
def start(case: Case, tmp_path: Path) -> Path:
    """The true pose of the first frame, but for its origin, which a PNG has at its first pixel as well."""
    path: Path = case.truth[0].save(tmp_path / "start.tfm")
    return path


def test_the_deformation_is_written_beside_the_pose(
    case: Case, start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame, volume = case.folder / "frame.png", case.folder / "volume.nii.gz"
    words = ["--pixel-mm", STEP, "--method", "start", "--start", start, "-o", tmp_path / "pose.tfm", "--json"]
    assert register(frame, volume, *words) == 0
    said = capsys.readouterr()
    told = json.loads(said.out)
    assert [Path(path).name for path in told["files"]] == ["pose.tfm", "pose.deformation.h5"]
    assert "deformation: none that stands out" in said.err
    assert "pose.deformation.h5  (in 3D Slicer the frame lies under it, and it under the pose)" in said.err
    assert told["deformation"]["significant"] is False  # the frame is a cut of the volume
    assert told["deformation"]["max_mm"] == told["deformation"]["step_mm"] == told["deformation"]["folds"] == 0
    transform = sitk.ReadTransform(str(tmp_path / "pose.deformation.h5"))
    assert transform.TransformPoint((30.0, 20.0, 0.0)) == pytest.approx((30, 20, 0), abs=1e-6)
    assert np.allclose(Pose.load(tmp_path / "pose.tfm").matrix, case.truth[0].matrix, atol=1e-6)


def test_a_batch_writes_one_for_each_frame_and_the_next_run_removes_it(case: Case, start: Path, tmp_path: Path) -> None:
    frames, out = tmp_path / "frames", tmp_path / "out"
    frames.mkdir()
    shutil.copy(case.folder / "frames" / "view0.png", frames)
    words = [
        frames,
        case.folder / "volume.nii.gz",
        "--pixel-mm",
        STEP,
        "--method",
        "start",
        "--start",
        start,
        "-o",
        out,
    ]
    assert register(*words) == 0
    assert sorted(path.name for path in out.glob("view0*")) == ["view0.deformation.h5", "view0.tfm"]
    assert "Deformation" in (out / "report.html").read_text()
    assert main(["register", *map(str, words), "--device", "cpu"]) == 0
    assert [path.name for path in out.glob("view0*")] == ["view0.tfm"]


def test_a_body_has_no_deformation(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    assert register("--together", case.folder / "scan.igs.mha", case.folder / "volume.nii.gz") == 2
    assert "--deformable: the frames of a body have one rigid pose" in capsys.readouterr().err
