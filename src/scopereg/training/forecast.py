"""Forecast: from the first steps of a run, how far it will come, and whether that is far enough to learn anything."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from scopereg.progress import duration
from scopereg.training.schedule import Schedule

_LEAST_STEPS, _LEAST_SECONDS = 2, 3.0  # of steps after the first, which sets libraries up
_FEW_WARMUPS = 3  # a run of fewer hardly learns: it starts to when the warm-up ends
MORE_TIME = "take a GPU or more time"
INSTEAD = f"{MORE_TIME}, or make the model that ships better at one volume in minutes: scopereg adapt VOLUME.nii.gz"


@dataclass(frozen=True)
class Forecast:
    """What the rest of a run will be like if it goes on as it began."""

    step_seconds: float
    steps: int  # in all
    seconds: float  # in all
    warmup: int

    @property
    def too_short(self) -> bool:
        """Whether it will be over before it learns."""
        return self.steps < _FEW_WARMUPS * self.warmup

    def words(self, instead: str = INSTEAD) -> str:
        """A line, with what to do instead where the run is too short."""
        line = f"forecast: about {self.steps} steps in {duration(self.seconds)}, {self.step_seconds:.2g} s each"
        if not self.too_short:
            return line
        what = "will not leave its warm-up" if self.steps <= self.warmup else "will hardly learn after its warm-up"
        enough = duration(_FEW_WARMUPS * self.warmup * self.step_seconds)
        return (
            f"{line}. This run {what} of {self.warmup} steps; "
            f"it takes {enough} for {_FEW_WARMUPS} times as many, and good weights far more: {instead}"
        )


class FirstSteps:
    """The clock of a run's first steps."""

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None
        self._told = False

    def step(self, schedule: Schedule, step: int, seconds: float) -> Forecast | None:
        """After every step: the forecast, once, when enough was seen."""
        if self._told:
            return None
        now = time.monotonic()
        if self._first is None:
            self._first = step, now
            return None
        steps, spent = step - self._first[0], now - self._first[1]
        share = schedule.share(step, seconds)
        if steps < _LEAST_STEPS or spent < _LEAST_SECONDS or share >= 1:
            return None
        self._told = True
        return forecast(schedule, step, seconds, spent / steps)


def forecast(schedule: Schedule, step: int, seconds: float, step_seconds: float) -> Forecast:
    """What a run comes to that stands at a step after some seconds and takes so long for each."""
    if schedule.steps is not None:
        left_s = max(schedule.steps - step, 0) * step_seconds
        return Forecast(step_seconds, schedule.steps, seconds + left_s, schedule.warmup)
    whole_s = schedule.seconds or seconds
    steps = step + math.ceil(max(whole_s - seconds, 0.0) / step_seconds)
    return Forecast(step_seconds, steps, whole_s, schedule.warmup)
