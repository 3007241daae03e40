"""A locator finds frames from files, by any method, and says what it did to the images."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import scopereg
from scopereg import io
from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose, rotation_from_euler_deg, sample_slice
from scopereg.images import Frame, Volume, pose_from_voxels
from scopereg.networks import create
from scopereg.networks.weights import save_network
from scopereg.registration.locator import Locator
from scopereg.registration.model import Registrar
from scopereg.registration.register import Start
from scopereg.registration.settings import DEFAULT
from scopereg.registration.working_grid import isotropic

Case = Any  # of conftest.py


@pytest.fixture(scope="module")
def located(case: Case, narrow: Registrar) -> Locator:
    return Locator(case.volume, narrow)


def shifted(pose: Pose, mm: float) -> Pose:
    return Pose(pose.rotation, pose.translation_mm + mm)


def test_three_lines_from_files_to_a_transform(case: Case, narrow_file: Path, tmp_path: Path) -> None:
    result = scopereg.register(case.folder / "frame.dcm", case.folder / "volume.nii.gz", refine=True, device="cpu")
    result.save(tmp_path / "pose.tfm")
    border_mm = 10 * case.frames[0].spacing_mm[0]  # the mm of a DICOM frame count from the corner of the screen
    to_screen = Pose.from_euler_deg((0, 0, 0), (border_mm, border_mm, 0), "Image", "Image")
    assert case.error_mm(0, Pose.load(tmp_path / "pose.tfm") @ to_screen) < 0.5
    assert result.method == f"{DEFAULT} network, refined"
    one_size = scopereg.register(case.folder / "frame.dcm", case.folder / "volume.nii.gz", method=str(narrow_file))
    assert any("resampled to 0.616 mm, as in training" in note for note in one_size.notes)
    assert any("resampled to 0.5 mm, 158 along the frame" in note for note in result.notes)


def test_together_or_alone_the_poses_are_the_same(located: Locator, case: Case) -> None:
    together = located.locate_all(case.frames[:2])
    for row, found in enumerate(together):
        assert not isinstance(found, ScopeRegError)
        alone = located.locate(case.frames[row])
        assert alone.pose.is_close(found.pose, mm=1e-2, deg=1e-2)
        assert found.similarity == pytest.approx(alone.similarity, abs=1e-3)
        assert found.frame is case.frames[row]
        assert found.volume is case.volume
        assert case.error_mm(row, found.pose) < 4


def test_what_is_odd_about_the_images_is_told(case: Case) -> None:
    """A mask in the place of the volume, and pixels in cm."""
    mask = replace(case.volume, array=(case.volume.array > 0.3).float())
    assert Locator(mask, "start").notes == ("the volume holds 2 grey values alone: is it a mask?",)
    plain = Locator(case.volume, "start")
    assert plain.notes == ()
    assert plain.locate(case.frames[0]).notes == ()
    width, height = (size / 10 for size in case.frames[0].extent_mm)
    (note,) = plain.locate(replace(case.frames[0], spacing_mm=case.frames[0].spacing_mm[0] / 10)).notes
    assert note.startswith(f"the frame measures {width:.3g} x {height:.3g} mm, the volume up to 78 mm")


def test_an_array_is_no_image_without_its_spacing(case: Case) -> None:
    with pytest.raises(ScopeRegError, match="got ndarray") as caught:
        scopereg.register(np.zeros((9, 9)), case.volume)  # type: ignore[arg-type]
    assert "scopereg.Frame(array, spacing_mm)" in caught.value.fix


def test_one_bad_frame_leaves_the_others_alone(case: Case) -> None:
    empty = Frame(torch.zeros(20, 20), spacing_mm=1.0)
    huge = Frame(torch.rand(50, 50), spacing_mm=10.0)
    tiny = Frame(torch.rand(6, 8), spacing_mm=0.05)
    first, bad, small, good = Locator(case.volume, "start").locate_all([empty, huge, tiny, case.frames[0]])
    assert isinstance(first, ScopeRegError)
    assert "every value is 0" in first.what
    assert isinstance(bad, ScopeRegError)
    assert "the frame measures 490 x 490 mm, the volume only" in bad.what
    assert isinstance(small, ScopeRegError)
    assert "the frame measures 0.35 x 0.25 mm, a voxel of the volume 0." in small.what
    assert not isinstance(good, ScopeRegError)


def test_frames_that_were_not_found_keep_no_volume(case: Case) -> None:
    """A traceback would: gigabytes then wait for the collector of cycles, which does not know how large they are."""
    outside = Pose(np.eye(3), np.array([500.0, 0, 0]))
    gc.disable()
    try:
        volume = Volume(case.volume.array, case.volume.spacing_mm)
        locator = Locator(volume, "identity", refine=True, device="cpu")
        kept = weakref.ref(locator.prepared)
        (found,) = locator.locate_all([case.frames[0]], [outside])
        assert isinstance(found, ScopeRegError)
        del locator
        assert kept() is None
    finally:
        gc.enable()


def test_a_larger_frame_is_cut_for_the_network_with_a_word(located: Locator, case: Case) -> None:
    wide = torch.nn.functional.pad(case.frames[0].array, (30, 30, 30, 30))
    step = case.frames[0].spacing_mm[0]
    found = located.locate(Frame(wide, spacing_mm=step, origin_mm=(-30 * step, -30 * step)))
    assert "its middle is used" in found.notes[0]
    assert case.error_mm(0, found.pose) < 4


@pytest.mark.parametrize("method", ["narrow", "narrow+refine", "simpleitk-mi"])
def test_what_a_mask_hides_changes_nothing(case: Case, narrow_file: Path, method: str) -> None:
    """Whatever lies under it: the same pose, similarity and quality features, and near the truth."""
    locator = Locator(case.volume, method.replace("narrow", str(narrow_file)), device="cpu")
    frame = case.frames[0]
    height, width = frame.shape
    mask = torch.ones(height, width, dtype=torch.bool)
    mask[height // 3 : height // 2, width // 3 : width // 2] = False
    start = shifted(case.truth[0], 1.0) if method == "simpleitk-mi" else None
    dark, bright, noisy = (
        locator.locate(replace(frame, array=torch.where(mask, frame.array, hidden), mask=mask), start)
        for hidden in (0.0, 1.0, torch.rand(height, width, generator=torch.Generator().manual_seed(0)))
    )
    for found in (bright, noisy):
        assert found.pose.is_close(dark.pose, mm=1e-6, deg=1e-6)
        assert found.similarity == dark.similarity
        assert found.features == dark.features
    assert case.error_mm(0, dark.pose) < 4
    assert float(bright.frame.array[~mask].min()) == 1  # the result has the frame as it came


@pytest.mark.parametrize("method", ["start", "centre", "simpleitk-mi"])
def test_refinement_follows_any_method_from_a_start(case: Case, method: str) -> None:
    locator = Locator(case.volume, method, refine=True, device="cpu")
    found = locator.locate(case.frames[1], shifted(case.truth[1], 1.0))
    assert case.error_mm(1, found.pose) < 0.2
    assert found.method.endswith(", refined")
    assert locator.notes == ()  # it is isotropic as it is


def test_without_refinement_the_start_stays_as_it_is(case: Case) -> None:
    locator = Locator(case.volume, "start")
    near, far = (locator.locate(case.frames[1], shifted(case.truth[1], mm)) for mm in (0.0, 4.0))
    assert near.pose is not None
    assert near.pose.is_close(case.truth[1])
    assert near.similarity > 0.95 > far.similarity


def test_a_network_looks_around_a_start_pose(located: Locator, case: Case) -> None:
    """Turned by 60 degrees a frame is out of the network's range, except from a start nearby."""
    turn = rotation_from_euler_deg(torch.tensor([0.0, 0.0, 60.0]))
    image = sample_slice(case.volume.array, turn, torch.zeros(3))
    frame = Frame(image, case.frames[0].spacing_mm, (0, 0))
    truth = pose_from_voxels(turn, torch.zeros(3), frame, case.volume)
    start = truth @ Pose.from_euler_deg((3, -3, 5), (1, -2, 1), "Image", "Image")
    without, found = (located.locate(frame, pose).pose.angle_to_deg(truth) for pose in (None, start))
    assert found < start.angle_to_deg(truth)
    assert without > 30


