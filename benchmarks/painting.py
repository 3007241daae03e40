"""What scanners draw over a picture, painted on frames whose pose is known: colour flow, strain, marks, text, screens.

Each painter takes a grey picture (H, W) of bytes and random numbers, and gives a screen (H, W) or (H, W, 3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

Screen = npt.NDArray[np.uint8]
Random = np.random.Generator
_WORDS = ("RK LONG", "LIVER", "TIS 0.7 MI 1.1", "4CH", "Dist 23.4 mm", "18.11.26")
_LIT = 8  # byte from which on a pixel belongs to the picture


def enlarged(picture: Screen, times: int) -> Screen:
    """As a screen shows it: interpolated."""
    size = (picture.shape[1] * times, picture.shape[0] * times)
    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.BICUBIC)) * (
        np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.BILINEAR)) > 0
    )


def colours_of(picture: Screen) -> Screen:
    return np.repeat(picture[..., None], 3, -1)


def box_mask(picture: Screen, share: float, random: Random) -> npt.NDArray[np.bool_]:
    """A steered box about some place of the picture that covers about `share` of what is lit."""
    lit = picture > _LIT
    rows, columns = np.nonzero(lit)
    height, width = picture.shape
    y, x = np.mgrid[:height, :width].astype(np.float32)
    low, high = np.quantile(rows, (0.3, 0.7)), np.quantile(columns, (0.35, 0.65))
    middle_y, middle_x = random.uniform(*low), random.uniform(*high)
    slant, aspect = random.uniform(-0.3, 0.3), random.uniform(0.7, 1.4)
    away = np.maximum(np.abs(y - middle_y) / aspect, np.abs(x - middle_x - slant * (y - middle_y)) * aspect)
    return away <= np.quantile(away[lit], share)


def smooth_noise(shape: tuple[int, int], grain: float, random: Random) -> npt.NDArray[np.float32]:
    """Of mean 0 and spread 1."""
    small = random.standard_normal((max(int(shape[0] / grain), 2) + 1, max(int(shape[1] / grain), 2) + 1))
    image = Image.fromarray(small.astype(np.float32)).resize((shape[1], shape[0]), Image.Resampling.BICUBIC)
    noise = np.asarray(image)
    return (noise - noise.mean()) / noise.std()


def doppler(picture: Screen, share: float, random: Random, flow: float | None = None) -> Screen:
    """Colour flow in a box of `share` of the picture: red one way, blue the other, and a thin line around it."""
    box = box_mask(picture, share, random)
    flow = random.uniform(0.25, 0.95) if flow is None else flow
    field = smooth_noise(picture.shape, picture.shape[0] / 8, random)
    speed = smooth_noise(picture.shape, picture.shape[0] / 12, random) + smooth_noise(picture.shape, 3, random) * 0.2
    coloured = box & (field > np.quantile(field[box], 1 - flow))
    level = np.clip(np.abs(speed), 0.15, 2) / 2
    to, away = (
        np.stack(part, -1)
        for part in ((level**0 * 0 + 0.4 + 0.6 * level, level, 0 * level), (0 * level, level, 0.4 + 0.6 * level))
    )
    screen = colours_of(picture).astype(np.float32)
    screen[coloured] = 255 * np.where((speed > 0)[..., None], to, away)[coloured]
    line = box & ~shifted_all(box)
    screen[line] = ((230, 230, 230), (70, 230, 90), (240, 200, 60))[random.integers(3)]
    return screen.astype(np.uint8)


def strain(picture: Screen, share: float, random: Random) -> Screen:
    """Elastography: a box of `share` of the picture with all colours over the grey, half transparent."""
    box = box_mask(picture, share, random)
    hue = np.clip(0.5 + 0.25 * smooth_noise(picture.shape, picture.shape[0] / 10, random), 0, 1)
    jet = np.stack([np.clip(1.5 - np.abs(4 * hue - peak), 0, 1) for peak in (3, 2, 1)], -1)
    screen = colours_of(picture).astype(np.float32)
    screen[box] = 0.55 * 255 * jet[box] + 0.45 * screen[box]
    return screen.astype(np.uint8)


def annotated(picture: Screen, random: Random) -> Screen:
    """Coloured text, a distance between two marks, and an ECG line."""
    image = Image.fromarray(colours_of(picture))
    draw = ImageDraw.Draw(image)
    height, width = picture.shape
    colour = ((255, 220, 40), (60, 230, 255), (255, 120, 40))[random.integers(3)]
    draw.text(_place(picture, random), _WORDS[random.integers(len(_WORDS))], colour, _font(height))
    ends = [_place(picture, random) for _ in range(2)]
    for x, y in ends:
        draw.line([(x - 5, y), (x + 5, y)], colour, 2)
        draw.line([(x, y - 5), (x, y + 5)], colour, 2)
    for step in np.linspace(0, 1, 25):
        x, y = ((1 - step) * a + step * b for a, b in zip(*ends, strict=True))
        draw.rectangle([x, y, x + 1, y + 1], colour)
    beats = np.arange(width)
    line = height * 0.93 - 0.05 * height * np.exp(-(((beats % (width / 3)) - width / 6) ** 2) / 20)
    draw.line(list(zip(beats.tolist(), line.tolist(), strict=True)), (60, 255, 80), 2)
    return np.asarray(image)


def screen_of(picture: Screen, random: Random) -> Screen:
    """The screen around a picture: name and settings in white, a grey bar, a depth scale; all grey."""
    height, width = picture.shape
    side = max(width // 4, 60)
    image = Image.fromarray(np.pad(picture, ((height // 10, height // 12), (side, side))))
    draw, font = ImageDraw.Draw(image), _font(height)
    for row, word in enumerate(_WORDS[:4]):
        draw.text((4, 4 + row * height // 18), word, 220, font)
    for row in range(64):
        draw.rectangle(
            [
                image.width - 26,
                height // 4 + row * height / 160,
                image.width - 12,
                height // 4 + (row + 1) * height / 160,
            ],
            255 - 4 * row,
        )
    for depth in range(8):
        y = height // 10 + depth * height // 8
        draw.line([(image.width - 40, y), (image.width - 34, y)], 200, 1)
    draw.text((width // 2 + side // 2, image.height - height // 14), "B 68%  DR 60", 180, font)
    return np.asarray(image)


def lettered(picture: Screen, random: Random) -> Screen:
    """White text within a grey picture."""
    image = Image.fromarray(picture.copy())
    for _ in range(2):
        word = _WORDS[random.integers(len(_WORDS))]
        ImageDraw.Draw(image).text(_place(picture, random), word, 255, _font(picture.shape[0]))
    return np.asarray(image)


def needle(picture: Screen, random: Random) -> Screen:
    """A needle in the plane: a thin bright line from one side above to a tip, its echoes below it, and a shadow."""
    height = picture.shape[0]
    y, x = np.mgrid[: picture.shape[0], : picture.shape[1]].astype(np.float32)
    lit = picture > _LIT
    rows, columns = np.nonzero(lit)
    tip_y, tip_x = random.uniform(*np.quantile(rows, (0.4, 0.75))), random.uniform(*np.quantile(columns, (0.3, 0.7)))
    slant, side = np.radians(random.uniform(15, 60)), random.choice((-1, 1))
    up, out = -np.sin(slant), side * np.cos(slant)  # from the tip
    length, thick, apart = random.uniform(0.35, 0.8) * height, max(height / 240, 1.0), height / random.uniform(25, 45)

    def line(drop: float, wide: float) -> npt.NDArray[np.float32]:
        reach = (y - drop - tip_y) * up + (x - tip_x) * out
        across = (y - drop - tip_y) * out - (x - tip_x) * up
        on = np.clip(reach / 4, 0, 1) * np.clip((length - reach) / 4, 0, 1)
        return on * np.exp(-((across / wide) ** 2) / 2)

    light = line(0, thick)
    for echo in range(1, random.integers(2, 6)):
        light = np.maximum(light, random.uniform(0.5, 0.8) ** echo * line(echo * apart, 1.3 * thick))
    under = y - tip_y - (x - tip_x) * up / out  # pixels below the line
    beneath = (under > 0) & ((x - tip_x) * side > 0) & ((x - tip_x) * side < length * np.cos(slant))
    tail = 0.2 * np.exp(-under.clip(0) / (3 * apart)) * beneath
    shadow = 1 - random.uniform(0, 0.6) * beneath
    flicker = 0.8 + 0.2 * np.clip(smooth_noise(picture.shape, height / 40, random), -1, 1)
    drawn = picture * shadow + 255 * random.uniform(0.75, 1.0) * flicker * np.maximum(light, tail)
    return (np.clip(drawn, 0, 255) * lit).astype(np.uint8)


def sepia(picture: Screen, random: Random) -> Screen:
    """A tinted grey scale: one colour for each brightness."""
    grey = picture.astype(np.float32) / 255
    gammas = ((0.75, 1.0, 1.5), (1.4, 1.0, 0.7), (1.2, 0.8, 1.1))[random.integers(3)]
    return (255 * np.stack([grey**gamma for gamma in gammas], -1)).astype(np.uint8)


def dual(picture: Screen, random: Random) -> Screen:
    """Two pictures side by side, of nearly the same place."""
    gap = np.zeros((picture.shape[0], max(picture.shape[1] // 30, 4)), np.uint8)
    other = np.clip(picture * random.uniform(0.7, 1.2) + random.normal(0, 4, picture.shape), 0, 255) * (picture > 0)
    return np.concatenate([picture, gap, other.astype(np.uint8)], 1)


def shifted_all(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Pixels all of whose four neighbours are in the mask, two steps deep."""
    for _ in range(2):
        mask = mask & np.roll(mask, 1, 0) & np.roll(mask, -1, 0) & np.roll(mask, 1, 1) & np.roll(mask, -1, 1)
    return mask


def _place(picture: Screen, random: Random) -> tuple[float, float]:
    """Somewhere in the picture, not too far to the right for a word."""
    rows, columns = np.nonzero(picture > _LIT)
    inner = (columns < 0.7 * picture.shape[1]) & (rows < 0.85 * picture.shape[0])
    row = random.choice(np.nonzero(inner)[0])
    return float(columns[row]), float(rows[row])


def _font(height: int) -> Any:
    return ImageFont.load_default(max(height / 24, 11))


PAINTERS: dict[str, Callable[[Screen, Random], Screen]] = {
    **{
        f"doppler {share:.0%}": lambda picture, random, share=share: doppler(picture, share, random)  # type: ignore[misc]
        for share in (0.05, 0.15, 0.3, 0.45, 0.6)
    },
    "elastography 30%": lambda picture, random: strain(picture, 0.3, random),
    "colour marks": annotated,
    "text in the picture": lettered,
    "needle": needle,
    "screen around it": screen_of,
}
