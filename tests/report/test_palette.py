"""Colours of pages differ for everyone, or signs, dashes and markers do; words stand out from what is behind them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest

from scopereg.report.palette import COLOURS, DARK, LIGHT, LIGHTS, SIGNS, look

Array = npt.NDArray[np.float64]

# Machado, Oliveira and Fernandes 2009, severity 1: what people see who lack one kind of cones, in linear RGB.
CONES = {
    "all": np.eye(3),
    "no long": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no middle": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no short": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
GREY = np.array([0.2126, 0.7152, 0.0722])
TO_CONES = [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566]]
TO_CONES += [[0.0883024619, 0.2817188376, 0.6299787005]]
TO_LAB = [[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099]]
TO_LAB += [[0.0259040371, 0.7827717662, -0.8086757660]]


def linear(colour: str) -> Array:
    digits = colour.lstrip("#")
    digits = digits if len(digits) == 6 else "".join(2 * digit for digit in digits)
    values = np.array([int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def oklab(light: Array) -> Array:
    return np.cbrt(np.clip(light, 0, 1) @ np.transpose(TO_CONES)) @ np.transpose(TO_LAB)


def apart(one: str, other: str, view: object) -> float:
    return float(np.linalg.norm(np.subtract(*(oklab(np.array(view) @ linear(colour)) for colour in (one, other)))))


def contrast(one: str, other: str) -> float:
    low, high = sorted(float(linear(colour) @ GREY) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colours", [DARK, LIGHT], ids=["dark", "light"])
@pytest.mark.parametrize("view", CONES.values(), ids=CONES)
def test_lines_differ_in_colour_whatever_cones_there_are(colours: dict[str, str], view: object) -> None:
    lines = [colours[f"c{number}"] for number in range(COLOURS)]
    assert min(apart(one, other, view) for one, other in combinations(lines, 2)) > 0.11
    lights = [colours[name] for name in ("good", "warn", "bad")]
    assert min(apart(one, other, view) for one, other in combinations(lights, 2)) > 0.05


@pytest.mark.parametrize("colours", [DARK, LIGHT], ids=["dark", "light"])
def test_the_first_lines_differ_in_grey_and_all_stand_out(colours: dict[str, str]) -> None:
    greys = np.tile(GREY, (3, 1))
    assert min(apart(colours["c0"], colours[f"c{number}"], greys) for number in (1, 2, 3)) > 0.07
    for name, colour in colours.items():
        for back in ("back", "panel"):
            least = {"back": 0, "panel": 0, "line": 0, "ink": 12, "dim": 6, "good": 4.5, "warn": 4.5, "bad": 4.5}
            assert contrast(colour, colours[back]) >= least.get(name, 2.9), (name, back)


def test_lines_of_one_colour_have_another_dash_or_marker() -> None:
    looks = [look(number) for number in range(120)]
    assert len(set(looks)) == 120
    for number in range(100):  # neighbours differ in all three
        assert all(a != b for a, b in zip(looks[number], looks[number + 1], strict=True))


def test_lights_have_signs() -> None:
    assert SIGNS.keys() == LIGHTS.keys()
    assert len(set(SIGNS.values())) == 3
