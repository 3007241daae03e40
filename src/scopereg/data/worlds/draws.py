"""Draws: numbers of a batch of worlds, each in its range, shaped to be combined with their maps."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from scopereg.data.mismatch.draws import Range


class Draws:
    """Random numbers for `count` worlds or frames. Nothing waits for the device."""

    def __init__(self, count: int, generator: torch.Generator, axes: int = 0) -> None:
        """Numbers have shape (count, *more, 1, ...) with as many ones as the maps have `axes`."""
        self.count, self.generator, self.device = count, generator, generator.device
        self._ones = (1,) * axes

    def with_axes(self, axes: int) -> Draws:
        """The same stream of numbers, shaped for maps of so many axes."""
        return Draws(self.count, self.generator, axes)

    def uniform(self, bounds: Range, *more: int) -> Tensor:
        """Uniform numbers (count, *more, 1, ...)."""
        numbers = torch.empty(self.count, *more, *self._ones, device=self.device)
        return numbers.uniform_(*bounds, generator=self.generator)  # one launch

    def log_uniform(self, bounds: Range, *more: int) -> Tensor:
        """Numbers whose logarithms are uniform."""
        return self.uniform((math.log(bounds[0]), math.log(bounds[1])), *more).exp()

    def chance(self, probability: float | Tensor, *more: int) -> Tensor:
        """True with the given probability."""
        return self.uniform((0.0, 1.0), *more) < probability

    def normal(self, *more: int) -> Tensor:
        """Standard normal numbers (count, *more)."""
        return torch.randn(self.count, *more, generator=self.generator, device=self.device)


@functools.lru_cache(maxsize=64)
def on_device(numbers: tuple[float, ...], device: torch.device) -> Tensor:
    """Constants (N,) on a device; kept, because a copy from the host waits for it."""
    return torch.tensor(numbers, dtype=torch.float32).to(device)
