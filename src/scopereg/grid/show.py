"""Show: what a grid tells while it works; one line per finished run, and a bar below them where runs are elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from scopereg.grid.plan import Run
from scopereg.grid.work import Outcome
from scopereg.progress import duration, say


class Show(AbstractContextManager["Show"]):
    """Counts runs as they end and guesses how long the rest will take."""

    def __init__(self, runs: Sequence[Run], *, bar: bool = False) -> None:
        self.left = {run.name: run for run in runs}
        self.total, self.begin = len(runs), time.monotonic()
        self.took: list[tuple[Run, float]] = []
        self._with_bar = bar and sys.stderr.isatty()  # training here has a bar of its own
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Show:
        if self._with_bar:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("runs", total=self.total)
        return self

    def __exit__(self, *error: Any) -> None:
        if self._bar is not None:
            self._bar.stop()

    def started(self, run: Run) -> None:
        """Only where runs come one after another."""
        self._line(f"[{self._place()}] {run.name}")

    def waiting(self, at_work: int) -> None:
        """Now and then, while runs are at work elsewhere."""
        if self._bar is not None:
            self._bar.update(self._task, description=f"{at_work} at work")

    def finished(self, outcome: Outcome) -> None:
        place = self._place()
        run = self.left.pop(outcome.name)
        if outcome.word == "done":
            self.took.append((run, outcome.seconds))
        self._line(f"[{place}] {outcome.word:<7} {outcome.name}  {outcome.note}{self._time_left()}")
        if self._bar is not None:
            self._bar.update(self._task, completed=self.total - len(self.left))

    def _place(self) -> str:
        return f"{self.total - len(self.left) + 1:>{len(str(self.total))}}/{self.total}"

    def _time_left(self) -> str:
        """From the runs of the same method so far, else of the same kind; nothing while there are none."""
        work = [self._guess(run) for run in self.left.values()]
        done = sum(seconds for _, seconds in self.took)
        if not work or not done or None in work:
            return ""
        pace = (time.monotonic() - self.begin) / done  # below 1 where runs are done side by side
        return f", about {duration(pace * sum(filter(None, work)))} left"

    def _guess(self, run: Run) -> float | None:
        alike = [seconds for other, seconds in self.took if other.method == run.method]
        kind = [seconds for other, seconds in self.took if (other.settings is None) == (run.settings is None)]
        found = alike or kind
        return sum(found) / len(found) if found else None

    def _line(self, text: str) -> None:
        (self._bar.console.print if self._bar is not None else say)(text)
