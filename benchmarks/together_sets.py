"""Bodies for together.py: frames with known places beside one another, in volumes where their true poses are known.

`liver`: frames of a tracked sweep that were left out of the volume compounded from the others, in blocks of five
successive ones (`data.tracked`); a body is a block (neighbours), or a frame of each block (spread). `liver-mixed` has
any five of these frames, `liver-9` and `liver-20` as many from all blocks. `uterus`, `brain` and the phantoms: five
frames of a body that lies anywhere near the middle of a volume, as a hand sweeps (every second body) or looks from all
sides; honest frames of the first two, another acquisition of the phantoms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import torch
from development_sets import (
    DEEP_PLANES,
    FIRST_PATIENT,
    MARGIN,
    RESECT_MM,
    UTERUS_MM,
    listed,
    needed,
    place_with_content,
    room,
)

from scopereg.data import phantom
from scopereg.data.frames import cut_frames, reference_field
from scopereg.data.grids import inner, regrid, to_uint8
from scopereg.data.phantom.anatomy import ANATOMIES
from scopereg.data.seeds import generator_for
from scopereg.data.tracked import start_poses
from scopereg.evaluation.real_protocol import sweep_case
from scopereg.geometry import Pose, VoxelPoses, compose_poses, rotation_from_euler_deg, sample_poses
from scopereg.images import Frame, Volume, pose_from_voxels
from scopereg.io.read_image import read_image
from scopereg.io.sweeps import read_npz_sweep

LIVER_MM, BLOCKS, BLOCK = 1.2, 5, 5
MAGNITUDE = 20.0  # voxels and degrees
FRAMES = 5
STEP_VOXELS, STEP_DEG, JITTER = 4.0, 2.5, 1.5  # of a hand's sweep, from frame to frame; and what it wavers
_MIXED = 100  # bodies of frames drawn from all blocks
AROUND = 12.0  # voxels and degrees, within which frames lie in a body that looks from all sides
ELSEWHERE = Pose.from_euler_deg((25, -70, 130), (180, -60, 20), "Volume", "Tracker")  # any world of a tracker


@dataclass(frozen=True, eq=False)
class PlacedBody:
    """A volume, frames of one body, where these truly lie, and where the search for the body begins."""

    set: str
    name: str
    volume: Volume
    frames: tuple[Frame, ...]
    truth: tuple[Pose, ...]  # ImageToVolume
    start: Pose | None = None  # BodyToVolume; None: no start

    @property
    def image_to_body(self) -> list[Pose]:
        """As a tracker tells it, in a world of its own."""
        return [ELSEWHERE @ _named(pose, "Image", "Volume") for pose in self.truth]


def _named(pose: Pose, source: str, target: str) -> Pose:
    return Pose(pose.rotation, pose.translation_mm, source, target)


def bodies(name: str, data: Path, count: int, magnitude: float = MAGNITUDE, seed: int = 0) -> Iterator[PlacedBody]:
    """The first `count` bodies of a set; each is the same, however many are asked for."""
    return SETS[name](data, count, magnitude, seed)


@lru_cache(maxsize=1)
def _sweep(data: Path) -> tuple[Volume, tuple[Frame, ...], tuple[Pose, ...], VoxelPoses]:
    case = sweep_case(read_npz_sweep(needed(data / "liver_sweep.npz")), LIVER_MM, held_out=(BLOCKS, BLOCK))
    array = (case.reference.volume.array * 255).round() / 255
    volume = Volume(array, LIVER_MM)
    frames = tuple(Frame((image * 255).round() / 255, LIVER_MM) for image in case.images)
    truth = VoxelPoses(*(part.float() for part in case.truth))
    placed = tuple(pose_from_voxels(*pose, frame, volume) for *pose, frame in zip(*truth, frames, strict=True))
    return volume, frames, placed, truth


def liver(
    data: Path,
    count: int,
    magnitude: float,
    seed: int,
    *,
    frames: int = FRAMES,
    start: bool = True,
    mixed: bool = False,
) -> Iterator[PlacedBody]:
    """Blocks and spread bodies in turn, each from as many starts as it takes."""
    volume, every, placed, truth = _sweep(data)
    chosen = list(_liver_rows(frames, mixed))
    for number in range(count):
        kind, rows = chosen[number % len(chosen)]
        draw = seed + number // len(chosen)
        middle = rows[len(rows) // 2]
        one = VoxelPoses(*(part[middle : middle + 1] for part in truth))
        (turned,), (shifted,) = start_poses(one, magnitude, draw * 1000 + number, (DEEP_PLANES, 128, 128))
        there = pose_from_voxels(turned, shifted, every[middle], volume)
        body = PlacedBody("liver", "", volume, tuple(every[row] for row in rows), tuple(placed[row] for row in rows))
        first = _named(there, "Image", "Volume") @ body.image_to_body[len(rows) // 2].inverse()
        named = f"{kind}-{rows[0]:02d}" + (f"-{draw}" if start else "")
        yield PlacedBody("liver", named, volume, body.frames, body.truth, first if start else None)


def _liver_rows(frames: int, mixed: bool) -> Iterator[tuple[str, list[int]]]:
    if mixed:
        for draw in range(_MIXED):
            drawn = torch.randperm(BLOCKS * BLOCK, generator=generator_for("frames of a body", draw))[:frames]
            yield f"mixed-{draw}", sorted(drawn.tolist())
    elif frames == FRAMES:
        for place in range(BLOCKS):
            yield "neighbours", [place * BLOCK + step for step in range(BLOCK)]
            yield "spread", [block * BLOCK + place for block in range(BLOCKS)]
    else:
        for first in range(5):
            rows = np.linspace(first % 2, BLOCKS * BLOCK - 1 - first // 2, frames).round().astype(int).tolist()
            yield f"spread-{frames}-{first}", rows


def poses_in_body(count: int, swept: bool, generator: torch.Generator) -> VoxelPoses:
    """Frames beside one another: those of a hand's sweep along the normal, or any."""

    def uniform(most: float) -> torch.Tensor:
        return most * (2 * torch.rand(count, 3, generator=generator) - 1)

    if not swept:
        return VoxelPoses(rotation_from_euler_deg(uniform(AROUND)), uniform(AROUND))
    along = torch.arange(count) - (count - 1) / 2
    angles, shifts = uniform(JITTER), uniform(JITTER)
    angles[:, 0] += STEP_DEG * along
    shifts[:, 2] += STEP_VOXELS * along
    return VoxelPoses(rotation_from_euler_deg(angles), shifts)


