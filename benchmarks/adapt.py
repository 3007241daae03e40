"""What `scopereg adapt` gives: frames of phantoms, of CAMUS-M patients and of a tracked sweep, before and after.

    python benchmarks/adapt.py --device cpu --minutes 2 5 --sweep liver_sweep.npz --camus SET

Frames to measure on are never those that were learned from: phantoms are acquired anew from their anatomy, frames of
CAMUS-M and TRUS-B are honest ones of the evaluation, those of the sweep were left out of the volume, and the tracker
tells their poses. They are located as `register` does, without its refinement by grey values: by the network alone
(`before`, `after`), and with the fine stage (`before_fine`, `after_fine`). Every row of the table is one adaptation;
rows of another device or length stay in the file, and those of `echo`, which the package had once, are of one forward
pass.
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
from development_sets import script_of, write_trus
from torch import Tensor

import scopereg
from scopereg.data.examples import case_examples
from scopereg.data.muregpro import load_muregpro
from scopereg.data.phantom.sets import make_phantoms
from scopereg.data.splits import split_patients, split_set
from scopereg.data.store import VolumeSet, open_set
from scopereg.data.tracked import start_poses
from scopereg.evaluation.real_protocol import sweep_case
from scopereg.geometry import Pose, VoxelPoses, mtre_mm
from scopereg.images import Frame, Volume, centre_pose, pose_from_voxels, pose_to_voxels
from scopereg.io import write_volume
from scopereg.io.files import write_sheet
from scopereg.io.sweeps import read_npz_sweep
from scopereg.provenance import device_name
from scopereg.registration.locator import Locator
from scopereg.registration.model import Registrar
from scopereg.registration.result import Result
from scopereg.registration.settings import DEFAULT
from scopereg.training.adaptation import Adaptation, adapt
from scopereg.training.settings import AdaptSettings
from scopereg.training.validation import summarise

FRAMES = 24  # of each patient
SWEEP_MM = 1.2
SHAPE = (32, 128, 128)  # of the part of the sweep that starts are drawn for
FIRST_PATIENT = 110_000
KEY = ("data", "base", "parts", "device", "minutes", "steps_asked")
MEASURES = ("mean_mm", "median_mm", "p95_mm", "max_mm", "within_3_mm")


class Case(NamedTuple):
    """A volume to adapt to, and frames with their true poses."""

    data: str
    volume: Volume
    frames: list[Frame]
    truth: list[Pose]
    starts: list[Pose | None]  # None: the middle of the volume


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
    parser.add_argument("--bases", nargs="+", default=[DEFAULT], help="weights to start from")
    parser.add_argument("--phantoms", nargs="*", default=["prostate", "abdomen"], help="anatomies; none to leave out")
    parser.add_argument("--patients", type=int, default=2, help="of each anatomy, and of each set")
    parser.add_argument("--camus", type=Path, help="prepared set")
    parser.add_argument("--trus", type=Path, help="folder with trus_lowres.npz and its script")
    parser.add_argument("--sweep", type=Path, help=".npz of a tracked sweep")
    parser.add_argument("--starts", type=int, default=3, help="of each frame of the sweep")
    parser.add_argument("--keep", type=Path, help="folder to keep volumes and weights in, for scopereg evaluate")
    return parser.parse_args()


def cases(arguments: argparse.Namespace) -> Iterator[Case]:
    if arguments.sweep is not None:
        yield sweep(arguments.sweep, arguments.starts)
    for anatomy in arguments.phantoms:
        made = make_phantoms(anatomy, arguments.patients, seed=FIRST_PATIENT, frames=FRAMES)
        yield from patients(made, range(len(made)), f"phantom {anatomy}")
    if arguments.trus is not None:
        yield from patients(trus_b(arguments.trus, arguments.patients), range(arguments.patients), "TRUS-B")
    if arguments.camus is not None:
        volumes = open_set(arguments.camus, verify=False)
        yield from patients(volumes, split_set(volumes, 0, 0).test[: arguments.patients], "CAMUS-M")


def patients(volumes: VolumeSet, rows: Any, name: str) -> Iterator[Case]:
    """Volumes of a set with their honest frames."""
    for row in rows:
        found = case_examples(volumes, row, "honest", 10.0, frames=FRAMES)
        volume = Volume(found.volume, volumes.spacing_mm)
        frames = [Frame(image, spacing_mm=volumes.spacing_mm) for image in found.frames]
        yield Case(f"{name} {volumes.cases[row]}", volume, frames, placed(found.poses, frames, volume), [None] * FRAMES)


def trus_b(data: Path, count: int) -> VolumeSet:
    """The first patients of the test part."""
    names = [f"case{number:06d}" for number in range(73)]
    test = [names[row] for row in split_patients(names).test[:count]]
    with tempfile.TemporaryDirectory() as folder:
        write_trus(script_of(data / "muregpro_from_trus.py"), data, Path(folder), set(test))
        return load_muregpro(folder, probe="high", labels=False, name="TRUS-B")


def sweep(path: Path, starts: int) -> Case:
    """A volume compounded without the frames that are sought in it, each from several starts."""
    real = sweep_case(read_npz_sweep(path), SWEEP_MM)
    volume = real.reference.volume
    truth = VoxelPoses(*(part.float() for part in real.truth))
    frames = [Frame(image.float(), spacing_mm=SWEEP_MM) for image in real.images]
    begin = [start_poses(truth, 10.0, seed, SHAPE) for seed in range(starts)]
    drawn = [placed(poses, frames, volume) for poses in begin]
    true = placed(truth, frames, volume) * starts
    return Case(f"sweep {real.name}", volume, frames * starts, true, [pose for one in drawn for pose in one])


def placed(poses: VoxelPoses, frames: list[Frame], volume: Volume) -> list[Pose]:
    """Poses in mm of those in centred voxels."""
    return [
        pose_from_voxels(rotation, translation, frame, volume)
        for rotation, translation, frame in zip(*poses, frames, strict=True)
    ]


def measure(case: Case, base: str, length: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """One adaptation, its errors before and after on frames that it never met."""
    settings = AdaptSettings(base=base, parts=arguments.parts, **length)
    with tempfile.TemporaryDirectory() as folder:
        path = (arguments.keep or Path(folder)) / f"{case.data.replace(' ', '-')}.safetensors"
        if arguments.keep is not None:
            write_volume(case.volume, path.with_suffix(".nii.gz"))
        found = adapt(case.volume, path, settings, device=arguments.device)
        models = {"before": base, "after": str(path)}
        errors = {
            f"{when}{how}": errors_mm(case, scopereg.load(name, arguments.device, calibrated=False, fine=fine))
            for how, fine in (("", False), ("_fine", True))
            for when, name in models.items()
        }
        model = scopereg.load(path, arguments.device)
        megabytes = os.path.getsize(path) / 1e6
    nothing = [centre_pose(frame, case.volume) for frame in case.frames]
    starts = [start or middle for start, middle in zip(case.starts, nothing, strict=True)]
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
        "start_mm": round(float(apart_mm(case, starts).mean()), 3),
        **{f"{when}_{key}": round(told[key], 3) for when, told in errors.items() for key in MEASURES},
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


def errors_mm(case: Case, model: Registrar) -> dict[str, float]:
    """Errors of a model on the frames of a case."""
    found = Locator(case.volume, model).locate_all(case.frames, case.starts)
    return summarise(apart_mm(case, [one.pose for one in found if isinstance(one, Result)]))


def apart_mm(case: Case, poses: list[Pose]) -> Tensor:
    """mTRE (N,) of poses of all frames."""
    found, true = in_voxels(poses, case), in_voxels(case.truth, case)
    return mtre_mm(found, true, case.frames[0].shape, case.volume.isotropic_spacing_mm)


def in_voxels(poses: list[Pose], case: Case) -> VoxelPoses:
    found = [pose_to_voxels(pose, frame, case.volume) for pose, frame in zip(poses, case.frames, strict=True)]
    return VoxelPoses(*(torch.stack(parts) for parts in zip(*found, strict=True)))


def read_rows(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    main()
