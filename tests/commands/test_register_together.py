"""`scopereg register --together`: sequences, tables and tracks give the places, one pose for all comes out."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scopereg.cli import main
from scopereg.geometry import Pose
from scopereg.io.metaimage import is_sequence
from scopereg.registration.batch import read_table

Case = Any  # of conftest.py


def run(case: Case, narrow_file: Path, *words: str) -> int:
    return main(["register", "--together", *words, "--device", "cpu", "--method", str(narrow_file)])


def test_a_tracked_sequence_gets_one_pose_for_all(
    case: Case, narrow_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    sequence, volume = case.folder / "scan.igs.mha", case.folder / "volume.nii.gz"
    words = [str(sequence), str(volume), "--calibration", str(case.folder / "scan.xml"), "--start", "tracker"]
    assert is_sequence(sequence)
    assert run(case, narrow_file, *words, "-o", str(out)) == 0
    body = Pose.load(out / "body.tfm")
    # The tracker placed the frames 1.2, -1.2, 1 mm beside the truth in the volume's own world.
    assert np.allclose(body.translation_mm + body.rotation @ np.array([1.2, -1.2, 1.0]), 0, atol=1.5)
    assert body.angle_to_deg(Pose(np.eye(3), np.zeros(3))) < 1.5
    rows = read_table(out / "poses.csv")
    assert [index for _, index, _ in rows] == [0, 1, 2]  # the tracker lost the last
    for _, index, pose in rows:
        assert pose is not None
        assert case.error_mm(index, pose) < 1
    told = capsys.readouterr().out
    assert "1 of 4 frames have no place and are left out" in told
    assert "3 frames together" in told
    assert "Together" in (out / "report.html").read_text(encoding="utf-8")


def test_pictures_with_a_table_of_places(
    case: Case, narrow_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "places.csv"
    elsewhere = Pose.from_euler_deg((0, 0, 90), (10, 20, 30), "Volume", "Volume")
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["file", "index", "tx_mm", "ty_mm", "tz_mm", "rx_deg", "ry_deg", "rz_deg"])
        for row in (0, 1, 3):
            pose = elsewhere @ case.truth[row]
            writer.writerow([f"view{row}.png", 0, *pose.translation_mm, *pose.euler_deg])
    pictures = [str(case.folder / "frames" / f"view{row}.png") for row in range(4)]
    spacing = str(case.frames[0].spacing_mm[0])
    words = [*pictures, str(case.folder / "volume.nii.gz"), "--pixel-mm", spacing, "--poses", str(table), "--json"]
    assert run(case, narrow_file, *words, "-o", str(tmp_path / "out"), "--no-report") == 0
    told = json.loads(capsys.readouterr().out)
    matrix = np.array(told["body_to_volume"])
    assert np.allclose(matrix @ elsewhere.matrix, np.eye(4), atol=1.5)
    assert [frame["file"] for frame in told["frames"]] == ["view0.png", "view1.png", "view3.png"]
    assert not (tmp_path / "out" / "report.html").exists()


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["frames", "volume.nii.gz", "--pixel-mm", "0.8"], "0 of 4 frames are placed, and two are needed"),
        (["volume.nii.gz"], "frames and a volume are needed"),
        (["scan.igs.mha", "volume.nii.gz", "--calibration", "scan.xml", "--most", "1"], "take two or more"),
    ],
)
def test_what_cannot_be_one_body_is_told_and_nothing_is_written(
    case: Case, narrow_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], what: str
) -> None:
    placed = [str(case.folder / word) if (case.folder / word).exists() else word for word in words]
    assert run(case, narrow_file, *placed, "-o", str(tmp_path / "out")) == 2
    assert what in capsys.readouterr().err
    assert not list((tmp_path / "out").glob("*")) if (tmp_path / "out").exists() else True


def test_options_of_together_alone_are_refused_without_it(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    volume = str(case.folder / "volume.nii.gz")
    assert main(["register", str(case.folder / "frame.dcm"), volume, "--poses", "table.csv"]) == 2
    assert "--together" in capsys.readouterr().err
