"""Answers: what `scopereg live` asks a person, on the terminal that it runs in, and what is typed there."""

from __future__ import annotations

import os
import select
import sys
from typing import TYPE_CHECKING, TextIO

from rich.console import Console

from scopereg.errors import ScopeRegError

if TYPE_CHECKING:
    from scopereg.live.pixel_sizes import PixelSizes, Question

_YES, _KEEP = ("y", "yes"), ("k", "keep", "n", "no")


class Answers:
    """Prints a question once; while one is open, takes the line that is typed. Elsewhere it says where to answer."""

    def __init__(self, sizes: PixelSizes, console: Console, *, page: bool, typed: TextIO | None = None) -> None:
        """`page` tells whether there is one to answer on; `typed` is the standard input."""
        self._sizes, self._console, self._page = sizes, console, page
        self._typed: TextIO | None = sys.stdin if typed is None else typed
        self._asked = 0  # number of the last question

    def look(self) -> None:
        """Ask what is to be asked, take what was typed; it never waits."""
        question = self._sizes.question
        if question is None:
            return
        if question.number != self._asked:
            self._asked = question.number
            self._console.print(f"asks    {question.text} {self._how(question)}")
        if _is_ours(self._typed) and _has_line(self._typed):
            assert self._typed is not None
            line = self._typed.readline()
            if not line:  # the terminal has gone
                self._typed = None
            elif line.strip():
                self._take(line.strip(), question)

    def _take(self, words: str, question: Question) -> None:
        from scopereg.live.pixel_sizes import read_pixel_mm

        try:
            if words.lower() in _KEEP and question.told is not None:
                kept = self._sizes.keep(question.number)
                self._console.print(f"note    pixels still measure {kept.pixel_words}")
                return
            yes = words.lower() in _YES and question.suggestion is not None
            pixel_mm = question.suggestion if yes else None
            told = self._sizes.tell(pixel_mm or read_pixel_mm(words), question.number)
            self._console.print(f"note    pixels measure {told.pixel_words}")
        except ScopeRegError as error:
            self._console.print(f"note    {error.what}: {error.fix}")

    def _how(self, question: Question) -> str:
        ways = ["Answer on the page"] if self._page else []
        if _is_ours(self._typed):
            yes = " (or yes)" if question.suggestion is not None else ""
            keep = ", or keep," if question.told is not None else ""
            ways.append(f"type it here in mm{yes}{keep} and press Enter")
        return ", or ".join(ways)[:1].upper() + ", or ".join(ways)[1:] + "." if ways else "Start again with --pixel-mm."


def _is_ours(typed: TextIO | None) -> bool:
    """Whether it is a terminal, and this process may read it: one in the background would be stopped for that."""
    try:
        if typed is None or not typed.isatty() or not hasattr(os, "tcgetpgrp"):
            return False
        return os.tcgetpgrp(typed.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False


def _has_line(typed: TextIO | None) -> bool:
    try:
        return typed is not None and bool(select.select([typed], [], [], 0)[0])
    except (OSError, ValueError):
        return False
