"""Text in grey pictures is found by its strokes and lines, on tissue too; speckle makes no letters."""

from __future__ import annotations

import numpy as np
import painting
import pytest
from PIL import Image, ImageDraw, ImageFont

from scopereg.data import phantom
from scopereg.io.letters import text
from scopereg.io.morphology import grown


@pytest.fixture(scope="module", params=["abdomen", "echo", "prostate"])
def picture(request: pytest.FixtureRequest) -> painting.Screen:
    volume = phantom.create(request.param, seed=92_000, shape=(2, 128, 128)).volume
    return painting.enlarged((volume.array[1].numpy() * 255).astype(np.uint8), 4)


def written(picture: painting.Screen, word: str, value: int, size: int, row: float) -> painting.Screen:
    """On the picture's own tissue, about its middle."""
    image = Image.fromarray(picture.copy())
    place = (picture.shape[1] * 0.36, picture.shape[0] * row)
    ImageDraw.Draw(image).text(place, word, value, ImageFont.load_default(size))
    return np.asarray(image)


@pytest.mark.parametrize(("value", "size"), [(255, 21), (255, 14), (225, 21), (215, 26)])
def test_words_on_tissue_are_found(picture: painting.Screen, value: int, size: int) -> None:
    screen = written(picture, "Dist 23.4 mm", value, size, 0.45)
    drawn = screen.astype(int) - picture > 60
    found = text(screen)
    assert drawn.sum() > 150
    assert found[drawn].mean() > 0.6
    assert found[~grown(drawn, 4)].mean() < 0.001


def test_pictures_without_text_have_none(picture: painting.Screen) -> None:
    for times in (0.5, 1.0, 1.6):
        assert not text(np.clip(picture * times, 0, 255).astype(np.uint8)).any()
    noise = np.random.default_rng(0).integers(0, 256, (300, 400)).astype(np.uint8)
    assert text(noise).mean() < 0.001
    assert not text(np.zeros((40, 40), np.uint8)).any()
    assert not text(np.full((40, 40), 255, np.uint8)).any()


def test_two_letters_are_no_line(picture: painting.Screen) -> None:
    """A mark is no text: at least three letters make it one."""
    assert not text(written(picture, "RK", 255, 24, 0.5)).any()
    assert text(written(picture, "RKS", 255, 24, 0.5)).any()
