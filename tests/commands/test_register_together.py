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
from scopereg.io.pictures import grey_pixels
from scopereg.registration.batch import Row, Task, read_table, write_table
from scopereg.registration.result import Result
from scopereg.registration.track import Step, write_track

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


def write_npz(case: Case, rows: list[int], path: Path, off: Pose) -> str:
    frames = np.stack([grey_pixels(case.frames[row].array) for row in rows])
    poses = np.stack([(off @ case.truth[row]).matrix for row in rows])
    np.savez(path, frames=frames, image_mm_to_world=poses, spacing_xy_mm=np.array(case.frames[0].spacing_mm))
    return str(path)


def test_several_archives_of_one_tracker(case: Case, narrow_file: Path, tmp_path: Path) -> None:
    off = Pose.from_euler_deg((0, 0, 40), (5, 0, -8), "Volume", "Volume")
    sources = [write_npz(case, rows, tmp_path / f"part{rows[0]}.npz", off) for rows in ([0, 1], [2, 3])]
    words = [*sources, str(case.folder / "volume.nii.gz"), "--no-report", "--most", "3", "-o", str(tmp_path / "out")]
    assert run(case, narrow_file, *words) == 0
    found = read_table(tmp_path / "out" / "poses.csv")
    assert [(file, index) for file, index, _ in found] == [("part0.npz", 0), ("part2.npz", 0), ("part2.npz", 1)]
    for (_, _, pose), row in zip(found, (0, 2, 3), strict=True):
        assert pose is not None
        assert case.error_mm(row, pose) < 1


def test_poses_that_a_track_followed_are_the_places(
    case: Case, narrow_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    off = Pose.from_euler_deg((3, -2, 4), (2, -3, 1), "Volume", "Volume")  # the track drifted, its frames together
    states = ["found", "followed", "followed", "carried"]
    steps = [
        Step(row, "scan.igs.mha", row, row / 10, state, result=Result(off @ case.truth[row], "tracked", 0.0, 0.5))
        for row, state in enumerate(states)
    ]
    write_track(steps, tmp_path / "track.csv")
    names = ("scan.igs.mha", "volume.nii.gz", "--calibration", "scan.xml")
    words = [name if name.startswith("--") else str(case.folder / name) for name in names]
    words += ["--poses", str(tmp_path / "track.csv")]
    assert run(case, narrow_file, *words, "--start", "tracker", "--no-report", "-o", str(tmp_path / "out")) == 0
    found = read_table(tmp_path / "out" / "poses.csv")
    assert [index for _, index, _ in found] == [0, 1, 2]  # behind a carried one stands no picture
    for _, index, pose in found:
        assert pose is not None
        assert case.error_mm(index, pose) < 1
    assert "1 of 4 frames have no place and are left out" in capsys.readouterr().out


def still(case: Case, folder: Path) -> list[str]:
    return [write_npz(case, [0, 0, 0], folder / "still.npz", Pose.identity("Volume", "Volume"))]


def twice(case: Case, folder: Path) -> list[str]:
    return [write_npz(case, [0, 1], folder / "sweep.npz", Pose.identity("Volume", "Volume"))] * 2


def one_name(case: Case, folder: Path) -> list[str]:
    for name in ("a", "b"):
        (folder / name).mkdir()
    parts = [folder / name / "sweep.npz" for name in ("a", "b")]
    return [write_npz(case, [0, 1], part, Pose.identity("Volume", "Volume")) for part in parts]


def table(case: Case, folder: Path, names: list[str]) -> list[str]:
    rows = [Row(Task(Path(name), name, name), Result(case.truth[0], "told", 0.0, 0.5)) for name in names]
    write_table(rows, folder / "places.csv", ".tfm")
    return [str(case.folder / "frames"), "--pixel-mm", "0.8", "--poses", str(folder / "places.csv")]


@pytest.mark.parametrize(
    ("made", "what"),
    [
        (still, "all 3 frames have the same pose"),
        (twice, "it is named twice"),
        (one_name, "written under a name that stands twice"),
        (lambda case, folder: table(case, folder, ["other0.png", "other1.png"]), "it has no frame of"),
        (lambda case, folder: table(case, folder, ["view0.png", "view0.png"]), "stand twice, first view0.png"),
        (lambda case, folder: table(case, folder, ["view0.png"]), "1 of 4 frames are placed, and two are needed"),
    ],
)
def test_places_that_tell_nothing_are_refused(
    case: Case, narrow_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], made: Any, what: str
) -> None:
    sources, *options = made(case, tmp_path)
    more = [options.pop(0)] if options and not options[0].startswith("-") else []
    words = [sources, *more, str(case.folder / "volume.nii.gz"), *options]
    assert run(case, narrow_file, *words, "-o", str(tmp_path / "out")) == 2
    assert what in capsys.readouterr().err
    assert not list((tmp_path / "out").glob("*"))


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
