"""Axes: from data to the coordinates of a picture, between round numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 760, 260
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 14, 42
_DECADES = 4  # of a logarithmic axis: what is smaller stands at its edge
_QUARTERS = (0, 25, 50, 75, 100)


@dataclass(frozen=True)
class Axis:
    """From data to picture coordinates; what lies beyond the ends stands at the edge."""

    low: float
    high: float
    start: float  # picture coordinate of low
    stop: float
    ticks: tuple[float, ...]
    log: bool = False

    def __call__(self, value: float) -> float:
        scale = math.log10 if self.log else float
        low, high, at = map(scale, (self.low, self.high, min(max(value, self.low), self.high)))
        return self.start + (self.stop - self.start) * (at - low) / (high - low)


def log_axis(values: Iterable[float], start: float = LEFT, stop: float = WIDTH - RIGHT) -> Axis:
    """A logarithmic axis between round numbers, over four decades at most below the largest value."""
    positive = [value for value in values if value > 0] or [1.0]
    top = max(positive)
    low, high = _round(max(min(positive), top / 10**_DECADES), down=True), _round(top)
    if low == high:
        low, high = _round(low * 0.6, down=True), _round(high * 1.6)
    powers = range(math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9) + 1)
    ticks = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
    return Axis(low, high, start, stop, tuple(t for t in ticks if low * 0.999 <= t <= high * 1.001), log=True)


def zero_axis(values: Iterable[float], start: float = HEIGHT - BOTTOM, stop: float = TOP) -> Axis:
    """An axis, upright unless told, from 0 to a number whose quarters read well."""
    top = max([*values, 1e-9])
    power = 10.0 ** math.floor(math.log10(top))
    high = next(power * factor for factor in (1, 2, 4, 6, 8, 10, 20) if power * factor >= top * 0.999)
    return Axis(0, high, start, stop, tuple(high * step / 4 for step in range(5)))


def percent_axis(start: float = HEIGHT - BOTTOM, stop: float = TOP) -> Axis:
    """An axis, upright unless told, from 0 to 100 %."""
    return Axis(0, 100, start, stop, _QUARTERS)


def plain_axis(values: Sequence[float], ticks: tuple[float, ...] | None = None) -> Axis:
    """A level axis around the values, with some air at both ends and round ticks."""
    low, high = min(values), max(values)
    air = 0.04 * (high - low) or 0.5 * abs(low) or 0.5
    low, high = low - air, high + air
    step = next(n for n in _steps((high - low) / 7) if (high - low) / n <= 7)
    found = tuple(step * n for n in range(math.ceil(low / step), math.floor(high / step) + 1))
    return Axis(low, high, LEFT, WIDTH - RIGHT, ticks or found)


def _steps(near: float) -> list[float]:
    power = 10.0 ** math.floor(math.log10(near))
    return [power * factor for factor in (1, 2, 5, 10)]


def _round(value: float, *, down: bool = False) -> float:
    """The next of 1, 2, 5 times a power of ten, up or down."""
    power = math.floor(math.log10(value) + 1e-9)
    steps = [factor * 10.0**p for p in (power - 1, power, power + 1) for factor in (1, 2, 5)]
    if down:
        return max(step for step in steps if step <= value * 1.001)
    return min(step for step in steps if step >= value * 0.999)
