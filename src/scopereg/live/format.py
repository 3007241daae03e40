"""Format: how large the pictures of a stream are, and their pixels; and what is told when that changes."""

from __future__ import annotations

import math
from typing import NamedTuple

from scopereg.images import Frame

PixelSize = tuple[float, float]  # mm, x and y
_SAME = 1e-3  # relative difference between sizes of pixels that is rounding
_QUIET_S = 2.0  # after a change was told, in which no other is


class Format(NamedTuple):
    """Of one picture. Two are equal for `is_like` where only rounding tells them apart."""

    size: tuple[int, int]  # columns, rows
    pixel_mm: PixelSize | None  # None: nobody knows it

    @classmethod
    def of(cls, frame: Frame, *, sized: bool = True) -> Format:
        """That of a frame; one that is not `sized` has pixels of nobody knows what size."""
        (width, height), (x, y) = frame.size, frame.spacing_mm
        return cls((width, height), (x, y) if sized else None)

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
        self._told, self._quiet_s = now, now_s + _QUIET_S
        return now.after(told)


def same_pixels(one: PixelSize | None, other: PixelSize | None) -> bool:
    """Whether two sizes of pixels are one."""
    if one is None or other is None:
        return one is other
    return all(math.isclose(a, b, rel_tol=_SAME) for a, b in zip(one, other, strict=True))


def in_mm(pixel_mm: PixelSize) -> str:
    """The size of a pixel in words: one number where it is square."""
    x, y = pixel_mm
    return f"{x:.4g} mm" if math.isclose(x, y, rel_tol=_SAME) else f"{x:.4g} x {y:.4g} mm"
