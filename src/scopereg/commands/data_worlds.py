"""`scopereg data worlds`: random worlds as files that any viewer opens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scopereg.commands.data_phantom import check_counts, write_cases
from scopereg.commands.shared import Device, Folder


@dataclass(frozen=True)
class WorldsOptions:
    """Write random worlds, as `train worlds` draws them: a volume and frames of each, as NIfTI, PNG and JSON."""

    output: Folder = Path("out/worlds")
    """Folder; each world gets a folder of its own in it."""
    count: int = 1
    """Worlds; world k has seed + k."""
    frames: int = 4
    """Frames of each volume, every one another acquisition."""
    magnitude: float = 10.0
    """Largest pose offset, in voxels and degrees on each axis; small volumes have smaller ones."""
    shape: tuple[int, int, int] = (32, 128, 128)
    """Voxels of the volume, D H W; a voxel is called a millimetre."""
    seed: int = 0
    """Seed of the first world."""
    device: Device = "auto"


def run(options: WorldsOptions) -> int:
    """Write random worlds."""
    from scopereg.data.export import write_world

    def write(folder: Path, seed: int) -> None:
        write_world(
            folder,
            seed,
            frames=options.frames,
            magnitude=options.magnitude,
            shape=options.shape,
            device=options.device,
        )

    check_counts(options.count, options.frames)
    return write_cases(options.output, "world", range(options.seed, options.seed + options.count), write)
