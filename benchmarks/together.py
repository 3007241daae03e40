"""Several frames as one body: how near the truth it comes, what its verdicts are worth, what is said of wrong bodies.

    python benchmarks/together.py                                    # everything, in an hour and a half of one core
    python benchmarks/together.py --sets liver --wrongs none --count 20

A row of the table is a body, of the sets in together_sets.py, with what was made wrong of it (`WRONGS`: nothing, noise
of its tracker, another volume, a mirrored one, a wrong calibration, ...). `single` rows are the same frames, each
sought by itself with the same start. Errors are mTRE in mm, of a body the mean over its frames. What the table has
already is not measured again: a run that was stopped goes on where it was. Times are those of the processor.
"""

from __future__ import annotations

import argparse
import csv
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from development_sets import DATA
from together_sets import SETS, PlacedBody, bodies, rigid_noise

from scopereg.data.seeds import generator_for
from scopereg.errors import ScopeRegError
from scopereg.geometry import SUCCESS_MM, Pose
from scopereg.images import Frame, Volume
from scopereg.io.files import write_sheet
from scopereg.progress import say
from scopereg.registration.body_diagnosis import with_hints
from scopereg.registration.locator import Locator
from scopereg.registration.result import YES_NO, Result, apart_mm
from scopereg.registration.together import Together

TABLE = Path(__file__).with_suffix(".csv")
KEY = ("set", "wrong", "body", "way")
COLUMNS = (
    *(*KEY, "frames", "start_mm", "error_mm", "worst_mm", "within", "used_mm", "freed_mm", "alone_within", "counts"),
    *("ok", "belongs", "confidence", "expected_mm", "bound_mm", "frames_ok", "frames_ok_wrong", "reason", "hints"),
    *("cpu_s", "wall_s"),
)
NEVER_RIGHT = ("another volume", "mirrored volume", "mirrored pictures")  # whatever pose is found
LIVER_COUNT, COUNT, WRONG_COUNT = 60, 16, 10
Poses = list[Pose]
Wrong = Callable[[PlacedBody, PlacedBody, torch.Generator], tuple[PlacedBody, Poses]]


def _directions(random: torch.Generator) -> torch.Tensor:
    """Of a shift, and an axis."""
    return torch.nn.functional.normalize(torch.randn(2, 3, generator=random, dtype=torch.float64), dim=1)


def _off(shift_mm: float, turn_deg: float, shift: torch.Tensor, axis: torch.Tensor) -> Pose:
    """A frame's pose in itself: shifted along a direction, turned about an axis."""
    x, y, z = axis.tolist()
    cross = torch.tensor([[0, -z, y], [z, 0, -x], [-y, x, 0]], dtype=torch.float64)
    rotation = torch.matrix_exp(cross * math.radians(turn_deg)).numpy()
    return Pose(rotation, (shift * shift_mm).numpy(), "Image", "Image")


def _told(body: PlacedBody, poses: Sequence[Pose]) -> tuple[PlacedBody, Poses]:
    return body, list(poses)


def _right(body: PlacedBody, other: PlacedBody, random: torch.Generator) -> tuple[PlacedBody, Poses]:
    return _told(body, body.image_to_body)


def _noise(body: PlacedBody, other: PlacedBody, random: torch.Generator, size: float) -> tuple[PlacedBody, Poses]:
    """About the middle of each frame, where the origin of its mm is."""
    wrong = rigid_noise(size, len(body.frames), random)
    return _told(body, [pose @ off for pose, off in zip(body.image_to_body, wrong, strict=True)])


def _other_volume(body: PlacedBody, other: PlacedBody, random: torch.Generator) -> tuple[PlacedBody, Poses]:
    """The volume of another patient; of the sweep, which is of one, its own one turned half about."""
    volume = other.volume
    if volume is body.volume:
        volume = Volume(volume.array.flip(0, 2), volume.spacing_mm)
    return replace(body, volume=volume, start=None), body.image_to_body


def _mirrored_volume(body: PlacedBody, other: PlacedBody, random: torch.Generator) -> tuple[PlacedBody, Poses]:
    volume = Volume(body.volume.array.flip(0), body.volume.spacing_mm)
    return replace(body, volume=volume, start=None), body.image_to_body  # a start would be mirrored with it


def _probe(
    body: PlacedBody, other: PlacedBody, random: torch.Generator, shift_mm: float, turn_deg: float
) -> tuple[PlacedBody, Poses]:
    """ImageToProbe is off by so much, in a direction and about an axis drawn for each body."""
    off = _off(shift_mm, turn_deg, *_directions(random))
    return _told(body, [pose @ off for pose in body.image_to_body])


