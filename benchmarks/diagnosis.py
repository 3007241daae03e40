"""Whether what is wrong with a frame is named: mistakes of all kinds on frames of phantoms, worlds and real sets.

    python benchmarks/diagnosis.py --sets liver uterus resect camus-m trus-b --out benchmarks/diagnosis.csv

A row for every mistake and set: for how many frames the right thing was named, a wrong one, or none, whatever their
verdict (a frame that is ok is not diagnosed in use). Of strangers it is right that nothing fits. What users get wrong
most often is tried on all frames, the rest on the first few. The margins of the diagnosis were chosen on phantoms and
worlds of other seeds, never on real sets.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import painting
import torch
import torch.nn.functional as F
from development_sets import DATA, OUT, QUICK_MAGNITUDE, development_set

from scopereg.data.phantom.anatomy import ANATOMIES
from scopereg.data.phantom.sets import make_phantoms
from scopereg.data.worlds.sets import make_worlds
from scopereg.errors import ScopeRegError
from scopereg.images import Frame, Volume
from scopereg.io.files import write_sheet
from scopereg.io.grey import brightness
from scopereg.progress import say
from scopereg.registration.diagnosis import diagnose
from scopereg.registration.locator import Locator
from scopereg.registration.strangers import empty_gel, inverted, sized

FIRST_SEED = 85_000
RIGHT, OTHER, ORGAN, NOISE, GEL = "nothing", "another patient", "another organ", "noise", "empty gel"
HALF, STRANGE, OUTSIDE = "half of it outside of the volume", "nothing fits", "lies outside"


class Case(NamedTuple):
    """A volume with a frame of it."""

    set: str
    number: int
    volume: Volume
    frame: Frame


def turned(frame: Frame, quarters: int) -> Frame:
    return Frame(torch.rot90(frame.array, quarters), frame.spacing_mm[::-1])


def told(across: float, down: float) -> Callable[[Frame], Frame]:
    """Pixels that are said to be so many times as large as they are."""
    return lambda frame: sized(frame, across, down)


def swapped(frame: Frame) -> Frame:
    """Pixels 0.8 times as wide as usual and 1.25 times as high, told the wrong way round."""
    height, width = frame.shape
    array = F.interpolate(frame.array[None, None], (round(height / 1.25), round(width / 0.8)), mode="bilinear")[0, 0]
    return Frame(array, (frame.spacing_mm[0] * 1.25, frame.spacing_mm[1] * 0.8))


def doppler_in_grey(frame: Frame, share: float) -> Frame:
    """Colour flow that somebody saved in grey."""
    picture = (frame.numpy() * 255).round().astype(np.uint8)
    drawn = painting.doppler(picture, share, np.random.default_rng(0)).astype(np.float32) / 255
    return replace(frame, array=torch.from_numpy(brightness(drawn, "grey")))


def lettered(frame: Frame) -> Frame:
    """White text in the picture, of which nobody knows."""
    picture = (frame.numpy() * 255).round().astype(np.uint8)
    return replace(
        frame, array=torch.from_numpy(painting.lettered(picture, np.random.default_rng(0)) / np.float32(255))
    )


SIZES = (0.8, 0.9, 0.95, 1.05, 1.1, 1.25)
MISTAKES: dict[str, tuple[Callable[[Frame], Frame], str]] = {
    RIGHT: (lambda frame: frame, "-"),
    "mirrored left to right": (lambda frame: frame.flipped(0), "mirrored left to right"),
    **{f"pixels said to be {size} times as large": (told(size, size), f"size {1 / size} {1 / size}") for size in SIZES},
    "pixels said to be 1.1 times as wide": (told(1.1, 1.0), f"size {1 / 1.1} 1"),
    "pixels said to be 0.8 times as high": (told(1.0, 0.8), "size 1 1.25"),
    "width and height of pixels swapped": (swapped, "swapped"),
    "mirrored top to bottom": (lambda frame: frame.flipped(1), "mirrored top to bottom"),
    "turned by 90 degrees": (lambda frame: turned(frame, 1), "turned by 90 degrees to the right"),
    "black and white swapped": (inverted, "black and white swapped"),
    "Doppler of 5% saved in grey": (lambda frame: doppler_in_grey(frame, 0.05), "-"),
    "Doppler of 30% saved in grey": (lambda frame: doppler_in_grey(frame, 0.3), "-"),
    "white text in it": (lettered, "-"),
}

FREQUENT = {
    RIGHT,
    OTHER,
    ORGAN,
    HALF,
    "mirrored left to right",
    "pixels said to be 0.95 times as large",
    "pixels said to be 1.1 times as large",
    "Doppler of 30% saved in grey",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="universal")
    parser.add_argument("--cases", type=int, default=16, help="of each set, each a frame of a volume of its own")
    parser.add_argument("--few", type=int, default=4, help="of these that all mistakes are tried on")
    parser.add_argument("--phantoms", action=argparse.BooleanOptionalAction, default=True, help="and worlds")
    parser.add_argument("--sets", nargs="*", default=[], help="development sets, such as liver and uterus")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data")
    parser.add_argument("--folder", type=Path, default=OUT / "sets", help="where these are kept")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[tuple[str, str], Counter[str]] = {}
    before: dict[str, Frame] = {}
    for case in cases(options):
        locator = Locator(case.volume, options.method, device="cpu")
        for mistake, frame, wanted in spoiled(case, before):
            if case.number >= options.few and mistake not in FREQUENT:
                continue
            looked_in = Locator(halved(case.volume), options.method, device="cpu") if mistake == HALF else locator
            outcome = outcome_of(looked_in, frame, wanted)
            found.setdefault((case.set, mistake), Counter()).update(outcome)
            say(f"{case.set} {case.number}, {mistake}: {', '.join(outcome)}")
        before[case.set] = case.frame
        write_sheet(options.out, [row_of(key, found[key]) for key in sorted(found, key=lambda key: key[0])])


def cases(options: argparse.Namespace) -> Iterator[Case]:
    """Phantoms, worlds and the development sets in turn, so that any number of cases is of all of them."""
    sets = [development_set(name, QUICK_MAGNITUDE, options.data, options.folder) for name in options.sets]
    for number in range(options.cases):
        if options.phantoms:
            made = [
                (f"phantoms: {name}", make_phantoms(name, 1, seed=FIRST_SEED + number, frames=1)) for name in ANATOMIES
            ]
            made.append(("worlds", make_worlds(1, seed=FIRST_SEED + number, frames=1)))
            for name, volumes in made:
                assert volumes.frames is not None
                volume = Volume(volumes.images[0].float() / 255, volumes.spacing_mm)
                yield Case(name, number, volume, Frame(volumes.frames.images[0, 0].float() / 255, volumes.spacing_mm))
        for chosen in sets:
            if number < len(chosen.cases):
                case, spacing_mm = chosen.cases[number], chosen.spacing_mm
                volume = Volume(case.volume.float() / 255, spacing_mm)
                yield Case(chosen.name, number, volume, Frame(case.frames[0].float() / 255, spacing_mm))


def spoiled(case: Case, before: dict[str, Frame]) -> Iterator[tuple[str, Frame, str]]:
    """Frames with a mistake: its name, the frame, and what a hint must say. `before` are frames of other cases."""
    for name, (spoil, wanted) in MISTAKES.items():
        yield name, spoil(case.frame), wanted
    yield HALF, case.frame, OUTSIDE
    if case.set in before:
        yield OTHER, before[case.set], STRANGE
    if others := [name for name in before if name != case.set]:
        yield ORGAN, before[others[-1]], STRANGE
    random = torch.Generator().manual_seed(case.number)
    yield NOISE, Frame(torch.rand(case.frame.shape, generator=random), case.frame.spacing_mm), "no structure"
    yield GEL, empty_gel(case.frame, random), "no structure"


def halved(volume: Volume) -> Volume:
    """Its left half, where it is in the world."""
    corner = np.asarray(volume.origin_mm)
    return Volume(volume.array[:, :, : volume.shape[2] // 2], volume.spacing_mm, corner.tolist(), volume.direction)


def outcome_of(locator: Locator, frame: Frame, wanted: str) -> list[str]:
    """What is counted of a frame."""
    try:
        result = locator.locate(frame)
    except ScopeRegError:
        return ["frames", "not found"]
    hints = diagnose(locator, frame, replace(result, ok=False))
    hints = tuple(hint for hint in hints if OUTSIDE not in hint or wanted == OUTSIDE)
    if not hints:
        return ["frames", "none"]
    return ["frames", "right" if is_right(hints[0], wanted) else "wrong", hints[0]]


def is_right(hint: str, wanted: str) -> bool:
    """Sizes to 4 %."""
    if not wanted.startswith(("size", "swapped")):
        return wanted in hint
    if wanted == "swapped" or "pixels" not in hint:
        return "pixels swapped" in hint
    told = {side: float(size) for size, side in re.findall(r"([\d.]+) times as (\w+)", hint)}
    across, down = (told.get(side, told.get("large", 1.0)) for side in ("wide", "high"))
    return all(abs(own / float(size) - 1) < 0.04 for own, size in zip((across, down), wanted.split()[1:], strict=True))


def row_of(key: tuple[str, str], counts: Counter[str]) -> dict[str, object]:
    counted = ("frames", "not found", "right", "wrong", "none")
    return {"set": key[0], "mistake": key[1], **{name.replace(" ", "_"): counts[name] for name in counted}}


if __name__ == "__main__":
    main()
