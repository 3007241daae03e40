"""Draws: the random numbers that make one patient differ from the next."""

from __future__ import annotations

import hashlib

import torch


def generator_for(purpose: str, *numbers: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator of its own for each purpose and numbers.

    Plain seeds would meet: poses drawn with `manual_seed(0)` and fans drawn with `manual_seed(0)` are the same numbers.
    """
    return torch.Generator(device).manual_seed(stream_seed(purpose, *numbers))


def stream_seed(purpose: str, *numbers: int) -> int:
    """The seed of such a generator."""
    digest = hashlib.sha256(" ".join([purpose, *map(str, numbers)]).encode()).digest()
    return int.from_bytes(digest[:4], "little")


class Draws:
    """Seeded numbers for the parameters of an anatomy.

    Always drawn on the CPU, so that one seed gives the same patient on every device.
    """

    def __init__(self, purpose: str, seed: int) -> None:
        self._generator = generator_for(purpose, seed)

    def uniform(self, low: float, high: float) -> float:
        """One number between `low` and `high`."""
        return low + (high - low) * float(torch.rand((), generator=self._generator))

    def chance(self, probability: float) -> bool:
        """True with the given probability."""
        return self.uniform(0, 1) < probability

    def integer(self, low: int, high: int) -> int:
        """One whole number from `low` to `high`, both included."""
        return int(torch.randint(low, high + 1, (), generator=self._generator))

    def direction(self) -> torch.Tensor:
        """A unit vector (3,), all directions alike."""
        vector = torch.randn(3, generator=self._generator)
        return vector / vector.norm().clamp_min(1e-6)

    def noise(self, *shape: int) -> torch.Tensor:
        """Standard normal numbers of a shape."""
        return torch.randn(*shape, generator=self._generator)
