"""What is left of known deformations: by the rigid pose that `register` finds, and with the displacement beside it.

    OMP_NUM_THREADS=1 python benchmarks/deformable.py

Phantoms, whose tissue is displaced by waves (largest displacement 1 to 3 mm) or pressed from the probe's side (3 and
5 mm), as frames of the volume's own machine that share its speckle (`shared`) and as honest ones that share none;
frames cut from real volumes at displaced points, with the mismatch of tests (`real`); worlds, whose volumes are
deformed by fields of their own. None of these is a B-spline. Kind `none` is rigid data. Rows are frames: mean distances
in mm of what they show from where it truly lies, with the pose of `universal+refine`, with the best rigid pose there
is, with the displacement, and with its step too.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from development_sets import DATA, OUT, QUICK_MAGNITUDE, development_set
from torch import Tensor

from scopereg.data import phantom
from scopereg.data.mismatch import honest_frames
from scopereg.data.seeds import generator_for
from scopereg.data.worlds import WorldRanges
from scopereg.data.worlds.world import draw_deformed_worlds
from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose, VoxelPoses, place_plane, plane_points, sample_points, sample_poses
from scopereg.geometry.kabsch import weighted_kabsch_in_space
from scopereg.images import Frame, Volume, pose_from_voxels
from scopereg.io.files import write_sheet
from scopereg.progress import say
from scopereg.registration.locator import Locator

KINDS = (("none", 0.0), ("none", 0.0), ("waves", 1.0), ("waves", 2.0), ("waves", 3.0), ("press", 3.0), ("press", 5.0))
ANATOMIES, REAL = ("echo", "prostate", "abdomen"), ("uterus", "resect")
SHARED = {"protocol": "same-scanner", "speckle_correlation": 0.9}
STRENGTHS = (0.0, 0.6, 1.2)  # of worlds: root mean square of the nodes of a displacement, in voxels that are 1 mm
WORLD = (32, 128, 128)
MAGNITUDE, SEED, WAVES = 6.0, 20_101, 4
LOST_MM = 8.0  # poses that are this far off were not found: no displacement mends them

Array = npt.NDArray[np.float64]
Displaced = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
Where = Callable[[Array], Array]  # where points (N, 3) of a frame, in its own mm, truly lie in the volume


class Scene(NamedTuple):
    """A volume, and frames of deformed tissue: what was done to it, the frame, and where its points lie."""

    source: str
    seed: int
    volume: Volume
    frames: list[tuple[str, float, Frame, Where]]


def waves(width_mm: float, largest_mm: float, generator: torch.Generator) -> Displaced:
    """Plane waves, in the plane and out of it, as long as the image is wide, more or less."""
    heading, turn = (2 * math.pi * torch.rand(WAVES, generator=generator) for _ in range(2))
    length_mm = width_mm * (0.7 + 0.8 * torch.rand(WAVES, generator=generator))
    strength = torch.randn(WAVES, 3, generator=generator)

    def drawn(x: Tensor, y: Tensor) -> Tensor:
        along = x[..., None] * heading.cos() + y[..., None] * heading.sin()
        return torch.sin(2 * math.pi * along / length_mm + turn) @ strength

    y, x = torch.meshgrid(*[torch.linspace(-width_mm / 2, width_mm / 2, 41)] * 2, indexing="ij")
    factor = largest_mm / float(drawn(x, y).norm(dim=-1).max())

    def displaced(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        first, second, third = (drawn(x.float(), y.float()) * factor).unbind(-1)
        return first, second, third

    return displaced


def press(width_mm: float, largest_mm: float, generator: torch.Generator) -> Displaced:
    """A probe at the top that is pressed in: tissue gives way less and less with depth, and to the sides."""
    reach, across, middle = (
        width_mm * (low + (high - low) * float(torch.rand((), generator=generator)))
        for low, high in ((0.35, 0.65), (0.4, 0.7), (-0.1, 0.1))
    )

    def displaced(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        depth = (y + width_mm / 2).clamp_min(0)
        under = torch.exp(-(((x - middle) / across) ** 2) / 2)
        slope = largest_mm / reach * torch.exp(-depth / reach) * under
        return -0.45 * (x - middle) * slope, largest_mm * (1 - torch.exp(-depth / reach)) * under, torch.zeros_like(x)

    return displaced


def none(width_mm: float, largest_mm: float, generator: torch.Generator) -> Displaced:
    """Tissue as it was."""
    return lambda x, y: (torch.zeros_like(x), torch.zeros_like(x), torch.zeros_like(x))


MAKE = {"waves": waves, "press": press, "none": none}


def known(pose: Pose, displaced: Displaced) -> Where:
    def where(points: Array) -> Array:
        x, y = torch.from_numpy(points[:, :2].T.copy())
        return np.asarray(pose.apply(points + torch.stack(displaced(x, y), 1).double().numpy()))

    return where


def phantoms(source: str, count: int) -> Iterator[Scene]:
    anatomy, _, manner = source.partition(" ")
    options: dict[str, Any] = SHARED if manner == "shared" else {}
    for seed in range(SEED, SEED + count):
        patient = phantom.create(anatomy, seed=seed)
        poses = sample_poses(len(KINDS), MAGNITUDE, patient.shape, generator_for("deformed frames", seed))
        frames = []
        for row, (kind, largest_mm) in enumerate(KINDS):
            generator = generator_for("deformations", seed, row)
            displaced = MAKE[kind](patient.spacing_mm * patient.shape[2], largest_mm, generator)
            one = VoxelPoses(poses.rotation[row : row + 1], poses.translation[row : row + 1])
            image = patient.acquire(*one, seed=100 * seed + row, displaced=displaced, **options).images[0]
            frame = Frame(image, patient.spacing_mm)
            pose = pose_from_voxels(one.rotation[0], one.translation[0], frame, patient.volume)
            frames.append((kind, largest_mm, frame, known(pose, displaced)))
        yield Scene(source, seed, patient.volume, frames)


def real(source: str, count: int, options: argparse.Namespace) -> Iterator[Scene]:
    """Frames cut from real volumes at displaced points, as another acquisition might show them."""
    chosen = development_set(source, QUICK_MAGNITUDE, options.data, options.folder)
    step = chosen.spacing_mm
    for number, case in enumerate(chosen.cases[:count]):
        volume = Volume(case.volume.float() / 255, step)
        plane = volume.shape[1:]
        poses = sample_poses(len(KINDS), MAGNITUDE, volume.shape, generator_for("deformed frames", number))
        x, y = (plane_points(plane) * step).unbind(-1)
        images, frames = [], []
        for row, (kind, largest_mm) in enumerate(KINDS):
            displaced = MAKE[kind](step * plane[1], largest_mm, generator_for("deformations", number, row))
            rotation, translation = poses.rotation[row], poses.translation[row]
            moved = torch.stack(displaced(x, y), -1) / step @ rotation.T
            points = place_plane(rotation, translation, plane) + moved
            images.append(sample_points(volume.array[None], points[None])[0])
            frames.append((kind, largest_mm, displaced))
        made, _ = honest_frames(torch.stack(images), generator_for("mismatch", number), unseen=True)
        scene = []
        for row, (kind, largest_mm, displaced) in enumerate(frames):
            frame = Frame(made[row], step)
            pose = pose_from_voxels(poses.rotation[row], poses.translation[row], frame, volume)
            scene.append((kind, largest_mm, frame, known(pose, displaced)))
        yield Scene(f"{source} real", number, volume, scene)


def worlds(count: int, frames: int = 2) -> Iterator[Scene]:
    """Random anatomies; all of a volume is deformed, so that each strength has a volume of its own."""
    for seed in range(SEED, SEED + count):
        for strength in STRENGTHS:
            ranges = replace(
                WorldRanges(),
                deformed_chance=1.0,
                deformation=(strength, strength),
                jitter_chance=0.0,
                foreign_chance=0.0,
            )
            drawn = draw_deformed_worlds(
                1, frames, WORLD, generator_for("deformed worlds", seed), magnitude=MAGNITUDE, ranges=ranges
            )
            volume = Volume(drawn.batch.volumes[0], 1.0)
            scene = []
            for row in range(frames):
                frame = Frame(drawn.batch.frames[row], 1.0)

                def where(points: Array, row: int = row, drawn: Any = drawn, volume: Volume = volume) -> Array:
                    lies = drawn.where(torch.from_numpy(points[:, :2]).float())[row]
                    return lies.double().numpy() + volume.centre_mm

                scene.append(("field" if strength else "none", strength, frame, where))
            yield Scene("worlds", seed, volume, scene)


def rows(scene: Scene) -> Iterator[dict[str, Any]]:
    locator = Locator(scene.volume, "universal+refine", deformable=True, device="cpu")
    for kind, largest_mm, frame, where in scene.frames:
        told = {"source": scene.source, "seed": scene.seed, "kind": kind, "amount_mm": largest_mm}
        try:
            result = locator.locate(frame)
        except ScopeRegError as error:
            say(f"{told}: {error.what}")
            continue
        deformation = result.deformation
        assert deformation is not None
        points = deformation.seen_mm3
        true = where(points)
        fit = weighted_kabsch_in_space(*map(torch.from_numpy, (points, true)), torch.ones(len(points)).double())
        best = points @ fit.rotation.numpy().T + fit.translation.numpy()
        only = points + deformation.displacement.at(points)
        ways = {"rigid": result.pose.apply(points), "best_rigid": best, "displaced": result.pose.apply(only)}
        ways["left"] = result.pose.apply(deformation.apply(points))
        lengths = {f"{name}_mm": np.linalg.norm(way - true, axis=1).mean() for name, way in ways.items()}
        lengths["changed_mm"] = np.linalg.norm(deformation.apply(points) - points, axis=1).mean()
        facts = deformation.facts
        low, high = facts["jacobian"]
        yield {
            **told,
            "ok": result.ok,
            "belongs": result.belongs,
            **{name: round(float(length), 4) for name, length in lengths.items()},
            **{name: facts[name] for name in ("significant", "significance", "max_mm", "step_mm", "folds")},
            "jacobian_least": low,
            "jacobian_most": high,
        }


def summary(found: list[dict[str, Any]]) -> Iterator[str]:
    """By source and by what was done: medians, and how the rest of the deformation is to that of the rigid pose."""
    groups: dict[tuple[str, str, float], list[dict[str, Any]]] = {}
    for row in found:
        if row.get("rigid_mm", LOST_MM) < LOST_MM:
            for source in (row["source"], "all shared" if row["source"].endswith("shared") else ""):
                groups.setdefault((source, row["kind"], row["amount_mm"]), []).append(row)
    for (source, kind, amount), own in sorted(groups.items()):
        if source:
            names = ("rigid_mm", "best_rigid_mm", "displaced_mm", "left_mm")
            rigid, best, displaced, left = (median(row[name] for row in own) for name in names)
            ratio = median(row["left_mm"] / row["rigid_mm"] for row in own)
            yield (
                f"{source:16} {kind:6} {amount:3.1f}: {len(own):3} frames, "
                f"{sum(row['significant'] for row in own):3} significant; rigid {rigid:.2f} (best {best:.2f}), "
                f"displaced {displaced:.2f}, with step {left:.2f} mm, ratio {ratio:.2f}; "
                f"changed {mean(row['changed_mm'] for row in own):.3f} mm on average"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sources = [f"{anatomy} {manner}" for manner in ("shared", "honest") for anatomy in ANATOMIES]
    parser.add_argument("--sources", nargs="+", default=[*sources, "worlds", *REAL])
    parser.add_argument("--count", type=int, default=4, help="volumes of each source")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data")
    parser.add_argument("--folder", type=Path, default=OUT / "sets", help="where sets of real volumes are kept")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: list[dict[str, Any]] = []
    for source in options.sources:
        if source in REAL:
            scenes = real(source, options.count, options)
        else:
            scenes = worlds(options.count) if source == "worlds" else phantoms(source, options.count)
        for scene in scenes:
            found += rows(scene)
        longest = max(found, key=len)
        write_sheet(options.out, ({name: row.get(name, "") for name in longest} for row in found), list(longest))
        for line in summary([row for row in found if row["source"].startswith(source)]):
            if line.startswith(source):
                say(line)
    for line in summary([row for row in found if row["source"].endswith("shared")]):
        if line.startswith("all"):
            say(line)


if __name__ == "__main__":
    main()
