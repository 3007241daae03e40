"""What results say of themselves, in whichever form a method says it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scopereg import Pose
from scopereg.errors import ScopeRegError
from scopereg.registration.result import Assessment, Result

PLAIN = Result(Pose.identity(), "test", 1.0, 0.5)


@pytest.mark.parametrize(
    ("result", "told", "text"),
    [
        (PLAIN, (None, None, None, ""), ""),
        (replace(PLAIN, confidence=0.934), (None, 0.934, None, ""), "confidence 0.93"),
        (
            replace(PLAIN, confidence=0.2, ok=False, expected_mm=8.26, reason="residual\n too large"),
            (False, 0.2, 8.26, "residual too large"),
            "confidence 0.20, expected error 8.3 mm, residual too large",
        ),
        (replace(PLAIN, confidence=float("nan"), ok=True), (True, None, None, ""), ""),
    ],
)
def test_results_with_more_or_less_to_say(result: Result, told: tuple[object, ...], text: str) -> None:
    found = Assessment.of(result)
    assert (found.ok, found.confidence, found.expected_mm, found.reason) == told
    assert (found.text, found.method, found.bound_mm) == (text, "test", None)


def test_no_result_is_not_ok() -> None:
    error = ScopeRegError("too little\n of the frame", where="frame", fix="move")
    assert Assessment.of(None, error) == ("red", False, None, None, None, "too little of the frame", "")
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
