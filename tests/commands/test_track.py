"""`scopereg track` from files to files: PLUS sequences, cines, folders, what is bad, and what is interrupted."""

from __future__ import annotations

import csv
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scopereg import io
from scopereg.cli import main
from scopereg.geometry import Pose
from scopereg.io.metaimage import MetaSequence, write_metaimage
from scopereg.io.pictures import png_bytes, read_picture
from scopereg.registration import network
from scopereg.registration import track as tracking
from scopereg.registration.reading import Reading, open_recording
from scopereg.registration.result import ANGLES, TRANSLATION, Result, apart_mm
from scopereg.registration.track import COLUMNS, Step
from scopereg.report.track_page import state_spans

Case = Any  # of conftest.py
STEP = "0.8213333"


def track(case: Case, sequence: Path, out: Path, *words: object) -> int:
    return main(["track", *map(str, (sequence, case.folder / "volume.nii.gz", "-o", out, *words)), "--device", "cpu"])


def rows(out: Path) -> list[dict[str, str]]:
    with (out / "track.csv").open() as file:
        return list(csv.DictReader(file))


def pose_of(row: dict[str, str], prefix: str = "") -> Pose:
    angles, shift = ([float(row[f"{prefix}{name}"]) for name in names] for names in (ANGLES, TRANSLATION))
    return Pose.from_euler_deg(angles, shift)


