"""Frames of PLUS sequences in and out: numbered as in the file, with poses where there are any, statuses kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk
import torch
from recordings import CALIBRATION, COUNT, PIXELS, PLUS, POSES, RIGID, recorded, words

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame
from scopereg.io import add_poses, read_cine, read_frame, write_plus_sequence
from scopereg.io.metaimage import MetaSequence, read_metaimage, write_metaimage
from scopereg.io.plus_sequence import part_path, read_plus_cine
from scopereg.io.sweeps import read_plus_sequence

FRAMES = [Frame(torch.from_numpy(image) / 255, spacing_mm=(0.2, 0.3), origin_mm=(4.0, -5.0)) for image in PIXELS]


def test_frames_come_with_their_poses(tmp_path: Path) -> None:
    path = recorded(tmp_path / "a.igs.mha")
    frame = read_frame(path, index=2, calibration=CALIBRATION)
    assert np.allclose(frame.numpy(), PIXELS[2] / 255)
    assert frame.spacing_mm == pytest.approx((0.2, 0.3))
    assert frame.pose is not None
    assert frame.pose.name == "ImageToTracker"
    tracked = Pose.from_euler_deg((10, 22, 5), (1, 2, -2), "Probe", "Tracker")
    assert frame.pose.is_close(tracked @ RIGID, mm=1e-6, deg=1e-5)
    assert frame.facts["time_s"] == pytest.approx(100.2)
    with pytest.raises(ScopeRegError, match="4 frames"):
        read_frame(path, calibration=CALIBRATION)


def at_two_depths(path: Path, **changes: str) -> Path:
    """The pixels of the last two frames are 1.5 times as large, as PLUS records a depth that is switched."""
    deep = words(RIGID.matrix @ np.diag([0.3, 0.45, 0.375, 1]))
    each = {f"f{k}_ImageToProbeTransform": words(CALIBRATION) if k < 2 else deep for k in range(COUNT)}
    return recorded(path, **{**each, **{f"f{k}_ImageToProbeTransformStatus": "OK" for k in range(COUNT)}, **changes})


def test_a_depth_that_is_switched_in_a_recording_is_taken_up(tmp_path: Path) -> None:
    """Pixels of each frame, and its place, are its own."""
    cine = read_cine(at_two_depths(tmp_path / "a.igs.mha"))
    assert [frame.spacing_mm for frame in cine] == [pytest.approx((0.2, 0.3))] * 2 + [pytest.approx((0.3, 0.45))] * 2
    for k, frame in enumerate(cine):
        tracked = Pose.from_euler_deg((10, 20 + k, 5), (1, k, -2), "Probe", "Tracker")
        assert frame.pose is not None
        assert frame.pose.is_close(tracked @ RIGID, mm=1e-6, deg=1e-5)
        assert frame.facts["notes"] == ["the depth changes in it: pixels measure 0.2 x 0.3, 0.3 x 0.45 mm"]
    with pytest.raises(ScopeRegError, match=r"0\.3 x 0\.45 mm by its calibration"):
        read_cine(tmp_path / "a.igs.mha", spacing_mm=(0.2, 0.3))
    found = add_poses(
        tmp_path / "a.igs.mha", POSES, tmp_path / "b.igs.mha", spacing_mm=cine.spacing_mm, spacings_mm=cine.spacings_mm
    )
    again = read_plus_cine(found, world="Volume")
    assert [frame.spacing_mm for frame in again] == [pytest.approx(frame.spacing_mm) for frame in cine]
    assert all(frame.pose.is_close(pose, mm=1e-6, deg=1e-5) for frame, pose in zip(again, POSES, strict=True))  # type: ignore[union-attr]


def test_a_frame_that_is_lost_between_two_depths_has_no_size(tmp_path: Path) -> None:
    pixels = np.concatenate([PIXELS, PIXELS, PIXELS[:1]])
    frames = []
    for k in range(9):
        depth = words(CALIBRATION if k < 4 else RIGID.matrix @ np.diag([0.3, 0.45, 0.375, 1]))
        status = "INVALID" if k in (1, 4) else "OK"
        frames.append({"ImageToTrackerTransform": depth, "ImageToTrackerTransformStatus": status, "ImageStatus": "OK"})
    path = write_metaimage(MetaSequence({"UltrasoundImageOrientation": "MF"}, frames, pixels), tmp_path / "a.igs.mha")
    cine = read_cine(path)
    assert cine[1].spacing_mm == pytest.approx((0.2, 0.3))  # the frames around it agree
    assert cine[8].spacing_mm == pytest.approx((0.3, 0.45))
    with pytest.raises(ScopeRegError, match="not tracked where the depth changes"):
        cine[4]


def test_sizes_that_waver_are_no_depths(tmp_path: Path) -> None:
    each = {f"f{k}_ImageToProbeTransform": words(CALIBRATION * [1 + k / 9, 1, 1, 1]) for k in range(COUNT)}
    with pytest.raises(ScopeRegError, match="pixels measure"):
        read_cine(recorded(tmp_path / "a.igs.mha", **each))


def test_frames_that_the_tracker_lost_are_still_pictures(tmp_path: Path) -> None:
    path = recorded(tmp_path / "a.igs.mha", f1_ProbeToTrackerTransformStatus="INVALID", f2_ImageStatus="INVALID")
    cine = read_cine(path, calibration=CALIBRATION)
    lost = cine[1]
    assert lost.pose is None
    assert lost.facts["pose_fault"] == "ProbeToTrackerTransform INVALID"
    assert np.allclose(lost.numpy(), PIXELS[1] / 255)
    with pytest.raises(ScopeRegError, match="frame 2 cannot be used: Image INVALID"):
        cine[2]
    assert cine[3].pose is not None
    none = recorded(tmp_path / "b.igs.mha", **{f"f{k}_ProbeToTrackerTransformStatus": "MISSING" for k in range(COUNT)})
    without = read_cine(none, calibration=CALIBRATION)
    assert without.poses is None
    assert without.spacing_mm == pytest.approx((0.2, 0.3))


def test_the_pixel_size_must_come_from_somewhere(tmp_path: Path) -> None:
    path = recorded(tmp_path / "a.igs.mha")
    with pytest.raises(ScopeRegError, match="no transforms lead from Image") as caught:
        read_cine(path)
    assert "calibration=" in caught.value.fix
    assert "spacing_mm=" in caught.value.fix
    given = read_frame(path, spacing_mm=0.25, index=0)
    assert (given.spacing_mm, given.pose) == ((0.25, 0.25), None)
    with pytest.raises(ScopeRegError, match="by its calibration"):
        read_cine(path, spacing_mm=0.25, calibration=CALIBRATION)
    assert len(read_cine(path, spacing_mm=(0.2, 0.3), calibration=CALIBRATION)) == COUNT
    skewed = CALIBRATION @ np.array([[1, 0.3, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    with pytest.raises(ScopeRegError, match="not square"):
        read_cine(path, calibration=skewed)


def test_a_written_sequence_reads_back(tmp_path: Path) -> None:
    poses = [POSES[0], None, *POSES[2:]]
    path = write_plus_sequence(FRAMES, poses, tmp_path / "a.igs.mha", times_s=[0.5, 0.6, 0.7, 0.8])
    stored = read_metaimage(path)
    assert np.array_equal(stored.images, PIXELS)
    states = [fields["ImageToVolumeTransformStatus"] for fields in stored.frames]
    assert states == ["OK", "INVALID", "OK", "OK"]
    matrix = np.array(stored.frames[2]["ImageToVolumeTransform"].split(), float).reshape(4, 4)
    in_frame = (4.0 + 5 * 0.2, -5.0 + 7 * 0.3, 0)  # pixel 5, 7
    assert np.allclose((matrix @ (5, 7, 0, 1))[:3], POSES[2].apply(in_frame))
    cine = read_cine(path)
    assert cine.times_s == (0.5, 0.6, 0.7, 0.8)
    assert cine[1].pose is None
    back = cine[2]
    assert back.pose is not None
    assert back.pose.name == "ImageToVolume"
    assert np.allclose(back.pose.apply((5 * 0.2, 7 * 0.3, 0)), POSES[2].apply(in_frame))
    sweep = read_plus_sequence(path)
    assert (len(sweep), sweep.facts["dropped"]) == (3, {"ImageToVolumeTransform INVALID": 1})
    assert sweep.spacing_mm == pytest.approx((0.2, 0.3))


@pytest.mark.parametrize("compressed", [False, True])
def test_itk_reads_what_was_written(tmp_path: Path, compressed: bool) -> None:
    path = write_plus_sequence(FRAMES, POSES, tmp_path / "a.mha", compressed=compressed)
    assert np.array_equal(sitk.GetArrayFromImage(sitk.ReadImage(str(path))), PIXELS)


def test_pixels_of_one_millimetre_are_told_from_pixels_without_a_size(tmp_path: Path) -> None:
    frames = [Frame(torch.from_numpy(image) / 255, spacing_mm=1.0, origin_mm=(0, 0)) for image in PIXELS]
    cine = read_cine(write_plus_sequence(frames, POSES, tmp_path / "a.mha"))
    assert cine.spacing_mm == pytest.approx((1, 1))
    assert cine[3].pose is not None
    assert cine[3].pose.is_close(POSES[3], mm=1e-6, deg=1e-5)


def test_values_beyond_the_grey_scale_stay_numbers(tmp_path: Path) -> None:
    deep = [Frame(frame.array * 1000, frame.spacing_mm, frame.origin_mm) for frame in FRAMES]
    stored = read_metaimage(write_plus_sequence(deep, POSES, tmp_path / "a.mha"))
    assert stored.images.dtype == np.float32
    assert np.allclose(stored.images, PIXELS / 255 * 1000, rtol=1e-5)


@pytest.mark.parametrize("letters", ["MF", "UN"])
def test_found_poses_are_added_to_a_recording(tmp_path: Path, letters: str) -> None:
    source = recorded(tmp_path / "a.igs.mha", letters)
    path = add_poses(source, [*POSES[:3], None], tmp_path / "b.igs.mha", spacing_mm=(0.2, 0.3))
    before, after = read_metaimage(source), read_metaimage(path)
    assert np.array_equal(before.images, after.images)
    assert after.fields["UltrasoundImageOrientation"] == letters
    assert after.fields["Depth"] == "70"
    for old, new in zip(before.frames, after.frames, strict=True):
        assert old.items() <= new.items()
    cine = read_cine(path)
    assert cine[0].pose is not None
    assert cine[0].pose.is_close(POSES[0], mm=1e-6, deg=1e-5)
    assert np.allclose(cine[0].numpy(), (PIXELS[0][::-1, ::-1] if letters == "UN" else PIXELS[0]) / 255)
    assert cine[3].pose is None
    assert read_cine(path, calibration=CALIBRATION)[3].pose is not None  # the tracker's poses are still there


def test_bad_input_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.mha"
    with pytest.raises(ScopeRegError, match="4 frames and 3 poses"):
        write_plus_sequence(FRAMES, POSES[:3], path)
    with pytest.raises(ScopeRegError, match="0 frames"):
        write_plus_sequence([], [], path)
    with pytest.raises(ScopeRegError, match="2 different sizes"):
        write_plus_sequence([*FRAMES[:3], Frame(torch.rand(3, 3), spacing_mm=1.0)], POSES, path)
    with pytest.raises(ScopeRegError, match="VolumeToImage"):
        write_plus_sequence(FRAMES, [pose.inverse() for pose in POSES], path)
    with pytest.raises(ScopeRegError, match="2 times for 4"):
        write_plus_sequence(FRAMES, POSES, path, times_s=[1, 2])
    with pytest.raises(ScopeRegError, match="unknown ending"):
        write_plus_sequence(FRAMES, POSES, tmp_path / "a.nrrd")
    with pytest.raises(ScopeRegError, match="2 poses for 4"):
        add_poses(recorded(tmp_path / "b.mha"), POSES[:2], path, spacing_mm=(1, 1))
    (tmp_path / "file").write_text("")
    with pytest.raises(ScopeRegError, match="cannot write there"):
        write_plus_sequence(FRAMES, POSES, tmp_path / "file" / "a.mha")
    assert not path.exists()


@pytest.mark.skipif(not PLUS.is_dir(), reason="the sequence of the PLUS toolkit is not at hand")
def test_a_recording_of_plus_keeps_its_frames(tmp_path: Path) -> None:
    source = PLUS / "SpinePhantomFreehand.igs.mha"
    cine = read_cine(source, calibration=PLUS / "PlusDeviceSet_SpinePhantomFreehandReconstructionOnly.xml")
    assert (len(cine), cine.facts["calibration_skew"]) == (21, pytest.approx(-0.048, abs=1e-3))
    found = [Pose(frame.pose.rotation, frame.pose.translation_mm) if frame.pose else None for frame in cine]
    path = add_poses(source, [None, *found[1:]], tmp_path / "b.igs.mha", spacing_mm=cine.spacing_mm)
    sweep = read_plus_sequence(path)
    assert (len(sweep), sweep.facts["world"]) == (20, "Volume")
    assert found[10] is not None
    assert np.allclose(sweep.image_to_world[9], found[10].matrix, atol=1e-6)


def test_files_of_several_sizes_have_numbers() -> None:
    assert [part_path(Path("x/a.b.igs.mha"), number).as_posix() for number in (1, 2)] == [
        "x/a.b.igs.mha",
        "x/a.b-2.igs.mha",
    ]
    assert part_path(Path("a.mha"), 3) == Path("a-3.mha")
