"""StepByShape: a training step that is recorded once for every shape of batch."""

from __future__ import annotations

from torch import Tensor

from scopereg.training.source import Batch
from scopereg.training.step import CapturedStep, PlainStep


class StepByShape:
    """Recorded steps of one run: a CUDA graph knows one shape, a run may have several. Weights are shared."""

    def __init__(self, step: PlainStep) -> None:
        self.step = step
        self._recorded: dict[tuple[int, ...], CapturedStep] = {}

    @property
    def total(self) -> Tensor:
        return self.step.total

    def __call__(self, batch: Batch) -> None:
        shape = (*batch.slices.shape, *batch.volumes.shape)
        if shape not in self._recorded:
            self._recorded[shape] = CapturedStep(self.step)
        self._recorded[shape](batch)
