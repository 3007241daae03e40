"""Poses against a truth: errors as they are defined, files of every kind, conventions told apart, hints, bad input."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from scopereg import Frame, Pose, ScopeRegError, Volume
from scopereg.data.export import write_patient
from scopereg.evaluation.compare import compare
from scopereg.evaluation.results import read_many
from scopereg.evaluation.score.posed import Counting, PosedFrame, PosedFrames, Verdict
from scopereg.evaluation.score.reading import read_posed
from scopereg.evaluation.score.scores import score_poses
from scopereg.evaluation.score.states import NO_POSE, NO_TRUTH, NOT_LOCATED
from scopereg.geometry import (
    VoxelPoses,
    geodesic_error_deg,
    mtre_mm,
    ras_from_lps,
    rotation_error_deg,
    translation_error_mm,
)
from scopereg.io.pictures import png_bytes
from scopereg.io.placement import write_placed_frame
from scopereg.io.plus_sequence import write_plus_sequence
from scopereg.io.transforms import write_pose
from scopereg.registration.batch import Row, Task, write_table
from scopereg.registration.inputs import write_inputs
from scopereg.registration.reading import Reading
from scopereg.registration.result import Result
from scopereg.registration.track import Step, write_track

SIZE, PIXEL = (60, 40), (0.5, 0.5)
HALF = np.array([29.5 * 0.5, 19.5 * 0.5, 0.0])
FRAME = Frame(np.ones((40, 60)), PIXEL, (0, 0))
TRUTH = [Pose.from_euler_deg((10 + 3 * n, 20 - n, 30 + 2 * n), (40 + 6 * n, 50 - 5 * n, 60 + 4 * n)) for n in range(8)]
OFF = Pose.from_euler_deg((0.5, 0.2, -0.4), (0.3, -0.2, 0.4), "Volume", "Volume")
PLAIN = {"size": SIZE, "spacing_mm": PIXEL}


def about_middle(pose: Pose, off: Pose = OFF) -> Pose:
    """Turned and moved where the frame lies, so that errors are small wherever the world begins."""
    middle = pose.apply(HALF)
    rotation = off.rotation @ pose.rotation
    return Pose(rotation, middle + off.translation_mm - rotation @ HALF)


FOUND = [about_middle(pose) for pose in TRUTH]


def posed(poses: Sequence[Pose | None], name: str = "scan.dcm", **changes: object) -> PosedFrames:
    frames = [PosedFrame(name, n, pose, "first-pixel") for n, pose in enumerate(poses)]
    return PosedFrames(Path(f"{name}.csv"), tuple(replace(frame, **changes) for frame in frames), "Volume")  # type: ignore[arg-type]


def matrices(folder: Path, made: Callable[[np.ndarray], np.ndarray] = np.array) -> Path:
    """The truth as 4x4 text of another program, a file for each frame."""
    folder.mkdir()
    for n, pose in enumerate(TRUTH):
        np.savetxt(folder / f"scan_{n:03d}.txt", made(pose.matrix))
    return folder


def test_errors_are_those_of_the_metrics() -> None:
    """The same frames in centred voxels give the same numbers, one by one."""
    rows = score_poses(posed(FOUND), posed(TRUTH), **PLAIN).rows
    one, other = (
        VoxelPoses(
            torch.stack([torch.from_numpy(pose.rotation.copy()) for pose in poses]),
            torch.stack([torch.from_numpy(pose.apply(HALF) / 0.5) for pose in poses]),
        )
        for poses in (FOUND, TRUTH)
    )
    assert [row.error_mm for row in rows] == pytest.approx(mtre_mm(one, other, (40, 60), 0.5).tolist(), abs=1e-9)
    shifts = translation_error_mm(one, other, 0.5).tolist()
    assert [row.translation_mm for row in rows] == pytest.approx(shifts, abs=1e-9)
    assert [row.rotation_deg for row in rows] == pytest.approx(rotation_error_deg(one, other).tolist(), abs=1e-9)
    assert [row.geodesic_deg for row in rows] == pytest.approx(geodesic_error_deg(one, other).tolist(), abs=1e-6)


def test_pixels_that_are_no_squares_count_as_they_are() -> None:
    wide = score_poses(posed(FOUND), posed(TRUTH), size=SIZE, spacing_mm=(1.0, 0.25)).rows[0]
    x, y = 0.9 * 59 // 1 / 2 * 1.0, 9 * 39 // 10 / 2 * 0.25
    middle = np.array([29.5, 19.5 * 0.25, 0])
    points = middle + np.array([(0, 0, 0), (-x, -y, 0), (x, -y, 0), (-x, y, 0), (x, y, 0)])
    apart = np.linalg.norm(FOUND[0].apply(points) - TRUTH[0].apply(points), axis=1).mean()
    assert wide.error_mm == pytest.approx(apart, abs=1e-9)


def test_a_summary_tells_shares_of_all_and_means_of_what_was_located() -> None:
    far = about_middle(TRUTH[1], Pose.from_euler_deg((0, 0, 0), (0, 0, 5), "Volume", "Volume"))
    poses = posed([TRUTH[0], far, None, *FOUND[3:6]])
    summary = score_poses(poses, posed(TRUTH), **PLAIN).summary
    assert (summary.frames, summary.located, summary.within) == (6, 5, 4)
    assert summary.within_share == pytest.approx(4 / 6)
    assert summary.max_mm == pytest.approx(5, abs=1e-9)
    assert summary.median_mm < 1 < summary.mean_mm
    assert summary.ok is None


def test_verdicts_are_held_against_the_errors() -> None:
    far = about_middle(TRUTH[1], Pose.from_euler_deg((0, 0, 0), (0, 0, 5), "Volume", "Volume"))
    told = [Verdict(True, 0.9, 1.0, 2.0), Verdict(True, 0.9, 1.0, 2.0), Verdict(False, 0.1, 6.0, 12.0), Verdict()]
    frames = zip([TRUTH[0], far, TRUTH[2], TRUTH[3]], told, strict=True)
    poses = PosedFrames(
        Path("x.csv"),
        tuple(PosedFrame("a", n, pose, "first-pixel", verdict=said) for n, (pose, said) in enumerate(frames)),
        "Volume",
    )
    summary = score_poses(poses, posed(TRUTH, "a"), **PLAIN).summary
    assert (summary.ok, summary.ok_wrong, summary.refused, summary.refused_right) == (2, 1, 1, 1)
    assert summary.below_bound == pytest.approx(2 / 3)
    assert summary.expected_mm == pytest.approx(8 / 3)


# files


@pytest.mark.parametrize("ending", [".tfm", ".txt", ".json"])
def test_files_of_scopereg_need_no_word(tmp_path: Path, ending: str) -> None:
    for n, pose in enumerate(TRUTH):
        write_pose(pose, tmp_path / f"scan_{n:03d}{ending}", frame=FRAME)
    (tmp_path / "inputs.json").write_text("{}")
    truth = read_posed(tmp_path)
    assert len(truth) == len(TRUTH)
    assert score_poses(posed(TRUTH), truth).summary.max_mm == pytest.approx(0, abs=1e-6)


def test_a_centred_frame_is_told_from_one_that_counts_from_its_first_pixel(tmp_path: Path) -> None:
    """A Frame made of an array is centred; its pose is another matrix for the same place."""
    centred = Pose(TRUTH[0].rotation, TRUTH[0].apply(HALF))
    write_pose(centred, tmp_path / "scan.tfm", frame=Frame(np.ones((40, 60)), PIXEL))
    write_pose(TRUTH[0], tmp_path / "scan.json", frame=FRAME)
    scores = score_poses(read_posed(tmp_path / "scan.tfm"), read_posed(tmp_path / "scan.json"))
    assert scores.summary.max_mm == pytest.approx(0, abs=1e-6)
    row = scores.rows[0]
    assert row.pose is not None
    assert row.truth is not None
    assert row.pose.is_close(row.truth, mm=1e-6, deg=1e-5)  # both in the truth's millimetres
    assert np.allclose(row.truth.matrix, TRUTH[0].matrix)


def test_tables_tell_verdicts_and_what_was_not_located(tmp_path: Path) -> None:
    task = [
        Task(Path("a.png"), "a.png", "a"),
        Task(Path("sub/b.png"), "sub/b.png", "sub/b"),
        Task(Path("c.png"), "c.png", "c"),
    ]
    result = Result(FOUND[0], "universal", 1.0, 0.9, confidence=0.8, expected_mm=1.5, bound_mm=3.5, ok=True)
    table = write_table(
        [Row(task[0], result), Row(task[1], replace(result, pose=FOUND[1])), Row(task[2], error="it is empty")],
        tmp_path / "poses.csv",
        ".tfm",
    )
    (tmp_path / "truth").mkdir()
    for name, pose in (("a", TRUTH[0]), ("b", TRUTH[1]), ("c", TRUTH[2])):
        write_pose(pose, tmp_path / "truth" / f"{name}.json", frame=FRAME)
    rows = score_poses(read_posed(tmp_path), read_posed(tmp_path / "truth")).rows
    assert [row.state for row in rows] == ["scored", "scored", NOT_LOCATED]
    assert rows[0].verdict == Verdict(True, 0.8, 1.5, 3.5, "universal")
    assert rows[2].reason == "it is empty"
    assert read_posed(table).frames[0].size is None


def test_a_table_knows_its_frames_by_what_stands_beside_it(tmp_path: Path) -> None:
    """inputs.json names the pictures: size, pixels and where they begin come from these."""
    picture, volume = tmp_path / "view.png", tmp_path / "volume.nii.gz"
    picture.write_bytes(png_bytes(np.full((40, 60), 90, np.uint8)))
    volume.write_bytes(b"any")
    out = tmp_path / "out"
    out.mkdir()
    write_table([Row(Task(picture, "view.png", "view"), Result(FOUND[0], "m", 1.0, 0.9))], out / "poses.csv", ".tfm")
    write_inputs(out, Reading(volume, spacing_mm=PIXEL), {"view.png": picture})
    frame = read_posed(out).frames[0]
    assert (frame.size, frame.spacing_mm, frame.origin) == (SIZE, PIXEL, (0.0, 0.0))
    with pytest.raises(ScopeRegError, match="is not origin=centre"):
        read_posed(out, Counting(origin="centre"))
    picture.write_bytes(b"another")
    gone = read_posed(out)
    assert gone.frames[0].size is None
    assert gone.notes[0].startswith("1 files of frames are not found as they were, first view.png")


def test_of_a_track_what_no_picture_stands_behind_was_not_located(tmp_path: Path) -> None:
    result = Result(FOUND[0], "universal", 1.0, 0.9)
    steps = [Step(n, "scan.igs.mha", n, n / 10, state, result=result) for n, state in enumerate(("found", "carried"))]
    track = read_posed(write_track(steps, tmp_path / "track.csv"))
    assert [frame.pose is not None for frame in track.frames] == [True, False]
    assert track.frames[1].reason == "carried"


def test_a_sequence_with_poses_is_a_truth(tmp_path: Path) -> None:
    poses = [*TRUTH[:3], None]
    path = write_plus_sequence([FRAME] * 4, poses, tmp_path / "scan.igs.mha")
    truth = read_posed(path)
    assert truth.world == "Volume"
    assert len(truth.placed) == 3
    scores = score_poses(posed(FOUND[:4], "scan.mha"), truth)
    assert [row.state for row in scores.rows] == ["scored"] * 3 + [NO_TRUTH]
    assert scores.rows[3].index == 3
    assert scores.notes[-1] == "1 frames have no truth, first scan.mha frame 3"


def test_a_sweep_of_arrays_is_a_truth(tmp_path: Path) -> None:
    frames = np.random.default_rng(0).integers(0, 255, (8, 40, 60), np.uint8)
    stacked = np.stack([pose.matrix for pose in TRUTH])
    np.savez(tmp_path / "scan.npz", frames=frames, image_mm_to_world=stacked, spacing_xy_mm=np.array(PIXEL))
    truth = read_posed(tmp_path / "scan.npz")
    with pytest.raises(ScopeRegError, match="it leads to World, the poses lead to Volume") as caught:
        score_poses(posed(FOUND), truth)
    assert "world=" in caught.value.fix
    same = score_poses(posed(FOUND), truth, same_world=True).summary
    assert same == score_poses(posed(FOUND), posed(TRUTH), **PLAIN).summary


def test_the_file_beside_a_phantom_is_a_truth(tmp_path: Path) -> None:
    write_patient(
        tmp_path / "p", "echo", 3, frames=2, magnitude=5.0, protocol="honest", shape=(8, 16, 20), device="cpu"
    )
    truth = read_posed(tmp_path / "p")
    told = json.loads((tmp_path / "p" / "patient.json").read_text())["frames"][1]
    assert (truth.world, truth.frames[1].file) == ("Volume", "frame_01.png")
    assert truth.frames[1].origin == (*told["origin_mm"],)
    frame = Frame(np.ones((16, 20)), truth.frames[0].spacing_mm, (0, 0))
    corner = Pose(np.eye(3), (*told["origin_mm"], 0), "Image", "Image")  # whose millimetres begin at the first pixel
    path = write_pose(Pose.from_matrix(told["image_to_volume"]) @ corner, tmp_path / "frame_01.tfm", frame=frame)
    assert score_poses(read_posed(path), truth).summary.max_mm == pytest.approx(0, abs=1e-6)
    (tmp_path / "p" / "patient.json").write_text(
        json.dumps({"spacing_mm": 1, "frames": [{**told, "image_to_volume": [1]}]})
    )
    with pytest.raises(ScopeRegError, match=r"patient\.json, image_to_volume"):
        read_posed(tmp_path / "p")


def test_a_frame_that_its_header_places_is_a_truth(tmp_path: Path) -> None:
    path = write_placed_frame(FRAME, TRUTH[0], tmp_path / "scan.nrrd")
    truth = read_posed(path)
    assert (truth.world, truth.frames[0].size) == ("World", SIZE)
    summary = score_poses(posed(TRUTH[:1]), truth, same_world=True).summary
    assert summary.max_mm == pytest.approx(0, abs=1e-4)  # headers hold single precision


def test_a_registration_in_dicom_tells_its_direction(tmp_path: Path) -> None:
    volume = Volume(np.ones((4, 6, 8)), 1.0)
    path = write_pose(TRUTH[0], tmp_path / "scan.dcm", frame=FRAME, volume=volume)
    told = Counting(origin="first-pixel")
    for source in (path, tmp_path):
        frame = read_posed(source, told).frames[0]
        assert frame.file == "scan"
        assert frame.pose is not None
        assert np.allclose(frame.pose.matrix, TRUTH[0].matrix, atol=1e-6)
    with pytest.raises(ScopeRegError, match="it tells direction and axes itself"):
        read_posed(path, replace(told, space="RAS"))


def test_a_pose_between_the_worlds_brings_them_together() -> None:
    elsewhere = Pose.from_euler_deg((0, 0, 90), (10, 20, 30), "Reference", "Volume")
    moved = [Pose.from_matrix((elsewhere.inverse() @ pose).matrix, "Image", "Reference") for pose in TRUTH]
    truth = replace(posed(moved), world="Reference")
    summary = score_poses(posed(TRUTH), truth, world=elsewhere, **PLAIN).summary
    assert summary.max_mm == pytest.approx(0, abs=1e-9)
    with pytest.raises(ScopeRegError, match="it is VolumeToReference, the other way"):
        score_poses(posed(TRUTH), truth, world=elsewhere.inverse(), **PLAIN)


@pytest.mark.parametrize(
    ("source", "name"), [("out/echo/poses.csv", "echo"), ("scan.igs.mha", "scan"), ("theirs", "theirs"), (".x", ".x")]
)
def test_poses_are_called_by_what_tells_them_apart(source: str, name: str) -> None:
    assert replace(posed(TRUTH), source=Path(source)).name == name


# conventions


@pytest.mark.parametrize(
    ("made", "counting"),
    [
        (lambda m: m, Counting(origin="first-pixel")),
        (lambda m: m @ shift(HALF), Counting(origin="centre")),
        (np.linalg.inv, Counting(origin="first-pixel", direction="VolumeToImage")),
        (ras_from_lps, Counting(origin="first-pixel", space="RAS")),
        (lambda m: np.diag([-1, -1, 1, 1]) @ m, Counting(origin="first-pixel", space="RAS-volume")),
        (lambda m: m @ np.diag([0.5, 0.5, 0.5, 1]), Counting(unit="pixel")),
    ],
)
def test_what_a_file_leaves_open_is_told(
    tmp_path: Path, made: Callable[[np.ndarray], np.ndarray], counting: Counting
) -> None:
    truth = read_posed(matrices(tmp_path / "truth", made), counting)
    assert score_poses(posed(TRUTH), truth, **PLAIN).summary.max_mm == pytest.approx(0, abs=1e-6)


def shift(offset_mm: np.ndarray) -> np.ndarray:
    matrix = np.eye(4)
    matrix[:3, 3] = offset_mm
    return matrix


def test_itk_files_of_others_go_the_way_that_is_told(tmp_path: Path) -> None:
    for convention, direction in (("slicer", "VolumeToImage"), ("itk-resample", "ImageToVolume")):
        path = write_pose(TRUTH[0], tmp_path / "pose.h5", convention=convention)  # type: ignore[arg-type]
        frame = read_posed(path, Counting(origin="first-pixel", direction=direction)).frames[0]  # type: ignore[arg-type]
        assert frame.pose is not None
        assert np.allclose(frame.pose.matrix, TRUTH[0].matrix)


def test_json_of_the_other_direction_is_turned_by_what_it_says(tmp_path: Path) -> None:
    path = write_pose(TRUTH[0].inverse(), tmp_path / "pose.json", frame=FRAME)
    found = read_posed(path)
    assert found.world == "Volume"
    assert found.frames[0].pose is not None
    assert found.frames[0].pose.is_close(TRUTH[0])


@pytest.mark.parametrize("name", ["pose.tfm", "pose.h5", "pose.txt", "pose.json"])
def test_where_millimetres_begin_is_asked_for(tmp_path: Path, name: str) -> None:
    path = write_pose(TRUTH[0], tmp_path / name)
    with pytest.raises(ScopeRegError, match="does not say from where") as caught:
        read_posed(path)
    assert "origin=first-pixel" in caught.value.fix


def test_a_file_that_says_so_itself_is_not_overruled(tmp_path: Path) -> None:
    path = write_pose(TRUTH[0], tmp_path / "pose.tfm", frame=FRAME)
    with pytest.raises(ScopeRegError, match="first pixel lies at 0 0 mm, which is not origin=centre"):
        read_posed(path, Counting(origin="centre"))
    assert read_posed(path, Counting(origin="first-pixel")).frames[0].origin == (0.0, 0.0)
    table = write_table([Row(Task(Path("a"), "a", "a"), Result(TRUTH[0], "", 0, 0))], tmp_path / "poses.csv", ".tfm")
    with pytest.raises(ScopeRegError, match="space=RAS is for transforms of others"):
        read_posed(table, Counting(space="RAS"))


def test_a_cropped_frame_counts_from_the_first_pixel_that_is_stored(tmp_path: Path) -> None:
    """Of a cropped image the millimetres begin outside of it; a truth by the whole image is the same pose."""
    cropped = Frame(np.ones((40, 60)), PIXEL, (12.0, 7.0))
    write_pose(TRUTH[0], tmp_path / "scan.json", frame=cropped)
    np.savetxt(tmp_path / "scan.txt", TRUTH[0].matrix)
    truth = read_posed(tmp_path / "scan.txt", Counting(origin="first-pixel"))
    assert score_poses(read_posed(tmp_path / "scan.json"), truth).summary.max_mm == pytest.approx(0, abs=1e-6)


# hints


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda m: m @ shift(HALF * 4), "one side counted the frame from its middle"),
        (np.linalg.inv, "the transforms of one side went the other way"),
        (ras_from_lps, "one side counted in RAS, at both ends (space=RAS)"),
        (lambda m: np.diag([-1, -1, 1, 1]) @ m, "one side counted the volume in RAS (space=RAS-volume)"),
        (lambda m: np.diag([-1, -1, 1, 1]) @ m @ shift(HALF * 4), "RAS (space=RAS-volume), and one side counted the"),
        (lambda m: m @ shift(HALF * 4) @ np.diag([-1, 1, -1, 1]) @ shift(-HALF * 4), "mirrored left to right"),
        (lambda m: Pose.from_euler_deg((10, 20, 30), (40, 5, 6)).matrix @ m, "all frames seem to be moved together"),
        (lambda m: m @ Pose.from_euler_deg((0, 4, 0), (9, 5, 3)).matrix, "off by the same in its own axes, x +"),
    ],
)
def test_a_convention_that_explains_the_errors_is_hinted_at(
    tmp_path: Path, made: Callable[[np.ndarray], np.ndarray], said: str
) -> None:
    """Nothing is corrected: the errors stay what they are."""
    truth = read_posed(matrices(tmp_path / "truth", made), Counting(origin="first-pixel"))
    scores = score_poses(posed(FOUND), truth, size=SIZE, spacing_mm=(2.0, 2.0))
    assert scores.summary.median_mm > 5
    assert said in scores.hints[0]
    assert len(scores.hints) == 1 or "beside the truth" in scores.hints[1]


def test_mirrored_motion_is_hinted_at() -> None:
    """A volume with its slices in the wrong order: no rigid motion, yet frames move the other way."""
    plain = [Pose.from_euler_deg((80, 0, 3 * n), (5 * n, 0, 7 * n)) for n in range(10)]
    mirrored = [Pose.from_euler_deg((80, 0, 3 * n), (5 * n, -12 * n, 7 * n)) for n in range(10)]
    hints = score_poses(posed(mirrored), posed(plain), **PLAIN).hints
    assert any("beside the truth, as a tracker" in hint for hint in hints)


def test_poor_poses_and_good_ones_have_no_hint() -> None:
    drawn = np.random.default_rng(1).normal(0, 8, (8, 6))
    poor = [
        about_middle(pose, Pose.from_euler_deg(six[:3], six[3:], "Volume", "Volume"))
        for pose, six in zip(TRUTH, drawn, strict=True)
    ]
    assert score_poses(posed(poor[:5]), posed(TRUTH), **PLAIN).hints == ()
    assert score_poses(posed(FOUND), posed(TRUTH), **PLAIN).hints == ()


# names


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [("a/scan.dcm", "scan.igs.mha"), ("scan.dcm", "b/scan.npz"), ("sweep.igs.mha", "tracked.igs.mha")],
)
def test_frames_find_each_other_by_name_and_number(mine: str, theirs: str) -> None:
    scores = score_poses(posed(FOUND[:3], mine), posed(TRUTH, theirs), **PLAIN)
    assert [row.state for row in scores.rows] == ["scored"] * 3 + [NO_POSE] * 5
    assert scores.summary.max_mm < 1
    assert any("is taken for" in note for note in scores.notes) == (mine == "sweep.igs.mha")


def test_folders_tell_frames_of_one_name_apart() -> None:
    truth = [PosedFrame(f"{name}/view.png", 0, pose, "first-pixel") for name, pose in zip("ab", TRUTH, strict=False)]
    source = PosedFrames(Path("truth"), tuple(truth), None)
    mine = PosedFrames(Path("mine"), (PosedFrame("b/view.png", 0, TRUTH[1], "first-pixel"),), None)
    assert score_poses(mine, source, **PLAIN).summary.max_mm == pytest.approx(0)
    unclear = PosedFrames(Path("mine"), (PosedFrame("view.png", 0, TRUTH[1], "first-pixel"),), None)
    with pytest.raises(ScopeRegError, match=r"view.png may be a/view.png or b/view.png"):
        score_poses(unclear, source, **PLAIN)
    both = (PosedFrame("x/view.png", 0, TRUTH[0], "centre"), PosedFrame("y/view.png", 0, TRUTH[1], "centre"))
    one = PosedFrames(Path("truth"), (PosedFrame("view", 0, TRUTH[0], "centre"),), None)
    with pytest.raises(ScopeRegError, match=r"view may be x/view.png or y/view.png"):
        score_poses(PosedFrames(Path("mine"), both, None), one, **PLAIN)


# bad input


def test_nothing_in_common_is_refused() -> None:
    truth = [PosedFrame(name, 0, TRUTH[0], "centre") for name in ("other.png", "more.png")]
    with pytest.raises(ScopeRegError, match=r"it has no frame of .*other.png, more.png there, scan.dcm"):
        score_poses(posed(FOUND), PosedFrames(Path("truth"), tuple(truth), None), **PLAIN)


def test_one_pose_is_not_taken_for_the_first_of_many() -> None:
    """Nobody says which frame of the sequence it is of."""
    with pytest.raises(ScopeRegError, match=r"it has no frame of pose.csv"):
        score_poses(posed(FOUND[:1], "pose"), posed(TRUTH), **PLAIN)
    scores = score_poses(posed(FOUND[:1], "pose"), posed(TRUTH[:1]), **PLAIN)
    assert scores.notes[0] == "pose is taken for scan.dcm: frames go by their numbers"


def test_frames_that_were_all_lost_are_no_score() -> None:
    with pytest.raises(ScopeRegError, match="none of the 2 frames that have a truth was located"):
        score_poses(posed([None, None, FOUND[2]]), posed(TRUTH[:2]), **PLAIN)


def test_pixels_must_be_known_and_the_same() -> None:
    with pytest.raises(ScopeRegError, match="nobody says how many pixels"):
        score_poses(posed(FOUND), posed(TRUTH))
    with pytest.raises(ScopeRegError, match="it has 60 x 41 and 60 x 40 pixels"):
        score_poses(posed(FOUND, size=(60, 41)), posed(TRUTH, size=SIZE), spacing_mm=PIXEL)
    with pytest.raises(ScopeRegError, match=r"it has pixels of 0.5 x 0.5 and 0.3 x 0.3 mm"):
        score_poses(posed(FOUND, spacing_mm=PIXEL), posed(TRUTH), size=SIZE, spacing_mm=(0.3, 0.3))


def test_poses_of_different_things_are_refused() -> None:
    probe = [Pose(pose.rotation, pose.translation_mm, "Probe") for pose in TRUTH]
    with pytest.raises(ScopeRegError, match="they place different things: Image, Probe"):
        score_poses(posed(FOUND), posed(probe), **PLAIN)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (["a,0,1,2,3,0,0,0", "a,0,1,2,3,0,0,0"], "1 frames stand twice, first a frame 0"),
        (["a,0,nan,2,3,0,0,0"], "it holds NaN or infinity"),
        (["a,x,1,2,3,0,0,0"], "it is no table of poses"),
        (["a,0,,,,,,"], "it holds no pose in 1 frames"),
        ([], "it holds no pose in 0 frames"),
    ],
)
def test_tables_that_cannot_be_are_refused(tmp_path: Path, rows: list[str], said: str) -> None:
    table = tmp_path / "truth.csv"
    head = "file,index,tx_mm,ty_mm,tz_mm,rx_deg,ry_deg,rz_deg"
    table.write_text("\n".join([head, *rows, ""]))
    with pytest.raises(ScopeRegError, match=said) as caught:
        read_posed(table)
    assert str(table) in caught.value.where


def test_a_bad_row_is_named_by_its_line(tmp_path: Path) -> None:
    table = tmp_path / "truth.csv"
    table.write_text("file,index,tx_mm,ty_mm,tz_mm,rx_deg,ry_deg,rz_deg\na,0,1,2,3,0,0,0\na,1,inf,2,3,0,0,0\n")
    with pytest.raises(ScopeRegError) as caught:
        read_posed(table)
    assert caught.value.where == f"{table}, line 3"


def test_what_is_not_rigid_is_refused_and_pixels_are_thought_of(tmp_path: Path) -> None:
    scaled = matrices(tmp_path / "scaled", lambda m: m @ np.diag([0.5, 0.5, 0.5, 1]))
    with pytest.raises(ScopeRegError, match="not a rotation") as caught:
        read_posed(scaled, Counting(origin="first-pixel"))
    assert "unit=pixel" in caught.value.fix
    with pytest.raises(ScopeRegError, match="a reflection"):
        read_posed(matrices(tmp_path / "mirrored", lambda m: m @ np.diag([-1, 1, 1, 1])), Counting(origin="centre"))
    with pytest.raises(ScopeRegError, match=r"4x4 matrix in a \.txt"):
        read_posed(write_pose(TRUTH[0], tmp_path / "pose.tfm"), Counting(unit="pixel"))


def test_folders_that_do_not_say_what_counts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ScopeRegError, match="it holds no poses in 0 files"):
        read_posed(tmp_path)
    with pytest.raises(ScopeRegError, match="there is no such file or folder"):
        read_posed(tmp_path / "nothing")
    for name in ("view.tfm", "view.json"):
        write_pose(TRUTH[0], tmp_path / name, frame=FRAME)
    with pytest.raises(ScopeRegError, match="1 frames stand twice, first view"):
        read_posed(tmp_path)
    (tmp_path / "poses.csv").write_text("file,index\n")
    (tmp_path / "track.csv").write_text("file,index\n")
    with pytest.raises(ScopeRegError, match=r"it holds poses.csv and track.csv"):
        read_posed(tmp_path)


def test_poses_that_lead_to_several_worlds_are_refused(tmp_path: Path) -> None:
    for name, world in (("a", "Volume"), ("b", "Reference")):
        write_pose(Pose(np.eye(3), np.zeros(3), "Image", world), tmp_path / f"{name}.json", frame=FRAME)
    with pytest.raises(ScopeRegError, match="several worlds: Volume, Reference"):
        read_posed(tmp_path)


def test_images_without_a_place_are_no_poses(tmp_path: Path) -> None:
    (tmp_path / "a.igs.mha").write_bytes(b"no sequence")
    with pytest.raises(ScopeRegError):
        read_posed(tmp_path / "a.igs.mha")


def test_the_table_tells_how_it_was_made_and_holds_every_frame(tmp_path: Path) -> None:
    scores = score_poses(posed([*FOUND[:2], None]), posed(TRUTH), name="mine", **PLAIN)
    head, columns, *lines = scores.write(tmp_path / "score.csv", {"command": "x"}).read_text().splitlines()
    told = json.loads(head.removeprefix("# "))
    assert (told["name"], told["format"], told["provenance"]) == ("mine", "scopereg-score-1", {"command": "x"})
    assert columns.startswith("file,index,point,state,error_mm,translation_mm")
    assert scores.rows[0].label == "scan.dcm frame 0"
    assert [line.split(",")[3] for line in lines] == ["scored"] * 2 + [NOT_LOCATED] + [NO_POSE] * 5
    assert math.isfinite(float(lines[0].split(",")[4]))


def test_compare_sets_scores_side_by_side(tmp_path: Path) -> None:
    """Two methods on the same frames: paired by frame, lost ones a failure of the one that lost them."""
    worse = [about_middle(pose, Pose.from_euler_deg((2, 0, 0), (2, 2, 2), "Volume", "Volume")) for pose in TRUTH]
    for name, poses in (("first", FOUND), ("second", [*worse[:7], None])):
        score_poses(posed(poses), posed(TRUTH), name=name, **PLAIN).write(tmp_path / f"{name}.csv", {})
    rows = read_many([tmp_path])
    assert {row.method for row in rows} == {"first", "second"}
    assert [row.failure for row in rows if row.method == "second"] == [""] * 7 + [NOT_LOCATED]
    tables = {table.name: table for table in compare(rows)}
    keys = [column.key for column in tables["main"].columns]
    lines = [dict(zip(keys, row, strict=True)) for row in tables["main"].blocks[0].rows]
    told = {line["method"].value: (line["frames"].value, line["not_located"].value) for line in lines}
    assert told == {"first": (8, 0), "second": (8, 1)}
    statistics = tables["statistics"].blocks[0].rows[0]
    assert statistics[0].value == "second"
    assert statistics[1].value > 2


def test_scores_of_other_frames_are_not_compared(tmp_path: Path) -> None:
    score_poses(posed(FOUND), posed(TRUTH), name="first", **PLAIN).write(tmp_path / "first.csv", {})
    score_poses(posed(FOUND), posed(TRUTH[::-1]), name="second", **PLAIN).write(tmp_path / "second.csv", {})
    with pytest.raises(ScopeRegError, match="frames are not the same for first and second"):
        compare(read_many([tmp_path]))
