"""Overlays: colours, text and marks on phantoms and worlds are found; clean and tinted frames lose nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import painting
import pytest
from PIL import Image

from scopereg.data import phantom
from scopereg.data.phantom.sets import make_phantoms
from scopereg.data.worlds.sets import make_worlds
from scopereg.errors import ScopeRegError
from scopereg.io import read_cine, read_frame
from scopereg.io.overlays import coloured, picture_of, standing_still

SCREENS = 4  # pixels of a screen for each of a phantom
KINDS = ("abdomen", "echo", "world")


@cache
def screen(kind: str) -> painting.Screen:
    """A frame as a screen shows it."""
    sets = make_worlds(1, seed=91_000, frames=1) if kind == "world" else make_phantoms(kind, 1, seed=91_000, frames=1)
    assert sets.frames is not None
    return painting.enlarged(sets.frames.images[0, 0].numpy(), SCREENS)


def found(pixels: painting.Screen) -> np.ndarray:
    """True where a picture counts."""
    picture = picture_of(pixels, "test", colours=pixels.ndim == 3)
    return np.ones(pixels.shape[:2], bool) if picture.mask is None else picture.mask


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.05, 0.3, 0.6])
def test_colour_flow_is_found_and_the_tissue_around_it_stays(kind: str, share: float) -> None:
    pixels = painting.doppler(screen(kind), share, np.random.default_rng(0))
    painted = np.ptp(pixels.astype(int), axis=-1) > 60
    counts = found(pixels)
    assert painted.sum() > 500
    assert counts[painted].mean() < 0.001
    kept = counts[~painting.shifted_all(~painted) & ~painted]  # beside colours their borders may go too
    assert counts[(screen(kind) > 8) & ~painted].mean() > 0.8
    assert kept.mean() < 0.9


@pytest.mark.parametrize("kind", KINDS)
def test_clean_frames_lose_nothing(kind: str) -> None:
    lit = screen(kind) > 8
    for pixels in (screen(kind), painting.colours_of(screen(kind))):
        assert (~found(pixels) & lit).sum() < 0.001 * lit.sum()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_a_tinted_grey_scale_is_no_overlay_and_colours_on_it_are(kind: str, seed: int, tmp_path: Path) -> None:
    tinted = painting.sepia(screen(kind), np.random.default_rng(seed))
    assert found(tinted).all()
    Image.fromarray(tinted).save(tmp_path / "tinted.jpg", quality=80)  # colours at half of the resolution
    assert read_frame(tmp_path / "tinted.jpg", spacing_mm=0.2).mask is None
    box = painting.box_mask(screen(kind), 0.2, np.random.default_rng(seed))
    tinted[box] = (255, 30, 10)
    assert found(tinted)[box].mean() < 0.01


def test_a_picture_that_is_coloured_all_over_is_told(tmp_path: Path) -> None:
    own = screen("abdomen")
    false_colours = np.stack([own, own // 3, 255 - own], -1)
    painted = painting.doppler(own, 0.3, np.random.default_rng(0), flow=0.9)
    told = "the picture is coloured all over: only how bright it is counts"
    for pixels, expected in ((false_colours, True), (painting.colours_of(own), False), (painted, False)):
        Image.fromarray(pixels).save(tmp_path / "a.png")
        assert (told in read_frame(tmp_path / "a.png", spacing_mm=0.2).facts.get("notes", [])) is expected


def test_noise_of_analogue_video_is_no_overlay() -> None:
    noise = np.random.default_rng(0).normal(0, 4, (*screen("abdomen").shape, 3))
    noisy = np.clip(painting.colours_of(screen("abdomen")) + noise, 0, 255).astype(np.uint8)
    assert found(noisy)[screen("abdomen") > 8].mean() > 0.995
    assert found(noisy).mean() > 0.99


@pytest.mark.parametrize("kind", KINDS)
def test_coloured_marks_text_and_ecg_are_found(kind: str) -> None:
    pixels = painting.annotated(screen(kind), np.random.default_rng(1))
    painted = np.ptp(pixels.astype(int), axis=-1) > 60
    assert found(pixels)[painted].mean() < 0.01
    assert found(pixels).mean() > 0.9


@pytest.mark.parametrize("kind", KINDS)
def test_what_stands_beside_the_picture_is_found(kind: str) -> None:
    """Names, settings, a grey bar, a depth scale; of the picture itself nothing goes."""
    own = screen(kind)
    pixels = painting.screen_of(own, np.random.default_rng(2))
    height, side = own.shape[0], max(own.shape[1] // 4, 60)
    inside = np.zeros(pixels.shape, bool)
    inside[height // 10 : height // 10 + height, side:-side] = own > 8
    drawn = (pixels > 60) & ~inside
    drawn[height // 10 - 2 : height // 10 + height + 2, side - 2 : 2 - side] = False
    counts = found(pixels)
    assert drawn.sum() > 500
    assert counts[drawn].mean() < 0.05
    assert counts[inside].mean() > 0.995


def test_white_text_in_a_picture_is_found_on_dark_ground() -> None:
    own = (screen("abdomen") * 0.6).astype(np.uint8)
    pixels = painting.lettered(own, np.random.default_rng(3))
    letters = (pixels == 255) & (own < 250)
    assert letters.sum() > 100
    assert found(pixels)[letters].mean() < 0.35
    assert found(pixels).mean() > 0.98


def cine(draw: Callable[[np.ndarray], None]) -> list[np.ndarray]:
    """Frames of a probe that moves, with something drawn on each."""
    patient = phantom.create("abdomen", seed=5, shape=(32, 128, 128))
    frames = []
    for row in range(10):
        frame = painting.enlarged((patient.volume.array[8 + 2 * row // 1].numpy() * 255).astype(np.uint8), 2).copy()
        draw(frame)
        frames.append(frame)
    return frames


def test_what_stands_still_over_a_cine_is_found(tmp_path: Path) -> None:
    def mark(frame: np.ndarray) -> None:
        frame[100:120, 118:121] = 160  # as bright as tissue
        frame[108:111, 110:130] = 160

    frames = cine(mark)
    Image.fromarray(frames[0]).save(
        tmp_path / "a.tif", save_all=True, append_images=[Image.fromarray(frame) for frame in frames[1:]]
    )
    read = read_cine(tmp_path / "a.tif", spacing_mm=0.3)[3]
    assert read.mask is not None
    assert not read.mask[100:120, 118:121].any()
    assert float(read.mask.float().mean()) > 0.98
    assert any("stand still" in note for note in read.facts["notes"])
    plain = [frame.astype(np.float32) / 255 for frame in cine(lambda frame: None)]
    still = standing_still(plain)
    assert still is None or still.mean() < 0.01
    assert standing_still([plain[0]] * 10) is None  # where nothing moves nothing can be told


def test_frames_of_files_carry_mask_and_words(tmp_path: Path) -> None:
    pixels = painting.doppler(screen("abdomen"), 0.3, np.random.default_rng(0), flow=0.9)
    for name in ("a.png", "a.bmp", "a.tif"):
        Image.fromarray(pixels).save(tmp_path / name)
        frame = read_frame(tmp_path / name, spacing_mm=0.2)
        assert frame.mask is not None
        assert np.array_equal(frame.mask.numpy(), found(pixels))
        assert frame.facts["notes"] == [f"colour overlay covers {frame.masked_share:.0%}, left out"]
        assert 0.2 < frame.masked_share < 0.4


@pytest.mark.parametrize("kind", KINDS)
def test_two_pictures_side_by_side_are_refused_with_their_columns(kind: str, tmp_path: Path) -> None:
    own = screen(kind)
    Image.fromarray(painting.dual(own, np.random.default_rng(4))).save(tmp_path / "a.png")
    with pytest.raises(ScopeRegError, match="two pictures side by side: columns 0 to") as caught:
        read_frame(tmp_path / "a.png", spacing_mm=0.2)
    assert "crop" in caught.value.fix
    Image.fromarray(own).resize((2 * own.shape[1], own.shape[0])).save(tmp_path / "b.png")  # one wide picture
    read_frame(tmp_path / "b.png", spacing_mm=0.2)


def test_pixels_that_are_no_screen_are_left_alone() -> None:
    deep = (screen("abdomen").astype(np.uint16)) * 200
    assert picture_of(deep, "test").mask is None
    assert picture_of(screen("abdomen").astype(np.float32), "test").mask is None
    assert picture_of(np.zeros((4, 4), np.uint8), "test").mask is None
    assert not coloured(np.zeros((20, 20, 3), np.float32)).any()
