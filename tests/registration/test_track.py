"""The table of a track comes back as it was written, and other files are not taken for one."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.registration.result import Result
from scopereg.registration.track import Step, is_track, motion_check, read_track, write_track
from scopereg.report.track_page import motion_notes

POSE = Pose.from_euler_deg([10, -20, 30], [1.5, 2.5, -3.5])


def result_of(reason: str, expected_mm: float, ok: bool, belongs: bool | None = None) -> Result:
    told = {"expected_mm": expected_mm, "bound_mm": 2 * expected_mm, "ok": ok, "belongs": belongs, "reason": reason}
    told |= {"confidence": 0.5, "hints": ("mirrored", "too large"), "calibrated_on": "30 phantoms"}
    return Result(POSE, "echo network", 20.0, 0.5, **told)  # type: ignore[arg-type]


STEPS = [
    Step(0, 'a "b", c.mha', 0, 0.25, "found", "", result_of("", 1.25, True), POSE, 0.125, 1.5, 1.75),
    Step(1, 'a "b", c.mha', 1, 0.5, "unreadable", "no picture,\nno pose"),
    Step(2, 'a "b", c.mha', 2, 0.75, "carried", "away", result_of("away", 2.5, False, belongs=False)),
    Step(3, 'a "b", c.mha', 3, 1.0, "followed", "too likely", result_of("too likely", 8.5, False, belongs=True)),
]


def test_steps_come_back(tmp_path: Path) -> None:
    path = write_track(STEPS, tmp_path / "track.csv")
    assert is_track(path)
    for found, step in zip(read_track(path), STEPS, strict=True):
        for name in ("pose", "alone"):
            one, other = getattr(found, name), getattr(step, name)
            assert (one is None) == (other is None)
            if one is not None:
                np.testing.assert_allclose(one.matrix, other.matrix, atol=1e-9)
        plain = [repr(replace(each, result=None, alone=None)) for each in (found, step)]  # NaN is not equal to itself
        assert plain[0] == plain[1]
        results = [each.result and repr(replace(each.result, pose=POSE)) for each in (found, step)]
        assert results[0] == results[1]
    assert math.isnan(read_track(path)[1].error_mm)


def test_tables_from_before_bounds_were_told_are_read(tmp_path: Path) -> None:
    path = write_track(STEPS, tmp_path / "track.csv")
    with path.open(newline="") as file:
        rows = [row[:-4] for row in csv.reader(file)]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    assert is_track(path)
    found = read_track(path)[0].result
    assert found is not None
    assert (found.ok, found.expected_mm, found.hints, found.calibrated_on) == (True, 1.25, (), "")
    assert math.isnan(found.bound_mm)


def test_other_files_are_no_tracks(tmp_path: Path) -> None:
    for name, content in (("a.csv", b"frame,file\n"), ("b.csv", b""), ("c.csv", b"\xff\xfe")):
        (tmp_path / name).write_bytes(content)
        assert not is_track(tmp_path / name)
    assert not is_track(tmp_path / "none.csv")
    assert not is_track(tmp_path)
    whole = write_track(STEPS, tmp_path / "track.csv").read_text()
    (tmp_path / "track.csv").write_text(whole.replace("0.250000", "soon"))
    with pytest.raises(ScopeRegError, match="no whole table"):
        read_track(tmp_path / "track.csv")


def moved_steps(mirrored: bool) -> list[Step]:
    """A sweep through a volume, or through its mirror image; every fourth frame is carried, and anywhere."""
    steps, mirror = [], np.diag([1.0, 1.0, -1.0 if mirrored else 1.0])
    for row in range(16):
        tracked = Pose.from_euler_deg([row / 2, -row / 3, 1], [0.2 * row, 5, 2.0 * row], "Image", "World")
        found = Pose(mirror @ tracked.rotation @ mirror, mirror @ tracked.translation_mm, "Image", "Volume")
        state = "carried" if row % 4 == 3 else "followed"
        pose = POSE if state == "carried" else found
        result = Result(pose, "echo network", 20.0, 0.5)
        steps.append(Step(row, "a.mha", row, row / 10, state, "", result, tracked=tracked, centre_mm=(20.0, 30.0, 0.0)))
    return steps


def test_a_sweep_tells_a_mirrored_volume() -> None:
    right, wrong = motion_check(moved_steps(mirrored=False)), motion_check(moved_steps(mirrored=True))
    assert right is not None
    assert wrong is not None
    assert right.agrees
    assert right.in_words.startswith("the poses found move as it says")
    assert "mirrored through the plane" in wrong.in_words
    assert motion_check(STEPS) is None  # no file tells poses
    assert motion_notes(moved_steps(mirrored=True)) == [f"against the tracker's motion: {wrong.in_words}"]
    assert motion_notes(STEPS) == []
