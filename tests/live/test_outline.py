"""The outline of pictures: another depth changes it, a probe that is lifted, noise and gain do not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from scopereg import Frame
from scopereg.live.outline import Outline

Pixels = np.ndarray
ROWS, COLUMNS = np.mgrid[:120, :160].astype(np.float32)


def fan(number: int, *, depth: float = 1.0, dark: Callable[[Pixels], Pixels] | None = None) -> Frame:
    """A convex probe's picture, of which deeper ones are narrower; tissue with dark vessels, and the noise of video."""
    draw = np.random.default_rng(number)
    x, y = (COLUMNS - 80) * depth, ROWS * depth + 25
    radius, angle = np.hypot(x, y), np.arctan2(x, y)
    field = (radius > 45) & (np.abs(angle) < 0.6) & (radius < 45 + 95 * depth)
    tissue = 0.3 + 0.5 * draw.random(field.shape, dtype=np.float32)
    tissue[40:60, 70:90] = 0
    pixels = np.where(field, tissue, 0.02 * draw.random(field.shape, dtype=np.float32))
    return Frame(pixels if dark is None else pixels * dark(pixels), 0.5)


def changes(frames: list[Frame]) -> list[int]:
    outline = Outline()
    return [number for number, frame in enumerate(frames) if outline.changed(frame)]


@pytest.mark.parametrize("depth", [0.7, 0.85, 1.3, 1.5])
def test_another_depth_is_seen_once_and_soon(depth: float) -> None:
    frames = [fan(number) for number in range(20)] + [fan(number, depth=depth) for number in range(20, 50)]
    (seen,) = changes(frames)
    assert 20 < seen < 32


def test_back_and_forth_is_seen_each_time() -> None:
    frames = [fan(number, depth=1.0 if number // 20 % 2 == 0 else 1.4) for number in range(80)]
    assert len(changes(frames)) == 3


@pytest.mark.parametrize(
    "dark",
    [
        lambda pixels: ROWS < 25,  # in air
        lambda pixels: COLUMNS > 70,  # no contact on the left
        lambda pixels: 0.4 + 0 * ROWS,  # gain
        lambda pixels: 0 * ROWS,  # black
        lambda pixels: 1 - np.exp(-((COLUMNS - 95) ** 2) / 60),  # a shadow
    ],
)
def test_what_is_no_change_of_depth_is_none(dark: Callable[[Pixels], Pixels]) -> None:
    frames = [fan(number, dark=dark if 20 <= number < 40 else None) for number in range(60)]
    assert changes(frames) == []


def test_a_frozen_screen_of_flashes_is_no_change() -> None:
    """One picture of another outline now and then."""
    assert changes([fan(number, depth=1.4 if number % 7 == 3 else 1.0) for number in range(60)]) == []


def test_odd_pictures_are_taken() -> None:
    for pixels in (np.zeros((1, 1)), np.ones((1, 300)), np.zeros((40, 2)), np.full((3, 3), -5.0), np.eye(200)):
        outline = Outline()
        assert not any(outline.changed(Frame(pixels, 0.5)) for _ in range(12))
