"""Format: how large the pictures of a stream are, and their pixels; and what is told when that changes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from scopereg.images import Frame
from scopereg.io.stored import GIVEN, StoredFrame

PixelSize = tuple[float, float]  # mm, x and y
_UNKNOWN, _NO_SIZE = "size_unknown", (1.0, 1.0)  # in the facts of a frame, and in its spacing
_SAME = 1e-3  # relative difference between sizes of pixels that is rounding
_QUIET_S = 2.0  # after a change was told, in which no other is


class Unknown(NamedTuple):
    """The size of pixels that nobody knows."""

    why: str  # in words


class Format(NamedTuple):
    """Of one picture. Two are equal for `is_like` where only rounding tells them apart."""

    size: tuple[int, int]  # columns, rows
    pixel_mm: PixelSize | None  # None: nobody knows it

    @classmethod
    def of(cls, frame: Frame) -> Format:
        """That of a frame."""
        (width, height), (x, y) = frame.size, frame.spacing_mm
        return cls((width, height), (x, y) if is_sized(frame) else None)

    def __str__(self) -> str:
        width, height = self.size
        return f"{width} x {height} of {self.pixel_words}"

    @property
    def pixel_words(self) -> str:
        return "pixels of unknown size" if self.pixel_mm is None else in_mm(self.pixel_mm)

    def is_like(self, other: Format) -> bool:
        return self.size == other.size and same_pixels(self.pixel_mm, other.pixel_mm)

    def after(self, before: Format) -> str:
        """What has changed, in words."""
        if self.size == before.size:
            return f"depth changed: {self}, before {before.pixel_words}"
        what = "size" if same_pixels(self.pixel_mm, before.pixel_mm) else "size and depth"
        return f"{what} of the picture changed: {self}, before {before}"


class Changes:
    """Tells what changes from picture to picture: at once, but no more than one change in a while."""

    def __init__(self) -> None:
        self._told: Format | None = None
        self._latest: Format | None = None
        self._quiet_s = -math.inf
        self.count = 0

    def tell(self, now: Format, now_s: float) -> str:
        """What is to be told with a picture that came at a time of one steady clock; empty where nothing is."""
        told, latest = self._told, self._latest
        self._latest = now
        if told is None or latest is None:
            self._told = now
            return ""
        self.count += not now.is_like(latest)
        if now.is_like(told) or now_s < self._quiet_s:
            return ""
        self._told = now
        if told.pixel_mm is None and told.size == now.size:
            return ""  # a person has just said it
        self._quiet_s = now_s + _QUIET_S
        return now.after(told)


def is_sized(frame: Frame) -> bool:
    """Whether anybody knows how large its pixels are; the spacing of others means nothing."""
    return not unknown_of(frame)


def unknown_of(frame: Frame) -> str:
    """Why nobody knows how large its pixels are; empty where somebody does."""
    return str(frame.facts.get(_UNKNOWN, "")) if isinstance(frame, StoredFrame) else ""


def size_facts(pixels: PixelSize | Unknown, known_from: str) -> dict[str, str]:
    """What the facts of a frame say of the size of its pixels."""
    return (
        {"spacing_from": "nobody", _UNKNOWN: pixels.why}
        if isinstance(pixels, Unknown)
        else {"spacing_from": known_from}
    )


def resized(frame: StoredFrame, pixels: PixelSize | Unknown) -> StoredFrame:
    """The frame with pixels of another size."""
    step = _NO_SIZE if isinstance(pixels, Unknown) else pixels
    origin = tuple(own / old * new for own, old, new in zip(frame.origin_mm, frame.spacing_mm, step, strict=True))
    facts = {name: fact for name, fact in frame.facts.items() if name != _UNKNOWN}
    return replace(frame, spacing_mm=step, origin_mm=origin, facts=facts | size_facts(pixels, GIVEN))


def same_pixels(one: PixelSize | None, other: PixelSize | None) -> bool:
    """Whether two sizes of pixels are one."""
    if one is None or other is None:
        return one is other
    return all(math.isclose(a, b, rel_tol=_SAME) for a, b in zip(one, other, strict=True))


def in_mm(pixel_mm: PixelSize) -> str:
    """The size of a pixel in words: one number where it is square."""
    x, y = pixel_mm
    return f"{x:.4g} mm" if math.isclose(x, y, rel_tol=_SAME) else f"{x:.4g} x {y:.4g} mm"
