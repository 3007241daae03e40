"""What is wrong with a frame is named where it is clear, on a world of its own; right frames get no false hint."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from scopereg import io
from scopereg.cli import main
from scopereg.data.worlds.sets import make_worlds
from scopereg.images import Frame, Volume
from scopereg.io.files import write_bytes
from scopereg.io.pictures import png_bytes
from scopereg.registration import batch
from scopereg.registration.diagnosis import (
    Alternative,
    Tried,
    clearest,
    diagnose,
    fitting_pixels,
    share_outside,
    with_hints,
    without_structure,
)
from scopereg.registration.locator import Locator
from scopereg.registration.model import load

SEED = 70_201


class World:
    """A volume prepared for the network, with two frames of it and one of another."""

    def __init__(self) -> None:
        worlds, others = (make_worlds(1, seed=seed, frames=2) for seed in (SEED, SEED + 1))
        assert worlds.frames is not None
        assert others.frames is not None
        self.locator = Locator(Volume(worlds.images[0].float() / 255, worlds.spacing_mm), "universal", device="cpu")
        self.frames = [Frame(image.float() / 255, worlds.spacing_mm) for image in worlds.frames.images[0]]
        self.other = Frame(others.frames.images[0, 0].float() / 255, others.spacing_mm)

    def hints(self, frame: Frame) -> tuple[str, ...]:
        """Whatever a calibration says: as for a frame that is refused."""
        return diagnose(self.locator, frame, replace(self.locator.locate(frame), ok=False))


@pytest.fixture(scope="module")
def world() -> World:
    return World()


def turned(frame: Frame, quarters: int) -> Frame:
    return Frame(torch.rot90(frame.array, quarters), frame.spacing_mm[::-1])


def stretched(frame: Frame) -> Frame:
    """Pixels 1.25 times as wide as usual and 0.8 times as high, told the wrong way round."""
    height, width = frame.shape
    array = F.interpolate(frame.array[None, None], (round(height / 0.8), round(width / 1.25)), mode="bilinear")[0, 0]
    return Frame(array, (frame.spacing_mm[0] * 0.8, frame.spacing_mm[1] * 1.25))


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (lambda frame: frame.flipped(0), "fits better mirrored left to right"),
        (lambda frame: frame.flipped(1), "fits better mirrored top to bottom"),
        (lambda frame: frame.flipped(0).flipped(1), "fits better turned by 180 degrees"),
        (lambda frame: turned(frame, 1), "fits better turned by 90 degrees to the right"),
        (lambda frame: turned(frame, -1), "fits better turned by 90 degrees to the left"),
        (lambda frame: replace(frame, array=(1 - frame.array) * (frame.array > 0)), "with black and white swapped"),
        (stretched, "with the width and height of pixels swapped"),
    ],
)
def test_what_is_wrong_is_named(world: World, mistake: Callable[[Frame], Frame], words: str) -> None:
    (hint,) = world.hints(mistake(world.frames[0]))
    assert words in hint


@pytest.mark.parametrize("factor", [0.8, 0.95, 1.05, 1.25])
def test_a_wrong_pixel_size_is_named_with_the_right_one(world: World, factor: float) -> None:
    own = world.frames[0]
    (hint,) = world.hints(Frame(own.array, own.spacing_mm[0] * factor))
    assert "times as large" in hint
    assert size_in(hint) * factor == pytest.approx(1, abs=0.03)


def test_one_wrong_side_of_pixels_is_named(world: World) -> None:
    own = world.frames[0]
    (hint,) = world.hints(Frame(own.array, (own.spacing_mm[0] * 1.1, own.spacing_mm[1])))
    assert "times as wide" in hint
    assert "high" not in hint
    assert size_in(hint) * 1.1 == pytest.approx(1, abs=0.03)


def test_pixels_that_fit_are_measured_whatever_the_verdict(world: World) -> None:
    own = world.frames[0]
    wrong = Frame(own.array, (own.spacing_mm[0] * 1.1, own.spacing_mm[1]))
    found = fitting_pixels(world.locator, wrong, world.locator.locate(wrong))
    assert found == pytest.approx(own.spacing_mm, rel=0.03)
    assert fitting_pixels(world.locator, own, world.locator.locate(own)) is None
    black = Frame(torch.zeros(own.shape), own.spacing_mm)
    assert fitting_pixels(world.locator, black, world.locator.locate(own)) is None


def test_a_network_without_a_fine_stage_borrows_it(world: World) -> None:
    own = world.frames[0]
    wrong = Frame(own.array, own.spacing_mm[0] * 0.95)
    found = replace(world.locator.locate(wrong), ok=False)
    (hint,) = diagnose(Locator(world.locator.volume, load("universal", "cpu", fine=False)), wrong, found)
    assert size_in(hint) * 0.95 == pytest.approx(1, abs=0.03)


def size_in(hint: str) -> float:
    return float(hint.split("pixels ")[1].split(" times")[0])


def test_right_frames_and_those_of_another_volume_get_no_false_hint(world: World) -> None:
    for frame in world.frames:
        assert not [hint for hint in world.hints(frame) if "fits better" in hint]
    (hint,) = world.hints(world.other)
    assert "fits better" not in hint


def test_a_frame_that_is_ok_is_left_alone(world: World) -> None:
    fine = replace(world.locator.locate(world.frames[0]), ok=True)
    assert diagnose(world.locator, world.frames[0].flipped(0), fine) == ()
    assert with_hints(world.locator, world.frames[0], fine) is fine


def test_frames_without_structure_are_told_apart(world: World) -> None:
    random = torch.Generator().manual_seed(0)
    noise = Frame(torch.rand(128, 128, generator=random), 1.0)
    assert "no structure" in without_structure(noise)
    (hint,) = world.hints(noise)
    assert "no structure" in hint
    assert "nearly black" in without_structure(Frame(0.03 * torch.rand(128, 128, generator=random), 1.0))
    assert all(without_structure(frame) == "" for frame in (*world.frames, world.other))


def test_a_frame_beyond_the_volume_is_measured(world: World) -> None:
    volume, frame = world.locator.volume, world.frames[0]
    result = world.locator.locate(frame)
    width_mm = volume.extent_mm[0]
    away = replace(result.pose, translation_mm=result.pose.translation_mm + np.array([width_mm / 2, 0, 0]))
    assert share_outside(frame, volume, result.pose) < 0.25
    assert 0.3 < share_outside(frame, volume, away) < 0.8
    assert share_outside(frame, volume, replace(away, translation_mm=away.translation_mm + 3 * width_mm)) == 1


def test_a_batch_diagnoses_the_first_few(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hints are in the table and in what is written, whichever process located the frames."""
    volume, mirrored = world.locator.volume, world.frames[0].flipped(0)
    io.write_volume(volume, tmp_path / "volume.nii.gz")
    (tmp_path / "frames").mkdir()
    for name, frame in (("a", mirrored), ("b", mirrored)):
        pixels = (frame.numpy() * 255).round().astype(np.uint8)
        write_bytes(tmp_path / "frames" / f"{name}.png", png_bytes(pixels))
    monkeypatch.setattr(batch, "MOST_FRAMES", 1)
    words = [tmp_path / "frames", tmp_path / "volume.nii.gz", "-o", tmp_path / "out", "--format", "json"]
    options = ["--method", "universal", "--spacing", frame.spacing_mm[0], "--device", "cpu", "--workers", "1"]
    assert main(["register", *map(str, (*words, *options))]) == 0
    with (tmp_path / "out" / "poses.csv").open() as file:
        first, second = csv.DictReader(file)
    assert first["hints"] == "fits better mirrored left to right"
    assert second["hints"] == ""
    told = json.loads((tmp_path / "out" / "a.json").read_text())
    assert "fits better mirrored left to right" in json.dumps(told)
    assert "in the first 1 of 2 frames that are not ok" in capsys.readouterr().err


