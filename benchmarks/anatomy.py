"""Whether poses come of the anatomy: the same frames with the volume's speckle, with other speckle, and thicker.

    OMP_NUM_THREADS=1 python benchmarks/anatomy.py --frames 24

A frame cut out of its volume can be found by its speckle. Here phantoms and worlds are acquired three times at the
same poses: with the scatterers of the volume, with others, and with others and averaged over some millimetres across
the plane, as a transducer's thick beam does. What the network finds alone is compared with what its fine stage makes
of it, and both with grey values refined from there (`universal+refine`).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from scopereg.data import phantom
from scopereg.data.worlds import WorldRanges, draw_worlds
from scopereg.geometry import VoxelPoses, sample_poses
from scopereg.images import Frame, Volume, pose_from_voxels
from scopereg.io.files import write_sheet
from scopereg.registration.locator import Locator
from scopereg.registration.model import Registrar, load
from scopereg.registration.result import Result, apart_mm

OUT = Path(__file__).with_suffix(".csv")
ANATOMIES = ("echo", "prostate", "abdomen")
SHARED, REDRAWN, THICK = "the volume's speckle", "speckle redrawn", "redrawn, frame 5 planes thick"
SHAPE, MAGNITUDE, FRAMES, SEED = (32, 128, 128), 10.0, 8, 610_001
PLANES = (-2.0, -1.0, 0.0, 1.0, 2.0)  # voxels across a thick frame
WORLD_MM = 0.6  # a world has no millimetres of its own: those of the phantoms
NEAR_MM = 3.0


class Scene(NamedTuple):
    """A volume, where its frames lie, and how they look."""

    source: str
    volume: Volume
    poses: VoxelPoses
    frames: dict[str, Tensor]  # (B, H, W) by what is changed


def phantoms(anatomy: str, seed: int) -> Scene:
    patient = phantom.create(anatomy, seed=seed, shape=SHAPE)
    poses = sample_poses(FRAMES, MAGNITUDE, SHAPE, torch.Generator().manual_seed(seed))
    rotation, translation = poses.rotation, poses.translation

    def acquired(correlation: float, away: float = 0.0) -> Tensor:
        moved = translation + away * rotation[:, :, 2]  # across the plane; the seed draws the same for all of them
        return patient.acquire(rotation, moved, "honest", seed=seed, speckle_correlation=correlation).images

    thick = torch.stack([acquired(0.0, away) for away in PLANES]).mean(0)
    return Scene(anatomy, patient.volume, poses, {SHARED: acquired(1.0), REDRAWN: acquired(0.0), THICK: thick})


def worlds(seed: int) -> Scene:
    usual = WorldRanges(foreign_chance=0.0, elevation_chance=0.0, own_speckle_chance=1.0)
    kinds = {
        SHARED: replace(usual, own_speckle_chance=0.0, speckle_correlation=(1.0, 1.0)),
        REDRAWN: usual,
        THICK: replace(usual, elevation_chance=1.0, elevation=(5.0, 5.0)),
    }
    made = {
        kind: draw_worlds(1, FRAMES, SHAPE, torch.Generator().manual_seed(seed), magnitude=MAGNITUDE, ranges=ranges)
        for kind, ranges in kinds.items()
    }
    first = made[SHARED]
    assert all(torch.equal(one.volumes, first.volumes) for one in made.values())  # frames alone differ
    frames = {kind: one.frames for kind, one in made.items()}
    return Scene("worlds", Volume(first.volumes[0], WORLD_MM), VoxelPoses(first.rotation, first.translation), frames)


def scenes(count: int) -> Iterator[Scene]:
    for number in range(math.ceil(count / FRAMES)):
        for anatomy in ANATOMIES:
            yield phantoms(anatomy, SEED + number)
        yield worlds(SEED + number)


def rows(scene: Scene, models: dict[str, Registrar]) -> Iterator[dict[str, object]]:
    """The error of every frame by every method."""
    for name, model in models.items():
        locator = Locator(scene.volume, model, refine=True)
        for kind, images in scene.frames.items():
            frames = [Frame(image, scene.volume.isotropic_spacing_mm) for image in images]
            near = locator.prepared.before.locate([one.for_registration() for one in frames], [None] * len(frames))  # type: ignore[attr-defined]
            for row, (frame, found) in enumerate(zip(frames, near, strict=True)):
                assert isinstance(found, Result), found
                true = pose_from_voxels(scene.poses.rotation[row], scene.poses.translation[row], frame, scene.volume)
                refined = locator.refine_from(frame, found) or found
                for method, one in ((name, found), (f"{name} + refine", refined)):
                    error_mm = apart_mm(frame, one.pose, true)
                    yield {"source": scene.source, "frames": kind, "method": method, "mtre_mm": error_mm}


def summary(found: list[dict[str, object]]) -> list[dict[str, object]]:
    """Of each cell: the mean error and the share within 3 mm."""
    cells: dict[tuple[str, ...], list[float]] = {}
    for row in found:
        cells.setdefault(tuple(str(row[key]) for key in ("source", "frames", "method")), []).append(
            float(str(row["mtre_mm"]))
        )
    return [
        {
            **dict(zip(("source", "frames", "method"), cell, strict=True)),
            "count": len(errors),
            "mean_mm": f"{sum(errors) / len(errors):.2f}",
            "median_mm": f"{sorted(errors)[len(errors) // 2]:.2f}",
            "within_3_mm": f"{sum(error <= NEAR_MM for error in errors) / len(errors):.2f}",
        }
        for cell, errors in cells.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=24, help="of each cell, in whole volumes of 8")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    models = {"network": load(calibrated=False, fine=False), "fine stage": load(calibrated=False)}
    found: list[dict[str, object]] = []
    for scene in scenes(options.frames):
        found += rows(scene, models)
        write_sheet(options.out, summary(found))  # what there is so far
    for row in summary(found):
        print(*row.values(), sep="  ")


if __name__ == "__main__":
    main()
