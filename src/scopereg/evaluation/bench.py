"""Bench: networks timed side by side on this machine, block by block in turn."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from scopereg.evaluation.contender import Contender, Row, reason_of
from scopereg.evaluation.floor import Ceilings, StageTime, measure_ceilings, stage_times, staged
from scopereg.evaluation.forms import FIRST, Form, Setting
from scopereg.evaluation.speed_tables import row_line
from scopereg.progress import say

BLOCKS, LEAST_BLOCKS = 5, 3


@dataclass
class Bench:
    """All that is measured; what is there stays there when it is interrupted."""

    contenders: list[Contender] = field(default_factory=list)
    ceilings: Ceilings | None = None
    stages: list[StageTime] = field(default_factory=list)

    def measure(self, forms: Sequence[Form], setting: Setting, seconds: float, show: Show) -> None:
        """All forms at one resolution: block by block in turn, so that a drifting clock favours none."""
        group = [Contender(form, setting) for form in forms]
        self.contenders += group
        for each in group:
            each.measure_memory()
        for each in group:
            show.step(f"{each.form.label}, {setting.resolution}")
            each.make(seconds)
        self._run_blocks(group, seconds, show)
        for each in group:
            each.release()
        self._again_alone([each for each in group if each.out_of_memory], seconds, show)
        for row in self.rows()[-len(group) :]:
            show.finished(row)

    def time_stages(self, methods: Sequence[str], setting: Setting, seconds: float, show: Show) -> None:
        """Every stage alone, and the floor below it."""
        for method in staged(methods):
            show.step(f"stages of {method}, {setting.resolution}")
            try:
                if self.ceilings is None:
                    dtype = setting.streaming(setting.network(method)).dtype
                    self.ceilings = measure_ceilings(setting.device, dtype, seconds / 10)
                self.stages += stage_times(method, setting, self.ceilings, seconds / 20)
            except Exception as error:  # as of a row: what else is measured is worth keeping
                say(f"no stages of {method}, {setting.resolution}: {reason_of(error)}")

    def rows(self) -> list[Row]:
        """Of everything that was measured or failed."""
        first = {each.setting.resolution: each.fps for each in self.contenders if each.form == Form(*FIRST)}
        tried = [each for each in self.contenders if each.blocks or each.note]
        return [each.row(first.get(each.setting.resolution)) for each in tried]

    def _run_blocks(self, group: Sequence[Contender], seconds: float, show: Show) -> None:
        for block in range(BLOCKS):
            for each in group:
                show.step(f"{each.form.label}, {each.setting.resolution}")
                if block < LEAST_BLOCKS or each.spent_s < seconds:
                    each.run_block(seconds / BLOCKS)

    def _again_alone(self, crowded: Sequence[Contender], seconds: float, show: Show) -> None:
        """What did not fit beside the others may fit without them."""
        for each in crowded:
            each.note, each.out_of_memory, each.spent_s = "", False, 0.0
            each.blocks.clear()
            each.make(seconds)
            self._run_blocks([each], seconds, show)
            each.note = each.note or "measured alone: it did not fit beside the others"
            each.release()


class Show(AbstractContextManager["Show"]):
    """A bar on a terminal, a line per row elsewhere."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Show:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (BarColumn(), TextColumn("{task.percentage:3.0f} %"), TextColumn("{task.description}"))
            self._bar = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("", total=self.steps)
        return self

    def __exit__(self, *error: Any) -> None:
        if self._bar is not None:
            self._bar.stop()

    def step(self, words: str) -> None:
        if self._bar is not None:
            self._bar.update(self._task, advance=1, description=words)

    def finished(self, row: Row) -> None:
        if self._bar is None:
            say(row_line(row))
