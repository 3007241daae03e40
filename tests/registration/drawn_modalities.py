"""Volumes of another modality, drawn at random, and what ultrasound would make of them."""

from __future__ import annotations

import torch
from torch import Tensor

from scopereg.registration.grey import blur
from scopereg.registration.lc2 import value_and_edges


def other_modality(*shape: int, seed: int = 0) -> Tensor:
    """Smooth structures with values in (0, 1]."""
    values = blur(torch.rand(1, *shape, generator=torch.Generator().manual_seed(seed)), 2.5)[0]
    return 0.1 + 0.9 * (values - values.min()) / (values.max() - values.min())


def seen_of(volume: Tensor) -> Tensor:
    return torch.ones_like(volume)[None]


def as_ultrasound(volume: Tensor) -> Tensor:
    """Bright where the other modality is dark, and at its edges."""
    value, edge = value_and_edges(volume, seen_of(volume), 0.0)[:2]
    image = 0.3 * edge - 0.2 * value
    return 0.05 + 0.9 * (image - image.min()) / (image.max() - image.min())
