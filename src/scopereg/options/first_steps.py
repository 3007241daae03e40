"""What to try first: the options of demo and doctor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scopereg.options.words import AnatomyName, DeviceName, Folder, ProtocolName
from scopereg.registration.default_model import DEFAULT


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
    model: str = DEFAULT
    """Network that registers: a model of the package or a .safetensors file."""
    seed: int = 100_000
    """Seed of the patient, the sweep and the acquisitions; models were trained on patients below 10,000."""
    device: DeviceName = "auto"
    """Where tensors live."""


@dataclass(frozen=True)
class DoctorOptions:
    """Report device, versions and backends, and run a numeric self-test."""

    json: bool = False
    """Print JSON instead of a table."""
