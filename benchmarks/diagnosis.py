"""Whether what is wrong with a frame is named: mistakes of all kinds on frames of phantoms, worlds and real sets.

    python benchmarks/diagnosis.py --out benchmarks/diagnosis.csv

A row for every mistake and set: how many frames were not ok, and of these for how many the right thing was named, a
wrong one, or none. The margins of the diagnosis were chosen on phantoms and worlds of other seeds, never on real sets.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from confidence import empty_gel
from development_sets import DATA, OUT, QUICK_MAGNITUDE, development_set

from scopereg.data.phantom.anatomy import ANATOMIES
from scopereg.data.phantom.sets import make_phantoms
from scopereg.data.worlds.sets import make_worlds
from scopereg.errors import ScopeRegError
from scopereg.images import Frame, Volume
from scopereg.io.files import write_sheet
from scopereg.progress import say
from scopereg.registration.diagnosis import diagnose
from scopereg.registration.locator import Locator

FIRST_SEED = 84_000
RIGHT, OTHER, NOISE, GEL = "nothing", "another volume", "noise", "empty gel"


class Case(NamedTuple):
    """A volume with a frame of it."""

    set: str
    volume: Volume
    frame: Frame


def turned(frame: Frame, quarters: int) -> Frame:
    return Frame(torch.rot90(frame.array, quarters), frame.spacing_mm[::-1])


def sized(across: float, down: float) -> Callable[[Frame], Frame]:
    """Pixels that are said to be so many times as large as they are."""
    return lambda frame: Frame(frame.array, (frame.spacing_mm[0] * across, frame.spacing_mm[1] * down))


def swapped(frame: Frame) -> Frame:
    """Pixels 0.8 times as wide as usual and 1.25 times as high, told the wrong way round."""
    height, width = frame.shape
    array = F.interpolate(frame.array[None, None], (round(height / 1.25), round(width / 0.8)), mode="bilinear")[0, 0]
    return Frame(array, (frame.spacing_mm[0] * 1.25, frame.spacing_mm[1] * 0.8))


def inverted(frame: Frame) -> Frame:
    return replace(frame, array=(1 - frame.array) * (frame.array > 0))


SIZES = (0.8, 0.95, 1.05, 1.1, 1.25, 1.5)
MISTAKES: dict[str, tuple[Callable[[Frame], Frame], str]] = {
    RIGHT: (lambda frame: frame, "-"),
    "mirrored left to right": (lambda frame: frame.flipped(0), "mirrored left to right"),
    "mirrored top to bottom": (lambda frame: frame.flipped(1), "mirrored top to bottom"),
    "turned by 180 degrees": (lambda frame: frame.flipped(0).flipped(1), "turned by 180 degrees"),
    "turned by 90 degrees": (lambda frame: turned(frame, 1), "turned by 90 degrees to the right"),
    "black and white swapped": (inverted, "black and white swapped"),
    **{f"pixels said to be {size} times as large": (sized(size, size), f"size {1 / size}") for size in SIZES},
    "pixels said to be 1.25 times as wide": (sized(1.25, 1.0), "size 0.8"),
    "width and height of pixels swapped": (swapped, "swapped"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="universal+refine")
    parser.add_argument("--cases", type=int, default=4, help="of each anatomy and set, twice as many worlds")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data")
    parser.add_argument("--sets", nargs="*", default=[], help="development sets, such as liver and uterus")
    parser.add_argument("--folder", type=Path, default=OUT / "sets", help="where these are kept")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[tuple[str, str], Counter[str]] = {}
    latest: dict[str, Frame] = {}
    for number, case in enumerate(cases(options)):
        locator = Locator(case.volume, options.method, device="cpu")
        for mistake, frame, wanted in spoiled(case, latest.get(case.set), number):
            outcome = outcome_of(locator, frame, wanted)
            found.setdefault((case.set, mistake), Counter()).update(outcome)
            say(f"{case.set} {number}, {mistake}: {', '.join(outcome)}")
        latest[case.set] = case.frame
        write_sheet(options.out, [row_of(key, counts) for key, counts in found.items()])


def cases(options: argparse.Namespace) -> Iterator[Case]:
    """Phantoms and worlds in turn, so that any number of cases is of all of them; then the development sets."""
    for number in range(options.cases):
        seed = FIRST_SEED + number
        made = [("phantoms", make_phantoms(name, 1, seed=seed, frames=1)) for name in ANATOMIES]
        made += [("worlds", make_worlds(1, seed=FIRST_SEED + 2 * number + row, frames=1)) for row in range(2)]
        for name, volumes in made:
            assert volumes.frames is not None
            volume = Volume(volumes.images[0].float() / 255, volumes.spacing_mm)
            yield Case(name, volume, Frame(volumes.frames.images[0, 0].float() / 255, volumes.spacing_mm))
    for name in options.sets:
        chosen = development_set(name, QUICK_MAGNITUDE, options.data, options.folder).first(options.cases)
        for case in chosen.cases[: options.cases]:
            frame = Frame(case.frames[0].float() / 255, chosen.spacing_mm)
            yield Case(name, Volume(case.volume.float() / 255, chosen.spacing_mm), frame)


def spoiled(case: Case, other: Frame | None, seed: int) -> Iterator[tuple[str, Frame, str]]:
    """Frames with a mistake: its name, the frame, and what a hint must say."""
    for name, (spoil, wanted) in MISTAKES.items():
        yield name, spoil(case.frame), wanted
    if other is not None:
        yield OTHER, other, "nothing fits"
    random = torch.Generator().manual_seed(seed)
    yield NOISE, Frame(torch.rand(case.frame.shape, generator=random), case.frame.spacing_mm), "no structure"
    gel = empty_gel(case.frame.array[None], random)[0]
    yield GEL, Frame(gel, case.frame.spacing_mm), "no structure"


def outcome_of(locator: Locator, frame: Frame, wanted: str) -> list[str]:
    """What is counted of a frame."""
    try:
        result = locator.locate(frame)
    except ScopeRegError:
        return ["frames", "refused", "without a pose"]
    if result.ok:
        return ["frames", "ok"]
    hints = [hint for hint in diagnose(locator, frame, result) if "lies outside" not in hint]
    if not hints:
        return ["frames", "refused", "none"]
    return ["frames", "refused", "right" if is_right(hints[0], wanted) else "wrong"]


def is_right(hint: str, wanted: str) -> bool:
    if not wanted.startswith(("size", "swapped")):
        return wanted in hint
    if "pixels" not in hint:
        return False
    if wanted == "swapped":
        return "swapped" in hint
    told = float(hint.split("pixels ")[1].split(" times")[0])
    return abs(told * (1 / float(wanted.split()[1])) - 1) < 0.13


def row_of(key: tuple[str, str], counts: Counter[str]) -> dict[str, object]:
    told = counts["right"] + counts["wrong"]
    return {
        "set": key[0],
        "mistake": key[1],
        **{name: counts[name] for name in ("frames", "ok", "refused", "right", "wrong", "none")},
        "right_of_hints": f"{counts['right'] / told:.2f}" if told else "",
    }


if __name__ == "__main__":
    main()
