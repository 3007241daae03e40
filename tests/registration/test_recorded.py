"""What a recording tells of its frames: verdicts and notes, through the header of a PLUS sequence and back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scopereg import Pose, Volume
from scopereg.errors import ScopeRegError
from scopereg.io.metaimage import read_metaimage
from scopereg.io.plus_sequence import write_plus_images
from scopereg.registration.recorded import NOTES, RESULT, Told, fields_of, told_of, volume_field, volume_of
from scopereg.registration.result import Result

NOTE = "ä = 中文; <b>no markup</b>"


def result() -> Result:
    trust = {"confidence": 0.912, "expected_mm": 0.7, "bound_mm": 2.1, "ok": True, "calibrated_on": "phantoms"}
    return Result(Pose.identity(), "universal", 12.3, 0.5, hints=("mirrored",), **trust)  # type: ignore[arg-type]


def test_verdict_and_notes_go_through_a_sequence(tmp_path: Path) -> None:
    volume = Volume(np.random.default_rng(0).random((3, 4, 5)), 1.0)
    told = [fields_of(result(), [NOTE, "second"]), fields_of(None, ["lost"]), fields_of(result())]
    path = write_plus_images(
        np.zeros((3, 4, 5), np.uint8),
        [Pose.identity(), None, Pose.identity()],
        tmp_path / "a.igs.mha",
        spacing_mm=(1, 1),
        more=told,
        header=volume_field(volume, "name.nii.gz"),
    )
    stored = read_metaimage(path)
    assert stored.fields["ScopeRegVolume"].isascii()
    assert volume_of(stored.fields, "f")["file"] == "name.nii.gz"
    assert len(volume_of(stored.fields, "f")["pixels_sha256"]) == 64
    first, second, third = (told_of(fields, "f") for fields in stored.frames)
    assert first.notes == (NOTE, "second")
    assert second == Told({}, ("lost",))
    assert third.notes == ()
    assert first.cells == third.cells
    row = result().row()
    assert first.cells == {name: row[name] for name in first.cells}
    assert {"ok", "expected_mm", "bound_mm", "confidence", "method", "hints", "calibrated_on"} <= set(first.cells)


def test_files_of_others_tell_nothing() -> None:
    assert told_of({"Timestamp": "1"}, "f") == Told()
    assert volume_of({}, "f") == {}


@pytest.mark.parametrize(
    "fields",
    [{RESULT: "{"}, {RESULT: '{"ok": 1}'}, {RESULT: "[]"}, {NOTES: '"a"'}, {NOTES: '["a\\nb"]'}, {NOTES: "[1]"}],
)
def test_damaged_fields_are_refused_with_their_place(fields: dict[str, str]) -> None:
    with pytest.raises(ScopeRegError) as caught:
        told_of(fields, "a.igs.mha, frame 3")
    assert "a.igs.mha, frame 3" in caught.value.where
