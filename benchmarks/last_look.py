"""Levenberg-Marquardt on learned features, beside a last look by a local cost volume of the same features.

    OMP_NUM_THREADS=1 python benchmarks/last_look.py --data DATA

A look samples the volume's features at every point of the frame and at shifts of a few voxels around it, in the frame's
own axes. What is most alike, as a convex combination of the shifts, is where the point seems to lie; how far the
shifts that are alike spread, in each direction, is how little it says. The pose follows from all points at once: by a
weighted Kabsch fit, each point as sure as its spread is small, or by one Gauss-Newton step with each point's own 3x3
information, which knows along which directions an edge tells nothing. How sharply shifts are told apart was chosen on
phantoms and worlds (`--choose --frames 8`), never on the development sets. The features were trained for
Levenberg-Marquardt; trained for a look they may do better.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from anatomy import REDRAWN, scenes
from development_sets import DATA, OUT, SETS, development_set
from torch import Tensor

from scopereg.geometry import SUCCESS_MM, Pose, VoxelPoses, weighted_kabsch
from scopereg.geometry.steps import moved, solve_positive
from scopereg.images import Frame, Volume, pose_from_voxels, pose_to_voxels
from scopereg.io.files import write_sheet
from scopereg.networks.fine import FineFrame
from scopereg.networks.passes import place
from scopereg.networks.pyramid import STRIDES, read_table
from scopereg.progress import say
from scopereg.registration.fine import PreparedFine
from scopereg.registration.model import load
from scopereg.registration.network import NetworkMethod
from scopereg.registration.result import Result, apart_mm
from scopereg.registration.working_grid import frame_on_grid

REACH = 2  # shifts on each side of a point, in each direction
LOOKS = (1, 2, 2)  # at each stride, coarse to fine
SHARPNESS = (5.0, 10.0, 20.0, 40.0)
KABSCH, INFORMATION = 40.0, 5.0  # the best of these
_STEADY = 1e-3
Settle = Callable[[PreparedFine, FineFrame, VoxelPoses], VoxelPoses]


class Sighting(NamedTuple):
    """Where the points of a frame seem to lie, in its own axes, and how sure that is."""

    shift: Tensor  # (N, 3), voxels
    information: Tensor  # (N, 3, 3), of these
    weight: Tensor  # (N,)


def sighting(fine: PreparedFine, read: FineFrame, pose: VoxelPoses, level: int, sharpness: float) -> Sighting:
    frame, volume, stride = read.levels[level], fine.encoded.levels[level], STRIDES[level]
    count = frame.vectors.shape[2]
    axis = torch.arange(-REACH, REACH + 1.0) * stride / 2
    shifts = torch.cartesian_prod(axis, axis, axis)
    points = (frame.points[None] + shifts[:, None]).flatten(0, 1)  # (K N, 3)
    table = volume.table[..., : count + 1].contiguous()
    found, inside = read_table(table, volume.lattice, place(points, *pose) / volume.stride)
    found, inside = (part[0].unflatten(0, (len(shifts), -1)) for part in (found, inside))
    alike = (found[..., :count] * frame.vectors[0]).sum(-1).masked_fill(inside == 0, -1.0)
    share = torch.softmax(sharpness * pooled(alike, read, level), 0)  # (K, N)
    shift = share.T @ shifts
    away = shifts[:, None] - shift
    spread = torch.einsum("kn,kni,knj->nij", share, away, away) + _STEADY * stride**2 * torch.eye(3)
    middle = len(shifts) // 2
    weight = frame.weights[0] * torch.sigmoid(found[middle, :, count]) * inside[middle]
    return Sighting(shift, torch.linalg.inv(spread), weight)


def pooled(alike: Tensor, read: FineFrame, level: int) -> Tensor:
    """A point by itself is ambiguous: with its eight neighbours, where the points lie on a whole grid."""
    columns = int((read.levels[level].points[:, 1] == read.levels[level].points[0, 1]).sum())
    if len(alike.T) % columns or level == len(STRIDES) - 1:
        return alike
    image = alike.unflatten(1, (-1, columns)).unsqueeze(1)
    return F.avg_pool2d(image, 3, 1, 1, count_include_pad=False)[:, 0].flatten(1)


def by_kabsch(read: FineFrame, pose: VoxelPoses, seen: Sighting, level: int) -> VoxelPoses:
    points = read.levels[level].points
    targets = place(points + seen.shift, *pose)[0]
    sure = 1 / torch.linalg.inv(seen.information).diagonal(dim1=1, dim2=2).sum(1)
    fit = weighted_kabsch(points[:, :2], targets, seen.weight * sure)
    return VoxelPoses(fit.rotation[None], fit.translation[None])


def by_information(read: FineFrame, pose: VoxelPoses, seen: Sighting, level: int) -> VoxelPoses:
    frame = read.levels[level]
    rows = torch.einsum("n,nki,nkl->nil", seen.weight, frame.moves, seen.information)
    matrix = torch.einsum("nil,nlj->ij", rows, frame.moves)
    step = solve_positive((matrix + _STEADY * torch.eye(6))[None], torch.einsum("nil,nl->i", rows, seen.shift)[None])
    return moved(pose, step, frame.lever)


def looking(fit: Callable[..., VoxelPoses], sharpness: float, *, finest_alone: bool = False) -> Settle:
    def settle(fine: PreparedFine, read: FineFrame, pose: VoxelPoses) -> VoxelPoses:
        if finest_alone:
            pose = fine.locate(read, pose)
        for level, looks in enumerate(LOOKS):
            for _ in range(0 if finest_alone and level < len(LOOKS) - 1 else looks):
                pose = fit(read, pose, sighting(fine, read, pose, level, sharpness), level)
        return pose

    return settle


def settlers(kabsch: float = KABSCH, information: float = INFORMATION) -> dict[str, Settle]:
    return {
        "network": lambda fine, read, pose: pose,
        "Levenberg-Marquardt": lambda fine, read, pose: fine.locate(read, pose),
        "looks, Kabsch": looking(by_kabsch, kabsch),
        "looks, information": looking(by_information, information),
        "Levenberg-Marquardt, last look, information": looking(by_information, information, finest_alone=True),
    }


class Scene(NamedTuple):
    """A volume, and frames with their true poses."""

    source: str
    volume: Volume
    frames: list[tuple[Frame, Pose]]


@torch.inference_mode()
def errors_in(scene: Scene, ways: dict[str, Settle]) -> Iterator[dict[str, float]]:
    """In mm, of each way from where the network alone finds a frame."""
    alone, with_fine = (NetworkMethod(load(device="cpu", fine=fine)).prepare(scene.volume) for fine in (False, True))
    for frame, truth in scene.frames:
        (found,) = alone.locate([frame], [None])
        if not isinstance(found, Result):
            yield {}
            continue
        ready = with_fine.volume_for(frame)
        fine, grid = ready.session.fine, frame_on_grid(frame, ready.window)
        assert fine is not None
        read = fine.read(grid.for_registration().array[None])
        start = VoxelPoses(*(part[None].float() for part in pose_to_voxels(found.pose, grid, ready.window)))
        made = {}
        for name, settle in ways.items():
            rotation, translation = (part[0] for part in settle(fine, read, start))
            made[name] = apart_mm(frame, pose_from_voxels(rotation, translation, grid, ready.window), truth)
        yield made


def phantoms(frames: int) -> Iterator[Scene]:
    """Frames with speckle of their own."""
    for scene in scenes(frames):
        yield Scene(scene.source, scene.volume, list(_placed(scene.volume, scene.frames[REDRAWN], *scene.poses)))


def development(names: list[str], data: Path, frames: int) -> Iterator[Scene]:
    for name in names:
        made = development_set(name, 10, data, OUT / "sets").first(frames)
        left = frames
        for case in made.cases:
            volume = Volume(case.volume.float() / 255, made.spacing_mm)
            own = case.frames[:left].float() / 255
            yield Scene(name, volume, list(_placed(volume, own, case.rotation, case.translation)))
            left -= len(own)


def _placed(volume: Volume, images: Tensor, rotation: Tensor, translation: Tensor) -> Iterator[tuple[Frame, Pose]]:
    for image, *pose in zip(images, rotation, translation, strict=False):
        frame = Frame(image, volume.isotropic_spacing_mm)
        yield frame, pose_from_voxels(*pose, frame, volume)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data")
    parser.add_argument("--sets", nargs="+", choices=[*SETS], default=[*SETS])
    parser.add_argument("--frames", type=int, default=24, help="of each set")
    parser.add_argument("--choose", action="store_true", help="the sharpness, on phantoms")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.choose:
        ways = {f"{name} {k:g}": way for k in SHARPNESS for name, way in settlers(k, k).items() if "look" in name}
        made = phantoms(options.frames)
    else:
        ways = settlers()
        made = development(options.sets, options.data, options.frames)
    found = [(scene.source, each) for scene in made for each in errors_in(scene, ways)]
    rows = []
    for source in dict.fromkeys(name for name, _ in found):
        for way in ways:
            errors = np.array([each.get(way, np.inf) for name, each in found if name == source])
            told = {
                "mean_mm": errors.mean(),
                "median_mm": np.median(errors),
                "within_3_mm": (errors <= SUCCESS_MM).mean(),
            }
            rows.append({"set": source, "way": way, "frames": len(errors)} | {k: f"{v:.3f}" for k, v in told.items()})
            say(", ".join(str(value) for value in rows[-1].values()))
    if not options.choose:
        write_sheet(options.out, rows)


if __name__ == "__main__":
    main()
