"""Every STRING and STATUS that scopereg sends is understood, and rubbish is none."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from ScopeRegLiveLib.report import Report, report_of_status, report_of_text

from scopereg import Frame, Pose
from scopereg.errors import ScopeRegError
from scopereg.live.loop import Rates, Update
from scopereg.live.messages import HEADER_BYTES, Status, read_header, read_message, text_of
from scopereg.live.publish import messages_of
from scopereg.registration.result import Assessment, Result

RESULT = Result(Pose.identity(), "scope-reg (echo)", 1.0, 0.5)
GOOD = replace(RESULT, expected_mm=1.24, confidence=0.93, belongs=True, ok=True)
OFF = {"reason": "an error above 3 mm is too likely", "hints": ("mirrored",), "calibrated_on": "30 phantoms"}
RESULTS = {
    "good": GOOD,
    "off": replace(GOOD, expected_mm=4.2, bound_mm=7.96, confidence=0.31, ok=False, **OFF),
    "far off": replace(GOOD, expected_mm=8.5, confidence=0.0, ok=False, reason="an error above 3 mm is too likely"),
    "stranger": replace(GOOD, confidence=0.0, belongs=False, ok=False, reason="the frame does not look like it"),
    "uncalibrated": replace(RESULT, confidence=0.6),
    "lost": None,
}


def sent(frame: Frame, result: Result | None) -> tuple[str, Status]:
    """The STRING and the STATUS that scopereg sends of a result."""
    error = None if result is not None else ScopeRegError("nothing like it in\nthe volume", where="here", fix="move")
    update = Update(7, frame, result, error, 9, 123.5, 10.0, 10.0305, 20.0, Rates(24.96, 30, 40))
    found = [read_message(read_header(each), each[HEADER_BYTES:]) for each in messages_of(update)]
    named = {message.header.name: message for message in found}
    return text_of(named["RegistrationInfo"]), named["Registration"].content


def test_all_that_is_sent_is_read(frame: Frame) -> None:
    text, _ = sent(frame, RESULTS["off"])
    report = report_of_text(text)
    assert report == Report(
        *(False, "amber", "an error above 3 mm is too likely", 7, 0.31, 4.2, 7.96, ("mirrored",), "30 phantoms"),
        *(30.5, 25.0, "scope-reg (echo)"),
    )
    numbers = "expected error 4.2 mm, 95 % below 8.0 mm, confidence 0.31, calibrated on 30 phantoms"
    assert report.details == f"{numbers}, latency 30 ms, 25.0 frames/s, frame 7"


@pytest.mark.parametrize("name", RESULTS)
def test_the_light_is_that_of_scopereg(frame: Frame, name: str) -> None:
    text, _ = sent(frame, RESULTS[name])
    report = report_of_text(text)
    assert report is not None
    assert report.light == Assessment.of(RESULTS[name]).light


@pytest.mark.parametrize("name", RESULTS)
def test_a_status_says_less_but_never_better(frame: Frame, name: str) -> None:
    _, status = sent(frame, RESULTS[name])
    report = report_of_status(status.code, status.subcode, status.text)
    assert report.light == Assessment.of(RESULTS[name]).light
    assert report.ok is Assessment.of(RESULTS[name]).ok
    assert bool(report.ok) == status.ok
    assert report.reason == status.text


def test_what_was_not_found_says_why(frame: Frame) -> None:
    text, _ = sent(frame, None)
    report = report_of_text(text)
    assert report is not None
    assert (report.light, report.reason) == ("red", "nothing like it in the volume")
    assert report.details == "latency 30 ms, 25.0 frames/s, frame 7"


def test_no_error_is_promised_for_a_frame_that_is_not_of_the_volume(frame: Frame) -> None:
    text, _ = sent(frame, RESULTS["stranger"])
    report = report_of_text(text)
    assert report is not None
    assert report.expected_mm is None
    assert report.details.startswith("latency")


def test_a_light_that_is_sent_counts() -> None:
    facts = {"ok": True, "method": "m", "expected_mm": 1.0}
    for light, expected in (("red", "red"), ("amber", "amber"), ("blue", "green"), (None, "green")):
        report = report_of_text(json.dumps({**facts, "light": light}))
        assert report is not None
        assert report.light == expected


@pytest.mark.parametrize("text", ["", None, "{", "[]", "17", "null", '{"number": 1}', '{"ok": "yes"}', "\x00"])
def test_rubbish_is_no_report(text: str | None) -> None:
    assert report_of_text(text) is None


def test_facts_of_the_wrong_kind_are_not_told() -> None:
    text = '{"ok": true, "number": "x", "confidence": NaN, "expected_mm": true, "latency_ms": [], "reason": 3}'
    assert report_of_text(text) == Report(True, "red")  # no method: nothing was found
