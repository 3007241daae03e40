"""Whether it helps to compare frames as thick as they are: poses refined by grey values averaged across the plane.

    OMP_NUM_THREADS=1 python benchmarks/thickness.py --frames 24

`universal` and the refinement by grey values compare frames as so many mm thicker than the volume, or as much as their
depth lets expect (`geometry.beam`); 0 is as thin. `refined_alone` goes on from the network without it. Phantoms have
volumes of no thickness and frames of a known one, real sets (liver: a sweep and a volume compounded from it; uterus and
brain: honest frames of 3D volumes) volumes and frames of the same beam.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from development_sets import DATA, OUT, QUICK_MAGNITUDE, development_set

from scopereg.data import phantom
from scopereg.geometry import Pose, sample_poses
from scopereg.geometry.beam import ESTIMATED
from scopereg.images import Frame, Volume, pose_from_voxels
from scopereg.io.files import write_sheet
from scopereg.progress import say
from scopereg.registration.locator import Locator
from scopereg.registration.refine import PreparedRefinement
from scopereg.registration.result import Result, apart_mm

PHANTOMS = ("echo", "prostate", "abdomen")
TRUE = ("0", "3", "6", ESTIMATED)  # of the frames of phantoms, in mm
COMPARED = ("0", "3", "6", ESTIMATED)
NAMES = ("network", "refined", "refined_alone")
REAL = ("liver", "uterus", "resect")
SHAPE, MAGNITUDE, FRAMES, SEED = (32, 128, 128), 10.0, 4, 640_001
NEAR_MM = 3.0


class Scene(NamedTuple):
    """A volume, and frames with their poses, as thick as told."""

    source: str
    thick: str
    volume: Volume
    frames: list[tuple[Frame, Pose]]


def phantoms(anatomy: str, count: int) -> Iterator[Scene]:
    for seed in range(SEED, SEED + -(-count // FRAMES)):
        patient = phantom.create(anatomy, seed=seed, shape=SHAPE)
        drawn = sample_poses(FRAMES, MAGNITUDE, SHAPE, torch.Generator().manual_seed(seed))
        for thick in TRUE:
            images = patient.acquire(*drawn, seed=seed, thickness_mm=None if thick == "0" else thick).images
            frames = [Frame(image, patient.spacing_mm) for image in images]
            truth = [
                pose_from_voxels(drawn.rotation[row], drawn.translation[row], frame, patient.volume)
                for row, frame in enumerate(frames)
            ]
            yield Scene(anatomy, thick, patient.volume, list(zip(frames, truth, strict=True)))


def real(name: str, count: int, options: argparse.Namespace) -> Iterator[Scene]:
    chosen = development_set(name, QUICK_MAGNITUDE, options.data, options.folder)
    for case in chosen.cases[:count]:
        volume = Volume(case.volume.float() / 255, chosen.spacing_mm)
        frame = Frame(case.frames[0].float() / 255, chosen.spacing_mm)
        truth = pose_from_voxels(case.rotation[0], case.translation[0], frame, volume)
        yield Scene(name, "as the volume", volume, [(frame, truth)])


def errors(scene: Scene, locators: dict[str, Locator]) -> Iterator[dict[str, Any]]:
    """Of the network and of the refinement, both with a thickness; and of the refinement alone with it."""
    ready = [frame.for_registration() for frame, _ in scene.frames]
    thin: list[Result] = []
    for thick, locator in locators.items():
        prepared = locator.prepared
        assert isinstance(prepared, PreparedRefinement)
        found = [one for one in prepared.before.locate(ready, [None] * len(ready)) if isinstance(one, Result)]
        assert len(found) == len(ready)
        thin = thin or found
        for frame, first, start, (_, truth) in zip(ready, found, thin, scene.frames, strict=True):
            both, alone = (prepared.refine_from(frame, one) or one for one in (first, start))
            told = {"network": first, "refined": both, "refined_alone": alone}
            far = {name: apart_mm(frame, one.pose, truth) for name, one in told.items()}
            yield {"source": scene.source, "thick": scene.thick, "compared": thick, **far}


def summary(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    cells: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in found:
        cells.setdefault((row["source"], row["thick"], row["compared"]), []).append(row)
    return [
        {
            **dict(zip(("source", "frames_thick_mm", "compared_mm"), cell, strict=True)),
            "frames": len(own),
            **{f"{name}_mean_mm": f"{np.mean([row[name] for row in own]):.3f}" for name in NAMES},
            **{f"{name}_median_mm": f"{np.median([row[name] for row in own]):.3f}" for name in NAMES},
            "within_3_mm": f"{np.mean([row['refined'] <= NEAR_MM for row in own]):.2f}",
        }
        for cell, own in cells.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", nargs="+", default=[*REAL, *PHANTOMS])
    parser.add_argument("--frames", type=int, default=24, help="of each source and thickness")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data")
    parser.add_argument("--folder", type=Path, default=OUT / "sets", help="where sets are kept")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: list[dict[str, Any]] = []
    for source in options.sources:
        made = real(source, options.frames, options) if source in REAL else phantoms(source, options.frames)
        volume, locators = None, dict[str, Locator]()
        for scene in made:
            if scene.volume is not volume:
                volume = scene.volume
                locators = {
                    thick: Locator(volume, "universal+refine", thickness_mm=thick, device="cpu") for thick in COMPARED
                }
            found += errors(scene, locators)
        write_sheet(options.out, summary(found))
        for row in summary(found):
            if row["source"] == source:
                say(", ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
