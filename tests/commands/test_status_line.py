"""The status line: on a terminal always up to date, elsewhere a line now and then, and never from the loop's thread."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from scopereg import Frame, Pose
from scopereg.commands import live
from scopereg.commands.live import StatusLine
from scopereg.errors import ScopeRegError
from scopereg.live.loop import Rates, Update
from scopereg.registration.result import Result


def update(result: Result | None, error: ScopeRegError | None = None) -> Update:
    return Update(
        7,
        Frame(np.zeros((4, 6)), 1.0),
        result,
        error,
        frame_number=9,
        time_s=0.0,
        arrived_s=0.0,
        done_s=0.05,
        register_ms=40.0,
        rates=Rates(24.6, 48.2, 71.9),
        counters={"registered": 6, "failed": 1, "dropped": 0, "bad_frames": 2, "taken": 7},
    )


GOOD = Result(Pose.identity("Image", "Volume"), "echo", 1.0, 0.5, confidence=0.93, expected_mm=1.2, ok=True)


def test_elsewhere_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    with StatusLine(Console(file=written, width=200), lambda: "connecting to somewhere") as line:
        line.refresh()
        line(update(GOOD))
        line.refresh()  # too soon
        assert written.getvalue() == "connecting to somewhere\n"
        monkeypatch.setattr(live, "_BETWEEN_LINES_S", 0.0)
        line.refresh()
        line.refresh()  # nothing new, and so at the end
    said = written.getvalue().splitlines()
    assert len(said) == 2
    assert said[1].startswith("green ok (expected error 1.2 mm, confidence 0.93)  24.6 frames/s, latency 48 ms")
    assert said[1].endswith("6 registered, 1 failed, 2 bad frames")


def test_on_a_terminal_the_line_changes_in_place() -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=200)
    with StatusLine(console, lambda: "connecting") as line:
        line(update(None, ScopeRegError("all [black]", where="x", fix="y")))
        line.refresh()
        assert line._status is not None
        assert str(line._status.status).startswith("red not found: all [black]")
    assert "\x1b[?25h" in written.getvalue()  # the cursor is back


def test_how_it_was_in_the_end_is_said() -> None:
    written = io.StringIO()
    with StatusLine(Console(file=written, width=200), lambda: "connecting") as line:
        line.refresh()
        line(update(GOOD))
    assert written.getvalue().splitlines()[1].startswith("green")


def test_no_rate_is_said_while_there_is_none() -> None:
    written = io.StringIO()
    with StatusLine(Console(file=written, width=200), lambda: "connecting") as line:
        line(replace(update(GOOD), rates=Rates(math.nan, 48.2, 71.9)))
    assert "frames/s" not in written.getvalue()
    assert "latency 48 ms" in written.getvalue()


def test_what_changes_has_a_line_of_its_own() -> None:
    """Printed by who refreshes, once each; also what came just before the end."""
    written = io.StringIO()
    with StatusLine(Console(file=written, width=200), lambda: "connecting") as line:
        line(replace(update(GOOD), notice="depth changed: 6 x 4 of 1 mm, before 2 mm"))
        line(update(GOOD))
        assert written.getvalue() == ""
        line.refresh()
        line.refresh()
        line(replace(update(GOOD), notice="another"))
    said = written.getvalue().splitlines()
    assert said[0] == "note    depth changed: 6 x 4 of 1 mm, before 2 mm"
    assert [text for text in said if text.startswith("note")] == [said[0], "note    another"]
