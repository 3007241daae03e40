"""Schedule: how far a run has come, by steps or by the clock, and the learning rate there."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scopereg.training.settings import TrainSettings

STEP_FACTOR, STEP_COUNT = 0.8, 30  # FVR-Net: every 5 of 150 epochs
DROP_FACTOR, DROP_SHARE = 0.3, 0.8  # CU-Reg: once; when, is a decision of ours, see docs/baselines.md
CLIMB_FACTOR, CLIMBS, CLIMB_SHARE = 1.2, 6, 0.01  # DreamReg: after each of the first six of a hundred epochs


@dataclass(frozen=True)
class Schedule:
    """Warm-up, then a decay until the end: after `steps`, or after `seconds`."""

    peak: float
    warmup: int
    power: float
    steps: int | None
    seconds: float | None
    decay: str = "polynomial"

    @classmethod
    def from_settings(cls, settings: TrainSettings, volumes: int, devices: int = 1) -> Schedule:
        """An epoch is one frame of each of the training `volumes`; each step takes a batch on every device."""
        steps = None if settings.epochs is None else math.ceil(settings.epochs * volumes / (settings.batch * devices))
        seconds = None if settings.minutes is None else settings.minutes * 60
        return cls(settings.learning_rate, settings.warmup, settings.decay_power, steps, seconds, settings.decay)

    def share(self, step: int, seconds: float) -> float:
        """Share of the run that lies behind, 0 to 1."""
        done = step / self.steps if self.steps is not None else seconds / (self.seconds or math.inf)
        return min(done, 1.0)

    def rate(self, step: int, seconds: float) -> float:
        """Learning rate of a step."""
        rising = min(1.0, (step + 1) / (self.warmup + 1))
        return self.peak * rising * self.factor(self.share(step, seconds))

    def factor(self, share: float) -> float:
        """What is left of the learning rate after a share of the run; a plateau takes its part besides."""
        if self.decay == "steps":
            return STEP_FACTOR ** math.floor(STEP_COUNT * share)
        if self.decay == "drop":
            return DROP_FACTOR if share >= DROP_SHARE else 1.0
        if self.decay == "plateau":
            return CLIMB_FACTOR ** min(CLIMBS, math.floor(share / CLIMB_SHARE))
        return 1.0 if self.decay == "constant" else (1 - share) ** self.power

    def finished(self, step: int, seconds: float) -> bool:
        """Whether nothing is left to do."""
        return self.share(step, seconds) >= 1.0
