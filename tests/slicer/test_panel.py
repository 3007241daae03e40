"""The panel in a stand-in for 3D Slicer, against the real server and publisher of scopereg over a real socket."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import fakes
import numpy as np
import pytest
import SimpleITK as sitk

from scopereg import Frame, Pose, Volume
from scopereg.data import phantom
from scopereg.errors import ScopeRegError
from scopereg.geometry import sample_slice
from scopereg.images import pose_to_voxels
from scopereg.io import write_volume
from scopereg.live.loop import Rates, Update
from scopereg.live.publish import Publisher
from scopereg.live.server import Server
from scopereg.registration.result import Result

RAS = np.array([-1.0, -1.0, 1.0])


class Peer:
    """scopereg: serves results, one after the other."""

    def __init__(self, port: int = 0) -> None:
        self.server = Server(port=port).start()
        self._publisher = Publisher(self.server)
        self._number = 0

    def publish(self, frame: Frame, result: Result | None, **told: str) -> None:
        self._number += 1
        error = None if result is not None else ScopeRegError("nothing like it", where="here", fix="move")
        rates = Rates(24.96, 30, 40)
        self._publisher(Update(self._number, frame, result, error, self._number, 1.0, 10.0, 10.03, 20.0, rates, **told))

    def close(self) -> None:
        self._publisher.close()
        self.server.close()


@pytest.fixture
def peer() -> Iterator[Peer]:
    made = Peer()
    yield made
    made.close()


def good(pose: Pose) -> Result:
    return Result(pose, "scope-reg (echo)", 1.24, 0.5, expected_mm=1.24, confidence=0.93, belongs=True, ok=True)


def connector(slicer: ModuleType) -> Any:
    return slicer.util.getFirstNodeByClassByName("vtkMRMLIGTLConnectorNode", "ScopeReg")


def run(slicer: ModuleType, panel: Any, until: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """What the timers of 3D Slicer do, until something is so."""
    deadline_s = time.monotonic() + timeout_s
    while not until():
        assert time.monotonic() < deadline_s, (panel.light_label.text, panel.state_label.text, panel.hint_label.text)
        if connector(slicer) is not None:
            connector(slicer).PeriodicProcess()
        panel.timer.slot()
        time.sleep(0.002)


def press_connect(panel: Any, port: int) -> None:
    panel.port_box.value = port
    panel.connect_button.emit("clicked()")


def light(panel: Any) -> str:
    return str(panel.light_label.text)


def red_view(slicer: ModuleType) -> Any:
    return slicer.app.layoutManager().sliceWidget("Red").sliceLogic()


def slice_to_ras(slicer: ModuleType) -> np.ndarray:
    return np.asarray(slicer.util.arrayFromVTKMatrix(red_view(slicer).GetSliceNode().GetSliceToRAS()))


def test_the_view_lies_where_scopereg_found_the_frame(
    slicer: ModuleType, panel: Any, peer: Peer, frame: Frame, pose: Pose
) -> None:
    press_connect(panel, peer.server.port)
    run(slicer, panel, lambda: panel.state_label.text.startswith("connected to 127.0.0.1:"))
    assert light(panel) == "WAITING"
    for found in (pose, Pose.from_euler_deg((-80, 5, 170), (-3, 40, 9))):
        peer.publish(frame, good(found))
        centre = found.apply((2.0 + 4 * 0.5, -1.0 + 2.5 * 0.8, 0)) * RAS
        run(slicer, panel, lambda: np.allclose(slice_to_ras(slicer)[:3, 3], centre, atol=1e-3))  # noqa: B023
        plane = slice_to_ras(slicer)
        along, down = found.rotation[:, 0] * RAS, found.rotation[:, 1] * RAS
        assert np.allclose(plane[:3, :3], np.column_stack([along, -down, np.cross(along, -down)]), atol=1e-5)
    assert light(panel) == "LOCATED"
    assert panel.details_label.text.startswith("expected error 1.2 mm, confidence 0.93, latency 30 ms, 25.0 frames/s")
    layers, view = red_view(slicer).GetSliceCompositeNode(), red_view(slicer).GetSliceNode()
    assert (layers.foreground, layers.background) == ("vtkMRMLScalarVolumeNode:Image_Volume", None)
    assert view.visible
    assert view.updates >= 2
    assert view.field_of_view[1] == pytest.approx(1.1 * 4.8)  # the whole frame, in a view that is wider than high
    transform = slicer.util.getFirstNodeByClassByName("vtkMRMLLinearTransformNode", "ImageToVolume")
    assert transform.matrix @ (-4.0, -1.0, 0, 1) == pytest.approx([*centre, 1], abs=1e-3)  # says the same


def test_another_depth_is_taken_up_and_told(
    slicer: ModuleType, panel: Any, peer: Peer, frame: Frame, pose: Pose
) -> None:
    """The outline, the view and its zoom follow; what the user zoomed to stays while the depth is the same."""
    press_connect(panel, peer.server.port)
    peer.publish(frame, good(pose))
    view = red_view(slicer).GetSliceNode()
    run(slicer, panel, lambda: light(panel) == "LOCATED" and view.field_of_view is not None)
    assert view.field_of_view[1] == pytest.approx(1.1 * 4.8)
    view.field_of_view = (3.0, 3.0, 1.0)
    peer.publish(frame, good(pose @ Pose.from_euler_deg((0, 0, 0), (1, 0, 0), "Image", "Image")))
    run(slicer, panel, lambda: panel.details_label.text.endswith("frame 2"))
    assert view.field_of_view == (3.0, 3.0, 1.0)
    deep = Frame(np.zeros((8, 12)), (1.5, 2.4), (2.0, -1.0))
    peer.publish(deep, good(pose), notice="depth changed", asks="How large is a pixel?")
    run(slicer, panel, lambda: panel.details_label.text.endswith("frame 3"))
    assert view.field_of_view[1] == pytest.approx(1.1 * 8 * 2.4)
    assert panel.hint_label.text == "How large is a pixel? Answer on the page of scopereg, or where it runs."
    peer.publish(deep, good(pose), notice="depth changed")
    run(slicer, panel, lambda: panel.details_label.text.endswith("frame 4"))
    assert panel.hint_label.text == "Choose or load the volume that scopereg live was given."
    points = slicer.util.getFirstNodeByClassByName("vtkMRMLModelNode", "Image_Volume outline").shape.points
    corners = [pose.apply((2.0 + x * 1.5, -1.0 + y * 2.4, 0)) * RAS for x, y in ((-0.5, -0.5), (11.5, 7.5))]
    assert np.allclose(np.array(points)[[0, 2]], corners, atol=1e-3)


def test_the_volume_cut_where_the_view_lies_is_the_frame(
    slicer: ModuleType, panel: Any, peer: Peer, tmp_path: Path
) -> None:
    """A frame cut from a volume; the file of the volume, read by another program, cut where the view lies."""
    made = phantom.create("prostate", seed=3, shape=(24, 48, 40)).volume
    volume = Volume(made.array, made.spacing_mm, (20.0, -30.0, 10.0))
    step_mm = volume.isotropic_spacing_mm
    blank = Frame(np.zeros((20, 32)), step_mm, (0, 0))
    turn = Pose.from_euler_deg((15, -20, 35), (0, 0, 0)).rotation
    pose = Pose(turn, volume.centre_mm - turn @ blank.centre_mm)
    cut = sample_slice(volume.array, *pose_to_voxels(pose, blank, volume), slice_shape=(20, 32))
    press_connect(panel, peer.server.port)
    run(slicer, panel, lambda: peer.server.client_count == 1)
    peer.publish(Frame(cut, step_mm, (0, 0)), good(pose))
    run(slicer, panel, lambda: light(panel) == "LOCATED")
    path = write_volume(volume, tmp_path / "volume.nii.gz")
    view = np.diag([*RAS, 1]) @ slice_to_ras(slicer)  # to LPS, in which SimpleITK thinks
    grid = sitk.Image(32, 20, 1, sitk.sitkFloat32)
    grid.SetSpacing((step_mm, step_mm, step_mm))
    grid.SetDirection((view[:3, :3] @ np.diag([1, -1, -1])).ravel().tolist())  # rows of a picture go down
    grid.SetOrigin((view @ (-15.5 * step_mm, 9.5 * step_mm, 0, 1))[:3].tolist())
    shown = sitk.GetArrayFromImage(sitk.Resample(sitk.ReadImage(str(path), sitk.sitkFloat32), grid))[0]
    sent = slicer.util.getFirstNodeByClassByName("vtkMRMLScalarVolumeNode", "Image_Volume").GetImageData().pixels[0]
    assert shown.std() > 0.02
    assert np.abs(shown - sent / 255).max() < 0.01


def test_the_light_says_whether_to_believe_it(
    slicer: ModuleType, panel: Any, peer: Peer, frame: Frame, pose: Pose
) -> None:
    press_connect(panel, peer.server.port)
    run(slicer, panel, lambda: peer.server.client_count == 1)
    unsure = replace(good(pose), expected_mm=4.2, confidence=0.31, ok=False, reason="an error above 3 mm is too likely")
    for result, word, reason in (
        (good(pose), "LOCATED", "the pose is reliable"),
        (unsure, "DOUBTFUL", "an error above 3 mm is too likely"),
        (None, "NOT FOUND", "nothing like it"),
        (good(pose), "LOCATED", "the pose is reliable"),
    ):
        peer.publish(frame, result)
        run(slicer, panel, lambda: light(panel) == word)  # noqa: B023
        assert panel.reason_label.text == reason
        outline = slicer.util.getFirstNodeByClassByName("vtkMRMLModelNode", "Image_Volume outline")
        assert outline.display.colour == panel.logic.light().rgb
        assert "#{:02x}{:02x}{:02x}".format(*(round(255 * part) for part in outline.display.colour)) in (
            panel.light_label.styleSheet
        )
    run(slicer, panel, lambda: light(panel) == "STALE")  # nothing comes any more
    assert "from before" in panel.reason_label.text


def test_a_frame_that_was_not_found_moves_nothing(
    slicer: ModuleType, panel: Any, peer: Peer, frame: Frame, pose: Pose
) -> None:
    press_connect(panel, peer.server.port)
    peer.publish(frame, good(pose))
    run(slicer, panel, lambda: light(panel) == "LOCATED")
    before = slice_to_ras(slicer)
    peer.publish(frame, None)
    run(slicer, panel, lambda: light(panel) == "NOT FOUND")
    assert np.array_equal(slice_to_ras(slicer), before)


def test_the_outline_is_the_edge_of_the_frame(
    slicer: ModuleType, panel: Any, peer: Peer, frame: Frame, pose: Pose
) -> None:
    press_connect(panel, peer.server.port)
    peer.publish(frame, good(pose))
    run(slicer, panel, lambda: light(panel) == "LOCATED")
    outline = slicer.util.getFirstNodeByClassByName("vtkMRMLModelNode", "Image_Volume outline")
    corners = [(1.75, -1.4, 0), (6.25, -1.4, 0), (6.25, 3.4, 0), (1.75, 3.4, 0)]
    assert np.allclose(outline.shape.points, [pose.apply(corner) * RAS for corner in corners], atol=1e-3)
    assert outline.shape.line == [0, 1, 2, 3, 0]
    assert not outline.saved
    panel.solid_box.checked = False
    panel.timer.slot()
    assert not outline.display.visible
    assert not red_view(slicer).GetSliceNode().visible


def test_it_finds_the_server_again(slicer: ModuleType, panel: Any, frame: Frame, pose: Pose) -> None:
    first = Peer()
    press_connect(panel, first.server.port)
    first.publish(frame, good(pose))
    run(slicer, panel, lambda: light(panel) == "LOCATED")
    first.close()
    run(slicer, panel, lambda: light(panel) == "NOT CONNECTED")
    assert "is scopereg live running there?" in panel.state_label.text
    assert panel.connect_button.text == "Disconnect"
    second = Peer(first.server.port)
    run(slicer, panel, lambda: second.server.client_count == 1)
    second.publish(frame, good(pose))
    run(slicer, panel, lambda: light(panel) == "LOCATED")
    panel.connect_button.emit("clicked()")
    assert (light(panel), panel.connect_button.text) == ("NOT CONNECTED", "Connect")
    press_connect(panel, second.server.port)
    run(slicer, panel, lambda: light(panel) == "LOCATED")  # the last result is sent to who comes later
    outlines = [node for node in slicer.mrmlScene.nodes if node.IsA("vtkMRMLModelNode")]
    assert len(outlines) == 1
    second.close()


def add_volume(slicer: ModuleType, corner_ras: tuple[float, float, float]) -> Any:
    """A cube of 100 mm."""
    volume = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLScalarVolumeNode", "heart")
    image, matrix = fakes.ImageData(), fakes.Matrix()
    image.SetDimensions(100, 100, 100)
    for axis in range(3):
        matrix.SetElement(axis, 3, corner_ras[axis])
    volume.SetAndObserveImageData(image)
    volume.SetIJKToRASMatrix(matrix)
    return volume


def test_the_panel_says_what_is_likely_to_be_wrong(
    slicer: ModuleType, panel: Any, peer: Peer, frame: Frame, pose: Pose
) -> None:
    press_connect(panel, peer.server.port)
    peer.publish(frame, good(pose))
    run(slicer, panel, lambda: light(panel) == "LOCATED")
    assert "Choose or load the volume" in panel.hint_label.text
    panel.volume_selector.setCurrentNode(add_volume(slicer, (200, 200, 200)))
    panel.timer.slot()
    assert "lies outside of heart" in panel.hint_label.text
    panel.volume_selector.setCurrentNode(add_volume(slicer, (-50, -50, -50)))
    panel.timer.slot()
    assert panel.hint_label.text == ""
    assert red_view(slicer).GetSliceCompositeNode().background == "vtkMRMLScalarVolumeNode:heart"
    image = slicer.util.getFirstNodeByClassByName("vtkMRMLScalarVolumeNode", "Image_Volume")
    image.parent_transform = slicer.util.getFirstNodeByClassByName("vtkMRMLLinearTransformNode", "ImageToVolume")
    panel.timer.slot()
    assert "take it out from under its transform" in panel.hint_label.text


def test_a_view_that_volume_reslice_driver_moves_is_left_alone(
    slicer: ModuleType, panel: Any, peer: Peer, frame: Frame, pose: Pose
) -> None:
    red_view(slicer).GetSliceNode().SetAttribute("VolumeResliceDriver.Driver", "some node")
    press_connect(panel, peer.server.port)
    peer.publish(frame, good(pose))
    run(slicer, panel, lambda: light(panel) == "LOCATED")
    assert np.array_equal(slice_to_ras(slicer), np.eye(4))
    assert "Volume Reslice Driver" in panel.hint_label.text
    panel.view_box.currentText = "Green"
    panel.view_box.emit("currentIndexChanged(int)")
    peer.publish(frame, good(pose))
    green = slicer.app.layoutManager().sliceWidget("Green").sliceLogic().GetSliceNode()
    run(slicer, panel, lambda: green.updates > 0)


def test_controls_do_what_they_say(slicer: ModuleType, panel: Any, peer: Peer, frame: Frame, pose: Pose) -> None:
    heart, rendering = add_volume(slicer, (-50, -50, -50)), slicer.modules.volumerendering.logic()
    rendering.CreateDefaultVolumeRenderingNodes(heart).SetVisibility(True)
    panel.volume_selector.setCurrentNode(heart)
    press_connect(panel, peer.server.port)
    peer.publish(frame, good(pose))
    run(slicer, panel, lambda: light(panel) == "LOCATED")
    panel.opacity_slider.value = 0.25
    assert red_view(slicer).GetSliceCompositeNode().opacity == 0.25
    assert rendering.displays[heart.GetID()].visible  # as the user had it
    rendering.displays.clear()
    panel.render_box.checked = True
    assert rendering.displays[heart.GetID()].visible
    panel.render_box.checked = False
    assert not rendering.displays[heart.GetID()].visible
    red_view(slicer).GetSliceNode().SetFieldOfView(1, 1, 1)
    panel.fit_button.emit("clicked()")
    assert red_view(slicer).GetSliceNode().field_of_view[1] == pytest.approx(1.1 * 4.8)
    panel.follow_box.checked = False
    before = slice_to_ras(slicer)
    peer.publish(frame, good(Pose.from_euler_deg((1, 2, 3), (0, 0, 9))))
    run(slicer, panel, lambda: panel.logic.watch.report.number == 2)
    assert np.array_equal(slice_to_ras(slicer), before)


def test_a_volume_is_loaded_from_its_file(slicer: ModuleType, panel: Any) -> None:
    loaded = add_volume(slicer, (0, 0, 0))
    slicer.util.loadVolume = {"heart.nii.gz": loaded}.__getitem__
    panel.path_edit.currentPath = "heart.nii.gz"
    panel.load_button.emit("clicked()")
    assert panel.logic.volume is loaded

    def fail(path: str) -> None:
        raise RuntimeError("no such file")

    slicer.util.loadVolume = fail
    panel.load_button.emit("clicked()")
    assert slicer.errors == ["The volume cannot be loaded: no such file"]
    assert panel.logic.volume is loaded


def test_an_address_that_is_none_is_refused(slicer: ModuleType, panel: Any) -> None:
    panel.host_edit.text = "http://scanner"
    panel.connect_button.emit("clicked()")
    assert "is no host" in slicer.errors[0]
    assert connector(slicer) is None


def test_without_the_extension_the_panel_says_which_one(slicer: ModuleType, panel: Any) -> None:
    del slicer.vtkMRMLIGTLConnectorNode  # type: ignore[attr-defined]
    panel.timer.slot()
    assert "SlicerOpenIGTLink is not installed" in panel.state_label.text
    panel.connect_button.emit("clicked()")
    assert "SlicerOpenIGTLink is not installed" in slicer.errors[0]


def test_closing_the_scene_ends_it_and_the_address_is_kept(
    slicer: ModuleType, panel: Any, peer: Peer, frame: Frame, pose: Pose
) -> None:
    press_connect(panel, peer.server.port)
    peer.publish(frame, good(pose))
    run(slicer, panel, lambda: light(panel) == "LOCATED")
    slicer.mrmlScene.Clear()
    panel.timer.slot()
    assert light(panel) == "NOT CONNECTED"
    assert panel.hint_label.text == ""
    deadline_s = time.monotonic() + 10
    while peer.server.client_count and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert peer.server.client_count == 0
    again = slicer.module.ScopeRegLiveWidget()
    again.setup()
    assert again.port_box.value == peer.server.port
    again.cleanup()


def test_unloading_leaves_nothing_running(slicer: ModuleType) -> None:
    panel = slicer.module.ScopeRegLiveWidget()
    panel.setup()
    assert panel.timer.running
    assert panel.timer.interval_ms == 100
    panel.cleanup()
    assert not panel.timer.running
    assert slicer.mrmlScene._observers == []


def test_what_slicer_lists(slicer: ModuleType) -> None:
    parent = SimpleNamespace()
    slicer.module.ScopeRegLive(parent)
    assert parent.title == "ScopeReg Live"
    assert parent.dependencies == []


def test_its_own_test_passes_here_too(slicer: ModuleType) -> None:
    slicer.module.ScopeRegLiveTest().runTest()
