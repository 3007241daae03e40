"""What results say of themselves, in whichever form a method says it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from scopereg import Pose
from scopereg.errors import ScopeRegError
from scopereg.registration.result import Assessment, Result

UNCALIBRATED = "not judged: test is not calibrated"
PLAIN = Result(Pose.identity(), "test", 1.0, 0.5)


@pytest.mark.parametrize(
    ("result", "told", "text"),
    [
        (PLAIN, (None, None, None, UNCALIBRATED), UNCALIBRATED),
        (replace(PLAIN, confidence=0.934), (None, None, None, UNCALIBRATED), UNCALIBRATED),
        (
            replace(PLAIN, confidence=0.2, belongs=True, ok=False, expected_mm=8.26, reason="residual\n too large"),
            (False, 0.2, 8.26, "residual too large"),
            "not ok: residual too large (expected error 8.3 mm, confidence 0.20)",
        ),
        (
            replace(PLAIN, confidence=0.0, belongs=False, ok=False, expected_mm=8.26, reason="no", hints=("a", "b")),
            (False, None, None, "no"),
            "not ok: no; a; b",
        ),
        (
            replace(PLAIN, confidence=0.9, ok=True, expected_mm=1.0, calibrated_on="30 phantoms"),
            (True, 0.9, 1.0, ""),
            "ok (expected error 1.0 mm, confidence 0.90, calibrated on 30 phantoms)",
        ),
        (replace(PLAIN, confidence=float("nan"), ok=True), (True, None, None, ""), "ok"),
    ],
)
def test_results_with_more_or_less_to_say(result: Result, told: tuple[object, ...], text: str) -> None:
    found = Assessment.of(result)
    assert (found.ok, found.confidence, found.expected_mm, found.reason) == told
    assert (found.text, found.method, found.bound_mm) == (text, "test", None)


def test_no_result_is_not_ok() -> None:
    error = ScopeRegError("too little\n of the frame", where="frame", fix="move")
    told = Assessment.of(None, error)
    assert (told.light, told.word, told.ok, told.text) == (
        "red",
        "Not found",
        False,
        "not found: too little of the frame",
    )
    assert (told.confidence, told.expected_mm, told.bound_mm, told.method) == (None, None, None, "")
    assert not Assessment.of(None).ok


@pytest.mark.parametrize(
    ("belongs", "ok", "light"),
    [
        (True, True, "green"),
        (None, True, "green"),
        (True, False, "amber"),
        (None, None, "amber"),
        (False, False, "red"),
    ],
)
def test_the_light_of_a_result(belongs: bool | None, ok: bool | None, light: str) -> None:
    assert Assessment.of(replace(PLAIN, belongs=belongs, ok=ok)).light == light


def test_what_was_not_found_is_red() -> None:
    assert Assessment.of(None).light == "red"


def test_nobody_can_make_a_result_that_says_more_than_it_knows() -> None:
    """An error is expected only of the volume's own frames, and no confidence is there without a verdict."""
    told = {"confidence": 0.9, "expected_mm": 1.0, "bound_mm": 2.0}
    silent = replace(PLAIN, **told, reason="the pixels are too large")
    assert silent.reason == "not judged: the pixels are too large"
    assert all(math.isnan(getattr(silent, name)) for name in told)
    strange = replace(PLAIN, **told, ok=False, belongs=False, reason="another patient")
    assert strange.reason == "another patient"
    assert all(math.isnan(getattr(strange, name)) for name in told)
    fine = replace(silent, **told, ok=True)
    assert (fine.belongs, fine.reason, fine.expected_mm, fine.bound_mm) == (True, "", 1.0, 2.0)


def test_green_is_for_what_is_ok_alone() -> None:
    for belongs in (True, False, None):
        for ok in (True, False, None):
            told = Assessment.of(replace(PLAIN, belongs=belongs, ok=ok))
            assert (told.light == "green") == (told.word == "Located") == (ok is True and belongs is not False)


def test_hints_and_what_a_verdict_rests_on_come_back_from_a_table() -> None:
    told = {"hints": ("fits better mirrored left to right", "too large"), "calibrated_on": "30 phantoms"}
    result = replace(PLAIN, ok=False, belongs=True, reason="no", **told)
    read = Result.from_row(result.row())
    assert read is not None
    assert (read.hints, read.calibrated_on) == (told["hints"], told["calibrated_on"])
    assert (result.facts["hints"], result.facts["calibrated_on"]) == (list(told["hints"]), "30 phantoms")
