"""Seeds: a stream of random numbers of its own for every purpose."""

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
