"""Points picked in frames, or in another volume, and where poses put them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from scopereg import Frame, Pose, ScopeRegError
from scopereg.evaluation.score.landmarks import score_landmarks
from scopereg.evaluation.score.posed import Counting, PosedFrame, PosedFrames, Verdict
from scopereg.evaluation.score.reading import read_posed
from scopereg.io.landmarks import write_landmarks
from scopereg.io.transforms import write_pose

POSE = Pose.from_euler_deg((10, 20, 30), (40, 50, 60))
POINTS = {"apex": (3.0, 4.0, 0.0), "valve": (20.0, 6.0, 0.0), "septum": (11.0, 15.0, 0.0)}
RESECT = Path(__file__).parents[3] / "shared" / "data" / "resect" / "pair02_landmarks.json"


def one(pose: Pose = POSE, **told: object) -> PosedFrames:
    frame = PosedFrame("view.png", 0, pose, "first-pixel", **told)  # type: ignore[arg-type]
    return PosedFrames(Path("view.tfm"), (frame,), "Volume")


def placed(off: tuple[float, float, float] = (0.0, 0.0, 0.0), pose: Pose = POSE) -> dict[str, tuple[float, ...]]:
    return {name: tuple(pose.apply(point) + off) for name, point in POINTS.items()}


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Points of a frame, and where they belong: 3, 4, 0 mm from where the pose puts them."""
    picked = write_landmarks(POINTS, tmp_path / "frame.mrk.json")
    return picked, write_landmarks(placed((3.0, 4.0, 0.0)), tmp_path / "volume.mrk.json")  # type: ignore[arg-type]


def test_the_error_is_the_distance_at_each_landmark(files: tuple[Path, Path]) -> None:
    scores = score_landmarks(one(verdict=Verdict(True)), *files)
    assert [row.point for row in scores.rows] == list(POINTS)
    assert [row.error_mm for row in scores.rows] == pytest.approx([5, 5, 5])
    assert scores.of_landmarks
    assert (scores.summary.mean_mm, scores.summary.within, scores.summary.ok_wrong) == (pytest.approx(5), 0, 3)


def test_slicer_of_any_age_may_have_picked_them(files: tuple[Path, Path], tmp_path: Path) -> None:
    """An .fcsv in RAS: x and y of the frame have the other sign there."""
    lines = ["# Markups fiducial file version = 4.11", "# CoordinateSystem = RAS", "# columns = id,x,y,z,label"]
    lines += [f"{n},{-x},{-y},{z},{name}" for n, (name, (x, y, z)) in enumerate(POINTS.items())]
    (tmp_path / "frame.fcsv").write_text("\n".join(lines))
    scores = score_landmarks(one(), tmp_path / "frame.fcsv", files[1])
    assert [row.error_mm for row in scores.rows] == pytest.approx([5, 5, 5])


def test_points_may_count_pixels_or_from_the_middle(files: tuple[Path, Path], tmp_path: Path) -> None:
    size, step = (60, 40), (0.5, 0.25)
    pixels = {name: (x / 0.5, y / 0.25, 0.0) for name, (x, y, _) in POINTS.items()}
    middle = {name: (x - 29.5 * 0.5, y - 19.5 * 0.25, 0.0) for name, (x, y, _) in POINTS.items()}
    counted = {"pixel": write_landmarks(pixels, tmp_path / "p.mrk.json")}
    counted["middle"] = write_landmarks(middle, tmp_path / "m.mrk.json")
    known = one(size=size, spacing_mm=step)
    for scores in (
        score_landmarks(known, counted["pixel"], files[1], unit="pixel"),
        score_landmarks(known, counted["middle"], files[1], origin="centre"),
        score_landmarks(one(), counted["middle"], files[1], origin="centre", size=size, spacing_mm=step),
    ):
        assert [row.error_mm for row in scores.rows] == pytest.approx([5, 5, 5])
    with pytest.raises(ScopeRegError, match="nobody says how many pixels"):
        score_landmarks(one(), counted["pixel"], files[1], unit="pixel")


def test_a_centred_pose_takes_points_from_the_first_pixel(files: tuple[Path, Path], tmp_path: Path) -> None:
    half = np.array([29.5 * 0.5, 19.5 * 0.5, 0])
    path = write_pose(Pose(POSE.rotation, POSE.apply(half)), tmp_path / "a.json", frame=Frame(np.ones((40, 60)), 0.5))
    assert [row.error_mm for row in score_landmarks(read_posed(path), *files).rows] == pytest.approx([5, 5, 5])


def test_several_frames_have_a_file_each(tmp_path: Path) -> None:
    poses = [POSE, Pose.from_euler_deg((0, 0, 90), (1, 2, 3))]
    frames = tuple(PosedFrame("scan.dcm", n, pose, "first-pixel") for n, pose in enumerate(poses))
    cine = PosedFrames(Path("poses.csv"), frames, "Volume")
    (tmp_path / "picked").mkdir()
    (tmp_path / "true").mkdir()
    for n, pose in enumerate(poses):
        write_landmarks(POINTS, tmp_path / "picked" / f"scan_{n:03d}.mrk.json")
        write_landmarks(placed((0, 0, 2.0), pose), tmp_path / "true" / f"scan_{n:03d}.mrk.json")  # type: ignore[arg-type]
    rows = score_landmarks(cine, tmp_path / "picked", tmp_path / "true").rows
    assert [(row.index, row.point) for row in rows] == [(n, name) for n in (0, 1) for name in POINTS]
    assert [row.error_mm for row in rows] == pytest.approx([2] * 6)
    (tmp_path / "true" / "scan_001.mrk.json").unlink()
    with pytest.raises(ScopeRegError, match="it has no points for scan_001"):
        score_landmarks(cine, tmp_path / "picked", tmp_path / "true")
    write_landmarks(POINTS, tmp_path / "picked" / "other.mrk.json")
    with pytest.raises(ScopeRegError, match=r"no pose is called other, there are scan.dcm, scan.dcm frame 1"):
        score_landmarks(cine, tmp_path / "picked", tmp_path / "true")


