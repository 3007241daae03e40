"""Schedule: how far a run has come, by steps or by the clock, and the learning rate there."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scopereg.training.settings import TrainSettings


@dataclass(frozen=True)
class Schedule:
    """Warm-up, then polynomial decay to zero at the end: after `steps`, or after `seconds`."""

    peak: float
    warmup: int
    power: float
    steps: int | None
    seconds: float | None

    @classmethod
    def from_settings(cls, settings: TrainSettings, volumes: int, devices: int = 1) -> Schedule:
        """An epoch is one frame of each of the training `volumes`; each step takes a batch on every device."""
        steps = None if settings.epochs is None else math.ceil(settings.epochs * volumes / (settings.batch * devices))
        seconds = None if settings.minutes is None else settings.minutes * 60
        return cls(settings.learning_rate, settings.warmup, settings.decay_power, steps, seconds)

    def share(self, step: int, seconds: float) -> float:
        """Share of the run that lies behind, 0 to 1."""
        done = step / self.steps if self.steps is not None else seconds / (self.seconds or math.inf)
        return min(done, 1.0)

    def rate(self, step: int, seconds: float) -> float:
        """Learning rate of a step."""
        rising = min(1.0, (step + 1) / (self.warmup + 1))
        return self.peak * rising * (1 - self.share(step, seconds)) ** self.power

    def finished(self, step: int, seconds: float) -> bool:
        """Whether nothing is left to do."""
        return self.share(step, seconds) >= 1.0