def true_poses(name: str, number: int, shape: tuple[int, int, int], magnitude: float, seed: int) -> VoxelPoses:
    """Of the frames of a body that lies within +-magnitude of the middle."""
    generator = generator_for(f"body of {name}", seed)
    whole = sample_poses(1, magnitude, shape, generator)
    return compose_poses(whole, poses_in_body(FRAMES, number % 2 == 0, generator))


def _body(kind: str, name: str, volume: Volume, images: torch.Tensor, poses: VoxelPoses) -> PlacedBody:
    frames = tuple(Frame(image, volume.isotropic_spacing_mm) for image in images)
    truth = tuple(pose_from_voxels(*pose, frame, volume) for *pose, frame in zip(*poses, frames, strict=True))
    return PlacedBody(kind, name, volume, frames, truth)


def cut(
    data: Path, count: int, magnitude: float, seed: int, *, kind: str, pattern: str, spacing_mm: float
) -> Iterator[PlacedBody]:
    """Bodies of honest frames, each in a part of another volume; where there are no more, another part of the first."""
    paths = list(listed(data / Path(pattern).parent, Path(pattern).name))
    made = 0
    for number in range(20 * len(paths)):
        path, turn = paths[number % len(paths)], number // len(paths)
        name = f"{path.name.split('.')[0].removesuffix('_us')}" + (f"-{turn}" if turn else "")
        if made == count:
            return
        part = _part(path, name, spacing_mm, seed)
        if part is None:
            continue
        larger, shape = part
        poses = true_poses(name, made, shape, magnitude, seed)
        generator = generator_for(f"honest frames of body {name}", seed)
        images = cut_frames(larger.float() / 255, MARGIN, poses, "honest", generator, unseen=True)
        volume = Volume(reference_field(larger, MARGIN)[0].float() / 255, spacing_mm)
        yield _body(kind, name, volume, (images.clamp(0, 1) * 255).round() / 255, poses)
        made += 1


def _part(path: Path, name: str, spacing_mm: float, seed: int) -> tuple[torch.Tensor, tuple[int, int, int]] | None:
    voxels, spacing, *_ = read_image(path)
    steps = [spacing_mm / own for own in reversed(spacing)]
    counts = [int(n / step + 1e-3) for n, step in zip(voxels.shape, steps, strict=True)]
    shape = room(counts, DEEP_PLANES)
    if shape is None:
        return None
    fine = voxels if np.allclose(steps, 1, atol=0.01) else regrid(voxels, [0.0] * 3, steps, counts)
    corner = place_with_content(fine > 0.5, shape, generator_for(f"reference of {name}", seed))
    around = [n + 2 * m for n, m in zip(shape, MARGIN, strict=True)]
    starts = [float(first - m) for first, m in zip(corner, MARGIN, strict=True)]
    larger = to_uint8(regrid(fine, starts, [1.0] * 3, around), inner(around, MARGIN), name)
    return torch.from_numpy(larger)[None], shape


def phantoms(data: Path, count: int, magnitude: float, seed: int, *, anatomy: str) -> Iterator[PlacedBody]:
    """Bodies of patients that nothing was trained or calibrated on."""
    usual = ANATOMIES[anatomy].usual_shape
    shape = (max(DEEP_PLANES, usual[0]), *usual[1:])
    for number in range(count):
        first = FIRST_PATIENT + 500 + seed * 1000 + number
        patient = phantom.create(anatomy, seed=first, shape=shape)
        name = f"{anatomy}{first}"
        poses = true_poses(name, number, shape, magnitude, seed)
        images = patient.acquire(*poses, seed=first).images
        volume = Volume((patient.volume.array * 255).round() / 255, patient.spacing_mm)
        yield _body(f"phantom-{anatomy}", name, volume, (images.clamp(0, 1) * 255).round() / 255, poses)


def rigid_noise(size: float, count: int, generator: torch.Generator) -> list[Pose]:
    """Errors of a tracker: normal, of so many mm and degrees on each axis."""
    drawn = size * torch.randn(count, 6, generator=generator)
    return [Pose.from_euler_deg(row[3:].tolist(), row[:3].tolist(), "Image", "Image") for row in drawn]


SETS: dict[str, Callable[[Path, int, float, int], Iterator[PlacedBody]]] = {
    "liver": liver,
    "liver-mixed": partial(liver, mixed=True),
    "liver-9": partial(liver, frames=9),
    "liver-20": partial(liver, frames=20),
    "liver-anywhere": partial(liver, start=False),
    "uterus": partial(cut, kind="uterus", pattern="uterus/*.nii.gz", spacing_mm=UTERUS_MM),
    "brain": partial(cut, kind="brain", pattern="resect/case*_us.nii.gz", spacing_mm=RESECT_MM),
    **{f"phantom-{anatomy}": partial(phantoms, anatomy=anatomy) for anatomy in ("echo", "prostate", "abdomen")},
}
