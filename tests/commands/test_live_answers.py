"""What live asks on the terminal that it runs in: once, and answered by a line; elsewhere it says where to answer."""

from __future__ import annotations

import io
import os
import pty
from collections.abc import Iterator

import pytest
from rich.console import Console

from scopereg.commands import live_answers
from scopereg.commands.live_answers import Answers
from scopereg.live.pixel_sizes import PixelSizes

SMALL, LARGE = (640, 480), (800, 600)


class Terminal:
    """A person at it, and what was printed."""

    def __init__(self) -> None:
        self._keys, end = pty.openpty()
        self.typed = os.fdopen(end)
        self.written = io.StringIO()
        self.console = Console(file=self.written, width=300)

    def type(self, words: str) -> None:
        os.write(self._keys, f"{words}\n".encode())

    @property
    def lines(self) -> list[str]:
        return self.written.getvalue().splitlines()

    def close(self) -> None:
        self.typed.close()
        os.close(self._keys)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp())  # as if it were the one that this process runs in
    opened = Terminal()
    yield opened
    opened.close()


def until(answers: Answers, sizes: PixelSizes, *, open_: bool) -> None:
    for _ in range(500):
        answers.look()
        if (sizes.question is not None) == open_:
            return
        os.sched_yield()
    raise AssertionError


def test_a_question_is_asked_once_and_answered_by_a_line(terminal: Terminal) -> None:
    sizes = PixelSizes((0.15, 0.15))
    answers = Answers(sizes, terminal.console, page=True, typed=terminal.typed)
    answers.look()
    assert terminal.lines == []
    sizes.of(SMALL)
    sizes.of(LARGE)
    answers.look()
    answers.look()
    (line,) = terminal.lines
    assert line == (
        "asks    The pictures are 800 x 600, and 0.15 mm was told for 640 x 480. 0.12 mm would fit. "
        "How large is a pixel? Answer on the page, or type it here in mm (or yes) and press Enter."
    )
    terminal.type("0,2")
    for _ in range(100):
        answers.look()
    assert terminal.lines[-1].startswith("note    '0,2' is no size of a pixel: write one number of mm")
    terminal.type("0.2")
    until(answers, sizes, open_=False)
    assert terminal.lines[-1] == "note    pixels measure 0.2 mm"
    assert sizes.of(LARGE) == (0.2, 0.2)


@pytest.mark.parametrize(("words", "pixel_mm"), [("yes", (0.2, 0.2)), ("keep", (0.15, 0.15)), ("0.21", (0.21, 0.21))])
def test_a_doubt_is_agreed_with_turned_down_or_answered(
    terminal: Terminal, words: str, pixel_mm: tuple[float, float]
) -> None:
    sizes = PixelSizes()
    sizes.of(SMALL, (0.15, 0.15))
    sizes.doubt(SMALL, (0.15, 0.15), "the depth seems to have changed", (0.2, 0.2))
    answers = Answers(sizes, terminal.console, page=False, typed=terminal.typed)
    answers.look()
    assert terminal.lines[0].endswith("Type it here in mm (or yes), or keep, and press Enter.")
    terminal.type("")
    terminal.type(words)
    until(answers, sizes, open_=False)
    assert sizes.of(SMALL, (0.15, 0.15)) == pixel_mm


def test_where_nobody_can_type_it_says_where_to_answer() -> None:
    sizes, written = PixelSizes(), io.StringIO()
    sizes.of(SMALL)
    for page in (True, False):
        Answers(sizes, Console(file=written, width=300), page=page, typed=io.StringIO("0.2\n")).look()
    on_page, nowhere = written.getvalue().splitlines()
    assert on_page.endswith("How large is a pixel? Answer on the page.")
    assert nowhere.endswith("How large is a pixel? Start again with --pixel-mm.")
    assert sizes.question is not None


def test_a_process_in_the_background_does_not_read_the_terminal(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_answers.os, "tcgetpgrp", lambda _: os.getpgrp() + 1)
    sizes = PixelSizes()
    sizes.of(SMALL)
    answers = Answers(sizes, terminal.console, page=True, typed=terminal.typed)
    terminal.type("0.2")
    for _ in range(50):
        answers.look()
    assert sizes.question is not None
