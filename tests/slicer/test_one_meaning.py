"""One meaning each: the same results through every channel, which must tell the same words and numbers."""

from __future__ import annotations

import base64
import csv
import html
import json
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from ScopeRegLiveLib.light import light_of
from ScopeRegLiveLib.report import report_of_facts, report_of_status, report_of_text

from scopereg import Frame, Pose, Volume
from scopereg.commands.register import print_result
from scopereg.errors import ScopeRegError
from scopereg.io import read_frame, read_volume, write_volume
from scopereg.io.pictures import png_bytes
from scopereg.live.loop import Rates, Update
from scopereg.live.messages import HEADER_BYTES, read_header, read_message, text_of
from scopereg.live.publish import messages_of
from scopereg.registration.batch import Job, Row, Task, write_table
from scopereg.registration.reading import Reading
from scopereg.registration.result import Assessment, Result
from scopereg.registration.track import Step, read_track, write_track
from scopereg.report.batch_page import make_page
from scopereg.viewer.finished import read_results
from scopereg.viewer.packets import packet_of
from scopereg.viewer.page import page_html

BASIS = "30 phantoms of each anatomy and 60 worlds"
LIKELY = "an error above 3 mm is too likely: 4.2 mm expected, 31% sure"
LOST = ScopeRegError("too little of the frame lies in the volume", where="frame", fix="move")


@dataclass(frozen=True)
class Wanted:
    """What every channel must tell; None and empty: nothing."""

    light: str
    word: str
    ok: bool | None
    confidence: float | None = None
    expected_mm: float | None = None
    bound_mm: float | None = None
    reason: str = ""
    hints: tuple[str, ...] = ()
    calibrated_on: str = ""


