"""Shadows: dark wedges along the rays, behind ribs, gas, or skin that the probe does not touch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from scopereg.data.mismatch.draws import UNIT, both_ways, draw_uniform
from scopereg.data.mismatch.options import MismatchOptions
from scopereg.data.mismatch.rays import Rays

_SECOND = 0.4  # probability of a second shadow once there is a first
_HALF_WIDTH = (0.08, 0.25)
_DEEPEST_START = 0.5
_ONSET = 0.1  # depth over which a shadow sets in


class Shadows(NamedTuple):
    """Shadows (K, B, 1, 1) of frames, in the units of their rays."""

    centre: Tensor
    half_width: Tensor
    softness: Tensor  # share of the half width over which it sets in from its sides
    start: Tensor
    dark: Tensor  # share of the grey value that it takes, 0 where there is none


def draw_shadows(count: int, generator: torch.Generator, options: MismatchOptions) -> Shadows:
    """One or two shadows for some of the frames: half of them from the probe's face on, the others from deeper."""
    ranges = {
        "centre": both_ways(0.95),
        "half_width": _HALF_WIDTH,
        "softness": (0.6, 1.0),
        "start": both_ways(_DEEPEST_START + _ONSET),
        "dark": options.shadow_dark,
        "rarity": UNIT,
    }
    draw = {name: value.unflatten(0, (2, count)) for name, value in draw_uniform(2 * count, ranges, generator).items()}
    first = draw["rarity"][0] < options.shadow_chance
    there = torch.stack([first, first & (draw["rarity"][1] < _SECOND)])  # (2, B, 1, 1)
    return Shadows(
        draw["centre"],
        draw["half_width"],
        draw["softness"],
        start=draw["start"].clamp_min(0) - _ONSET,
        dark=draw["dark"] * there,
    )


def cast_shadows(rays: Rays, shadows: Shadows) -> Tensor:
    """Transmission (B, H, W) behind shadows: 1 beside and before them."""
    centre, half_width, softness, start, dark = shadows
    across = ((half_width - (rays.angle - centre).abs()) / (half_width * softness)).clamp(0, 1)  # (K, B, H, W)
    along = ((rays.depth - start) / _ONSET).clamp(0, 1)
    first, second = torch.addcmul(torch.ones_like(dark), across, along * dark, value=-1)
    return first * second
