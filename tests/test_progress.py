"""Progress: work that takes long tells how long from its first units, once; what is short keeps quiet about it."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from scopereg import progress
from scopereg.progress import counted, counting, hushed


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def units(clock: list[float], seconds: list[float], count: Callable[[int, int], None], total: int) -> None:
    for done, taken in enumerate(seconds, start=1):
        clock[0] += taken
        count(done, total)


def test_long_work_tells_after_a_few_units_how_long_it_takes(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with counting("locating") as count:
        units(clock, [3.0] * 6, count, 40)
    # Units of three seconds each make two minutes; the next line comes ten seconds later.
    assert capsys.readouterr().err.splitlines() == [
        "locating: 1 of 40, about 2:00 in all, 1:57 left",
        "locating: 5 of 40, 1:45 left",
    ]


def test_a_slow_first_unit_waits_for_the_next(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with counting("locating") as count:
        units(clock, [4.0, 1.0, 1.0, 1.0], count, 10)
    assert "about 0:20 in all" in capsys.readouterr().err.splitlines()[0]


def test_short_work_tells_only_that_it_is_done(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    assert list(counted("abc", "reading")) == ["a", "b", "c"]
    with counting("making") as count:
        units(clock, [0.5] * 10, count, 10)
    assert capsys.readouterr().err.splitlines() == ["reading: 3 of 3", "making: 10 of 10"]


def test_parts_that_differ_promise_nothing(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with counting("recorded, written, checked", even=False) as count:
        units(clock, [60.0, 5.0, 20.0], count, 3)
    assert "left" not in capsys.readouterr().err


def test_the_hushed_say_nothing(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with hushed(), counting("locating") as count:
        units(clock, [60.0, 60.0], count, 9)
    assert capsys.readouterr().err == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_the_forecast_stays_above_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "_LEAST_SEEN_S", 0.0)
    monkeypatch.setattr(progress, "_LONG_S", 0.0)
    with counting("locating") as count:
        for done in range(1, 4):
            count(done, 9)
    assert terminal.getvalue().count("in all") == 1
