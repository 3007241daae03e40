"""Strangers: frames that are none of a volume's, or not as they are told, made from frames that are.

A calibration learns from them what a frame of something else looks like to a network; benchmarks ask what became of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch

from scopereg.images import Frame
from scopereg.registration.grey import blur

OTHER, NOISE, GEL = "another volume", "noise", "empty gel"
SIZES = (0.8, 0.9, 0.95, 1.05, 1.1, 1.25)  # that pixels are told to be too large or small by, on one axis or both
_GEL = 0.3  # mean brightness
_DARKEST = 0.01

Make = Callable[[Frame, torch.Generator], Frame]


def sized(frame: Frame, across: float, down: float) -> Frame:
    """Pixels that are told to be so many times as large as they are."""
    return Frame(frame.array, (frame.spacing_mm[0] * across, frame.spacing_mm[1] * down))


def inverted(frame: Frame) -> Frame:
    """Black and white swapped where something is seen."""
    return replace(frame, array=(1 - frame.array) * (frame.array > 0))


def noise(frame: Frame, generator: torch.Generator) -> Frame:
    """White noise where the frame shows something."""
    return replace(frame, array=torch.rand(frame.shape, generator=generator) * (frame.array > 0))


def empty_gel(frame: Frame, generator: torch.Generator) -> Frame:
    """Speckle without any anatomy, in the fan of the frame."""
    parts = [blur(torch.randn(1, *frame.shape, generator=generator), 1.0)[0] for _ in range(2)]
    speckle = (parts[0].square() + parts[1].square()).sqrt()
    return replace(frame, array=(_GEL * speckle / speckle.mean()).clamp(_DARKEST, 1) * frame.seen)


def dual(frame: Frame) -> Frame:
    """Two pictures side by side on one screen."""
    return Frame(torch.cat([frame.array, frame.array], 1), frame.spacing_mm)


def _sized(frame: Frame, generator: torch.Generator, *, across: float, down: float) -> Frame:
    return sized(frame, across, down)


KINDS: dict[str, Make] = {
    **{f"pixels told {size:g} times as large": partial(_sized, across=size, down=size) for size in SIZES},
    **{f"pixels told {size:g} times as wide": partial(_sized, across=size, down=1.0) for size in SIZES[1:-1]},
    **{f"pixels told {size:g} times as high": partial(_sized, across=1.0, down=size) for size in SIZES[1:-1]},
    "mirrored left to right": lambda frame, _: frame.flipped(0),
    "mirrored top to bottom": lambda frame, _: frame.flipped(1),
    "turned by 180 degrees": lambda frame, _: frame.flipped(0).flipped(1),
    "black and white swapped": lambda frame, _: inverted(frame),
    "two pictures on a screen": lambda frame, _: dual(frame),
    NOISE: noise,
    GEL: empty_gel,
}
"""Each from a frame of the volume. Frames of another volume (`OTHER`) are besides."""


def strangers_of(
    frame: Frame, other: Frame | None, number: int, count: int, generator: torch.Generator
) -> Iterator[tuple[str, Frame]]:
    """The frame of another volume, if there is one, and `count` kinds made of this: in turn, by its `number`."""
    if other is not None:
        yield OTHER, Frame(other.array, frame.spacing_mm)
    kinds = list(KINDS)
    for place in range(count):
        kind = kinds[(number * count + place) % len(kinds)]
        yield kind, KINDS[kind](frame, generator)
