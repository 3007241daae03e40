"""What options of several verbs have in common: the words that they take, where output goes, how files are read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from scopereg.data.registry import ANATOMIES, DATASETS, SWEEP, dataset_names

try:
    from tyro.conf import Positional as Positional
    from tyro.conf import arg
except ModuleNotFoundError:  # bench and grid run on machines without it
    from scopereg.commands.plain import Positional as Positional
    from scopereg.commands.plain import arg  # type: ignore[no-redef]


def one_of(words: Iterable[str]) -> str:
    """How help shows a choice."""
    return f"{{{','.join(words)}}}"


INTERRUPTED = 130  # what a shell reports after Ctrl-C

ProtocolName = Literal["honest", "paper"]
DeviceName = Literal["auto", "cpu", "cuda", "mps"]
FormatName = Literal["md", "latex", "csv", "all"]
ConventionName = Literal["slicer", "itk-resample"]
PoseFormat = Literal["tfm", "h5", "txt", "json", "dcm"]
PrecisionName = Literal["auto", "float32", "float16", "bfloat16"]

# Words that registries know; those added from outside of the package are known too, so that no parser can tell.
AnatomyName = Annotated[str, arg(metavar=one_of(ANATOMIES))]
DatasetName = Annotated[str, arg(metavar=one_of(dataset_names()))]
EvaluatedName = Annotated[str, arg(metavar=one_of([*dataset_names(), SWEEP]))]
SourceName = Annotated[str, arg(metavar=one_of(DATASETS))]

# What a verb writes: --output, or -o.
_OUTPUT = arg(aliases=["-o"])
Folder = Annotated[Path, _OUTPUT]
File = Annotated[Path, _OUTPUT]
MaybeFile = Annotated[Path | None, _OUTPUT]

BaseName = Annotated[str, arg(aliases=["--from"])]  # a word of Python, so no field can be called so

# Sizes by either name: --spacing is shorter, spacing_mm is what Python calls it.
Spacing = Annotated[tuple[float, ...], arg(aliases=["--spacing-mm"])]
VolumeSpacing = Annotated[tuple[float, ...], arg(aliases=["--volume-spacing-mm"])]


@dataclass(frozen=True)
class FrameReading:
    """What a frame's file may leave open."""

    spacing: Spacing = ()
    """Size of a pixel in mm, one number or x and y; needed where the file does not tell."""
    region: int | None = None
    """Ultrasound region of a DICOM image, where it has several pictures."""
    calibration: Path | None = None
    """Configuration of PLUS (XML) with the transform from Image to Probe, for PLUS sequences."""


@dataclass(frozen=True)
class VolumeReading:
    """What a volume's file may leave open."""

    volume_spacing: VolumeSpacing = ()
    """Size of a voxel in mm, x y z, where the volume's file does not tell."""
    volume_index: int | None = None
    """Point in time, where the volume's file holds several."""
    series: str | None = None
    """DICOM series, where the volume's folder holds several."""


@dataclass(frozen=True)
class ImageReading(VolumeReading, FrameReading):
    """What both may leave open."""


@dataclass(frozen=True)
class PageOptions:
    """Where the page in the browser is served."""

    host: str = "127.0.0.1"
    """Address of the page; any other than this machine's own lets others in, and then a token is needed."""
    port: int = 8765
    """Port of the page; 0: any that is free."""
    token: str | None = None
    """Word that the browser must bring; one is made where other machines are let in without it."""
    open: bool = True
    """Open the page in the browser of this machine."""
