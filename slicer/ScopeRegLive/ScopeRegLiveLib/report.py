"""Report: what scopereg says of one frame, read from its STRING or, with less in it, from its STATUS."""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

LIGHTS = ("green", "amber", "red")
OK = 1  # code of a STATUS that says so
NOT_JUDGED = "not judged"  # what a reason begins with where nobody can tell


class Report(NamedTuple):
    """What is not told is None, or empty."""

    ok: bool | None  # None: nobody judged it
    light: str  # one of LIGHTS
    reason: str = ""
    number: int | None = None  # of frames that were sought, from 1
    confidence: float | None = None  # 0 to 1
    expected_mm: float | None = None
    bound_mm: float | None = None  # 95 % of the errors of such frames are below
    hints: tuple[str, ...] = ()  # what is wrong with a frame that is not ok
    calibrated_on: str = ""  # what the verdict rests on
    latency_ms: float | None = None  # from the arrival of the frame at scopereg to its result
    frames_per_s: float | None = None
    method: str = ""  # empty also where nothing was found
    notice: str = ""  # what has changed in the stream, such as the depth
    asks: str = ""  # what scopereg asks a person

    @property
    def details(self) -> str:
        """The numbers in one line. What to expect of a pose is left out where the frame is none of the volume's."""
        strange = self.light == "red"
        parts = (
            _said("expected error {:.1f} mm", None if strange else self.expected_mm),
            _said("95 % below {:.1f} mm", None if strange else self.bound_mm),
            _said("confidence {:.2f}", self.confidence),
            _said("calibrated on {}", self.calibrated_on or None),
            _said("latency {:.0f} ms", self.latency_ms),
            _said("{:.1f} frames/s", self.frames_per_s),
            _said("frame {}", self.number),
        )
        return ", ".join(part for part in parts if part)


def report_of_text(text: str | None) -> Report | None:
    """The report in a STRING called RegistrationInfo; None for anything that is none."""
    try:
        facts = json.loads(text or "")
    except ValueError:
        return None
    return report_of_facts(facts)


def report_of_facts(facts: Any) -> Report | None:
    """The report in what scopereg says of a pose in a message or by --json; None for anything that is none."""
    if not isinstance(facts, dict) or "ok" not in facts or not isinstance(facts["ok"], (bool, type(None))):
        return None
    number = _number(facts.get("number"))
    hints = facts.get("hints")
    report = Report(
        facts["ok"],
        "red",
        _words(facts.get("reason")),
        None if number is None else int(number),
        _number(facts.get("confidence")),
        _number(facts.get("expected_mm")),
        _number(facts.get("bound_mm")),
        tuple(filter(None, map(_words, hints))) if isinstance(hints, list) else (),
        _words(facts.get("calibrated_on")),
        _number(facts.get("latency_ms")),
        _number(facts.get("frames_per_s")),
        _words(facts.get("method")),
        _words(facts.get("notice")),
        _words(facts.get("asks")),
    )
    return report._replace(light=_light(report, facts.get("light"), facts.get("belongs")))


def report_of_status(code: int, percent: int, text: str | None) -> Report:
    """The report in a STATUS called Registration: its subcode is the confidence in percent, -1 where there is none."""
    words = _words(text)
    ok = True if code == OK else None if words.startswith(NOT_JUDGED) else False
    light = "green" if ok else "red" if percent == 0 else "amber"
    return Report(ok, light, words, confidence=None if percent < 0 or light == "red" else percent / 100)


def _light(report: Report, sent: Any, belongs: Any) -> str:
    """The light that was sent, or that of a sender that does not name it. Green stands for what is ok alone.

    Nothing was found where no method is named. Of a frame that is not one of the volume it is said that it does not
    belong, or, by senders that do not say so, it has no confidence at all. Where no error is expected the method has no
    calibration, and nobody can tell, even if an older sender calls it ok.
    """
    if sent in LIGHTS and (sent != "green" or report.ok):
        return str(sent)
    strange = belongs is False or (belongs is not True and report.ok is False and not report.confidence)
    if not report.method or strange:
        return "red"
    return "green" if report.ok and report.expected_mm is not None else "amber"


def _said(pattern: str, value: float | None) -> str:
    return "" if value is None else pattern.format(value)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def _words(value: Any) -> str:
    return " ".join(value.split()) if isinstance(value, str) else ""
