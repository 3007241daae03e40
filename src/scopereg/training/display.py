"""Display: what a training run shows; a bar with the time left on a terminal, one line per validation elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from scopereg.progress import duration, say
from scopereg.training.forecast import INSTEAD, FirstSteps

if TYPE_CHECKING:
    from scopereg.training.fitting import Training
    from scopereg.training.loop import Standing
    from scopereg.training.schedule import Schedule

_SECONDS_BETWEEN_UPDATES = 0.25


class Running(Protocol):
    """A run that tells how far it is."""

    @property
    def state(self) -> Standing: ...

    @property
    def schedule(self) -> Schedule: ...


class Display(AbstractContextManager["Display"]):
    """What a run shows while it works."""

    def __init__(self, quiet: bool = False, label: str = "training", instead: str = INSTEAD) -> None:
        """`instead` is what to do where the first steps tell that the time is too short."""
        self.quiet, self.label, self.instead = quiet, label, instead
        self._bar: Any = None
        self._task: Any = None
        self._shown = 0.0
        self._mark: tuple[int, float] | None = None
        self._first_steps = FirstSteps()

    def __enter__(self) -> Display:
        if not self.quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}"))
            self._bar = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task(self.label, total=1.0, left="")
        return self

    def __exit__(self, *error: Any) -> None:
        if self._bar is not None:
            self._bar.stop()

    def step(self, module: Running) -> None:
        """After every step; cheap."""
        now = time.monotonic()
        if self._mark is None:
            self._mark = module.state.step, now
        found = self._first_steps.step(module.schedule, module.state.step, module.state.seconds)
        if found is not None:
            self.say(found.words(self.instead))
        if self._bar is None or now - self._shown < _SECONDS_BETWEEN_UPDATES:
            return
        self._shown = now
        state = module.state
        share = module.schedule.share(state.step, state.seconds)
        left = state.seconds * (1 - share) / share if share else 0.0
        self._bar.update(self._task, completed=share, description=f"step {state.step}", left=f"{duration(left)} left")

    def validated(self, module: Training) -> None:
        """After every validation: one line."""
        if not self.quiet:
            self.say(summary_line(module, self._rate(module)))

    def say(self, line: str) -> None:
        """One line, above the bar where there is one."""
        if not self.quiet:
            (self._bar.console.print if self._bar is not None else say)(line)

    def _rate(self, module: Training) -> float:
        """Frames per second since the last line, validation included."""
        step, now = module.state.step, time.monotonic()
        first, since = self._mark or (step, now)
        self._mark = step, now
        frames = (step - first) * module.frames_per_step
        return frames / (now - since) if now > since else 0.0


def summary_line(module: Training, frames_per_second: float) -> str:
    """Step, time, loss and validation errors, with what is left."""
    state = module.state
    share = module.schedule.share(state.step, state.seconds)
    left = state.seconds * (1 - share) / share if share else 0.0
    best = "  best" if state.best_step == state.step else ""
    return (
        f"step {state.step:>7}  {share:4.0%}  {duration(state.seconds)} of {duration(state.seconds + left)}  "
        f"loss {state.loss:8.3f}  honest {state.metrics['honest_mean_mm']:.2f} mm  "
        f"paper {state.metrics['paper_mean_mm']:.2f} mm  {frames_per_second:.0f} frames/s{best}"
    )
