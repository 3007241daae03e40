"""Development sets as files of bytes, and the errors of a network on them, wherever torch and numpy are.

Every set is one .npz file: volumes, frames sought in them and their true poses, made by development_sets.py. Training
calls `quick_errors` now and then on the small copies that `python benchmarks/development_sets.py` writes; nothing here
needs SimpleITK, rich or the command line.
"""

from __future__ import annotations

import csv
import json
import zipfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scopereg.errors import ScopeRegError
from scopereg.geometry import SUCCESS_MM, VoxelPoses, mtre_mm

FORMAT = "scopereg-development-set-1"
VOLUMES_AT_ONCE = 8
QUICK_FRAMES, QUICK_ALONE = 32, 16  # of a set; fewer where every frame has a volume of its own
CURVE = ("weights", "step", "minutes", "set", "frames", "mean_mm", "median_mm", "p95_mm", "within_3_mm")
_PARTS = ("volume", "frames", "rotation", "translation")


@dataclass(frozen=True, eq=False)
class Case:
    """A volume and the frames sought in it."""

    name: str
    patient: str  # intervals are over patients
    volume: Tensor  # (D, H, W) uint8
    frames: Tensor  # (F, H, W) uint8
    rotation: Tensor  # (F, 3, 3), where they truly lie
    translation: Tensor  # (F, 3), centred voxels


@dataclass(frozen=True, eq=False)
class DevelopmentSet:
    """The cases of a set at one size of offsets, in a seeded order: the first few stand for all of them."""

    name: str
    magnitude: float  # voxels and degrees
    spacing_mm: float
    cases: tuple[Case, ...]
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def frame_count(self) -> int:
        return sum(len(case.frames) for case in self.cases)

    def first(self, frames: int) -> DevelopmentSet:
        """The first cases with at least so many frames together, or all."""
        kept: list[Case] = []
        for case in self.cases:
            if sum(len(before.frames) for before in kept) >= frames:
                break
            kept.append(case)
        return DevelopmentSet(self.name, self.magnitude, self.spacing_mm, tuple(kept), self.facts)

    def quick(self) -> DevelopmentSet:
        """The part that learning curves are measured on."""
        alone = all(len(case.frames) == 1 for case in self.cases)
        return self.first(QUICK_ALONE if alone else QUICK_FRAMES)


def write_set(path: Path, made: DevelopmentSet) -> None:
    """One .npz file, compressed by bzip2: of speckle it leaves a quarter less than numpy's own way."""
    head = {
        "format": FORMAT,
        "name": made.name,
        "magnitude": made.magnitude,
        "spacing_mm": made.spacing_mm,
        "cases": [[case.name, case.patient] for case in made.cases],
        "facts": made.facts,
    }
    arrays: dict[str, Any] = {"head": np.array(json.dumps(head))}
    for number, case in enumerate(made.cases):
        arrays |= {f"{number}.{part}": getattr(case, part).numpy() for part in _PARTS}
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.half")
    with zipfile.ZipFile(half, "w", zipfile.ZIP_BZIP2) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, np.asarray(array, order="C"), allow_pickle=False)
    half.replace(path)


def read_set(path: Path) -> DevelopmentSet:
    """The set that `write_set` wrote."""
    try:
        # Opened here: of a damaged archive NumPy would leave the file open.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            head = json.loads(str(file["head"]))
            rows = [[torch.from_numpy(file[f"{k}.{part}"]) for part in _PARTS] for k in range(len(head["cases"]))]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ScopeRegError(f"it cannot be read: {error}", where=str(path), fix="remove it: it is made again") from None
    if head.get("format") != FORMAT:
        raise ScopeRegError("it is no development set", where=str(path), fix="remove it: it is made again")
    cases = tuple(Case(*names, *row) for names, row in zip(head["cases"], rows, strict=True))
    return DevelopmentSet(head["name"], head["magnitude"], head["spacing_mm"], cases, head["facts"])