def test_a_name_that_may_mean_two_frames_is_refused(files: tuple[Path, Path], tmp_path: Path) -> None:
    frames = tuple(PosedFrame(f"{folder}/frame.png", 0, POSE, "first-pixel") for folder in "ab")
    with pytest.raises(ScopeRegError, match=r"frame may be any of a/frame.png, b/frame.png"):
        score_landmarks(PosedFrames(Path("poses.csv"), frames, "Volume"), *files)


def test_points_without_a_true_place_are_left_out_and_told(files: tuple[Path, Path], tmp_path: Path) -> None:
    picked = write_landmarks({**POINTS, "more": (1.0, 1.0, 0.0)}, tmp_path / "more.mrk.json")
    scores = score_landmarks(one(), picked, files[1])
    assert scores.summary.frames == 3
    assert scores.notes == ("1 points have no true place and are left out, first view.png: more",)
    other = write_landmarks({"else": (0.0, 0.0, 0.0)}, tmp_path / "else.mrk.json")
    with pytest.raises(ScopeRegError, match="it has none of the 3 points"):
        score_landmarks(one(), files[0], other)


def test_points_off_the_plane_are_no_points_of_a_frame(files: tuple[Path, Path]) -> None:
    with pytest.raises(ScopeRegError, match=r"apex lies .* mm off the plane of its frame") as caught:
        score_landmarks(one(), files[1], files[0])
    assert "between_volumes=True" in caught.value.fix


@pytest.mark.parametrize(("turned", "said"), [(POSE.inverse(), "went the other way"), (None, "volume in RAS")])
def test_a_convention_that_explains_the_errors_is_hinted_at(tmp_path: Path, turned: Pose | None, said: str) -> None:
    picked = write_landmarks(POINTS, tmp_path / "frame.mrk.json")
    goal = write_landmarks(placed(), tmp_path / "volume.mrk.json")  # type: ignore[arg-type]
    matrix = np.diag([-1.0, -1, 1, 1]) @ POSE.matrix if turned is None else turned.matrix
    assert said in score_landmarks(one(Pose.from_matrix(matrix)), picked, goal).hints[0]


def test_folders_of_landmarks_hold_some_each_once(files: tuple[Path, Path], tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ScopeRegError, match="it holds no landmarks"):
        score_landmarks(one(), empty, files[1])
    for name in ("view.mrk.json", "view.fcsv"):
        (empty / name).write_bytes(files[0].read_bytes())
    with pytest.raises(ScopeRegError, match="two files for a frame"):
        score_landmarks(one(), empty, files[1])
    with pytest.raises(ScopeRegError, match="pass one transform and a file of points for each"):
        score_landmarks(one(), empty, files[1], between_volumes=True)


def test_two_volumes_with_a_transform_between_them(tmp_path: Path) -> None:
    """Ultrasound and MR: points are as far apart as they lie, and no rigid transform does better than the best."""
    rng = np.random.default_rng(0)
    points = {f"p{n}": tuple(rng.uniform(-50, 50, 3)) for n in range(9)}
    goal = {name: tuple(POSE.apply(point) + rng.normal(0, 0.5, 3)) for name, point in points.items()}
    files = [write_landmarks(each, tmp_path / f"{n}.mrk.json") for n, each in enumerate((points, goal))]  # type: ignore[arg-type]
    path = write_pose(POSE, tmp_path / "a.tfm", convention="itk-resample")
    scores = score_landmarks(read_posed(path, Counting(origin="first-pixel")), *files, between_volumes=True)
    apart = np.mean([np.linalg.norm(np.subtract(points[name], goal[name])) for name in points])
    assert scores.notes[0].endswith(f"the points are {apart:.2f} mm apart (mean)")
    left = float(scores.notes[1].split(" leaves ")[1].split()[0])
    assert 0.2 < left <= scores.summary.mean_mm < 1.5
    assert scores.hints == ()


@pytest.mark.skipif(not RESECT.exists(), reason="RESECT's landmarks are not here")
def test_real_landmarks_of_ultrasound_and_mr(tmp_path: Path) -> None:
    """The numbers that its README states: 5.50 mm at the start, 1.39 mm by the best rigid fit."""
    told = json.loads(RESECT.read_text())
    files = [
        write_landmarks({f"p{n}": tuple(point) for n, point in enumerate(told[key])}, tmp_path / f"{key}.mrk.json")
        for key in ("us_mm", "mr_mm")
    ]
    frame = PosedFrame("start", 0, Pose.identity(), "first-pixel")
    scores = score_landmarks(PosedFrames(Path("start"), (frame,), None), *files, between_volumes=True)
    assert scores.summary.mean_mm == pytest.approx(5.50, abs=0.02)
    assert "leaves 1.39 mm" in scores.notes[1]
