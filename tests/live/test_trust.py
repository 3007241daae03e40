"""What results say of themselves, in whichever form a method says it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scopereg import Pose
from scopereg.errors import ScopeRegError
from scopereg.live.trust import Trust, light_of, trust_in
from scopereg.registration.result import Result

PLAIN = Result(Pose.identity(), "test", 1.0, 0.5)


@pytest.mark.parametrize(
    ("result", "trust", "text"),
    [
        (PLAIN, Trust(None, None, None, ""), ""),
        (replace(PLAIN, confidence=0.934), Trust(None, 0.934, None, ""), "confidence 0.93"),
        (
            replace(PLAIN, confidence=0.2, ok=False, expected_mm=8.26, reason="residual\n too large"),
            Trust(False, 0.2, 8.26, "residual too large"),
            "confidence 0.20, expected error 8.3 mm, residual too large",
        ),
        (replace(PLAIN, confidence=float("nan"), ok=True), Trust(True, None, None, ""), ""),
    ],
)
def test_results_with_more_or_less_to_say(result: Result, trust: Trust, text: str) -> None:
    assert trust_in(result) == trust
    assert trust_in(result).text == text


def test_no_result_is_not_ok() -> None:
    error = ScopeRegError("too little\n of the frame", where="frame", fix="move")
    assert trust_in(None, error) == Trust(False, None, None, "too little of the frame")
    assert not trust_in(None).ok


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
    assert light_of(replace(PLAIN, belongs=belongs, ok=ok)) == light


def test_what_was_not_found_is_red() -> None:
    assert light_of(None) == "red"