def load_quick_sets(folder: Path | str) -> list[dict[str, Any]]:
    """The sets of a folder as tensors, cases of one shape together; a set of several shapes has several entries.

    Each entry: name, magnitude, spacing_mm, patients (one per volume), volumes (V, D, H, W) uint8, frames (N, H, W)
    uint8, N / V in a row for each volume, and their rotation (N, 3, 3) and translation (N, 3) in float32.
    """
    paths = sorted(Path(folder).glob("*.npz"))
    if not paths:
        raise ScopeRegError(
            "no development set in it",
            where=str(folder),
            fix="write them: python benchmarks/development_sets.py -o FOLDER",
        )
    return [entry for path in paths for entry in stacked(read_set(path))]


def stacked(made: DevelopmentSet) -> list[dict[str, Any]]:
    """A set as entries of `load_quick_sets`."""
    alike: dict[tuple[int, ...], list[Case]] = defaultdict(list)
    for case in made.cases:
        shapes = (*case.volume.shape, *case.frames.shape)
        alike[shapes].append(case)
    return [
        {
            "name": made.name,
            "magnitude": made.magnitude,
            "spacing_mm": made.spacing_mm,
            "patients": [case.patient for case in cases],
            "volumes": torch.stack([case.volume for case in cases]),
            **{part: torch.cat([getattr(case, part) for case in cases]) for part in _PARTS[1:]},
        }
        for cases in alike.values()
    ]


@torch.no_grad()
def quick_errors(
    network: nn.Module,
    sets: Sequence[dict[str, Any]],
    device: torch.device | str,
    *,
    volumes_at_once: int = VOLUMES_AT_ONCE,
    locate: Callable[[Tensor, Tensor], Any] | None = None,
) -> dict[str, Tensor]:
    """mTRE in mm (N,) of every frame by the name of its set: one forward pass of the network, as it is.

    The network is put into evaluation mode and back. `locate(slices, volumes)` replaces the plain call of the network
    where its result is not made that way; it gives something with `rotation` and `translation`.
    """
    ask = network if locate is None else locate
    training = network.training
    network.eval()
    found: dict[str, list[Tensor]] = defaultdict(list)
    try:
        for entry in sets:
            found[entry["name"]].append(_errors_mm(ask, entry, device, volumes_at_once))
    finally:
        network.train(training)
    return {name: torch.cat(parts) for name, parts in found.items()}


def _errors_mm(ask: Callable[..., Any], entry: dict[str, Any], device: torch.device | str, at_once: int) -> Tensor:
    volumes, frames = entry["volumes"], entry["frames"]
    each = len(frames) // len(volumes)
    rotations, translations = [], []
    for first in range(0, len(volumes), at_once):
        own = volumes[first : first + at_once].to(device).float() / 255
        slices = frames[first * each : (first + at_once) * each].to(device).float() / 255
        result = ask(slices, own)
        rotations.append(result.rotation.float().cpu())
        translations.append(result.translation.float().cpu())
    guess = VoxelPoses(torch.cat(rotations), torch.cat(translations))
    true = VoxelPoses(entry["rotation"].float(), entry["translation"].float())
    return mtre_mm(guess, true, (frames.shape[1], frames.shape[2]), entry["spacing_mm"])


def quick_summary(errors_mm: dict[str, Tensor]) -> dict[str, dict[str, float]]:
    """Frames, mean, median, p95 and share within 3 mm of every set."""
    return {
        name: {
            "frames": float(len(values)),
            "mean_mm": float(values.mean()),
            "median_mm": float(values.median()),
            "p95_mm": float(torch.quantile(values, 0.95)),
            "within_3_mm": float((values <= SUCCESS_MM).float().mean()),
        }
        for name, values in errors_mm.items()
    }


def append_curve(path: Path, errors_mm: dict[str, Tensor], weights: str, step: int | str, minutes: float | str) -> None:
    """A row per set at the end of a CSV file of learning curves, which `learning_curves.py` draws."""
    rows = quick_summary(errors_mm)
    fresh = not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, CURVE, lineterminator="\n")
        if fresh:
            writer.writeheader()
        for name, numbers in rows.items():
            told = {key: f"{value:.6g}" for key, value in numbers.items()}
            writer.writerow({"weights": weights, "step": step, "minutes": minutes, "set": name, **told})
