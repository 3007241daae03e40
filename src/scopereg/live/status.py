"""Status line: how a stream is doing, kept up to date on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console
from rich.status import Status
from rich.text import Text

from scopereg.live.loop import Update
from scopereg.live.trust import light_of, trust_in

_BETWEEN_LINES_S = 10.0
_BETWEEN_LOOKS_S = 0.25
_STYLES = {"green": "bold green", "amber": "bold yellow", "red": "bold red"}


class StatusLine:
    """A listener of the loop. `waiting` says in words where the source stands, for while no frame comes."""

    def __init__(self, console: Console, waiting: Callable[[], str]) -> None:
        self._console, self._waiting = console, waiting
        self._status: Status | None = None
        self._update: Update | None = None
        self._said_s = -_BETWEEN_LINES_S
        self._said = ""

    def __enter__(self) -> StatusLine:
        if self._console.is_terminal:
            self._status = self._console.status(self._waiting())
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
        line = self._line()
        if self._update is not None and line.plain != self._said:
            self._console.print(line)  # how it was in the end

    def __call__(self, update: Update) -> None:
        """Keep the newest update; nothing is written in the loop's thread."""
        self._update = update

    def refresh(self) -> None:
        """Say how it is, if it is time to."""
        now_s = time.monotonic()
        between_s = _BETWEEN_LINES_S if self._status is None else _BETWEEN_LOOKS_S
        if now_s < self._said_s + between_s:
            return
        line = self._line()
        if self._status is not None:
            self._status.update(line)
        elif line.plain != self._said:
            self._console.print(line)
        self._said_s, self._said = now_s, line.plain

    def _line(self) -> Text:
        update = self._update
        if update is None:
            return Text(self._waiting())
        light = light_of(update.result)
        trust = trust_in(update.result, update.error)
        rates = update.rates
        counters = {name: count for name, count in update.counters.items() if name in _SHOWN and count}
        counted = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counters.items())
        return Text.assemble(
            (light, _STYLES[light]),
            f" {trust.text}" if trust.text else "",
            f"  {rates.frames_per_s:.1f} frames/s, latency {rates.p50_ms:.0f} ms (95 % below {rates.p95_ms:.0f} ms)",
            f"  {counted}" if counted else "",
        )


_SHOWN = ("registered", "failed", "dropped", "bad_frames", "bad_header", "bad_body", "lost", "listener_errors")
