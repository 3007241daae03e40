"""Needles are found by their lines and echoes; borders, layers and marks of tissue are none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import painting
import pytest
from PIL import Image

from scopereg.data import phantom
from scopereg.io import read_frame
from scopereg.io.morphology import grown
from scopereg.io.needles import needles


@pytest.fixture(scope="module", params=["abdomen", "echo", "prostate"])
def picture(request: pytest.FixtureRequest) -> painting.Screen:
    volume = phantom.create(request.param, seed=92_001, shape=(2, 128, 128)).volume
    return painting.enlarged((volume.array[1].numpy() * 255).astype(np.uint8), 4)


def test_needles_and_their_echoes_are_found(picture: painting.Screen) -> None:
    shares, lost = [], []
    for seed in range(8):
        screen = painting.needle(picture, np.random.default_rng(seed))
        bright = screen.astype(int) - picture > 80
        found = needles(screen)
        shares.append(found[bright].mean())
        lost.append(found[~grown(bright, 12)].mean())
    assert np.mean(shares) > 0.45
    assert np.mean([share > 0.3 for share in shares]) > 0.5
    assert np.mean(lost) < 0.01


def test_pictures_without_needles_have_none(picture: painting.Screen) -> None:
    for screen in (picture, picture[:, ::-1], np.clip(1.6 * picture, 0, 255).astype(np.uint8)):
        assert not needles(np.ascontiguousarray(screen)).any()
    assert not needles(np.zeros((50, 60), np.uint8)).any()
    noise = np.random.default_rng(0).integers(0, 256, (300, 400)).astype(np.uint8)
    assert not needles(noise).any()


def line(slope: float, *, drops: tuple[int, ...] = (0,), curve: float = 0.0, value: int = 200) -> painting.Screen:
    """Lines from left to right on dim noise, each so many pixels beneath the first."""
    picture = np.random.default_rng(1).integers(20, 60, (300, 360)).astype(np.uint8)
    picture[250:280, 40:80] = 255  # something else is brighter
    x = np.arange(90, 270)
    for drop in drops:
        y = 120 + drop + slope * (x - 180) + curve * ((x - 180) / 90) ** 2
        for thick in (0, 1):
            picture[np.rint(y).astype(int) + thick, x] = value
    return picture


def test_what_makes_a_line_a_needle() -> None:
    """An echo beneath it, or that it is stark and straight; inclined; not bent."""
    assert needles(line(0.4, drops=(0, 12))).any()
    assert needles(line(0.4, value=255)).any()
    assert not needles(line(0.4, value=130)).any()  # alone and not stark
    assert needles(line(0.4, drops=(0, 12), value=130)).any()
    assert not needles(line(0.0, drops=(0, 12))).any()  # along the face of the probe
    assert not needles(line(0.4, drops=(0, 12), curve=9)).any()
    assert not needles(line(0.4, drops=(0, 80), value=130)).any()  # too deep for an echo


def test_readers_leave_a_needle_out_and_tell(tmp_path: Path, picture: painting.Screen) -> None:
    screen = painting.needle(picture, np.random.default_rng(0))
    Image.fromarray(screen).save(tmp_path / "a.png")
    frame = read_frame(tmp_path / "a.png", spacing_mm=0.2)
    assert frame.mask is not None
    assert not frame.mask.numpy()[needles(screen)].any()
    assert any(note.startswith("what looks like a needle covers ") for note in frame.facts["notes"])
