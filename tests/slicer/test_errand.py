"""Recordings in the panel, in a stand-in for 3D Slicer: compounded and registered together by the real scopereg."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from fake_nodes import TransformNode
from fake_recording import LPS_TO_RAS, BrowserNode, SequenceNode, volume_node
from patient_files import Case
from recorded_scene import LOST, OFF, TO_WORLD, Recorded, grey_at, record, swept

from scopereg import Pose, __version__
from scopereg.commands.verbs import VERBS
from scopereg.io.frames import read_cine
from scopereg.io.plus import matrix_of
from scopereg.io.plus_sequence import PlusSequence
from scopereg.io.sweeps import read_plus_sequence, read_sweep

PLUS = Path(__file__).parents[3] / "shared" / "data" / "plus"
PROGRAM = str(Path(sys.executable).with_name("scopereg"))


@pytest.fixture
def scene(slicer: ModuleType, case: Case) -> Recorded:
    return record(slicer, case)


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Those of errands; in the end none is left, whatever happened."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield tmp_path
    assert list(tmp_path.glob("scopereg-*")) == []


@pytest.fixture
def panel(folders: Path, panel: Any, scene: Recorded) -> Any:
    """With everything chosen."""
    panel.volume_selector.setCurrentNode(scene.volume)
    panel.errand_panel.browser_selector.setCurrentNode(scene.browser)
    panel.errand_panel.program_edit.currentPath = PROGRAM
    return panel


def wait(panel: Any, timeout_s: float = 300.0) -> str:
    """What the timer of 3D Slicer does until the errand has ended; what is said then."""
    deadline_s = time.monotonic() + timeout_s
    errands = panel.errand_panel
    while not errands.compound_button.enabled:
        assert errands.cancel_button.enabled
        assert time.monotonic() < deadline_s, errands.state_label.text
        time.sleep(0.02)
        panel.timer.slot()
    return str(errands.state_label.text)


def press(panel: Any, name: str) -> str:
    getattr(panel.errand_panel, f"{name}_button").emit("clicked()")
    return str(panel.errand_panel.state_label.text)


def test_the_recording_is_written_where_it_lies(slicer: ModuleType, scene: Recorded, tmp_path: Path) -> None:
    """In the frame of reference of the recording: what stands still above it is no part of it."""
    from ScopeRegLiveLib.sequences import Chain, image_of, recording_of

    assert image_of(scene.browser, None) is scene.image
    chain = Chain(scene.browser, scene.image)
    assert (chain.top, chain.reference) == (scene.probe_to_reference, scene.reference_to_ras)
    recording = recording_of(scene.browser, scene.image, chain)
    assert recording.note == "1 of 4 frames have no transform of their time, or the identity, and are left out"
    cine = read_cine(recording.write(tmp_path / "sweep.igs.mha"))
    assert cine.poses is not None
    spacing_mm = cine.spacing_mm[0]
    for row, pose in enumerate(cine.poses):
        if row == LOST:
            assert pose is None
            continue
        assert pose is not None
        pixel_to_reference = LPS_TO_RAS @ pose.matrix @ np.diag([spacing_mm, spacing_mm, spacing_mm, 1.0])
        assert np.allclose(pixel_to_reference, scene.pixel_to_reference_ras[row], atol=1e-9)
    images = read_sweep(tmp_path / "sweep.igs.mha").images.numpy()
    first = scene.browser.GetSequenceNode(scene.image).GetNthDataNode(0)  # type: ignore[union-attr]
    assert np.array_equal(images[0], first.GetImageData().pixels[0])  # type: ignore[attr-defined]


@pytest.mark.skipif("compound" not in VERBS, reason="this scopereg has no compound")
def test_the_compounded_volume_lies_where_the_frames_do(slicer: ModuleType, panel: Any, case: Case) -> None:
    sweep = record(slicer, swept(case), name="Fan")
    panel.errand_panel.browser_selector.setCurrentNode(sweep.browser)
    panel.errand_panel.voxel_box.value = 0.8
    assert press(panel, "compound").startswith("compounding: ")
    told = wait(panel)
    assert "Fan compounded is in the scene." in told
    assert "voxels of 0.8 mm, as asked for" in told
    assert "1 of 24 frames have no transform" in told
    made = panel.errand_panel.errand.made
    assert made.parent_transform is sweep.reference_to_ras
    assert made.GetStorageNode() not in made.scene.nodes  # its file is gone
    facts = json.loads(made.GetAttribute("ScopeReg.facts"))
    assert (facts["format"], facts["words"][0]) == ("scopereg-compounded-1", "compound")
    assert facts["left_out"]["verdict"] in told
    assert facts["provenance"]["data_sha256"]
    assert panel.errand_panel.light_label.text == ""
    images = sweep.browser.GetSequenceNode(sweep.image)
    assert images is not None
    for row in range(4, 20, 3):
        pixels = images.GetNthDataNode(row).GetImageData().pixels[0]  # type: ignore[attr-defined]
        rows, columns = (grid.ravel() for grid in np.mgrid[4:52:3, 4:52:3])
        in_image = np.stack([columns, rows, np.zeros(rows.size), np.ones(rows.size)])
        points = (TO_WORLD @ sweep.pixel_to_reference_ras[row] @ in_image)[:3].T
        found = grey_at(made, points)
        assert np.isfinite(found).all()
        assert np.corrcoef(found, pixels[rows, columns])[0, 1] > 0.95
        mirrored = grey_at(made, points * (-1, -1, 1))  # RAS taken for LPS
        assert not np.isfinite(mirrored).any()


@pytest.mark.slow
def test_frames_together_get_a_transform_and_a_verdict(
    panel: Any, scene: Recorded, case: Case, narrow_file: Path
) -> None:
    errands = panel.errand_panel
    errands.method_edit.text, errands.start_box.checked = str(narrow_file), True
    # The recording already lies 2 mm beside its place in the volume.
    scene.reference_to_ras.matrix = scene.volume.parent_transform.matrix  # type: ignore[union-attr]
    assert press(panel, "together").startswith("registering together: ")
    told = wait(panel)
    made = errands.errand.made
    assert made.GetName() == "Sweep to heart"
    assert "Sweep to heart is in the scene." in told
    assert made.parent_transform is scene.volume.parent_transform
    facts = json.loads(made.GetAttribute("ScopeReg.facts"))
    assert facts["program"] == f"scopereg {__version__}"
    assert errands.light_label.text == {True: "LOCATED", False: "DOUBTFUL", None: "NOT JUDGED"}[facts["ok"]]
    assert errands.light_label.styleSheet
    assert (facts["reason"] or errands.errand.light.reason) in told
    reference_to_volume_lps = LPS_TO_RAS @ made.matrix @ LPS_TO_RAS
    assert np.allclose(reference_to_volume_lps @ OFF.matrix, np.eye(4), atol=1.5)
    assert scene.probe_to_reference.parent_transform is scene.reference_to_ras  # nothing moves by itself
    errands.apply_button.emit("clicked()")
    assert scene.probe_to_reference.parent_transform is made
    for row in range(LOST):
        in_heart = np.linalg.inv(scene.volume.parent_transform.to_world) @ made.to_world  # type: ignore[union-attr]
        pose = Pose.from_matrix(LPS_TO_RAS @ in_heart @ scene.pixel_to_reference_ras[row] / case_scale(case))
        assert case.error_mm(row, pose) < 1


def case_scale(case: Case) -> np.ndarray:
    """What takes the size of a pixel out of a matrix, column by column."""
    return np.array([[*case.frames[0].spacing_mm, case.frames[0].spacing_mm[0], 1.0]])


def test_what_scopereg_says_of_it_is_shown(panel: Any) -> None:
    panel.errand_panel.method_edit.text = "no-such-method"
    press(panel, "together")
    assert "no-such-method" in wait(panel)
    assert panel.errand_panel.errand.failed
    assert not panel.errand_panel.apply_button.enabled
    assert panel.errand_panel.light_label.text == ""


def test_a_run_is_cancelled(panel: Any, folders: Path) -> None:
    press(panel, "together")
    assert len(list(folders.glob("scopereg-*"))) == 1
    assert not panel.errand_panel.together_button.enabled
    press(panel, "cancel")
    assert wait(panel, 30).startswith("Cancelled.")
    press(panel, "together")  # and another can begin; closing the scene ends it
    assert not panel.errand_panel.together_button.enabled
    panel.on_scene_closing()
    assert panel.errand_panel.together_button.enabled
    assert panel.errand_panel.state_label.text == ""


def test_the_program_is_remembered(slicer: ModuleType, panel: Any) -> None:
    panel.errand_panel.program_edit.currentPath = "/nowhere/scopereg"
    assert "There is no program /nowhere/scopereg" in press(panel, "compound")
    again = slicer.module.ScopeRegLiveWidget()
    again.setup()
    assert again.errand_panel.program_edit.currentPath == "/nowhere/scopereg"
    again.cleanup()


def test_without_a_choice_the_panel_says_what_is_missing(panel: Any) -> None:
    panel.volume_selector.setCurrentNode(None)
    assert "No volume is chosen" in press(panel, "together")
    panel.errand_panel.browser_selector.setCurrentNode(None)
    assert "No recording is chosen" in press(panel, "compound")
    assert panel.errand_panel.compound_button.enabled


def add_image(scene: Recorded, name: str) -> Any:
    other = volume_node(name, np.zeros((1, 4, 4), np.uint8), np.eye(4))
    scene.browser.shown.append((other, SequenceNode(name, {"0": other})))
    return other


def test_of_several_images_one_is_chosen(panel: Any, scene: Recorded) -> None:
    other = add_image(scene, "Video")
    assert "holds several images: choose one of Image, Video" in press(panel, "compound")
    panel.errand_panel.image_selector.setCurrentNode(other)
    assert "Video lies under no transform that was recorded with it" in press(panel, "compound")
    panel.errand_panel.image_selector.setCurrentNode(scene.volume)
    assert "heart is no image of Sweep" in press(panel, "compound")
    panel.errand_panel.browser_selector.setCurrentNode(scene.browser.scene.add(BrowserNode("Empty", [])))
    panel.errand_panel.image_selector.setCurrentNode(None)
    assert "Empty holds no recorded image" in press(panel, "compound")


def test_sequences_that_do_not_match_are_refused(panel: Any, scene: Recorded) -> None:
    transforms = scene.browser.GetSequenceNode(scene.probe_to_reference)
    assert transforms is not None
    transforms.items = {f"{float(time_s) + 50:g}": node for time_s, node in transforms.items.items()}
    told = press(panel, "compound")
    assert "The sequences do not match: of 4 frames of Image 0 have a transform of the same time" in told
    assert "ProbeToReference" in told


def test_what_places_no_frame_is_refused(panel: Any, scene: Recorded) -> None:
    scene.probe_to_reference.linear = False
    assert "ProbeToReference is no linear transform" in press(panel, "compound")
    scene.probe_to_reference.linear = True
    images = scene.browser.GetSequenceNode(scene.image)
    assert images is not None
    images.items["0.100"] = volume_node("", np.zeros((1, 4, 4), np.uint8), np.eye(4))
    assert "no recording of 2D frames of one size" in press(panel, "compound")
    images.items["0.100"]._kind = "vtkMRMLStreamingVolumeNode"
    assert "Image cannot be read: Unsupported volume type" in press(panel, "compound")


def test_a_volume_that_cannot_be_handed_over_is_refused(panel: Any, scene: Recorded) -> None:
    colours = volume_node("photo", np.zeros((4, 4, 4, 3), np.uint8), np.eye(4))
    panel.volume_selector.setCurrentNode(scene.browser.scene.add(colours))
    assert "The volume cannot be handed over: It is no volume of grey values" in press(panel, "together")
    colours._image = None
    assert "The volume cannot be handed over: photo holds no image." in press(panel, "together")
    panel.volume_selector.setCurrentNode(scene.volume)
    bent = scene.browser.scene.add(TransformNode("Warp"))
    bent.linear = False
    scene.volume.parent_transform = bent
    panel.errand_panel.start_box.checked = True
    assert "under a transform that is not linear" in press(panel, "together")


@pytest.mark.skipif(os.name == "nt", reason="the program of this test is a script of a shell")
def test_an_answer_that_makes_no_sense_is_told(panel: Any, tmp_path: Path) -> None:
    script = tmp_path / "program"
    script.write_text('#!/bin/sh\ntest "$1" = --version && echo scopereg 1.0 || echo "{\\"ok\\": true}"\n')
    script.chmod(0o755)
    panel.errand_panel.program_edit.currentPath = str(script)
    for name in ("compound", "together"):
        press(panel, name)
        assert "What scopereg gave cannot be taken over" in wait(panel)
        assert panel.errand_panel.errand.failed


@pytest.mark.skipif(not PLUS.is_dir(), reason="a recording of PLUS is needed, see ../shared/data")
def test_a_session_that_plus_recorded_is_the_one_that_scopereg_reads(slicer: ModuleType, tmp_path: Path) -> None:
    """3D Slicer takes the tracker's axes for RAS; all else is as in the file, skewed calibration and all."""
    from ScopeRegLiveLib.sequences import Chain, recording_of

    path, configuration = PLUS / "SpinePhantomFreehand.igs.mha", next(PLUS.glob("*.xml"))
    session, scene = PlusSequence.open(path, configuration), slicer.mrmlScene
    times = [f"{float(fields['Timestamp']):.3f}" for fields in session.stored.frames]
    images = [volume_node("", pixels[None], np.eye(4)) for pixels in session.stored.images]
    tracked = [matrix_of(fields["ProbeToTrackerTransform"], "") for fields in session.stored.frames]
    probe = scene.add(TransformNode("ProbeToTracker", tracked[0]))
    image_to_probe = session.calibration.transforms["Image", "Probe"]
    image = scene.add(volume_node("Image", session.stored.images[:1], np.eye(4)))
    still = scene.add(TransformNode("ImageToProbe", image_to_probe))
    image.parent_transform, still.parent_transform = still, probe
    transforms = [TransformNode("", matrix) for matrix in tracked]
    browser = BrowserNode(
        "Session",
        [
            (image, SequenceNode("Image", dict(zip(times, images, strict=True)))),
            (probe, SequenceNode("ProbeToTracker", dict(zip(times, transforms, strict=True)))),
        ],
    )
    found = read_sweep(recording_of(browser, image, Chain(browser, image)).write(tmp_path / "sweep.igs.mha"))
    wanted = read_plus_sequence(path, configuration, world="Tracker")
    assert found.spacing_mm == pytest.approx(wanted.spacing_mm)
    assert np.allclose(found.image_to_world, LPS_TO_RAS @ wanted.image_to_world, atol=1e-6)
    assert np.array_equal(found.images.numpy(), wanted.images.numpy())
