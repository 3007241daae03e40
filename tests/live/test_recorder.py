"""What a recorder leaves out, how it goes on where sizes change, and what it refuses before a frame is lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scopereg import Frame, Pose
from scopereg.errors import ScopeRegError
from scopereg.io import read_cine
from scopereg.io.metaimage import read_metaimage
from scopereg.live.loop import Rates, Update
from scopereg.live.recorder import MOST_FILES, Recorder
from scopereg.registration.recorded import told_of
from scopereg.registration.result import Result


def update(frame: Frame, number: int = 1) -> Update:
    result = Result(Pose.identity(), "test", 1.0, 0.5)
    return Update(number, frame, result, None, number, float(number), 0.0, 0.01, 10.0, Rates(25, 10, 12))


def test_too_many_frames_are_left_out_and_counted(frame: Frame, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "a.igs.mha", largest_bytes=3 * 54)
    for number in range(1, 6):
        recorder(update(frame, number))
    assert (len(recorder), recorder.left_out) == (3, 2)
    (path,) = recorder.finish()
    assert read_cine(path).times_s == (1.0, 2.0, 3.0)
    recorder(update(frame, 7))
    assert (len(recorder), recorder.left_out) == (3, 2)


def test_frames_of_each_size_and_spacing_have_a_file(frame: Frame, tmp_path: Path) -> None:
    """Nothing is lost, also where the depth goes back and forth, and no file that was there is."""
    (tmp_path / "a-2.igs.mha").write_text("of somebody else")
    finer = Frame(frame.array, (0.4, 0.6), frame.origin_mm)
    smaller = Frame(frame.array[:4, :7], frame.spacing_mm, frame.origin_mm)
    recorder = Recorder(tmp_path / "a.igs.mha")
    for number, one in enumerate((frame, finer, finer, frame, smaller, frame), 1):
        recorder(update(one, number))
    assert (len(recorder), recorder.left_out) == (6, 0)
    paths = recorder.finish()
    assert [path.name for path in paths] == ["a.igs.mha", "a-3.igs.mha", "a-4.igs.mha"]
    assert (tmp_path / "a-2.igs.mha").read_text() == "of somebody else"
    cines = [read_cine(path) for path in paths]
    assert [cine.times_s for cine in cines] == [(1.0, 4.0, 6.0), (2.0, 3.0), (5.0,)]
    assert [cine[0].shape for cine in cines] == [(6, 9), (6, 9), (4, 7)]
    for cine, wanted in zip(cines, (frame, finer, smaller), strict=True):
        assert cine.spacing_mm == pytest.approx(wanted.spacing_mm)


def test_a_stream_that_never_stays_the_same_leaves_a_few_files(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "a.mha")
    for number in range(MOST_FILES + 8):
        recorder(update(Frame(np.full((4 + number, 5), 0.5), 0.5), number + 1))
    assert (len(recorder), recorder.left_out) == (MOST_FILES, 8)
    assert [path.name for path in recorder.finish()][:2] == ["a.mha", "a-2.mha"]
    assert len(list(tmp_path.iterdir())) == MOST_FILES


def test_values_beyond_the_grey_scale_stay_numbers(frame: Frame, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "a.mha")
    recorder(update(frame))
    recorder(update(Frame(frame.array * 3, frame.spacing_mm, frame.origin_mm)))
    (path,) = recorder.finish()
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
    assert Recorder(tmp_path / "a.igs.mha").finish() == ()
    assert list(tmp_path.iterdir()) == []


def test_notes_are_written_with_their_frames(frame: Frame, tmp_path: Path) -> None:
    """Each into the file of its frame, beside what was found."""
    finer = Frame(frame.array, (0.4, 0.6), frame.origin_mm)
    recorder = Recorder(tmp_path / "a.igs.mha")
    for number, one in enumerate((frame, finer, frame), 11):
        recorder(update(one, number))
    for number, text in ((13, "apex\n <b>now</b>"), (12, "fine"), (13, "again"), (11, "dropped")):
        recorder.note(number, text)
    recorder.drop_note(recorder.notes[-1].key)
    assert next((note.update, note.frame_number, note.time_s) for note in recorder.notes) == (13, 13, 13.0)
    for number in (10, 14):
        with pytest.raises(ScopeRegError, match="not in the recording"):
            recorder.note(number, "too early, too late")
    with pytest.raises(ScopeRegError, match="no such note"):
        recorder.drop_note(99)
    stored = [read_metaimage(path).frames for path in recorder.finish()]
    told = [[told_of(fields, "f") for fields in frames] for frames in stored]
    assert [[one.notes for one in frames] for frames in told] == [[(), ("apex <b>now</b>", "again")], [("fine",)]]
    assert told[0][0].cells["method"] == "test"
    with pytest.raises(ScopeRegError, match="not in the recording"):
        recorder.note(13, "it has ended")
