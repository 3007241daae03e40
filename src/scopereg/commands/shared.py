"""Options that several verbs share: the words that they take, where output goes, how files are read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from scopereg.data.registry import ANATOMIES, DATASETS, SWEEP, dataset_names
from scopereg.options import OneWay as OneWay
from scopereg.options import Positional as Positional
from scopereg.options import arg


def one_of(words: Iterable[str]) -> str:
    """How help shows a choice."""
    return f"{{{','.join(words)}}}"


INTERRUPTED, TERMINATED = 130, 143  # what a shell reports after Ctrl-C and after SIGTERM

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

# Options of several verbs that mean the same in all of them, each with its sentence.
Device = Annotated[DeviceName, arg(help="Where networks and tensors are; auto: a GPU where there is one.")]
ModelName = Annotated[str, arg(help="Network: a model of the package, or a weights file (.safetensors).")]
FrameMask = Annotated[
    Path | None,
    arg(
        help="Mask in the size of the frame (PNG, NIfTI, NRRD, MHA): what is not 0 counts. "
        "Or a folder of masks by name."
    ),
]
WorldFile = Annotated[
    Path | None,
    arg(
        help="Pose file from the tracker's world to the volume, where these are not the same; it also gives the error."
    ),
]
Fold = Annotated[int, arg(help="Fold of the five-fold patient split, as in training.")]
Cases = Annotated[int | None, arg(help="Only the first so many volumes, for a quick look.")]
VolumeFile = Annotated[
    Path | None, arg(help="Volume: NIfTI, NRRD, MHA, enhanced DICOM, or the folder of a DICOM series.")
]
# A model is --model, a method may be a model or another: where it is asked for, --model is as good a name.
_MODEL_TOO = arg(aliases=["--model"])
SearchingMethod = Annotated[
    str, _MODEL_TOO, arg(help="A model of the package, a .safetensors file, simpleitk-mi, simpleitk-ncc or elastix.")
]
AnyMethod = Annotated[
    str,
    _MODEL_TOO,
    arg(help="A model of the package, a .safetensors file, simpleitk-mi, simpleitk-ncc, elastix, or identity: none."),
]
Methods = Annotated[tuple[str, ...], arg(aliases=["--models"])]
Seconds = Annotated[
    float | None,
    arg(help="Begin nothing more of a search for a frame, and no other search, after so many seconds."),
]
SliceThickness = Annotated[
    str | None,
    arg(
        metavar="MM",
        help="Refine with the volume averaged over so many mm across the frame, beyond its own thickness; estimated: "
        "what the frame's depth lets expect. By default the volume is taken to be as thick as the frame.",
    ),
]
Protocol = Annotated[
    ProtocolName,
    arg(help="honest: every frame is a new acquisition. paper: frames are cut out of the volume itself."),
]
Magnitude = Annotated[float, arg(help="Largest pose offset, in voxels and degrees on each axis.")]
CamusSize = Annotated[int, arg(help="Pixels of CAMUS images, height and width.")]
SplitSeed = Annotated[int, arg(help="Seed of the poses, the honest frames and the split.")]
FirstSeed = Annotated[
    int, arg(help="Seed of the first phantom patient; the models of the package were trained on patients below 10,000.")
]
SkipBad = Annotated[bool, arg(help="Leave out what cannot be read instead of stopping.")]
Reference = Annotated[
    str | None,
    arg(
        help="Method that the others are tested against, and whose frames a report shows; by default SCoPE-Reg if it "
        "is there, else the first that registers."
    ),
]
Intersect = Annotated[
    bool, arg(help="Compare on the frames that all methods have, with a note, instead of stopping where they differ.")
]
WithPublished = Annotated[
    bool, arg(help="Add what the SCoPE-Reg paper published, set apart and labelled with data and protocol.")
]

ModalityName = Literal["auto", "us", "mr", "ct"]
OriginName = Annotated[
    Literal["first-pixel", "centre"] | None,
    arg(help="Where its frames' millimetres begin; asked for where the file does not say."),
]

# A model to begin with; `base` and `start` in Python, where a start is a pose elsewhere.
BaseModel = Annotated[
    str,
    arg(
        name="model",
        formerly=["from", "base"],
        help="Model to start from: one of the package, or a .safetensors file of SCoPE-Reg.",
    ),
]
FirstModel = Annotated[
    Path | None,
    arg(name="model", formerly=["start"], help="Weights file (.safetensors) to start from instead of fresh weights."),
]

# The size of a pixel is of frames, that of a voxel of volumes.
PixelSize = Annotated[
    tuple[float, ...],
    arg(
        formerly=["spacing", "spacing-mm"],
        help="Size of a pixel in mm, one number or x and y; needed where the frame's file does not tell.",
    ),
]
VoxelSize = Annotated[
    tuple[float, ...],
    arg(
        formerly=["volume-spacing", "volume-spacing-mm"],
        help="Size of a voxel in mm, one number or x y z, where the volume's file does not tell.",
    ),
]
WorkingVoxelSize = Annotated[
    float | None,
    arg(
        name="working-voxel-mm",
        formerly=["spacing-mm"],
        help="Voxel size of the volume for the network, here and in use; by default as trained, or 128 along a plane.",
    ),
]
MadeVoxelSize = arg(formerly=["spacing-mm"])  # of a volume that the verb makes


@dataclass(frozen=True)
class FrameReading:
    """Facts that a frame's file may leave out."""

    pixel_mm: PixelSize = ()
    region: int | None = None
    """Ultrasound region of a DICOM image, where it has several pictures."""
    calibration: Path | None = None
    """Configuration of PLUS (XML) with the transform from Image to Probe, for PLUS sequences."""


@dataclass(frozen=True)
class VolumeReading:
    """Facts that a volume's file may leave out."""

    voxel_mm: VoxelSize = ()
    volume_index: int | None = None
    """Point in time, where the volume's file holds several."""
    series: str | None = None
    """DICOM series, where the volume's folder holds several."""


@dataclass(frozen=True)
class ImageReading(VolumeReading, FrameReading):
    """Facts that either file may leave out."""


@dataclass(frozen=True)
class MaskedReading(ImageReading):
    """Besides, what of the images counts."""

    frame_mask: FrameMask = None
    volume_mask: Path | None = None
    """Label map in the space of the volume (NIfTI, NRRD, MHA): what is labelled counts, and frames are sought there."""
    modality: ModalityName = "auto"
    """What the volume is; auto: what its file tells, else ultrasound. Poses in MR and CT have no verdict."""


@dataclass(frozen=True)
class PageOptions:
    """Address of the page in the browser."""

    host: str = "127.0.0.1"
    """Address of the page; any other than this machine's own lets others in."""
    port: int = 8765
    """Port of the page; 0: any that is free."""
    token: str | None = None
    """Word that a browser must bring, which the link that is opened does; by default one is made for each run."""
    no_token: OneWay[bool] = False
    """Ask for no token: every program of this machine, and everybody who is logged in on it, may use the page."""
    tls: tuple[Path, Path] | None = None
    """Serve HTTPS with this certificate and its key (PEM files): --tls CERT KEY."""
    open: bool = True
    """Open the page in the browser of this machine."""


@dataclass(frozen=True)
class OverlayOptions:
    """What lies over the volume in the page."""

    labels: Path | None = None
    """Label map in the space of the volume (NIfTI, NRRD, MHA; names and colours of a .seg.nrrd), drawn over it."""
    landmarks: Path | None = None
    """Landmarks in the space of the volume (.fcsv, .mrk.json of 3D Slicer), drawn with their names."""
