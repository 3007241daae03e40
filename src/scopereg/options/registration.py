"""Frames and their poses, from files to files: the options of register, track and convert."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from scopereg.options.reading import FrameReading, VolumeReading
from scopereg.options.words import ConventionName, DeviceName, Folder, MaybeFile, PoseFormat, Spacing
from scopereg.registration.default_model import DEFAULT
from scopereg.registration.track_settings import TrackSettings


@dataclass(frozen=True)
class RegisterOptions(VolumeReading, FrameReading):
    """Find where frames lie in a volume, and write the transforms.

    FRAME is a DICOM, PNG, JPEG, NIfTI, NRRD, MHA or PLUS file. A cine (without --index) or a folder is a batch: OUTPUT
    is a folder and gets a transform for each frame, poses.csv, report.html and, for PLUS sequences, the sequence with
    the poses found. Frames that fail are named; the status is then 1.
    """

    frame: Positional[Path | None] = None
    """File of the frame or cine, or a folder of them."""
    volume: Positional[Path | None] = None
    """Volume: NIfTI, NRRD, MHA, enhanced DICOM, or the folder of a DICOM series."""
    output: MaybeFile = None
    """File for the pose (.tfm, .h5, .txt, .json or .dcm), or folder for a batch; without it a pose is only printed."""
    method: str = DEFAULT
    """A model of the package, a .safetensors file, simpleitk-mi, simpleitk-ncc, elastix, or start: no search."""
    refine: bool = False
    """Polish what the method found by the similarity of frame and volume."""
    agreement: bool = False
    """Let a network locate each frame under four small changes too: a surer verdict, five times the work."""
    wide: bool = False
    """Look from many starts, for large volumes and frames farther off than in the training; best with --refine."""
    start: str | None = None
    """Where the search begins: a pose file, or tracker: where the frame's own file puts it; else mid-volume."""
    world: Path | None = None
    """Pose file from the tracker's world to the volume, where these are not the same."""
    index: int | None = None
    """Number of the frame in a cine, from 0."""
    convention: ConventionName = "slicer"
    """Direction of .tfm and .h5. slicer: 3D Slicer puts the frame in place. itk-resample: ITK cuts the volume."""
    format: PoseFormat = "tfm"
    """Transforms of a batch."""
    placed: str | None = None
    """Also write the frame as an oblique plane: a file, or for a batch an ending (.nii.gz, .nii, .nrrd, .mha)."""
    resliced: str | None = None
    """Also write the volume cut at the pose: a file, or for a batch an ending."""
    report: bool = True
    """Write report.html of a batch."""
    workers: int | None = None
    """Processes of a batch; by default one for each processor core, 8 at most, fewer for few frames, one on a GPU."""
    device: DeviceName = "auto"
    """Where networks and the refinement run."""


@dataclass(frozen=True)
class TrackOptions(TrackSettings, VolumeReading, FrameReading):
    """Follow a probe through the frames of a sequence, and write their poses.

    SEQUENCE is a PLUS sequence, a cine, a multi-frame file, or a folder of frames that are taken by name. Each frame is
    found by itself and weighed against the motion so far; what is lost is found again by itself. OUTPUT gets track.csv,
    track.html and the sequence with the poses found (.igs.mha). Frames that cannot be read are named; the status is
    then 1. Ctrl-C ends it with what is done.
    """

    sequence: Positional[Path | None] = None
    """File of the sequence, or a folder of frames."""
    volume: Positional[Path | None] = None
    """Volume: NIfTI, NRRD, MHA, enhanced DICOM, or the folder of a DICOM series."""
    output: Folder = Path("out/track")
    """Folder for the results."""
    method: str = DEFAULT
    """A model of the package, a .safetensors file, simpleitk-mi, simpleitk-ncc or elastix."""
    refine: bool = False
    """Polish what the method found by the similarity of frame and volume, also from where the motion is."""
    wide: bool = False
    """Until a frame is found, and when the probe is lost, look from many starts; takes seconds a frame on a CPU."""
    rate: float | None = None
    """Frames per second; needed where the file does not tell when its frames were taken, else in place of that."""
    tracker: bool = False
    """Compare with where the sequence's own tracker puts the frames."""
    world: Path | None = None
    """Pose file from the tracker's world to the volume, where these are not the same; it also compares."""
    device: DeviceName = "auto"
    """Where networks and the refinement run."""


@dataclass(frozen=True)
class ConvertOptions:
    """Convert a pose, a volume, a frame or a cine from one file format to another; the endings tell which.

    Poses: .tfm .h5 .txt .json .dcm. Volumes to .nii.gz .nii .nrrd .mha. Frames to the same or to .png. Cines, and
    folders of frames, to a PLUS sequence (.igs.mha), with --poses from a batch of scopereg register.
    """

    input: Positional[Path | None] = None
    """File to convert, or a folder: a DICOM series, or frames for a PLUS sequence."""
    output: MaybeFile = None
    """File to write."""
    from_convention: ConventionName = "slicer"
    """Direction of a .tfm or .h5 file to read; files of scopereg that tell it themselves are believed."""
    convention: ConventionName = "slicer"
    """Direction of a .tfm or .h5 file to write."""
    frame: Path | None = None
    """Frame that a pose belongs to: needed for .dcm, told in .json."""
    volume: Path | None = None
    """Volume that a pose belongs to: needed for .dcm, told in .json."""
    poses: Path | None = None
    """poses.csv of scopereg register, for a PLUS sequence."""
    index: int | None = None
    """Number of the frame in a cine or stack, or point in time of a volume, from 0."""
    spacing: Spacing = ()
    """Size of a pixel or voxel in mm, x y (z); needed where the file does not tell."""
    region: int | None = None
    """Ultrasound region of a DICOM image, where it has several pictures."""
    calibration: Path | None = None
    """Configuration of PLUS (XML) with the transform from Image to Probe, for PLUS sequences."""
    series: str | None = None
    """DICOM series, where a folder holds several."""
