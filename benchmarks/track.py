"""Frames of a sweep located one by one against the same frames followed by their motion.

python benchmarks/track.py --sweep SWEEP --out benchmarks/track.csv

Phantoms of the three anatomies, as the network left the poses and refined; some sweeps have three frames of noise in
their middle, whose poses are known all the same. SWEEP is a tracked sweep of the liver (.npz): blocks of successive
frames are sought in a volume compounded from the others, around a start pose; then in all of that volume, from starts
all over it. One thread.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from scopereg.data import phantom
from scopereg.data.poses import sample_sweep
from scopereg.data.tracked import around, start_poses
from scopereg.evaluation.real_protocol import sweep_case
from scopereg.geometry import SUCCESS_MM, Pose, VoxelPoses, target_points
from scopereg.images import Frame, Volume, pose_from_voxels
from scopereg.io.files import write_sheet
from scopereg.io.sweeps import read_npz_sweep
from scopereg.progress import say
from scopereg.registration.locator import Locator
from scopereg.registration.settings import DEFAULT
from scopereg.registration.tracker import Tracker

ANATOMIES = ("echo", "prostate", "abdomen")
FIRST_SEED = 60_000  # of phantoms: neither trained, nor calibrated, nor on a model card
FRAMES, RATE, MAGNITUDE = 40, 10.0, 10.0
NOISE = (19, 20, 21)  # rows of the frames that show nothing
BLOCKS, BLOCK, SPACING_MM = 5, 10, 1.2  # of the liver sweep
SHAPE = (32, 128, 128)  # of the part of the sweep's reference around a start

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Sweep:
    """Frames, where they truly lie, and the volume that they are sought in."""

    volume: Volume
    frames: list[Frame]
    truth: list[Pose]
    wide: bool = False


class Errors(NamedTuple):
    """How far the targets (N, 5, 3) of the frames of a sweep lie from where they are, in mm."""

    alone: Array
    tracked: Array
    states: list[str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweep", type=Path, help="tracked sweep of the liver (.npz)")
    parser.add_argument("--sweeps", type=int, default=3, help="phantom sweeps of each anatomy and kind")
    parser.add_argument("--anatomies", nargs="*", default=ANATOMIES, choices=ANATOMIES)
    parser.add_argument("--model", default=DEFAULT, help="network: a model of the package or a .safetensors file")
    parser.add_argument("--out", type=Path, help="CSV file to write")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, str]] = []
    for kind, sweeps in every_kind(options):
        for refine in (False, True):
            found = [errors_of(sweep, options.model, refine) for sweep in sweeps]
            rows += table_rows(kind, refine, found)
            for row in rows[-2:]:
                say(", ".join(row.values()))
    if options.out:
        write_sheet(options.out, rows)


def every_kind(options: argparse.Namespace) -> Iterator[tuple[str, list[Sweep]]]:
    """Sweeps that are counted together."""
    for anatomy in options.anatomies:
        clean = [phantom_sweep(anatomy, FIRST_SEED + k) for k in range(options.sweeps)]
        yield f"{anatomy} phantoms", clean
        yield f"{anatomy} phantoms, 3 frames of noise", [with_noise(sweep) for sweep in clean]
    if options.sweep:
        blocks = liver_blocks(options.sweep)
        yield "liver", [part for part, _ in blocks]
        yield "liver, whole volume", [whole for _, whole in blocks]


def phantom_sweep(anatomy: str, seed: int) -> Sweep:
    """A hand-held sweep of four seconds, every frame another acquisition."""
    patient = phantom.create(anatomy, seed=seed)
    poses = sample_sweep(FRAMES, MAGNITUDE, patient.shape, torch.Generator().manual_seed(seed))
    images = patient.acquire(*poses, seed=seed).images
    frames = [Frame(image, spacing_mm=patient.spacing_mm) for image in images]
    truth = [pose_from_voxels(*pose, frames[0], patient.volume) for pose in zip(*poses, strict=True)]
    return Sweep(patient.volume, frames, truth)


def with_noise(sweep: Sweep) -> Sweep:
    """The sweep with frames that show nothing but noise, as when the probe is lifted."""
    frames = list(sweep.frames)
    for row in NOISE:
        noise = torch.rand(frames[row].shape, generator=torch.Generator().manual_seed(row))
        frames[row] = Frame(noise, frames[row].spacing_mm, frames[row].origin_mm)
    return replace(sweep, frames=frames)


def liver_blocks(path: Path) -> list[tuple[Sweep, Sweep]]:
    """Runs of successive frames, each in the part of the reference around one start pose, and in all of it."""
    case = sweep_case(read_npz_sweep(path), SPACING_MM, held_out=(BLOCKS, BLOCK))
    sweeps = []
    for first in range(0, len(case), BLOCK):
        middle = first + BLOCK // 2
        near = VoxelPoses(*(part[middle : middle + 1] for part in case.truth))
        start = start_poses(near, MAGNITUDE, first, SHAPE)
        (volume,) = around(case.reference, VoxelPoses(*(part.float() for part in start)), SHAPE)
        frames = list(case.frames[first : first + BLOCK])
        truth = [
            pose_from_voxels(
                case.truth.rotation[row], case.truth.translation[row], case.frames[row], case.reference.volume
            )
            for row in range(first, first + BLOCK)
        ]
        part = Sweep(volume, frames, truth)
        sweeps.append((part, replace(part, volume=case.reference.volume, wide=True)))
    return sweeps


def errors_of(sweep: Sweep, model: str, refine: bool) -> Errors:
    """A sweep followed; what each frame gave by itself is told along the way."""
    tracker = Tracker(Locator(sweep.volume, model, refine=refine, wide=sweep.wide, device="cpu"))
    alone, tracked, states = [], [], []
    for row, (frame, truth) in enumerate(zip(sweep.frames, sweep.truth, strict=True)):
        step = tracker.follow(frame, row / RATE)
        targets = target_points(frame.shape, dtype=torch.float64).numpy() * (*frame.spacing_mm, 0) + frame.centre_mm
        there = truth.apply(targets)
        assert step.alone is not None
        alone.append(step.alone.pose.apply(targets) - there)
        tracked.append(step.result.pose.apply(targets) - there)
        states.append(step.state)
    return Errors(np.stack(alone), np.stack(tracked), states)


def table_rows(kind: str, refine: bool, found: Sequence[Errors]) -> list[dict[str, str]]:
    """One line for the frames by themselves, one for the same frames tracked."""
    states = [state for errors in found for state in errors.states]
    counts = {f"{name}": str(states.count(name)) for name in ("found", "followed", "carried", "lost")}
    rows = []
    for way in ("alone", "tracked"):
        vectors = [getattr(errors, way) for errors in found]
        numbers = summary(vectors)
        shown = counts if way == "tracked" else dict.fromkeys(counts, "")
        rows.append({"sweeps": kind, "refined": "yes" if refine else "no", "way": way, **numbers, **shown})
    return rows


def summary(vectors: Sequence[Array]) -> dict[str, str]:
    """Mean target registration errors, and how much the error itself changes from a frame to the next."""
    errors = np.concatenate([np.linalg.norm(part, axis=-1).mean(-1) for part in vectors])
    changes = [np.linalg.norm(b - a, axis=-1).mean() for part in vectors for a, b in pairwise(part)]
    return {
        "frames": str(len(errors)),
        "mean_mm": f"{errors.mean():.2f}",
        "median_mm": f"{np.median(errors):.2f}",
        "p95_mm": f"{np.percentile(errors, 95):.2f}",
        "max_mm": f"{errors.max():.2f}",
        "within_3_mm": f"{(errors <= SUCCESS_MM).mean():.3f}",
        "jitter_mm": f"{np.median(changes):.2f}",
    }


if __name__ == "__main__":
    main()
