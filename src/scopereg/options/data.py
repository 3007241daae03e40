"""Data to train and test on: the options of data check, data prepare and data phantom."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from scopereg.options.words import AnatomyName, DeviceName, Folder, ProtocolName, SourceName


@dataclass(frozen=True)
class CheckOptions:
    """Tell what data a folder holds, what is wrong with them and how to train on them; status 1 if anything is wrong.

    For volumes of your own, CAMUS or mu-RegPro as published, or a prepared set.
    """

    path: Positional[Path | None] = None
    """Folder to look at."""
    full: bool = False
    """Read the voxels of every file; by default headers, and voxels of 50 images at most."""
    workers: int | None = None
    """Processes that read files; by default one for each processor core."""
    json: bool = False
    """Print JSON with every file instead of tables."""


@dataclass(frozen=True)
class PrepareOptions:
    """Turn a dataset into one memory-mapped set with its folds and evaluation poses; goes on where it was interrupted.

    OUTPUT gets images.npy, labels.npy, splits.json, poses.npz and last manifest.json: without it there is no set.
    """

    dataset: Positional[SourceName] = "camus"
    """CAMUS or mu-RegPro as published, or a folder of volumes of your own."""
    path: Positional[Path | None] = None
    """Folder of the data."""
    output: Folder = Path("out/prepared")
    """Folder for the set."""
    name: str | None = None
    """What results call the set, such as CAMUS-M for data derived from CAMUS; by default the dataset's name."""
    size: int | None = None
    """Pixels along each side, a multiple of 8; 128 by default for CAMUS, whose field stays 78.8 mm wide."""
    frames: int | None = None
    """Frames of a CAMUS volume; 32 by default."""
    shape: tuple[int, int, int] | None = None
    """Voxels D H W of a folder's volumes; by default what the files have in common."""
    spacing_mm: float | None = None
    """Voxel size of a folder's volumes; by default the finest that every file has."""
    margin: tuple[int, int, int] | None = None
    """Voxels D H W kept on each side beyond the reference field, for a folder (default 0) and mu-RegPro (16 24 24)."""
    probe: Literal["low", "high"] | None = None
    """End of the depth axis of mu-RegPro files where the probe is; by default the images tell."""
    labels: bool = True
    """Prepare the masks too, where there are any."""
    splits: Path | None = None
    """JSON file with folds of your own, each patient in one part of each; by default those of docs/protocol.md."""
    workers: int | None = None
    """Processes that read cases; by default one for each processor core."""
    skip_bad: bool = False
    """Leave out cases that cannot be used, named and counted, instead of stopping when the others are done."""
    any_orientation: bool = False
    """Accept files whose headers turn their axes otherwise than the rest; voxels are used as stored."""
    fresh: bool = False
    """Start again, and remove what is in OUTPUT of an earlier set."""


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
    magnitude: float = 10.0
    """Largest pose offset, in voxels and degrees on each axis."""
    protocol: ProtocolName = "honest"
    """honest: every frame is a new acquisition. paper: frames are cut out of the volume itself."""
    shape: tuple[int, int, int] | None = None
    """Voxels of the volume, D H W; by default the usual ones of the anatomy."""
    spacing_mm: float | None = None
    """Voxel size; by default the image is as wide as usual for the anatomy."""
    seed: int = 0
    """Seed of the first patient."""
    device: DeviceName = "auto"
    """Where tensors live."""


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
    device: DeviceName = "auto"
    """Where tensors live."""
