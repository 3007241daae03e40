"""What `scopereg adapt` gives: frames of phantoms, of CAMUS-M patients and of a tracked sweep, before and after.

    python benchmarks/adapt.py --device cpu --minutes 2 5 --sweep liver_sweep.npz --camus SET

Frames to measure on are never those that were learned from: phantoms are acquired anew from their anatomy, frames of
CAMUS-M are honest ones of the evaluation, those of the sweep were left out of the volume, and the tracker tells their
poses. Every row of the table is one adaptation; rows of another device or length stay in the file.
"""

from __future__ import annotations

import argparse
import csv
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import scopereg
from scopereg.data.examples import case_examples
from scopereg.data.phantom.sets import make_phantoms
from scopereg.data.splits import split_set
from scopereg.data.store import VolumeSet, open_set
from scopereg.data.tracked import around, start_poses
from scopereg.evaluation.real_protocol import sweep_case
from scopereg.geometry import VoxelPoses, compose_poses, invert_poses, mtre_mm
from scopereg.images import Volume
from scopereg.io import write_volume
from scopereg.io.files import write_sheet
from scopereg.io.sweeps import read_npz_sweep
from scopereg.provenance import device_name
from scopereg.training.adaptation import Adaptation, adapt
from scopereg.training.settings import AdaptSettings
from scopereg.training.validation import summarise

FRAMES = 24  # of each patient
STARTS = 3  # of each frame of the sweep
SWEEP_MM = 1.2
SHAPE = (32, 128, 128)  # of the part of the sweep's reference around a start
FIRST_PATIENT = 110_000
KEY = ("data", "base", "parts", "device", "minutes", "steps_asked")
MEASURES = ("mean_mm", "median_mm", "p95_mm", "max_mm", "within_3_mm")


class Case(NamedTuple):
    """A volume to adapt to, and frames with true poses, each in its own part of the volume or all in the whole."""

    data: str
    volume: Volume
    frames: Tensor  # (N, H, W)
    references: Tensor  # (N or 1, D, H, W)
    poses: VoxelPoses  # (N, ...)


def main() -> None:
    arguments = parse()
    torch.set_num_threads(arguments.threads or torch.get_num_threads())
    lengths: list[dict[str, Any]] = [{"minutes": minutes} for minutes in arguments.minutes]
    lengths = [{"steps": steps} for steps in arguments.steps] or lengths
    rows = read_rows(arguments.out)
    for case in cases(arguments):
        for base in arguments.bases:
            for length in lengths:
                row = measure(case, base, length, arguments)
                print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
                rows = [old for old in rows if any(old[key] != str(row[key]) for key in KEY)] + [row]
                write_sheet(arguments.out, rows, list(rows[-1]))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, help="processor cores to use; by default all")
    parser.add_argument("--minutes", type=float, nargs="+", default=[2.0])
    parser.add_argument("--steps", type=int, nargs="+", default=[], help="steps instead of minutes")
    parser.add_argument("--parts", default="auto", help="gates, decoder, all")
    parser.add_argument("--bases", nargs="+", default=["echo"], help="weights to start from")
    parser.add_argument("--phantoms", nargs="*", default=["prostate", "abdomen"], help="anatomies; none to leave out")
    parser.add_argument("--patients", type=int, default=2, help="of each anatomy, and of CAMUS-M")
    parser.add_argument("--camus", type=Path, help="prepared set")
    parser.add_argument("--sweep", type=Path, help=".npz of a tracked sweep")
    parser.add_argument("--keep", type=Path, help="folder to keep volumes and weights in, for scopereg evaluate")
    return parser.parse_args()


def cases(arguments: argparse.Namespace) -> Iterator[Case]:
    if arguments.sweep is not None:
        yield sweep(arguments.sweep)
    for anatomy in arguments.phantoms:
        made = make_phantoms(anatomy, arguments.patients, seed=FIRST_PATIENT, frames=FRAMES)
        yield from patients(made, range(len(made)), f"phantom {anatomy}")
    if arguments.camus is not None:
        volumes = open_set(arguments.camus, verify=False)
        yield from patients(volumes, split_set(volumes, 0, 0).test[: arguments.patients], "CAMUS-M")


