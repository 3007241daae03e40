"""`scopereg data phantom`: patients that never were, as files that any viewer opens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console

from scopereg.commands.output import tell
from scopereg.commands.shared import (
    AnatomyName,
    Device,
    Folder,
    MadeVoxelSize,
    Magnitude,
    Positional,
    Protocol,
)
from scopereg.errors import ScopeRegError
from scopereg.io.files import output_folder
from scopereg.options import arg
from scopereg.progress import counted


@dataclass(frozen=True)
class PhantomOptions:
    """Write phantom patients: a volume with labels and frames acquired in it, as NIfTI and JSON."""

    anatomy: Positional[AnatomyName] = "echo"
    """Anatomy of the phantom patients."""
    output: Folder = Path("out/phantoms")
    """Folder; each patient gets a folder of its own in it."""
    count: int = 1
    """Patients; patient k has seed + k."""
    frames: int = 4
    """Frames acquired in each volume."""
    magnitude: Magnitude = 10.0
    protocol: Protocol = "honest"
    shape: tuple[int, int, int] | None = None
    """Voxels of the volume, D H W; by default the usual ones of the anatomy."""
    voxel_mm: Annotated[float | None, MadeVoxelSize] = None
    """Voxel size; by default the image is as wide as usual for the anatomy."""
    thickness_mm: Annotated[str | None, arg(metavar="MM")] = None
    """Slice that frames average across their plane, in mm; estimated: what their depth lets expect. By default thin."""
    seed: int = 0
    """Seed of the first patient."""
    device: Device = "auto"


def run(options: PhantomOptions) -> int:
    """Write phantom patients."""
    from scopereg.data.export import write_patient

    def write(folder: Path, seed: int) -> None:
        write_patient(
            folder,
            options.anatomy,
            seed,
            frames=options.frames,
            magnitude=options.magnitude,
            protocol=options.protocol,
            shape=options.shape,
            spacing_mm=options.voxel_mm,
            thickness_mm=options.thickness_mm,
            device=options.device,
        )

    check_counts(options.count, options.frames)
    return write_cases(options.output, options.anatomy, range(options.seed, options.seed + options.count), write)


def check_counts(count: int, frames: int) -> None:
    """An error for numbers that cannot be."""
    if count < 1:
        raise ScopeRegError(f"{count} patients", where="--count", fix="ask for at least one")
    if frames < 0:
        raise ScopeRegError(f"{frames} frames", where="--frames", fix="ask for none (0) or more")


def write_cases(output: Path, name: str, seeds: range, write: Callable[[Path, int], None]) -> int:
    """One folder for each seed, below the folder for all."""
    console = Console()
    folder = output_folder(output)
    for seed in counted(seeds, f"{name}s"):
        write(folder / f"{name}{seed:04d}", seed)
    console.print(f"{len(seeds)} {name}{'' if len(seeds) == 1 else 's'} in {folder}", soft_wrap=True)
    tell(folder=folder, cases=[f"{name}{seed:04d}" for seed in seeds])
    return 0