def test_too_little_inside_is_an_error_or_a_note(case: Case) -> None:
    away = shifted(case.truth[0], 60.0)
    with pytest.raises(ScopeRegError, match="too little of the frame"):
        Locator(case.volume, "start", refine=True, device="cpu").locate(case.frames[0], away)


def test_an_anisotropic_volume_is_resampled_with_a_word(case: Case) -> None:
    thick = Volume(case.volume.array[::2], (0.82133, 0.82133, 1.64267), case.volume.origin_mm, case.volume.direction)
    locator = Locator(thick, "start", refine=True, device="cpu")
    assert locator.notes == ("the volume's voxels of 0.82133 x 0.82133 x 1.64267 mm are resampled to 0.8213 mm",)
    found = locator.locate(case.frames[1], shifted(case.truth[1], 1.0))
    assert case.error_mm(1, found.pose) < 1.0


def test_a_volume_too_large_for_its_finest_spacing_gets_a_coarser_one() -> None:
    volume = Volume(torch.rand(20, 30, 40), (0.1, 0.1, 2.0))
    made, note = isotropic(volume, most=1000)
    assert np.prod(made.shape) < 2000
    assert "million voxels allow" in note
    assert isotropic(Volume(torch.rand(4, 4, 4), 1.0))[1] == ""


