"""Frames sought in all of large volumes without a start: found or not, in what time, how far the best stands out.

    python benchmarks/anywhere.py --data DATA --out benchmarks/anywhere.csv
    python benchmarks/anywhere.py --device cuda --out benchmarks/anywhere-gpu.csv      # once the sets are made

The sets are those of anywhere_sets.py, made from DATA when they are first needed. Each frame is also sought in the next
volume of its set, where it is a stranger. `universal`, refined, without a fallback.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from quick_sets import Case, DevelopmentSet, read_set

from scopereg.errors import ScopeRegError
from scopereg.geometry import SUCCESS_MM, Pose
from scopereg.images import Frame, Volume, pose_from_voxels
from scopereg.io.files import write_sheet
from scopereg.progress import say
from scopereg.provenance import device_name
from scopereg.registration.locator import Locator
from scopereg.registration.result import Result, apart_mm

NAMES = ("liver", "liver-gaps", "uterus", "brain")
SETS = Path(__file__).parents[1] / "out" / "anywhere"


@dataclass(frozen=True)
class Sought:
    """A volume and frames sought in it; strangers have no true pose."""

    group: str
    name: str
    volume: Volume
    frames: list[tuple[Frame, Pose | None]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the data, if not beside the checkout")
    parser.add_argument("--folder", type=Path, default=SETS, help="folder of the sets")
    parser.add_argument("--sets", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--out", type=Path, help="CSV file to write")
    parser.add_argument("--method", default="universal:wide+refine")
    parser.add_argument("--any-angle", action="store_true", help="as if nobody knew how frames are turned")
    parser.add_argument("--every", type=int, default=1, help="take one volume in so many")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows: list[dict[str, Any]] = []
    for name in options.sets:
        for sought in with_strangers(_set(name, options), options.every):
            rows += rows_of(sought, options)
            if options.out:
                write_sheet(options.out, rows)
    for group in dict.fromkeys(row["set"] for row in rows):
        say(summary(group, [row for row in rows if row["set"] == group]))


def _set(name: str, options: argparse.Namespace) -> DevelopmentSet:
    if (options.folder / f"{name}.npz").exists():
        return read_set(options.folder / f"{name}.npz")
    import anywhere_sets  # its readers are not on every machine that searches

    return anywhere_sets.anywhere_set(name, options.data or anywhere_sets.DATA, options.folder)


def with_strangers(made: DevelopmentSet, every: int) -> Iterator[Sought]:
    """Each volume with frames of its own, and with those of the volume before as strangers."""
    before: list[Frame] = []
    for case in made.cases[::every]:
        volume = Volume(case.volume.float() / 255, made.spacing_mm)
        own = list(_placed(case, volume))
        yield Sought(made.name, case.name, volume, own)
        if before:
            yield Sought(f"{made.name}-strangers", case.name, volume, [(frame, None) for frame in before])
        before = [frame for frame, _ in own]


def _placed(case: Case, volume: Volume) -> Iterator[tuple[Frame, Pose]]:
    for image, rotation, translation in zip(case.frames, case.rotation, case.translation, strict=True):
        frame = Frame(image.float() / 255, volume.isotropic_spacing_mm)
        yield frame, pose_from_voxels(rotation, translation, frame, volume)


def rows_of(sought: Sought, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The first frame of a volume bears what is prepared for all of them."""
    begin, wall = time.process_time(), time.perf_counter()
    locator = Locator(sought.volume, options.method, any_angle=options.any_angle, device=options.device)
    rows = []
    for number, (frame, truth) in enumerate(sought.frames):
        found = _located(locator, frame)
        taken, elapsed = time.process_time() - begin, time.perf_counter() - wall
        begin, wall = time.process_time(), time.perf_counter()
        rows.append(
            {
                "set": sought.group,
                "volume": sought.name,
                "frame": str(number),
                "error_mm": "" if truth is None or found is None else f"{apart_mm(frame, found.pose, truth):.2f}",
                "stands_out": "" if found is None else f"{found.stands_out:.3f}",
                "expected_mm": "" if found is None else f"{found.expected_mm:.2f}",
                "bound_mm": "" if found is None else f"{found.bound_mm:.2f}",
                "ok": "no" if found is None else {None: "", True: "yes", False: "no"}[found.ok],
                "similarity": "" if found is None else f"{found.similarity:.3f}",
                "cpu_seconds": f"{taken:.2f}",
                "seconds": f"{elapsed:.3f}",
                "device": device_name(options.device),
            }
        )
        say(", ".join(rows[-1].values()))
    return rows


def _located(locator: Locator, frame: Frame) -> Result | None:
    try:
        return locator.locate(frame)
    except ScopeRegError as error:
        say(str(error))
        return None


def summary(group: str, rows: list[dict[str, Any]]) -> str:
    errors = np.array([float(row["error_mm"] or np.inf) for row in rows])
    ok = np.array([row["ok"] == "yes" for row in rows])
    near = errors <= SUCCESS_MM
    times = [
        f"{np.median([float(row[key]) for row in rows if (row['frame'] == '0') is head] or [np.nan]):.2f}"
        for head in (True, False)
        for key in ("cpu_seconds", "seconds")
    ]
    return (
        f"{group}: {len(rows)} frames, {near.mean():.0%} within {SUCCESS_MM:g} mm, median {np.median(errors):.2f} mm; "
        f"{ok.sum()} ok, {(ok & ~near).sum()} of them wrongly; stand out by "
        f"{np.nanmedian([float(row['stands_out'] or 0) for row in rows]):.2f}; {times[0]} s of processors ({times[1]} "
        f"by the clock) for the first frame of a volume, {times[2]} ({times[3]}) for others"
    )


if __name__ == "__main__":
    main()