NUMBERS = {"expected_mm": 1.24, "bound_mm": 2.56, "confidence": 0.93}
HINTS = ("fits better mirrored left to right", "colour covers 31 %, left out")
MADE: dict[str, tuple[dict[str, Any], Wanted]] = {
    "ok": (
        {**NUMBERS, "belongs": True, "ok": True, "calibrated_on": BASIS},
        Wanted("green", "Located", True, 0.93, 1.24, 2.56, calibrated_on=BASIS),
    ),
    "doubtful": (
        {"expected_mm": 4.2, "bound_mm": 8.8, "confidence": 0.31, "belongs": True, "ok": False, "reason": LIKELY}
        | {"calibrated_on": BASIS},
        Wanted("amber", "Doubtful", False, 0.31, 4.2, 8.8, LIKELY, calibrated_on=BASIS),
    ),
    "refused": (  # whatever numbers a method gives such a frame
        {**NUMBERS, "belongs": False, "ok": False, "reason": "another volume", "hints": HINTS, "calibrated_on": BASIS},
        Wanted("red", "Rejected", False, reason="another volume", hints=HINTS, calibrated_on=BASIS),
    ),
    "not judged": (
        {**NUMBERS, "ok": None, "reason": "not judged: too far from anything calibrated", "calibrated_on": BASIS},
        Wanted("amber", "Not judged", None, reason="not judged: too far from anything calibrated", calibrated_on=BASIS),
    ),
    "without calibration": (
        {"confidence": 0.6},
        Wanted("amber", "Not judged", None, reason="not judged: some method is not calibrated"),
    ),
}
NOT_FOUND = Wanted("red", "Not found", False, reason=LOST.what)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A frame and a volume as files."""
    folder = tmp_path_factory.mktemp("told")
    values = np.random.default_rng(0).random((8, 12, 16))
    write_volume(Volume(values, 1.0), folder / "volume.nii.gz")
    (folder / "frame.png").write_bytes(png_bytes((values[4] * 255).astype(np.uint8)))
    return folder


@pytest.fixture(params=list(MADE))
def told(request: pytest.FixtureRequest, folder: Path) -> tuple[Result, Wanted]:
    frame, volume = read_frame(folder / "frame.png", spacing_mm=1.0), read_volume(folder / "volume.nii.gz")
    made, wanted = MADE[request.param]
    pose = Pose.from_euler_deg((1, 2, 3), (0, 0, 4))
    return Result(pose, "some method", 12.0, 0.5, frame=frame, volume=volume, **made), wanted


def in_words(wanted: Wanted) -> list[str]:
    """What must stand in the line of text, in this order."""
    numbers = [
        "" if wanted.expected_mm is None else f"expected error {wanted.expected_mm:.1f} mm",
        "" if wanted.bound_mm is None else f"95 % below {wanted.bound_mm:.1f} mm",
        "" if wanted.confidence is None else f"confidence {wanted.confidence:.2f}",
        f"calibrated on {wanted.calibrated_on}" if wanted.calibrated_on else "",
    ]
    return [part for part in (wanted.reason, *wanted.hints, *numbers) if part]


def check_line(line: str, wanted: Wanted) -> None:
    places = [line.index(part) for part in in_words(wanted)]
    assert places == sorted(places)
    state = "not found" if wanted.word == "Not found" else {True: "ok", False: "not ok", None: "not judged"}[wanted.ok]
    assert line.startswith(state)
    for name, value in (("expected error", wanted.expected_mm), ("95 %", wanted.bound_mm)):
        assert (name in line) == (value is not None)
    assert re.search(r"confidence \d", line) is not None or wanted.confidence is None


def check_facts(facts: Mapping[str, Any], wanted: Wanted) -> None:
    for name in ("ok", "confidence", "expected_mm", "bound_mm", "reason", "calibrated_on"):
        assert facts[name] == getattr(wanted, name), name
    assert tuple(facts["hints"]) == wanted.hints


def check_result(result: Result | None, wanted: Wanted) -> None:
    """A result that was read back."""
    assert result is not None
    assessed = Assessment.of(result)
    assert (assessed.light, assessed.word, assessed.ok) == (wanted.light, wanted.word, wanted.ok)
    for name in ("confidence", "expected_mm", "bound_mm"):
        assert getattr(assessed, name) == pytest.approx(getattr(wanted, name)), name
    assert (assessed.reason, assessed.hints, assessed.calibrated_on) == (
        *(wanted.reason, wanted.hints, wanted.calibrated_on),
    )


def test_terminal(told: tuple[Result, Wanted]) -> None:
    result, wanted = told
    written = StringIO()
    print_result(Console(file=written, soft_wrap=True, highlight=False, markup=False), result)
    *_, line = written.getvalue().splitlines()
    check_line(line, wanted)
    assert str(result).endswith(line)


def test_json(told: tuple[Result, Wanted], tmp_path: Path) -> None:
    result, wanted = told
    path = result.save(tmp_path / "pose.json")
    check_facts(json.loads(path.read_text())["result"], wanted)
    (read,) = read_results([path])
    check_result(read.result(), wanted)


def test_tables(told: tuple[Result, Wanted], tmp_path: Path) -> None:
    result, wanted = told
    table = write_table([row_of(result)], tmp_path / "poses.csv", ".tfm")
    with table.open(newline="") as file:
        (cells,) = csv.DictReader(file)
    assert cells["ok"] == {True: "yes", False: "no", None: ""}[wanted.ok]
    for name in ("confidence", "expected_mm", "bound_mm"):
        assert (cells[name] == "") == (getattr(wanted, name) is None)
    (read,) = read_results([table])
    check_result(read.result(), wanted)
    track = write_track([Step(0, "frame.png", 0, 0.0, "found", result.reason, result)], tmp_path / "track.csv")
    (step,) = read_track(track)
    check_result(step.result, wanted)


def row_of(result: Result) -> Row:
    assert result.frame is not None
    return Row(Task(Path(result.frame.path), "frame.png", "frame"), result.without_images())  # type: ignore[attr-defined]


def test_page_of_a_batch(told: tuple[Result, Wanted], folder: Path, tmp_path: Path) -> None:
    result, wanted = told
    assert result.volume is not None
    reading = Reading(volume=folder / "volume.nii.gz", spacing_mm=(1.0,))
    job = Job(reading, "some method", None, None, "cpu", tmp_path, ".tfm", "slicer", None, None)
    page = html.unescape(make_page([row_of(result)], result.volume, job, []).save(tmp_path / "report.html").read_text())
    if wanted.ok:
        assert "1 of 1 may be relied on" in page
        for value in ("1.2", "2.6", "0.93", BASIS):
            assert f">{value}<" in page
    else:
        assert "0 of 1 may be relied on, 1 " + ("refused" if wanted.ok is False else "not judged") in page
        assert Assessment.of(result).text in page
        check_line(Assessment.of(result).text, wanted)


def test_viewer(told: tuple[Result, Wanted]) -> None:
    """What its page is given; tests/viewer/test_page.py looks at what stands there in a browser."""
    result, wanted = told
    found = re.search(r'<script id="embedded" type="application/json">(.*?)</script>', page_html([result]), re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    for facts in (data["state"]["results"][0], header_of(base64.b64decode(data["updates"][0]))):
        check_facts(facts, wanted)
        assert (facts["light"], facts["word"]) == (wanted.light, wanted.word)
        check_line(facts["text"], wanted)


def header_of(packet: bytes) -> dict[str, Any]:
    (length,) = struct.unpack_from("<I", packet)
    header: dict[str, Any] = json.loads(packet[4 : 4 + length])
    return header


def sent(frame: Frame, result: Result | None) -> dict[str, Any]:
    error = None if result is not None else LOST
    update = Update(7, frame, result, error, 9, 123.5, 10.0, 10.0305, 20.0, Rates(24.96, 30, 40))
    found = [read_message(read_header(each), each[HEADER_BYTES:]) for each in messages_of(update)]
    return {message.header.name: message for message in found}


def test_messages_and_the_panel_of_slicer(told: tuple[Result, Wanted]) -> None:
    result, wanted = told
    assert result.frame is not None
    check_sent(sent(result.frame, result), wanted)


def check_sent(messages: Mapping[str, Any], wanted: Wanted) -> None:
    status, text = messages["Registration"].content, text_of(messages["RegistrationInfo"])
    check_line(status.text, wanted)
    check_facts(json.loads(text), wanted)
    assert status.ok == (wanted.light == "green")
    assert (status.subcode == -1) == (wanted.word == "Not judged")
    report = report_of_text(text)
    assert report is not None
    assert (report.light, report.ok) == (wanted.light, wanted.ok)
    light = light_of(report, 0.0, connected=True)
    assert (light.colour, light.word) == (wanted.light, wanted.word.upper())
    if wanted.reason:
        assert light.reason == "; ".join((wanted.reason, *wanted.hints))
    details = [part for part in in_words(wanted) if part != wanted.reason and part not in wanted.hints]
    assert [report.details.index(part) for part in details] == sorted(report.details.index(part) for part in details)
    assert ("expected error" in report.details) == (wanted.expected_mm is not None)
    lesser = report_of_status(status.code, status.subcode, status.text)
    assert (lesser.light, lesser.ok) == (wanted.light, wanted.ok)
    assert lesser.confidence == (None if wanted.confidence is None else pytest.approx(wanted.confidence, abs=0.005))


@pytest.mark.parametrize(
    "change", [{}, {"ok": False, "belongs": True, "confidence": math.nan, "expected_mm": math.nan}]
)
def test_json_and_the_panel_of_slicer(told: tuple[Result, Wanted], change: dict[str, Any]) -> None:
    """What register --together tells of a body; it may doubt a pose of which nobody knows the confidence."""
    result = replace(told[0], **change)
    assessed, report = Assessment.of(result), report_of_facts(json.loads(json.dumps(result.facts)))
    assert report is not None
    assert (report.light, report.ok) == (assessed.light, assessed.ok)
    assert light_of(report, 0.0, connected=True).word == assessed.word.upper()
    for name in ("confidence", "expected_mm", "bound_mm", "hints", "calibrated_on", "reason"):
        assert getattr(report, name) == getattr(assessed, name), name


def test_what_was_not_found(folder: Path) -> None:
    frame = read_frame(folder / "frame.png", spacing_mm=1.0)
    check_sent(sent(frame, None), NOT_FOUND)
    header = header_of(packet_of(frame, None, LOST, generation=1))
    check_facts(header, NOT_FOUND)
    assert (header["light"], header["word"]) == ("red", "Not found")
    check_line(header["text"], NOT_FOUND)


@pytest.mark.parametrize("change", [{"ok": None}, {"ok": False, "belongs": True}, {"ok": False, "belongs": False}])
def test_no_channel_is_green_for_what_is_not_ok(told: tuple[Result, Wanted], change: dict[str, Any]) -> None:
    """Nor where a sender of some other version says that it is."""
    result = replace(told[0], **change)
    assert result.frame is not None
    messages = sent(result.frame, result)
    facts = {**json.loads(text_of(messages["RegistrationInfo"])), "light": "green", "word": "Located"}
    report = report_of_text(json.dumps(facts))
    assert report is not None
    assert light_of(report, 0.0, connected=True).colour != "green"
    assert messages["Registration"].content.code == 2
    assert all(math.isnan(number) for number in (result.expected_mm, result.confidence)) or result.belongs
