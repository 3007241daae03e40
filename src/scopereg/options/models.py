"""A trained network and what is done with it: the options of calibrate, adapt and export."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from scopereg.options.reading import VolumeReading
from scopereg.options.words import DatasetName, DeviceName, File, MaybeFile
from scopereg.registration.adaptation.settings import AdaptSettings
from scopereg.registration.default_model import DEFAULT


@dataclass(frozen=True)
class CalibrateOptions:
    """Learn from frames whose pose is known what errors to expect of a model, and write it beside the weights.

    Frames are honest ones: of phantoms made for it, or of a part of the data that the model was not trained on.
    """

    model: Positional[str] = DEFAULT
    """Weights file (.safetensors), or a model of the package."""
    dataset: Positional[tuple[DatasetName, ...]] = ("echo",)
    """Phantoms by anatomy, worlds, or what `data` holds; of several the frames are pooled: one verdict for all."""
    data: Path | None = None
    """Folder of the dataset as published, or a prepared set; phantoms and worlds need none."""
    output: MaybeFile = None
    """File to write, NAME.calibration.json; by default beside the weights, where it is found again."""
    fold: int = 0
    """Fold of the five-fold patient split; as in training."""
    part: Literal["validation", "test"] = "validation"
    """Part of the fold."""
    cases: int | None = None
    """Only the first so many volumes."""
    frames: int = 4
    """Frames in each volume."""
    magnitude: float = 10.0
    """Largest pose offset, in voxels and degrees on each axis."""
    count: int = 60
    """Phantom patients, and worlds, to make of each kind."""
    first_seed: int = 30_000
    """Seed of the first phantom patient; the models of the package were trained on patients below 10,000."""
    size: int = 128
    """Pixels of CAMUS images, height and width."""
    seed: int = 0
    """Seed of the poses, the honest frames and the split."""
    skip_bad: bool = False
    """Leave out what cannot be read instead of stopping."""
    device: DeviceName = "auto"
    """Where the network runs."""


@dataclass(frozen=True)
class AdaptOptions(AdaptSettings, VolumeReading):
    """Make a network better at one volume, from frames drawn in the volume itself, and write what changed.

    The file holds the weights that learned and names those that it builds on. It is used like any other:
    scopereg register FRAME VOLUME --method patient.safetensors. Ctrl-C ends it with the best so far.
    """

    volume: Positional[Path | None] = None
    """Volume: NIfTI, NRRD, MHA, enhanced DICOM, or the folder of a DICOM series."""
    output: File = Path("patient.safetensors")
    """File for the weights (.safetensors); an earlier one stays until the new one is whole."""
    device: DeviceName = "auto"
    """Where the network learns."""


@dataclass(frozen=True)
class ExportOptions:
    """Write a network as ONNX (.onnx) or as a torch.export program (.pt2), and check that it gives the same poses."""

    model: Positional[str] = DEFAULT
    """Model of the package, weights file (.safetensors), or the name of a network to export with fresh weights."""
    output: File = Path("model.onnx")
    """File to write; the ending chooses the format: .onnx or .pt2."""
    shape: tuple[int, int, int] | None = None
    """Voxels of the volume, D H W; the slice is H W. By default those of the training, else 32 128 128. The batch size
    stays free."""
    tolerance: float = 1e-3
    """Largest difference allowed between the exported model and the network, in voxels and degrees."""
    seed: int = 0
    """Seed of fresh weights and of the images to compare on."""
