"""What a recorder leaves out, and what it refuses before a frame is lost. Its files are tested with the loop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scopereg import Frame, Pose
from scopereg.errors import ScopeRegError
from scopereg.io import read_cine
from scopereg.live.loop import Rates, Update
from scopereg.live.recorder import Recorder
from scopereg.registration.result import Result


def update(frame: Frame, number: int = 1) -> Update:
    result = Result(Pose.identity(), "test", 1.0, 0.5)
    return Update(number, frame, result, None, number, float(number), 0.0, 0.01, 10.0, Rates(25, 10, 12))


def test_frames_on_another_grid_and_too_many_are_left_out(frame: Frame, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "a.igs.mha", largest_bytes=3 * 54)
    recorder(update(frame))
    recorder(update(Frame(frame.array, spacing_mm=0.5)))
    recorder(update(Frame(np.zeros((2, 2)), frame.spacing_mm, frame.origin_mm)))
    for number in range(2, 6):
        recorder(update(frame, number))
    assert (len(recorder), recorder.left_out) == (3, 4)
    path = recorder.finish()
    assert path is not None
    assert read_cine(path).times_s == (1.0, 2.0, 3.0)
    recorder(update(frame, 7))
    assert (len(recorder), recorder.left_out) == (3, 4)


def test_values_beyond_the_grey_scale_stay_numbers(frame: Frame, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "a.mha")
    recorder(update(frame))
    recorder(update(Frame(frame.array * 3, frame.spacing_mm, frame.origin_mm)))
    path = recorder.finish()
    assert path is not None
    first, second = read_cine(path)
    top = float(frame.array.max()) * 3  # the reader makes the largest value 1
    assert np.allclose(first.numpy() * top, frame.numpy(), atol=1e-3)
    assert np.allclose(second.numpy() * top, frame.numpy() * 3, atol=1e-3)


def test_bad_places_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ScopeRegError, match="unknown ending"):
        Recorder(tmp_path / "a.nrrd")
    (tmp_path / "file").write_text("")
    with pytest.raises(ScopeRegError, match="cannot write there"):
        Recorder(tmp_path / "file" / "a.igs.mha")


def test_nothing_recorded_writes_nothing(tmp_path: Path) -> None:
    assert Recorder(tmp_path / "a.igs.mha").finish() is None
    assert list(tmp_path.iterdir()) == []
