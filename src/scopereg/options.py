"""Every option of every verb, declared once: the command line, YAML files and docs/cli.md derive from these.

This module imports neither torch nor any other heavy library, so that `scopereg --help` answers at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

AnatomyName = Literal["echo", "prostate", "abdomen"]
ProtocolName = Literal["honest", "paper"]
DeviceName = Literal["auto", "cpu", "cuda", "mps"]
Folder = Annotated[Path, arg(aliases=["-o"])]


@dataclass(frozen=True)
class DemoOptions:
    """Make a phantom patient and a probe sweep, register every frame, write a report to look at."""

    anatomy: AnatomyName = "echo"
    """Anatomy of the phantom patient."""
    output: Folder = Path("out/demo")
    """Folder for report.html, frames.csv and result.json."""
    frames: int = 12
    """Frames in the sweep."""
    magnitude: float = 10.0
    """Largest offset of the sweep from the middle of the volume, in voxels and degrees on each axis."""
    protocol: ProtocolName = "honest"
    """honest: every frame is a new acquisition. paper: frames are cut out of the volume itself."""
    seed: int = 0
    """Seed of the patient, the sweep and the acquisitions."""
    device: DeviceName = "auto"
    """Where tensors live."""


@dataclass(frozen=True)
class DoctorOptions:
    """Report device, versions and backends, and run a numeric self-test."""

    json: bool = False
    """Print JSON instead of a table."""


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
class ExportOptions:
    """Write a network as ONNX (.onnx) or as a torch.export program (.pt2), and check that it gives the same poses."""

    model: Positional[str] = "scope-reg"
    """Weights file (.safetensors), or the name of a network to export with fresh weights."""
    output: Annotated[Path, arg(aliases=["-o"])] = Path("model.onnx")
    """File to write; the ending chooses the format: .onnx or .pt2."""
    shape: tuple[int, int, int] = (32, 128, 128)
    """Voxels of the volume, D H W; the slice is H W. The batch size stays free."""
    tolerance: float = 1e-3
    """Largest difference allowed between the exported model and the network, in voxels and degrees."""
    seed: int = 0
    """Seed of fresh weights and of the images to compare on."""