def test_only_what_stands_out_is_named() -> None:
    own = Tried(Alternative("as it is"), 0.71)
    near, clear, weak = (Tried(Alternative("mirrored"), likeness) for likeness in (0.78, 0.85, 0.7))
    rival = Tried(Alternative("upset"), 0.82)
    assert clearest(own, [near]) is None
    assert clearest(own, [clear]) is clear.alternative
    assert clearest(own, [clear, rival]) is None
    assert clearest(Tried(Alternative("as it is"), 0.0), [weak]) is None
    assert clearest(own, []) is None


def test_a_size_needs_a_smaller_margin() -> None:
    own, some, more = (
        Tried(Alternative("as it is"), 0.9),
        *(Tried(Alternative.sized(1.05, 1.05), n) for n in (0.91, 0.93)),
    )
    assert clearest(own, [some]) is None
    assert clearest(own, [some, more]) is more.alternative


def test_sizes_in_words() -> None:
    frame = Frame(torch.zeros(8, 8), (0.5, 0.4))
    told = {
        (1.05, 1.06): "1.05 times as large: 0.527 mm instead of 0.5 mm",
        (1.1, 1.01): "1.10 times as wide: 0.55 mm instead of 0.5 mm",
        (0.99, 0.9): "0.90 times as high: 0.36 mm instead of 0.4 mm",
        (0.8, 1.25): "the width and height of pixels swapped: 0.4 x 0.5 mm",
        (1.1, 0.9): "1.10 times as wide and 0.90 times as high: 0.55 x 0.36 mm instead of 0.5 x 0.4 mm",
    }
    for sizes, words in told.items():
        assert Alternative.sized(*sizes).words(frame).endswith(words)


def test_what_an_overlay_covers_is_told(world: World) -> None:
    frame, locator = world.frames[0], Locator(world.locator.volume, "start")
    rows = torch.arange(frame.shape[0])[:, None].expand(frame.shape)
    for rows_left_out, told in ((0.4, True), (0.02, False)):
        masked = replace(frame, mask=rows > rows_left_out * frame.shape[0])
        words = (f"an overlay covers {masked.masked_share:.0%} of the picture, left out",) if told else ()
        assert diagnose(locator, masked, locator.locate(masked)) == words
        assert (masked.masked_share > 0.15) == told


def test_methods_without_a_network_tell_what_an_image_tells(world: World) -> None:
    locator = Locator(world.locator.volume, "start")
    noise = Frame(torch.rand(128, 128, generator=torch.Generator().manual_seed(0)), 1.0)
    assert "no structure" in diagnose(locator, noise, locator.locate(noise))[0]
    assert diagnose(locator, world.frames[0], locator.locate(world.frames[0])) == ()
