"""Landmarks of markups nodes: the file is that of scopereg, the distances are those of its geometry."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from ScopeRegLiveLib.landmarks import distances, in_words, landmarks_text, named
from ScopeRegLiveLib.placement import placement_of

from scopereg import Frame, Pose
from scopereg.io.landmarks import markups_record, read_landmarks

POINTS_RAS = {"apex": (1.5, -2.0, 3.0), "hinge, left": (0.0, 40.25, -7.0)}
POINTS_LPS = {"apex": (-1.5, 2.0, 3.0), "hinge, left": (0.0, -40.25, -7.0)}
LPS_TO_RAS = np.diag([-1.0, -1.0, 1.0, 1.0])


@pytest.mark.parametrize("kind", ["Fiducial", "Line"])
def test_the_file_is_the_one_that_scopereg_writes(tmp_path: Path, kind: str) -> None:
    text = landmarks_text(POINTS_RAS, kind=kind, name="ruler")
    assert json.loads(text) == markups_record(POINTS_LPS, kind=kind, name="ruler")  # type: ignore[arg-type]
    (tmp_path / "ruler.mrk.json").write_text(text)
    assert read_landmarks(tmp_path / "ruler.mrk.json").points_mm == POINTS_LPS


def test_names_tell_landmarks_apart() -> None:
    assert named([" a", "b"], np.eye(3)) == {"a": (1, 0, 0), "b": (0, 1, 0)}
    for names, what in ((["a", "a "], "Two landmarks are called a"), (["a", " "], "has no name"), ([], "is placed")):
        with pytest.raises(ValueError, match=what):
            named(names, np.eye(3))
    with pytest.raises(ValueError, match="both of its ends"):
        landmarks_text({"a": (0, 0, 0)}, kind="Line")


def test_distances_are_those_to_the_plane_of_the_frame(frame: Frame, pose: Pose) -> None:
    x_mm, y_mm = frame.spacing_mm
    pixel_to_image = np.diag([x_mm, y_mm, 1.0, 1.0])
    pixel_to_image[:2, 3] = frame.origin_mm
    placement = placement_of(LPS_TO_RAS @ pose.matrix @ pixel_to_image, frame.size)
    assert placement is not None
    in_frame = {"on": (3.0, 1.0, 0.0), "behind": (3.0, 1.0, -7.5), "beside": (6.5, 1.0, 2.0), "below": (3.0, 3.5, 0.5)}
    points = {name: tuple(LPS_TO_RAS[:3, :3] @ pose.apply(point)) for name, point in in_frame.items()}
    found = distances(placement, points)
    assert [(each.name, each.beside) for each in found] == [
        *(("on", False), ("below", True), ("beside", True), ("behind", False)),
    ]
    assert [each.mm for each in found] == pytest.approx([0, 0.5, 2, 7.5], abs=1e-9)
    assert in_words(found).splitlines()[2:] == ["beside: 2.0 mm, beside the frame", "behind: 7.5 mm"]
    assert in_words(found * 3).endswith("and 4 more")
    assert in_words([]) == ""
