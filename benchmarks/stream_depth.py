"""Whether live sees that the depth has changed where the pictures state the same size of pixels, as of a frame grabber.

    python benchmarks/stream_depth.py --sweep shared/data/liver_sweep.npz --out benchmarks/stream_depth.csv

Streams of `--before` frames as they are and up to `--after` frames changed, followed as `live --follow` does with the
model of the package, 5 frames a second: shown with another depth about the middle of the upper edge (a factor below 1
is deeper: what lies beyond the frame is black), or disturbed without that. `asked` counts the streams in which a person
is asked, `right` those with a suggestion within 4 % of the truth. The volume of the liver is compounded from every
second frame of the sweep, the stream is of the others. Looks into the size of pixels are done at once, so that frames
are those that such looks take, not those that pass meanwhile. One thread.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from track import ANATOMIES, phantom_sweep

from scopereg.data.tracked import real_case
from scopereg.errors import ScopeRegError
from scopereg.images import Frame, Volume
from scopereg.io.files import write_sheet
from scopereg.io.sweeps import read_npz_sweep
from scopereg.live.depth_watch import DepthWatch
from scopereg.live.loop import Rates, Update
from scopereg.live.pixel_sizes import PixelSizes, Question
from scopereg.progress import say
from scopereg.registration.diagnosis import fitting_pixels
from scopereg.registration.locator import Locator
from scopereg.registration.result import Result
from scopereg.registration.settings import DEFAULT
from scopereg.registration.tracker import Tracker

FIRST_SEED = 61_000  # of phantoms: not those of track.py, nor trained or calibrated on
RATE, RIGHT = 5.0, 0.04
LIVER_MM, LIVER_FIRST = 1.2, (20, 60, 100)  # first frames of the streams of the sweep
Change = Callable[[Frame, int], Frame]


class Stream(NamedTuple):
    """Frames of one patient, and the volume that they are sought in."""

    volume: Volume
    frames: list[Frame]


def deeper(factor: float) -> Change:
    """The picture shows 1 / factor of the depth, stated pixels stay: true ones are 1 / factor as large."""

    def change(frame: Frame, _: int) -> Frame:
        height, width = frame.shape
        y = torch.arange(height) / factor
        x = (torch.arange(width) - (width - 1) / 2) / factor + (width - 1) / 2
        grid = torch.stack(torch.meshgrid(y / (height - 1) * 2 - 1, x / (width - 1) * 2 - 1, indexing="ij")[::-1], -1)
        return replace(frame, array=F.grid_sample(frame.array[None, None], grid[None], align_corners=True)[0, 0])

    return change


def in_air(frame: Frame, _: int) -> Frame:
    """Nothing but the first eighth of the picture."""
    array = frame.array.clone()
    array[frame.shape[0] // 8 :] = 0
    return replace(frame, array=array)


def half_lifted(frame: Frame, _: int) -> Frame:
    """No contact on the left."""
    array = frame.array.clone()
    array[:, : round(0.45 * frame.shape[1])] *= 0.02
    return replace(frame, array=array)


def noise(frame: Frame, row: int) -> Frame:
    field = (frame.array > 0).float()
    return replace(frame, array=torch.rand(frame.shape, generator=torch.Generator().manual_seed(row)) * field)


DEPTHS = (0.75, 0.9, 1.0, 1.1, 1.33, 1.6)
OTHERS: dict[str, Change] = {"probe in air": in_air, "half lifted": half_lifted, "noise": noise}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweep", type=Path, help="tracked sweep of the liver (.npz)")
    parser.add_argument("--streams", type=int, default=2, help="phantom streams of each anatomy")
    parser.add_argument("--anatomies", nargs="*", default=ANATOMIES, choices=ANATOMIES)
    parser.add_argument("--before", type=int, default=10)
    parser.add_argument("--after", type=int, default=20)
    parser.add_argument("--out", type=Path, help="CSV file to write")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, str]] = []
    for name, streams in every_set(options):
        locators = [Locator(stream.volume, DEFAULT, device="cpu") for stream in streams]
        strangers = [*streams[1:], streams[0]]
        cases: dict[str, tuple[Change, float]] = {
            **{f"depth x {factor:g}": (deeper(factor), 1 / factor) for factor in DEPTHS},
            **{case: (change, 1.0) for case, change in OTHERS.items()},
        }
        for case, (change, truth) in cases.items():
            seen = [watched(one, where, change, options) for one, where in zip(streams, locators, strict=True)]
            rows.append(row_of(name, case, truth, streams, seen))
            say(", ".join(rows[-1].values()))
        if name != "liver":  # frames of another patient from the same probe
            swapped = [
                stream._replace(frames=[*own.frames[: options.before], *stream.frames[options.before :]])
                for own, stream in zip(streams, strangers, strict=True)
            ]
            seen = [watched(one, where, deeper(1.0), options) for one, where in zip(swapped, locators, strict=True)]
            rows.append(row_of(name, "another patient", 1.0, streams, seen))
            say(", ".join(rows[-1].values()))
    if options.out:
        write_sheet(options.out, rows)


def every_set(options: argparse.Namespace) -> Iterator[tuple[str, list[Stream]]]:
    count = options.before + options.after
    for anatomy in options.anatomies:
        sweeps = [phantom_sweep(anatomy, FIRST_SEED + k) for k in range(options.streams)]
        yield f"{anatomy} phantoms", [Stream(sweep.volume, sweep.frames[:count]) for sweep in sweeps]
    if options.sweep:
        yield "liver", liver(options.sweep, count)


def liver(path: Path, count: int) -> list[Stream]:
    sweep = read_npz_sweep(path)
    rows = list(range(0, len(sweep), 2))
    volume = real_case(sweep, rows, None, LIVER_MM, (128, 128)).reference.volume
    frames = [Frame(sweep.values([row])[0] * sweep.seen, sweep.spacing_mm, (0, 0)) for row in rows]
    firsts = [rows.index(first) for first in LIVER_FIRST]
    return [Stream(volume, frames[first : first + count]) for first in firsts]


class Seen(NamedTuple):
    """What became of a stream."""

    question: Question | None
    frames: int  # after the change until it was asked
    looks: int  # into the size of the pixels


def watched(stream: Stream, locator: Locator, change: Change, options: argparse.Namespace) -> Seen:
    """A stream that is changed after some frames, until a person is asked or it ends."""
    tracker, good, looks = Tracker(locator), None, 0
    sizes = PixelSizes()

    def measure(frame: Frame, result: Result) -> tuple[float, float] | None:
        nonlocal looks
        looks += 1
        return fitting_pixels(locator, frame, result, good)

    watch = DepthWatch(sizes, measure)
    for row, unchanged in enumerate(stream.frames):
        frame = unchanged if row < options.before else change(unchanged, row)
        found: Result | None = None
        with suppress(ScopeRegError):
            found = tracker.follow(frame, row / RATE).result
        good = found.pose if found is not None and found.ok else good
        x, y = frame.spacing_mm
        sizes.of(frame.size, (x, y))
        watch.look(Update(row, frame, found, None, row, row / RATE, row / RATE, row / RATE, 0.0, Rates(RATE, 0, 0)))
        if watch._thread is not None:
            watch._thread.join()
        if sizes.question is not None:
            return Seen(sizes.question, row + 1 - options.before, looks)
    return Seen(None, 0, looks)


def row_of(name: str, case: str, truth: float, streams: list[Stream], seen: list[Seen]) -> dict[str, str]:
    """A row of the table; errors of suggestions are shares of the true size."""
    asked = [one for one in seen if one.question is not None]
    errors = []
    for stream, one in zip(streams, seen, strict=True):
        if one.question is not None and one.question.suggestion is not None:
            true_mm = [truth * step for step in stream.frames[0].spacing_mm]
            errors.append(max(abs(math.log(a / b)) for a, b in zip(one.question.suggestion, true_mm, strict=True)))
    return {
        "set": name,
        "case": case,
        "streams": str(len(seen)),
        "asked": str(len(asked)),
        "right": str(sum(error <= RIGHT for error in errors) if truth != 1 else 0),
        "without_suggestion": str(len(asked) - len(errors)),
        "frames": f"{median(one.frames for one in asked):g}" if asked else "",
        "largest_error": f"{max(errors):.3f}" if errors and truth != 1 else "",
        "looks": f"{np.mean([one.looks for one in seen]):.1f}",
    }


if __name__ == "__main__":
    main()
