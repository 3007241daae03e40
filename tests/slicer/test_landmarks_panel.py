"""Landmarks in the panel, in a stand-in for 3D Slicer: to and from files of scopereg, and how far they lie off."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from fake_nodes import TransformNode
from fake_recording import LPS_TO_RAS, MarkupsNode, volume_node

from scopereg import Frame, Pose
from scopereg.io.landmarks import read_landmarks, write_landmarks

HEART_TO_RAS = Pose.from_euler_deg((0, 40, 5), (7, 8, 9)).matrix


@pytest.fixture
def heart(slicer: ModuleType, panel: Any) -> Any:
    """The chosen volume, under a transform."""
    node = slicer.mrmlScene.add(volume_node("heart", np.zeros((4, 4, 4), np.uint8), np.eye(4)))
    node.parent_transform = slicer.mrmlScene.add(TransformNode("HeartToRas", HEART_TO_RAS))
    panel.volume_selector.setCurrentNode(node)
    return node


def choose(slicer: ModuleType, panel: Any, points: list[Any], kind: str = "Fiducial") -> MarkupsNode:
    node: MarkupsNode = slicer.mrmlScene.add(MarkupsNode("ruler", points, kind))
    panel.landmarks_panel.selector.setCurrentNode(node)
    return node


def save(panel: Any, path: Path | str) -> None:
    panel.landmarks_panel.path_edit.currentPath = str(path)
    panel.landmarks_panel.on_save()


def test_landmarks_are_saved_in_the_space_of_the_volume(
    slicer: ModuleType, panel: Any, heart: Any, tmp_path: Path
) -> None:
    points = [("apex", (1.0, 2.0, 3.0)), ("later", None), ("base", (-4.0, 5.0, 60.0))]
    node = choose(slicer, panel, points)
    save(panel, tmp_path / "world.mrk.json")
    read = read_landmarks(tmp_path / "world.mrk.json")
    assert read.left_out == ()
    for name, place in read.points_mm.items():
        in_world = HEART_TO_RAS @ LPS_TO_RAS @ (*place, 1.0)
        assert in_world[:3] == pytest.approx(dict(points)[name])
    node.parent_transform = heart.parent_transform
    save(panel, tmp_path / "own.mrk.json")
    assert read_landmarks(tmp_path / "own.mrk.json").points_mm["apex"] == pytest.approx((-1, -2, 3))
    assert slicer.errors == []


def test_the_ends_of_a_line_are_saved(slicer: ModuleType, panel: Any, tmp_path: Path) -> None:
    choose(slicer, panel, [("L-1", (1.0, 2.0, 3.0)), ("L-2", (1.0, 2.0, 9.0))], "Line")
    save(panel, tmp_path / "line.mrk.json")
    assert '"type": "Line"' in (tmp_path / "line.mrk.json").read_text()
    ends = read_landmarks(tmp_path / "line.mrk.json").array_mm()
    assert np.linalg.norm(ends[0] - ends[1]) == pytest.approx(6)


def test_what_scopereg_wrote_lies_where_it_was(slicer: ModuleType, panel: Any, heart: Any, tmp_path: Path) -> None:
    written = {"apex": (-1.0, -2.0, 3.0), "base": (4.0, 5.0, 60.0)}
    path = write_landmarks(written, tmp_path / "marks.mrk.json", name="marks")
    panel.landmarks_panel.path_edit.currentPath = str(path)
    panel.landmarks_panel.on_load()
    node = panel.landmarks_panel.selector.currentNode()
    assert node.GetName() == "marks"
    assert node.parent_transform is heart.parent_transform
    assert node.points_ras(world=False) == pytest.approx(np.array(list(written.values())) * (-1, -1, 1))
    save(panel, tmp_path / "again.mrk.json")
    assert read_landmarks(tmp_path / "again.mrk.json").points_mm["base"] == pytest.approx(written["base"])


def test_distances_to_the_frame_that_is_shown(slicer: ModuleType, panel: Any, frame: Frame, pose: Pose) -> None:
    x_mm, y_mm = frame.spacing_mm
    pixel_to_image = np.diag([x_mm, y_mm, 1.0, 1.0])
    pixel_to_image[:2, 3] = frame.origin_mm
    columns, rows = frame.size
    shown = volume_node(
        "Image_Volume", np.zeros((1, rows, columns), np.uint8), LPS_TO_RAS @ pose.matrix @ pixel_to_image
    )
    in_frame = {"far": (3.0, 1.0, -7.5), "near": (3.0, 1.0, 1.25)}
    points = [(name, tuple((LPS_TO_RAS[:3, :3] @ pose.apply(point)).tolist())) for name, point in in_frame.items()]
    choose(slicer, panel, points)
    panel.timer.slot()
    assert panel.landmarks_panel.distance_label.text == ""  # no frame yet
    panel.logic.listen_to("Image_Volume", slicer.mrmlScene.add(shown))
    panel.timer.slot()
    assert panel.landmarks_panel.distance_label.text == "near: 1.2 mm\nfar: 7.5 mm"
    choose(slicer, panel, [("a", (0.0, 0.0, 0.0)), ("a", (1.0, 0.0, 0.0))])
    panel.timer.slot()
    assert "Two landmarks are called a" in panel.landmarks_panel.distance_label.text


def test_what_cannot_be_saved_or_loaded_is_told(slicer: ModuleType, panel: Any, heart: Any, tmp_path: Path) -> None:
    save(panel, tmp_path / "a.mrk.json")
    node = choose(slicer, panel, [("a", (0.0, 0.0, 0.0))])
    save(panel, tmp_path / "a.fcsv")
    save(panel, tmp_path / "missing" / "a.mrk.json")
    node.points = [("a", None)]
    save(panel, tmp_path / "a.mrk.json")
    node.points = [("a", (0.0, 0.0, 0.0))]
    heart.parent_transform.linear = False
    save(panel, tmp_path / "a.mrk.json")
    panel.landmarks_panel.path_edit.currentPath = str(tmp_path / "none.mrk.json")
    panel.landmarks_panel.on_load()
    wanted = ["No landmarks are chosen", "ends in .mrk.json", "No such file", "is placed", "not linear"]
    assert len(slicer.errors) == len(wanted) + 1
    for told, what in zip(slicer.errors, [*wanted, "The landmarks cannot be loaded"], strict=True):
        assert what in told
    assert list(tmp_path.iterdir()) == []