def _half_turn(body: PlacedBody, other: PlacedBody, random: torch.Generator) -> tuple[PlacedBody, Poses]:
    """ImageToProbe as if the picture were seen from behind: x and the normal the other way."""
    off = Pose.from_euler_deg((0, 180, 0), (0, 0, 0), "Image", "Image")
    return _told(body, [pose @ off for pose in body.image_to_body])


def _pixels(body: PlacedBody, other: PlacedBody, random: torch.Generator, size: float) -> tuple[PlacedBody, Poses]:
    frames = tuple(Frame(frame.array, tuple(size * step for step in frame.spacing_mm)) for frame in body.frames)
    return replace(body, frames=frames), body.image_to_body


def _mirrored_pictures(body: PlacedBody, other: PlacedBody, random: torch.Generator) -> tuple[PlacedBody, Poses]:
    return replace(body, frames=tuple(frame.flipped(0) for frame in body.frames)), body.image_to_body


def _one_frame(body: PlacedBody, other: PlacedBody, random: torch.Generator) -> tuple[PlacedBody, Poses]:
    """One pose is off by 10 mm and 10 degrees."""
    row = int(torch.randint(len(body.frames), (), generator=random))
    poses = body.image_to_body
    poses[row] = poses[row] @ _off(10.0, 10.0, *_directions(random))
    return _told(body, poses)


def _drift(body: PlacedBody, other: PlacedBody, random: torch.Generator) -> tuple[PlacedBody, Poses]:
    """Poses that wander off from the first to the last frame, by 10 mm and 5 degrees in all."""
    directions = _directions(random)
    shares = np.linspace(0, 1, len(body.frames)).tolist()
    rows = zip(shares, body.image_to_body, strict=True)
    return _told(body, [pose @ _off(10 * share, 5 * share, *directions) for share, pose in rows])


WRONGS: dict[str, Wrong] = {
    "none": _right,
    "noise 0.5": partial(_noise, size=0.5),
    "noise 1": partial(_noise, size=1.0),
    "another volume": _other_volume,
    "mirrored volume": _mirrored_volume,
    "mirrored pictures": _mirrored_pictures,
    "probe off 5 mm": partial(_probe, shift_mm=5.0, turn_deg=0.0),
    "probe off 5 deg": partial(_probe, shift_mm=0.0, turn_deg=5.0),
    "probe turned": _half_turn,
    "pixels 5 %": partial(_pixels, size=1.05),
    "one pose off": _one_frame,
    "drift": _drift,
}


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    rows = read_rows(options.out)
    for name in options.sets:
        for wrong in options.wrongs:
            for way in options.ways:
                rows = with_rows(rows, name, wrong, way, options)
    for line in summaries(rows):
        say(line)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data")
    parser.add_argument("--out", type=Path, default=TABLE, help="CSV file to write, and to go on with")
    parser.add_argument(
        "--sets", nargs="+", choices=list(SETS), default=list(SETS), metavar="SET", help=", ".join(SETS)
    )
    parser.add_argument("--wrongs", nargs="+", choices=list(WRONGS), default=list(WRONGS), metavar="WRONG")
    parser.add_argument("--ways", nargs="+", choices=("together", "single"), default=["together"])
    parser.add_argument("--count", type=int, help="bodies of each set")
    parser.add_argument("--method", default="universal+refine")
    parser.add_argument("--magnitude", type=float, default=20.0, help="voxels and degrees")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def with_rows(
    rows: list[dict[str, str]], name: str, wrong: str, way: str, options: argparse.Namespace
) -> list[dict[str, str]]:
    """The rows with those of a set that are still missing; the table is written after each."""
    known = {tuple(row[key] for key in KEY) for row in rows}
    usual = (LIVER_COUNT if name == "liver" else COUNT) if wrong.startswith(("none", "noise")) else WRONG_COUNT
    every = list(pairs(bodies(name, options.data, options.count or usual, options.magnitude, options.seed)))
    locator: Locator | None = None
    for body, other in every:
        if (name, wrong, body.name, way) in known:
            continue
        asked, poses = WRONGS[wrong](body, other, generator_for(f"{wrong} of {body.name}", options.seed))
        if locator is None or locator.volume is not asked.volume:
            locator = Locator(asked.volume, options.method, device="cpu")
        row = {"set": name, "wrong": wrong, "body": body.name, "way": way}
        row |= {key: str(value) for key, value in measured(locator, body, asked, poses, way).items()}
        say(", ".join(row.values()))
        rows = [*rows, row]
        write_sheet(options.out, rows, COLUMNS)
    return rows


def pairs(made: Iterator[PlacedBody]) -> Iterator[tuple[PlacedBody, PlacedBody]]:
    """Each body with one of another volume."""
    every = list(made)
    yield from ((body, every[(row + 1) % len(every)]) for row, body in enumerate(every))


