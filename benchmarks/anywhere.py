"""Frames sought in all of large volumes without a start: found or not, in what time, how far the best stands out.

    python benchmarks/anywhere.py --data DATA --out benchmarks/anywhere.csv

DATA has `liver_sweep.npz`, a tracked sweep, and `uterus`, 3D volumes. Of the sweep blocks of successive frames are left
out of the volume that is compounded from the others, and every second of them is sought in it. Of each uterus volume,
less 8 voxels on every side, two honest frames are cut anywhere, turned by up to 20 degrees about each axis; each is
also sought in the next volume, where it is a stranger. `universal`, refined, without a fallback.
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
from development_sets import DATA, listed, needed

from scopereg.data.mismatch import honest_frames
from scopereg.data.seeds import generator_for
from scopereg.errors import ScopeRegError
from scopereg.evaluation.real_protocol import sweep_case
from scopereg.geometry import SUCCESS_MM, Pose, VoxelPoses, inside_fraction, rotation_from_euler_deg, sample_slice
from scopereg.images import Frame, Volume, pose_from_voxels
from scopereg.io.files import write_sheet
from scopereg.io.read_image import read_image
from scopereg.io.sweeps import read_npz_sweep
from scopereg.progress import say
from scopereg.registration.locator import Locator
from scopereg.registration.result import Result, apart_mm

BLOCKS, BLOCK, EVERY, LIVER_MM, UTERUS_MM = 5, 10, 2, 1.2, 0.6
MARGIN = 8  # voxels of surroundings that frames may show
SIDE, STEP = 128, 16  # of frames: whole steps, no larger than a plane
TURN_DEG, FRAMES = 20.0, 2
LEAST_INSIDE, LEAST_SEEN = 0.75, 0.4  # share of a frame in the volume, and of it that is not black


@dataclass(frozen=True)
class Sought:
    """A volume and frames sought in it; strangers have no true pose."""

    group: str
    name: str
    volume: Volume
    frames: list[tuple[Frame, Pose | None]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data")
    parser.add_argument("--out", type=Path, help="CSV file to write")
    parser.add_argument("--method", default="universal:wide+refine")
    parser.add_argument("--any-angle", action="store_true", help="turn every frame by a quarter first")
    parser.add_argument("--every", type=int, default=1, help="take one volume in so many")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = []
    for sought in (*liver(options.data), *uterus(options.data, options.every)):
        rows += rows_of(sought, options)
        if options.out:
            write_sheet(options.out, rows)
    for group in dict.fromkeys(row["set"] for row in rows):
        say(summary(group, [row for row in rows if row["set"] == group]))


def liver(data: Path) -> Iterator[Sought]:
    case = sweep_case(read_npz_sweep(needed(data / "liver_sweep.npz")), LIVER_MM, held_out=(BLOCKS, BLOCK))
    volume, frames = case.reference.volume, []
    for index in range(0, len(case), EVERY):
        pose = VoxelPoses(case.truth.rotation[index], case.truth.translation[index])
        frames.append((case.frames[index], pose_from_voxels(*pose, case.frames[index], volume)))
    yield Sought("liver", "sweep", volume, frames)


def uterus(data: Path, every: int) -> Iterator[Sought]:
    """Each volume with frames of its own, and with those of the volume before as strangers."""
    before: list[Frame] = []
    for path in listed(data / "uterus", "*.nii.gz")[::every]:
        voxels, *_ = read_image(path)
        whole = torch.from_numpy(np.ascontiguousarray(voxels)).float() / 255
        volume = Volume(whole[(slice(MARGIN, -MARGIN),) * 3].clone(), UTERUS_MM)
        own = list(frames_anywhere(whole, volume, path.name))
        yield Sought("uterus", path.name, volume, own)
        if before:
            yield Sought("strangers", path.name, volume, [(frame, None) for frame in before])
        before = [frame for frame, _ in own]


def frames_anywhere(whole: torch.Tensor, volume: Volume, name: str) -> Iterator[tuple[Frame, Pose]]:
    """Honest frames, most of which lie in the volume and show something."""
    generator = generator_for(f"frames anywhere in {name}", 0)
    side = tuple(min(SIDE, n // STEP * STEP) for n in volume.shape[1:])
    half = torch.tensor(volume.shape[::-1]) / 2
    found = 0
    for _ in range(10_000):
        rotation = rotation_from_euler_deg(TURN_DEG * (2 * torch.rand(1, 3, generator=generator) - 1))
        pose = VoxelPoses(rotation, half * (2 * torch.rand(1, 3, generator=generator) - 1))
        if inside_fraction(*pose, volume.shape, slice_shape=side) < LEAST_INSIDE:
            continue
        if (sample_slice(volume.array, *pose, slice_shape=side) > 0).float().mean() < LEAST_SEEN:
            continue
        cut = sample_slice(whole, *pose, slice_shape=side, padding="reflection")
        image = honest_frames(cut, generator, unseen=True)[0][0]
        frame = Frame(image, spacing_mm=volume.isotropic_spacing_mm)
        yield frame, pose_from_voxels(pose.rotation[0], pose.translation[0], frame, volume)
        found += 1
        if found == FRAMES:
            return


def rows_of(sought: Sought, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The first frame of a volume bears what is prepared for all of them."""
    begin, wall = time.process_time(), time.perf_counter()
    locator = Locator(sought.volume, options.method, any_angle=options.any_angle, device="cpu")
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
                "cpu_seconds": f"{taken:.1f}",
                "seconds": f"{elapsed:.1f}",
                "threads": str(options.threads),
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
    first, later = (
        [float(row["cpu_seconds"]) for row in rows if (row["frame"] == "0") is head] for head in (True, False)
    )
    return (
        f"{group}: {len(rows)} frames, {near.mean():.0%} within {SUCCESS_MM:g} mm, median {np.median(errors):.2f} mm; "
        f"{ok.sum()} ok, {(ok & ~near).sum()} of them wrongly; stand out by "
        f"{np.median([float(row['stands_out'] or 0) for row in rows]):.2f}; {np.median(first):.1f} s of a core for the "
        f"first frame of a volume, {np.median(later):.1f} s for others"
    )


if __name__ == "__main__":
    main()
