"""Draws: all random numbers of a batch at once, each in its range."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import torch
from torch import Tensor

Range = tuple[float, float]

UNIT: Range = (0.0, 1.0)


def both_ways(limit: float) -> Range:
    """The range from -limit to limit."""
    return -limit, limit


def draw_uniform(count: int, ranges: Mapping[str, Range], generator: torch.Generator) -> dict[str, Tensor]:
    """One number per frame (count, 1, 1) and name, uniform in its range."""
    draws = torch.rand(len(ranges), count, 1, 1, generator=generator, device=generator.device)
    low, span = _on_device(tuple(ranges.values()), draws.device)
    return dict(zip(ranges, torch.addcmul(low, span, draws).unbind(), strict=True))


@functools.lru_cache(maxsize=64)
def _on_device(ranges: tuple[Range, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Lower ends and spans (N, 1, 1, 1); kept, because a copy to the device waits for it."""
    ends = torch.tensor(ranges, dtype=torch.float32).reshape(-1, 2, 1, 1, 1)
    return ends[:, 0].to(device), (ends[:, 1] - ends[:, 0]).to(device)