def measured(locator: Locator, body: PlacedBody, asked: PlacedBody, poses: Poses, way: str) -> dict[str, Any]:
    begin, wall = time.process_time(), time.perf_counter()
    told = {"frames": len(body.frames), "start_mm": ""}
    try:
        if way == "single":
            starts = [None if asked.start is None else asked.start @ pose for pose in poses]
            told |= of_singles(body, locator.locate_all(asked.frames, starts))
        else:
            found = locator.locate_together(asked.frames, poses, asked.start)
            told |= {"cpu_s": number(time.process_time() - begin), "wall_s": number(time.perf_counter() - wall)}
            told |= of_body(body, with_hints(locator, found, asked.start))
    except ScopeRegError as error:
        told |= {"ok": "no", "reason": f"error: {error.what}"}
    if body.start is not None:
        starts = [body.start @ pose for pose in body.image_to_body]
        told["start_mm"] = number(
            np.mean([apart_mm(f, *two) for f, *two in zip(body.frames, starts, body.truth, strict=True)])
        )
    taken = {"cpu_s": number(time.process_time() - begin), "wall_s": number(time.perf_counter() - wall)}
    return {**taken, **told}


def of_body(body: PlacedBody, found: Together) -> dict[str, Any]:
    whole = found.whole
    errors = [apart_mm(f, one.pose, true) for f, one, true in zip(body.frames, found.frames, body.truth, strict=True)]
    alone = [
        apart_mm(frame, one.pose if isinstance(one, Result) else None, true)
        for frame, one, true in zip(body.frames, found.alone, body.truth, strict=True)
    ]
    return {
        **of_errors(errors),
        "used_mm": number(float(np.mean([error for error, used in zip(errors, found.counts, strict=True) if used]))),
        "freed_mm": number(float(np.nanmedian([*found.freed_mm, math.nan]))),
        "alone_within": sum(error <= SUCCESS_MM for error in alone),
        "counts": "".join("x" if used else "-" for used in found.counts),
        "ok": YES_NO[found.ok],
        "belongs": YES_NO[whole.belongs],
        "confidence": number(whole.confidence),
        "expected_mm": number(whole.expected_mm),
        "bound_mm": number(whole.bound_mm),
        "frames_ok": sum(one.ok is True for one in found.frames),
        "reason": whole.reason,
        "hints": "; ".join(whole.hints),
    }


def of_singles(body: PlacedBody, found: Sequence[Any]) -> dict[str, Any]:
    poses = [one.pose if isinstance(one, Result) else None for one in found]
    errors = [apart_mm(*row) for row in zip(body.frames, poses, body.truth, strict=True)]
    errors = [math.inf if math.isnan(error) else error for error in errors]
    ok = [isinstance(one, Result) and one.ok is True for one in found]
    wrong = sum(good and error > SUCCESS_MM for good, error in zip(ok, errors, strict=True))
    return {**of_errors(errors), "frames_ok": sum(ok), "frames_ok_wrong": wrong}


def of_errors(errors: Sequence[float]) -> dict[str, Any]:
    return {
        "error_mm": number(float(np.mean(errors))),
        "worst_mm": number(max(errors)),
        "within": sum(error <= SUCCESS_MM for error in errors),
    }


def number(value: float | np.floating[Any]) -> str:
    return f"{value:.3f}" if math.isfinite(value) else ""


def read_rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def summaries(rows: Sequence[dict[str, str]]) -> Iterator[str]:
    for key in dict.fromkeys((row["set"], row["wrong"], row["way"]) for row in rows):
        yield f"{', '.join(key)}: {summary([row for row in rows if (row['set'], row['wrong'], row['way']) == key])}"


def summary(rows: Sequence[dict[str, str]]) -> str:
    frames, within = (sum(int(row.get(name) or 0) for row in rows) for name in ("frames", "within"))
    errors = np.array([float(row.get("error_mm") or np.inf) for row in rows])
    near = errors <= SUCCESS_MM
    used = np.array([float(row.get("used_mm") or np.inf) for row in rows])
    right = (used <= SUCCESS_MM) & (rows[0]["wrong"] not in NEVER_RIGHT)
    ok = np.array([row.get("ok") == "yes" for row in rows])
    seconds = np.median([float(row["cpu_s"]) for row in rows])
    said = f"{ok.sum()} ok, {(ok & ~right).sum()} of them wrongly"
    if rows[0]["way"] == "single":
        good, wrong = (sum(int(row.get(name) or 0) for row in rows) for name in ("frames_ok", "frames_ok_wrong"))
        said = f"{good} frames ok, {wrong} of them wrongly"
    return (
        f"{len(rows)} bodies of {frames} frames, within {SUCCESS_MM:g} mm {within / frames:.1%} of frames and "
        f"{near.mean():.1%} of bodies, median {np.median(errors):.2f} mm; {said}; {seconds:.1f} s"
    )


if __name__ == "__main__":
    main()
