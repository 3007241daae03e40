"""The sets of anywhere.py, made from the files of a data folder and kept as bytes, as quick_sets.py has them.

    python benchmarks/anywhere_sets.py --data DATA -o out/anywhere

`liver`: blocks of five successive frames of a tracked sweep are left out of the volume that is compounded from the
others, and sought in it, as elsewhere in these benchmarks. `liver-gaps`: blocks of ten, so that frames in the
middle of a gap lie where the volume was bridged. `uterus`, `brain`: volumes less 8 voxels on every side, each with two
honest frames cut anywhere, turned by up to 20 degrees about each axis.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from development_sets import DATA, as_bytes, listed, needed
from quick_sets import Case, DevelopmentSet, read_set, write_set

from scopereg.data.mismatch import honest_frames
from scopereg.data.seeds import generator_for
from scopereg.evaluation.real_protocol import sweep_case
from scopereg.geometry import VoxelPoses, inside_fraction, rotation_from_euler_deg, sample_slice
from scopereg.io.read_image import read_image
from scopereg.io.sweeps import read_npz_sweep
from scopereg.progress import say

OUT = Path(__file__).parents[1] / "out" / "anywhere"
BLOCKS = 5
LIVER_MM, UTERUS_MM, BRAIN_MM = 1.2, 0.6, 0.5
MARGIN = 8  # voxels of surroundings that frames may show
SIDE, STEP = 128, 16  # of frames: whole steps, no larger than a plane
TURN_DEG, FRAMES = 20.0, 2
LEAST_INSIDE, LEAST_SEEN = 0.75, 0.4  # share of a frame in the volume, and of it that is not black


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data")
    parser.add_argument("-o", "--output", type=Path, default=OUT)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in SETS:
        made = anywhere_set(name, options.data, options.output)
        say(f"{name}: {len(made.cases)} volumes, {made.frame_count} frames")


def anywhere_set(name: str, data: Path, folder: Path) -> DevelopmentSet:
    """A set from its file in `folder`, or made and kept there."""
    path = folder / f"{name}.npz"
    if not path.exists():
        spacing_mm, make = SETS[name]
        write_set(path, DevelopmentSet(name, TURN_DEG, spacing_mm, tuple(make(data))))
    return read_set(path)


def liver(data: Path, block: int, every: int) -> Iterator[Case]:
    case = sweep_case(read_npz_sweep(needed(data / "liver_sweep.npz")), LIVER_MM, held_out=(BLOCKS, block))
    truth = VoxelPoses(*(part[::every].float() for part in case.truth))
    yield Case("sweep", "sweep", as_bytes(case.reference.volume.array), as_bytes(case.images[::every]), *truth)


def whole(folder: Path, pattern: str) -> Iterator[Case]:
    for path in listed(folder, pattern):
        voxels, *_ = read_image(path)
        larger = torch.from_numpy(np.ascontiguousarray(voxels)).float() / 255
        volume = larger[(slice(MARGIN, -MARGIN),) * 3].clone()
        frames, poses = zip(*frames_anywhere(larger, volume, path.name), strict=True)
        truth = (torch.cat(part) for part in zip(*poses, strict=True))
        yield Case(path.name.split(".")[0], path.name.split(".")[0], as_bytes(volume), torch.stack(frames), *truth)


def frames_anywhere(larger: torch.Tensor, volume: torch.Tensor, name: str) -> Iterator[tuple[torch.Tensor, VoxelPoses]]:
    """Honest frames, most of which lie in the volume and show something."""
    generator = generator_for(f"frames anywhere in {name}", 0)
    height, width = (min(SIDE, n // STEP * STEP) for n in volume.shape[1:])
    half = torch.tensor(volume.shape[::-1]) / 2
    found = 0
    for _ in range(10_000):
        rotation = rotation_from_euler_deg(TURN_DEG * (2 * torch.rand(1, 3, generator=generator) - 1))
        pose = VoxelPoses(rotation, half * (2 * torch.rand(1, 3, generator=generator) - 1))
        if inside_fraction(*pose, tuple(volume.shape), slice_shape=(height, width)) < LEAST_INSIDE:
            continue
        if (sample_slice(volume, *pose, slice_shape=(height, width)) > 0).float().mean() < LEAST_SEEN:
            continue
        cut = sample_slice(larger, *pose, slice_shape=(height, width), padding="reflection")
        yield as_bytes(honest_frames(cut, generator, unseen=True)[0][0]), pose
        found += 1
        if found == FRAMES:
            return


SETS: dict[str, tuple[float, Callable[[Path], Iterator[Case]]]] = {
    "liver": (LIVER_MM, lambda data: liver(data, block=5, every=1)),
    "liver-gaps": (LIVER_MM, lambda data: liver(data, block=10, every=2)),
    "uterus": (UTERUS_MM, lambda data: whole(data / "uterus", "*.nii.gz")),
    "brain": (BRAIN_MM, lambda data: whole(data / "resect", "case*_us.nii.gz")),
}

if __name__ == "__main__":
    main()