def test_values_of_another_range_are_scaled(case: Case) -> None:
    loud = Volume(case.volume.array * 900 - 100, case.volume.spacing_mm, case.volume.origin_mm, case.volume.direction)
    frame = Frame(case.frames[1].array * 4000, case.frames[1].spacing_mm, (0, 0))
    found = Locator(loud, "start", refine=True, device="cpu").locate(frame, shifted(case.truth[1], 1.0))
    assert case.error_mm(1, found.pose) < 0.5


def test_weights_of_another_shape_get_a_word(case: Case, tmp_path: Path) -> None:
    facts = {"spacing_mm": 0.8213, "shape": [64, 64, 64]}
    path = save_network(create("scope-reg"), tmp_path / "mine.safetensors", name="scope-reg", facts=facts)
    locator = Locator(case.volume, str(path), device="cpu")
    assert "trained on volumes of 64 x 64 x 64 voxels, this one has 24 x 96 x 96" in locator.notes[0]


def test_starts_come_from_poses_files_and_trackers(case: Case, tmp_path: Path) -> None:
    tracked = io.read_frame(case.folder / "scan.igs.mha", index=1, calibration=case.folder / "scan.xml")
    start = Start.read("tracker").of(tracked, case.volume)
    assert start is not None
    assert start.name == "ImageToVolume"
    assert 1 < case.error_mm(1, start) < 3
    moved = Pose.from_euler_deg((0, 0, 0), (0, 0, 50), "Reference", "Volume")
    away = Start.read("tracker", moved.save(tmp_path / "world.txt")).of(tracked, case.volume)
    assert away is not None
    assert away.translation_mm - start.translation_mm == pytest.approx((0, 0, 50))
    from_file = Start.read(case.truth[0].save(tmp_path / "start.tfm")).of(tracked, case.volume)
    assert from_file is not None
    assert from_file.is_close(case.truth[0], mm=1e-6, deg=1e-5)
    assert Start.read(None).of(tracked, case.volume) is None


def test_a_frame_that_the_tracker_lost_has_no_start(case: Case) -> None:
    lost = io.read_frame(case.folder / "scan.igs.mha", index=3, calibration=case.folder / "scan.xml")
    with pytest.raises(ScopeRegError, match=r"does not place the frame .ProbeToReferenceTransform INVALID"):
        Start.read("tracker").of(lost, case.volume)


def test_wrong_methods_starts_and_volumes_are_explained(case: Case, tmp_path: Path) -> None:
    with pytest.raises(ScopeRegError, match="did you mean 'simpleitk-mi'"):
        Locator(case.volume, "simpleitk")
    with pytest.raises(ScopeRegError, match="every value is 0"):
        Locator(Volume(torch.zeros(4, 4, 4), 1.0), "start")
    wrong = Pose.identity("Image", "Reference")
    with pytest.raises(ScopeRegError, match="the pose is ImageToReference, not ImageToVolume"):
        Start.read(wrong).of(case.frames[0], case.volume)
    with pytest.raises(ScopeRegError, match="only the places that a tracker gives"):
        Start.read(None, tmp_path / "world.txt")