def patients(volumes: VolumeSet, rows: Any, name: str) -> Iterator[Case]:
    """Volumes of a set with their honest frames."""
    for row in rows:
        found = case_examples(volumes, row, "honest", 10.0, frames=FRAMES)
        volume = Volume(found.volume, volumes.spacing_mm)
        yield Case(f"{name} {volumes.cases[row]}", volume, found.frames, found.volume[None], found.poses)


def sweep(path: Path) -> Case:
    """A volume compounded without the frames that are sought in it, each from several starts."""
    real = sweep_case(read_npz_sweep(path), SWEEP_MM)
    truth = VoxelPoses(*(part.float() for part in real.truth))
    references, rotations, translations = [], [], []
    for seed in range(STARTS):
        start = VoxelPoses(*(part.float() for part in start_poses(truth, 10.0, seed, SHAPE)))
        references += [part.array for part in around(real.reference, start, SHAPE)]
        there = compose_poses(invert_poses(start), truth)
        rotations.append(there.rotation)
        translations.append(there.translation)
    poses = VoxelPoses(torch.cat(rotations), torch.cat(translations))
    frames = real.images.float().repeat(STARTS, 1, 1)
    return Case(f"sweep {real.name}", real.reference.volume, frames, torch.stack(references), poses)


def measure(case: Case, base: str, length: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """One adaptation, its errors before and after on frames that it never met."""
    spacing_mm = case.volume.isotropic_spacing_mm
    settings = AdaptSettings(base=base, spacing_mm=spacing_mm, parts=arguments.parts, **length)
    with tempfile.TemporaryDirectory() as folder:
        path = (arguments.keep or Path(folder)) / f"{case.data.replace(' ', '-')}.safetensors"
        if arguments.keep is not None:
            write_volume(case.volume, path.with_suffix(".nii.gz"))
        found = adapt(case.volume, path, settings, device=arguments.device)
        before, after = (errors_mm(case, name, spacing_mm, arguments.device) for name in (base, str(path)))
        model = scopereg.load(path, arguments.device)
        megabytes = os.path.getsize(path) / 1e6
    nothing = VoxelPoses(torch.eye(3).expand_as(case.poses.rotation), torch.zeros_like(case.poses.translation))
    start = mtre_mm(nothing, case.poses, shape_of(case), spacing_mm)
    return {
        "data": case.data,
        "base": base,
        "parts": model.facts["settings"]["parts"],
        "device": device_name(str(model.device)),
        "minutes": length.get("minutes", ""),
        "steps_asked": length.get("steps", ""),
        **told(found),
        "megabytes": round(megabytes, 2),
        "frames": len(case.frames),
        "start_mm": round(float(start.mean()), 3),
        **{f"before_{key}": round(value, 3) for key, value in before.items()},
        **{f"after_{key}": round(value, 3) for key, value in after.items()},
    }


def told(found: Adaptation) -> dict[str, Any]:
    """What the adaptation itself tells."""
    return {
        "seconds": round(found.seconds, 1),
        "steps": found.steps,
        "frames_learned": found.frames,
        "ending": found.ending,
        "held_out_before_mm": round(found.before["mean_mm"], 3),
        "held_out_after_mm": round(found.after["mean_mm"], 3),
    }


@torch.inference_mode()
def errors_mm(case: Case, name: str, spacing_mm: float, device: str) -> dict[str, float]:
    """Errors of a network on the frames of a case, after one forward pass."""
    model = scopereg.load(name, device)
    found = []
    for row, frame in enumerate(case.frames):
        reference = case.references[row % len(case.references)]
        result = model.network(frame[None].to(model.device), reference[None].to(model.device))
        found.append((result.rotation.float().cpu(), result.translation.float().cpu()))
    guess = VoxelPoses(*(torch.cat(parts) for parts in zip(*found, strict=True)))
    errors = summarise(mtre_mm(guess, case.poses, shape_of(case), spacing_mm))
    return {key: errors[key] for key in MEASURES}


def shape_of(case: Case) -> tuple[int, int]:
    return case.frames.shape[1], case.frames.shape[2]


def read_rows(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    main()