def test_a_wide_search_ends_when_the_probe_is_found(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    widely: list[object] = []
    look = network._widely
    monkeypatch.setattr(network, "_widely", lambda *a: widely.append(a) or look(*a))
    words = ["--calibration", case.folder / "scan.xml"]
    assert track(case, case.folder / "scan.igs.mha", tmp_path, *words, "--wide") == 0
    assert len(widely) == 1
    assert rows(tmp_path)[0]["state"] == "found"
    assert "more starts" not in capsys.readouterr().out


def test_a_plus_sequence_is_followed_against_its_tracker(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Times come from the file; the poses found are in the table and in the sequence; the page shows the errors."""
    words = ["--calibration", case.folder / "scan.xml", "--tracker"]
    assert track(case, case.folder / "scan.igs.mha", tmp_path, *words) == 0
    said = capsys.readouterr().out
    assert "times   as stored in the file: 0.3 s, 10 frames a second" in said
    assert "note    the tracker's world is taken for the volume's" in said
    assert "against the tracker, tracked: mean" in said
    table = rows(tmp_path)
    assert list(table[0]) == list(COLUMNS)
    assert [row["time_s"] for row in table] == ["0.000000", "0.100000", "0.200000", "0.300000"]
    again = (tmp_path / "scan.igs.mha").read_bytes()
    for index, row in enumerate(table):
        placed = row["state"] in ("found", "followed")
        status = f"Seq_Frame{index:04d}_ImageToVolumeTransformStatus = {'OK' if placed else 'INVALID'}"
        assert status.encode() in again
    # The tracker is 2 mm beside the truth, and lost the last frame.
    assert [bool(row["error_mm"]) for row in table] == [True, True, True, False]
    off = [case.error_mm(index, pose_of(row)) for index, row in enumerate(table[:3])]
    assert [float(row["error_mm"]) for row in table[:3]] == pytest.approx(off, abs=2.2)
    for row in table:
        shift = np.linalg.norm(pose_of(row).translation_mm - pose_of(row, "alone_").translation_mm)
        assert (float(row["apart_mm"]) > 0) == (shift > 1e-6)
    page = (tmp_path / "track.html").read_text()
    assert "Error against the tracker" in page
    assert page.count("<figure>") == 6  # frames, the way through the volume, errors, poses twice, expected errors
    assert "<script" not in page
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_world_brings_the_tracker_to_the_volume(case: Case, tmp_path: Path) -> None:
    """The tracker measures beside the truth by one shift: with its inverse, errors are those to the truth."""
    back = Pose.from_euler_deg((0, 0, 0), (-1.2, 1.2, -1.0), "Reference", "Volume").save(tmp_path / "world.tfm")
    words = ["--calibration", case.folder / "scan.xml", "--world", back]
    assert track(case, case.folder / "scan.igs.mha", tmp_path / "out", *words) == 0
    for index, row in enumerate(rows(tmp_path / "out")[:3]):
        true = apart_mm(case.frames[index], pose_of(row), case.truth[index])
        assert float(row["error_mm"]) == pytest.approx(true, abs=0.01)


def test_pictures_of_other_sizes_are_followed_told_and_written_apart(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frames, out = tmp_path / "frames", tmp_path / "out"
    frames.mkdir()
    for row in range(4):
        (pixels,) = read_picture(case.folder / "frames" / f"view{row}.png")
        (frames / f"view{row}.png").write_bytes(png_bytes(pixels if row < 2 else pixels[:, 1:]))
    assert track(case, frames, out, "--pixel-mm", STEP, "--rate", 5) == 0
    said = capsys.readouterr().out
    change = f"size of the picture changed: 95 x 96 of {float(STEP):.4g} mm, before 96 x 96 of {float(STEP):.4g} mm"
    assert f"note    view2.png: {change}; the size of a pixel that was told is taken for both" in said
    assert change in (out / "track.html").read_text()
    assert [row["state"] for row in rows(out)][:2] == ["found", "followed"]
    parts = [io.read_cine(out / name) for name in ("frames.igs.mha", "frames-2.igs.mha")]
    assert [(cine.count, cine.times_s, cine[0].shape) for cine in parts] == [
        (2, (0.0, 0.2), (96, 96)),
        (2, (0.4, 0.6), (96, 95)),
    ]
    assert [f"wrote   {out / name}" in said for name in ("frames.igs.mha", "frames-2.igs.mha")] == [True, True]


def test_a_folder_needs_a_rate_and_bad_pictures_are_named(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Frame 10 comes after frame 9; a damaged picture keeps its place in time and is left out of the sequence."""
    frames, out = tmp_path / "frames", tmp_path / "out"
    frames.mkdir()
    for number, row in zip((8, 9, 11), (0, 1, 2), strict=True):
        (frames / f"view{number}.png").write_bytes((case.folder / "frames" / f"view{row}.png").read_bytes())
    (frames / "view10.png").write_bytes(b"no picture")
    (frames / "view12.dcm").write_bytes((case.folder / "cine.dcm").read_bytes())
    assert track(case, frames, out, "--pixel-mm", STEP) == 2
    said = capsys.readouterr()
    assert "does not say when its frames were taken" in said.err
    assert "--rate" in said.err
    assert not out.exists()
    assert track(case, frames, out, "--pixel-mm", STEP, "--rate", 20) == 1
    said = capsys.readouterr()
    assert "times   as given: 20 frames a second" in said.out
    assert "unreadable view10.png: it cannot be read as a picture" in said.out
    table = rows(out)
    assert [row["file"] for row in table] == [f"view{n}" for n in ("8.png", "9.png", "10.png", "11.png", "12.dcm")]
    assert [row["time_s"] for row in table] == ["0.000000", "0.050000", "0.100000", "0.150000", "0.200000"]
    assert table[4]["reason"].startswith("it holds 4 frames (to fix it: pass the file alone")
    assert table[2]["state"] == "unreadable"
    assert table[2]["tx_mm"] == ""
    cine = io.read_cine(out / "frames.igs.mha")
    assert cine.times_s == (0.0, 0.05, 0.15)
    assert cine.count == 3


def test_a_cine_without_times_needs_a_rate(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert track(case, case.folder / "cine.dcm", tmp_path / "out") == 2
    assert "cine.dcm: it does not say when its frames were taken" in capsys.readouterr().err


def test_frames_that_show_nothing_are_lost_with_the_reason(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A probe in the air: no crash, no pose, status 1 since nothing was found, and a page that says so."""
    frames = tmp_path / "frames"
    frames.mkdir()
    for row in range(3):
        (frames / f"{row}.png").write_bytes(png_bytes(np.zeros((96, 96), np.uint8)))
    assert track(case, frames, tmp_path / "out", "--pixel-mm", STEP, "--rate", 10) == 1
    said = capsys.readouterr().out
    assert "3 of 3 frames: 3 lost" in said
    assert "--wide" not in said  # there is nothing to look for
    assert {row["reason"] for row in rows(tmp_path / "out")} == {"the frame is empty: every value is 0"}
    assert not (tmp_path / "out" / "frames.igs.mha").exists()
    assert "every value is 0" in (tmp_path / "out" / "track.html").read_text()


def test_times_that_do_not_rise_are_named(case: Case, tmp_path: Path) -> None:
    """PLUS repeats a frame now and then; a repeated time says nothing of the motion."""
    pixels = np.stack([(frame.numpy() * 255).astype(np.uint8) for frame in case.frames[:3]])
    fields = [{"Timestamp": time, "ImageStatus": "OK"} for time in ("5.0", "5.0", "5.1")]
    path = write_metaimage(MetaSequence({"UltrasoundImageOrientation": "MF"}, fields, pixels), tmp_path / "s.igs.mha")
    assert track(case, path, tmp_path / "out", "--pixel-mm", STEP) == 1
    table = rows(tmp_path / "out")
    assert table[1]["state"] == "unreadable"
    assert table[1]["reason"] == "its time, 5 s, is not after 5 s of a frame before"
    assert table[2]["tx_mm"]


def test_an_interrupted_run_keeps_what_is_done(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tracking.follow

    def interrupted(*arguments: Any) -> Iterator[Step]:
        for step in real(*arguments):
            if step.row == 1:
                os.kill(os.getpid(), signal.SIGINT)
            yield step

    monkeypatch.setattr(tracking, "follow", interrupted)
    assert track(case, case.folder / "cine.dcm", tmp_path, "--rate", 10) == 130
    said = capsys.readouterr()
    assert "interrupted: 2 of 4 frames are done and kept" in said.err
    assert "2 of 4 frames: " in said.out
    assert len(rows(tmp_path)) == 2
    assert (tmp_path / "track.html").exists()


def test_a_crash_keeps_the_table(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Iterator[Step]:
        yield Step(0, "cine.dcm", 0, 0.0, "lost", "nothing")
        raise MemoryError

    monkeypatch.setattr(tracking, "follow", broken)
    with pytest.raises(MemoryError):
        track(case, case.folder / "cine.dcm", tmp_path, "--rate", 10)
    assert [row["reason"] for row in rows(tmp_path)] == ["nothing"]


def test_a_probe_that_was_lost_may_be_far_off(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lost(*_: Any) -> Iterator[Step]:
        yield from (
            Step(row, "cine.dcm", row, row / 10, "lost", "nothing", Result(Pose.identity(), "x", 1.0, 0.5))
            for row in range(4)
        )

    monkeypatch.setattr(tracking, "follow", lost)
    for words, advice in (([], True), (["--wide"], False)):
        assert track(case, case.folder / "cine.dcm", tmp_path, "--rate", 10, *words) == 1
        assert ("--wide seeks it in all of it" in capsys.readouterr().out) is advice


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rate", 0], "--rate: 0 frames a second"),
        (["--rate", 10, "--method", "start"], "it does not search"),
        (["--rate", 10, "--patience", -1], "patience is -1"),
        (["--rate", 10, "--gate", "nan"], "gate is nan"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[object], said: str
) -> None:
    assert track(case, case.folder / "cine.dcm", tmp_path / "out", *words) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_sequence_in_the_place_of_the_volume_is_told(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sequence, volume = case.folder / "scan.igs.mha", case.folder / "volume.nii.gz"
    assert main(["track", str(volume), str(sequence), "-o", str(tmp_path / "out")]) == 2
    assert f"swap the two: scopereg track {sequence} {volume}" in capsys.readouterr().err


def test_inputs_are_not_overwritten(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scan = tmp_path / "scan.igs.mha"
    scan.write_bytes((case.folder / "scan.igs.mha").read_bytes())
    assert track(case, scan, tmp_path, "--calibration", case.folder / "scan.xml") == 2
    assert "it would overwrite an input" in capsys.readouterr().err
    assert scan.read_bytes() == (case.folder / "scan.igs.mha").read_bytes()


def test_a_rate_wins_over_stored_times_and_says_so(case: Case) -> None:
    reading = Reading(case.folder / "volume.nii.gz", calibration=case.folder / "scan.xml")
    recording = open_recording(case.folder / "scan.igs.mha", reading, rate=25)
    assert recording.times_s == (0, 0.04, 0.08, 0.12)
    assert recording.clock == "as given: 25 frames a second, in place of those that the file holds"


def test_bands_join_frames_of_one_state() -> None:
    states = ["found", "followed", "carried", "carried", "followed", "carried", "lost"]
    spans = state_spans([Step(row, "f", row, row / 10, state) for row, state in enumerate(states)])
    assert [(span.name, round(span.start, 2), round(span.stop, 2)) for span in spans] == [
        ("found", -0.05, 0.05),
        ("carried", 0.15, 0.35),
        ("carried", 0.45, 0.55),
        ("lost", 0.55, 0.65),
    ]
