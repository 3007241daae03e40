"""`scopereg score` from files to files: what register writes, trackers, landmarks, options for either side, errors."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scopereg import Pose
from scopereg.cli import main
from scopereg.io.landmarks import write_landmarks
from scopereg.io.transforms import write_pose

Case = Any  # of conftest.py


@pytest.fixture(scope="module")
def batch(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a batch: every frame of a cropped cine left in the middle of the volume."""
    out = tmp_path_factory.mktemp("batch")
    words = [case.folder / "cine.dcm", case.folder / "volume.nii.gz", "--method", "identity", "-o", out, "--no-report"]
    assert main(["register", *map(str, words), "--device", "cpu"]) == 0
    return out


def rows_of(out: Path) -> list[dict[str, str]]:
    lines = (out / "score.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith('# {"against"')
    return list(csv.DictReader(lines[1:]))


def test_a_batch_against_a_tracker(case: Case, batch: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Frames of a cropped DICOM cine count from the whole image's corner, those of the tracker from the picture's."""
    truth = tmp_path / "cine"
    truth.mkdir()
    for row, pose in enumerate(case.truth):
        write_pose(pose, truth / f"cine_{row:03d}.txt", frame=case.frames[row])
    assert main(["score", str(batch), "--truth", str(truth), "-o", str(tmp_path / "out"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["frames"], told["located"], told["no_truth"], told["no_pose"], told["ok"]) == (4, 4, 0, 0, None)
    table = rows_of(tmp_path / "out")
    spacing = case.frames[0].spacing_mm[0]
    for row, cells in enumerate(table):
        found = Pose.from_euler_deg(
            *([float(cells[f"{n}{a}_{u}"]) for a in "xyz"] for n, u in (("r", "deg"), ("t", "mm")))
        )
        x, y = (9 * (n - 1) // 10 / 2 * spacing for n in case.frames[row].size)
        points = case.frames[row].centre_mm + np.array([(0, 0, 0), (-x, -y, 0), (x, -y, 0), (-x, y, 0), (x, y, 0)])
        apart = np.linalg.norm(found.apply(points) - case.truth[row].apply(points), axis=1).mean()
        assert float(cells["error_mm"]) == pytest.approx(apart, rel=1e-4)
    page = (tmp_path / "out" / "score.html").read_text(encoding="utf-8")
    assert page.count("<figure>") == 3
    assert "<script" not in page
    assert "Worst frames" in page
    assert not [path for path in (tmp_path / "out").iterdir() if path.name.startswith(".")]


def test_the_transforms_of_a_batch_tell_as_much_as_its_table(
    case: Case, batch: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each says where the cropped picture lies in the image that is stored; nobody needs to be asked."""
    transforms, truth = tmp_path / "transforms", tmp_path / "truth"
    transforms.mkdir()
    truth.mkdir()
    for row, pose in enumerate(case.truth):
        (transforms / f"cine_{row:03d}.tfm").write_bytes((batch / f"cine_{row:03d}.tfm").read_bytes())
        write_pose(pose, truth / f"cine_{row:03d}.json", frame=case.frames[row])
    means = []
    for poses in (batch, transforms):
        assert main(["score", str(poses), "--truth", str(truth), "-o", str(tmp_path / "out"), "--json"]) == 0
        means.append(json.loads(capsys.readouterr().out)["mean_mm"])
    assert means[0] == pytest.approx(means[1], rel=1e-6)
    assert means[0] > 0.1


def test_a_tracker_counts_in_its_own_world(
    case: Case, batch: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    poses, truth, out = tmp_path / "poses", case.folder / "scan.igs.mha", tmp_path / "out"
    poses.mkdir()
    for row, pose in enumerate(case.truth):
        write_pose(pose, poses / f"scan_{row:03d}.json", frame=case.frames[row])
    words = ["score", str(poses), "--truth", str(truth), "--calibration", str(case.folder / "scan.xml"), "-o", str(out)]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "it leads to Reference, the poses lead to Volume" in said
    assert "(--world)" in said
    assert "(--same-world)" in said
    assert not out.exists()
    assert main([*words, "--same-world", "--name", "by hand"]) == 0
    said = capsys.readouterr().out
    assert "by hand against scan.igs.mha: 3 frames (1 without truth)" in said
    assert [float(row["error_mm"]) for row in rows_of(out)[:3]] == pytest.approx([np.linalg.norm([1.2, 1.2, 1])] * 3)
    back = Pose.from_euler_deg((0, 0, 0), (-1.2, 1.2, -1.0), "Reference", "Volume").save(tmp_path / "world.tfm")
    assert main([*words, "--world", str(back)]) == 0
    assert [float(row["error_mm"]) for row in rows_of(out)[:3]] == pytest.approx([0] * 3, abs=1e-4)


def test_options_of_a_side_are_named_in_errors_and_hints(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for side, turn in (("poses", np.eye(4)), ("truth", np.diag([-1.0, -1, 1, 1]))):
        (tmp_path / side).mkdir()
        for row, pose in enumerate(case.truth):
            np.savetxt(tmp_path / side / f"scan_{row:03d}.txt", turn @ pose.matrix)
    words = ["score", str(tmp_path / "poses"), "--truth", str(tmp_path / "truth"), "-o", str(tmp_path / "out")]
    assert main(words) == 2
    assert "--poses-origin first-pixel" in capsys.readouterr().err
    words += ["--poses-origin", "first-pixel"]
    assert main(words) == 2
    assert "--truth-origin centre" in capsys.readouterr().err
    words += ["--truth-origin", "first-pixel"]
    assert main(words) == 2
    assert "--size, --pixel-mm" in capsys.readouterr().err
    words += ["--size", "96", "96", "--pixel-mm", "0.8"]
    assert main(words) == 0
    assert "(--poses-space or --truth-space RAS-volume)" in capsys.readouterr().out
    assert "--truth-space RAS-volume" in (tmp_path / "out" / "score.html").read_text(encoding="utf-8")
    assert main([*words, "--truth-space", "RAS-volume"]) == 0
    assert "hint" not in capsys.readouterr().out


def test_landmarks_take_the_place_of_a_truth(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    points = {"apex": (5.0, 6.0, 0.0), "valve": (30.0, 20.0, 0.0)}
    picked = write_landmarks(points, tmp_path / "frame.mrk.json")
    places = {name: tuple(case.truth[0].apply(point) + np.array([0, 0, 2])) for name, point in points.items()}
    goal = write_landmarks(places, tmp_path / "volume.mrk.json")  # type: ignore[arg-type]
    pose = write_pose(case.truth[0], tmp_path / "pose.tfm", frame=case.frames[0])
    words = ["score", str(pose), "--landmarks", str(picked), str(goal), "-o", str(tmp_path / "out")]
    assert main(words) == 0
    assert "pose against volume.mrk.json: 2 landmarks" in capsys.readouterr().out
    assert [(row["point"], float(row["error_mm"])) for row in rows_of(tmp_path / "out")] == [
        ("apex", pytest.approx(2)),
        ("valve", pytest.approx(2)),
    ]
    assert "Worst landmarks" in (tmp_path / "out" / "score.html").read_text(encoding="utf-8")
    assert main([*words[:3], str(goal), str(picked), "-o", str(tmp_path / "out")]) == 2
    assert "--between-volumes where both are of volumes" in capsys.readouterr().err
    assert main([*words, "--between-volumes"]) == 0
    assert "as they lie, without the transform" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "poses and what they are compared with are needed"),
        (["."], "a truth, or landmarks"),
        ([".", "--truth", ".", "--landmarks", "a", "b"], "a truth, or landmarks"),
        ([".", "--truth", ".", "--between-volumes"], "--between-volumes: it is of landmarks"),
        ([".", "--truth", "x", "-o", "."], "it is a folder to score"),
        (["nothing.csv", "--truth", "x"], "there is no such file or folder"),
        ([".", "--truth", "x", "--size", "0", "4"], "--size: got 0 4"),
        ([".", "--truth", "x", "--pixel-mm", "-1"], "--pixel-mm: got -1"),
    ],
)
def test_what_cannot_be_scored_is_told_and_nothing_is_written(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["score", *words]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
