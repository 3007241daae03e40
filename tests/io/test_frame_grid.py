"""Files with a pose tell the pixels of its frame: .tfm and .txt in a comment that others ignore, JSON in its record."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk

from scopereg import Frame, Pose, ScopeRegError
from scopereg.io.frame_grid import FrameGrid, read_frame_grid
from scopereg.io.transforms import read_pose, write_pose

POSE = Pose.from_euler_deg((10, 20, 30), (1, 2, 3))
FRAME = Frame(np.zeros((40, 60)), (0.31481772, 0.25), (12.5, -3.25))


@pytest.mark.parametrize("ending", [".tfm", ".txt", ".json"])
def test_a_file_tells_the_pixels_of_its_frame(tmp_path: Path, ending: str) -> None:
    path = write_pose(POSE, tmp_path / f"pose{ending}", frame=FRAME)
    assert read_frame_grid(path) == FrameGrid((60, 40), (0.31481772, 0.25), (12.5, -3.25))
    assert read_pose(path).is_close(POSE)


def test_others_read_such_files_as_before(tmp_path: Path) -> None:
    told = sitk.ReadTransform(str(write_pose(POSE, tmp_path / "pose.tfm", frame=FRAME)))
    assert np.allclose(told.TransformPoint((7.0, 8.0, 9.0)), POSE.inverse().apply((7, 8, 9)))
    assert np.allclose(np.loadtxt(write_pose(POSE, tmp_path / "pose.txt", frame=FRAME)), POSE.matrix)


@pytest.mark.parametrize("ending", [".tfm", ".txt", ".json", ".h5"])
def test_a_pose_alone_tells_nothing_of_its_frame(tmp_path: Path, ending: str) -> None:
    assert read_frame_grid(write_pose(POSE, tmp_path / f"pose{ending}")) is None


def test_a_record_that_leaves_something_out_tells_nothing(tmp_path: Path) -> None:
    path = write_pose(POSE, tmp_path / "pose.json", frame=FRAME)
    record = json.loads(path.read_text())
    del record["frame"]["origin_mm"]
    path.write_text(json.dumps(record))
    assert read_frame_grid(path) is None


@pytest.mark.parametrize("line", ["6 x 4 pixels of 0.1 x 1e x mm", "6 x 4 pixels of 0 x 0.1 mm"])
def test_a_comment_of_somebody_else_is_none_of_ours(tmp_path: Path, line: str) -> None:
    path = tmp_path / "pose.txt"
    path.write_text(f"# scopereg: a frame of {line}, the first at 0 0 mm\n1 0 0 0\n")
    assert read_frame_grid(path) is None


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [("size", [60.5, 40], "two numbers of pixels"), ("spacing_mm", [0, 1], "sizes above 0"), ("size", [60], "finite")],
)
def test_a_record_that_cannot_be_is_refused(tmp_path: Path, key: str, value: list[float], said: str) -> None:
    path = write_pose(POSE, tmp_path / "pose.json", frame=FRAME)
    record = json.loads(path.read_text())
    record["frame"][key] = value
    path.write_text(json.dumps(record))
    with pytest.raises(ScopeRegError, match=said):
        read_frame_grid(path)
