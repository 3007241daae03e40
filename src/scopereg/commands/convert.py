"""`scopereg convert`: poses, volumes, frames and cines from one file format to another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console

from scopereg.commands.flags import renaming
from scopereg.commands.output import tell
from scopereg.commands.reading import sizes_mm
from scopereg.commands.shared import ConventionName, MaybeFile, PixelSize, Positional, VoxelSize
from scopereg.errors import ScopeRegError
from scopereg.io.files import output_folder, write_bytes

if TYPE_CHECKING:
    from scopereg.geometry import Pose
    from scopereg.images import Frame
    from scopereg.io.cine import Cine

Kind = Literal["pose", "volume", "frame", "sequence"]
SEQUENCE = (".igs.mha", ".seq.mha")
PICTURE = (".png",)
_SPATIAL_REGISTRATION = "1.2.840.10008.5.1.4.1.1.66.1"
_POSE_ONLY = (".tfm", ".h5", ".txt", ".json")


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
    """Direction of a .tfm or .h5 file to read; files of scopereg tell it themselves, and that counts."""
    convention: ConventionName = "slicer"
    """Direction of a .tfm or .h5 file to write."""
    frame: Path | None = None
    """Frame that a pose belongs to: needed for .dcm, told in .json."""
    volume: Path | None = None
    """Volume that a pose belongs to: needed for .dcm, told in .json."""
    poses: Path | None = None
    """poses.csv of scopereg register, for a PLUS sequence."""
    rate: float | None = None
    """Frames per second of a PLUS sequence, where the file does not tell when its frames were taken, else instead."""
    index: int | None = None
    """Number of the frame in a cine or stack, or point in time of a volume, from 0."""
    pixel_mm: PixelSize = ()
    voxel_mm: VoxelSize = ()
    region: int | None = None
    """Ultrasound region of a DICOM image, where it has several pictures."""
    calibration: Path | None = None
    """Configuration of PLUS (XML) with the transform from Image to Probe, for PLUS sequences."""
    series: str | None = None
    """DICOM series, where a folder holds several."""


def run(options: ConvertOptions) -> int:
    """The verb: look at the input, check that the output makes sense, write it."""
    if options.input is None or options.output is None:
        raise ScopeRegError(
            "an input and an output are needed", where="scopereg convert", fix="write scopereg convert INPUT -o OUTPUT"
        )
    source, target = options.input, options.output
    if not source.exists():
        raise ScopeRegError("there is no such file or folder", where=str(source), fix="check the name")
    if source.resolve() == target.resolve():
        raise ScopeRegError("it is the input", where=str(target), fix="choose another name")
    kind = kind_of(source, target, options)
    _check_pair(kind, source, target)
    output_folder(target.parent)
    lines = _CONVERTERS[kind](source, target, options)
    for line in lines:
        Console(soft_wrap=True, highlight=False, markup=False).print(line)
    tell(kind=kind, file=target, told=lines[:-1])
    return 0


def kind_of(source: Path, target: Path, options: ConvertOptions) -> Kind:
    """What the input holds, as far as the output leaves a choice."""
    from scopereg.io.dicom.header import DICOM_ENDINGS, is_dicom
    from scopereg.io.frames import PICTURES
    from scopereg.io.metaimage import is_sequence
    from scopereg.io.videos import VIDEOS

    name = source.name.lower()
    to_sequence = target.name.lower().endswith(SEQUENCE)
    if source.is_dir():
        return "sequence" if to_sequence else "volume"
    if name.endswith(_POSE_ONLY):
        return "pose"
    if is_dicom(source) or name.endswith(DICOM_ENDINGS):
        return _kind_of_dicom(source, target, options, to_sequence)
    if to_sequence:
        return "sequence"
    if is_sequence(source):
        return "sequence" if options.index is None else "frame"
    if name.endswith((*PICTURES, *VIDEOS, ".npz")):
        return "frame"
    return _kind_of_image(source, target, options)


def _kind_of_dicom(source: Path, target: Path, options: ConvertOptions, to_sequence: bool) -> Kind:
    from scopereg.io.dicom.header import read_dataset
    from scopereg.io.volumes import read_volume

    if str(read_dataset(source, pixels=False).get("SOPClassUID")) == _SPATIAL_REGISTRATION:
        return "pose"
    if to_sequence:
        return "sequence"
    if options.index is not None or target.name.lower().endswith(PICTURE):
        return "frame"
    try:
        read_volume(source)
    except ScopeRegError:
        return "frame"
    return "volume"


def _kind_of_image(source: Path, target: Path, options: ConvertOptions) -> Kind:
    from scopereg.io.read_image import read_header

    size = read_header(source).size
    if len(size) < 3 or size[2] == 1:
        return "frame"
    plane = target.name.lower().endswith(PICTURE) or (options.index is not None and len(size) == 3)
    return "frame" if plane else "volume"


def _check_pair(kind: Kind, source: Path, target: Path) -> None:
    from scopereg.io.read_image import endings as image_endings
    from scopereg.io.transforms import ENDINGS

    images = image_endings(written=True)
    goes_to = {
        "pose": ENDINGS,
        "volume": images,
        "frame": (*images, *PICTURE),
        "sequence": (*SEQUENCE, "or, for one frame of it, --index and", *images, *PICTURE),
    }
    name = target.name.lower()
    endings = SEQUENCE if kind == "sequence" else goes_to[kind]
    if name.endswith(endings) and name not in endings and (kind == "sequence" or not name.endswith(SEQUENCE)):
        return
    raise ScopeRegError(
        f"a {kind} cannot be written as {target.name!r}",
        where=f"{source} to {target}",
        fix=f"use one of {' '.join(goes_to[kind])}",
    )


def _pixel_mm(options: ConvertOptions) -> tuple[float, ...] | None:
    return sizes_mm(options.pixel_mm, 2, "--pixel-mm")


def _voxel_mm(options: ConvertOptions) -> tuple[float, ...] | None:
    """Either name will do where there are no pixels."""
    return sizes_mm(options.voxel_mm or options.pixel_mm, 3, "--voxel-mm")


def _convert_pose(source: Path, target: Path, options: ConvertOptions) -> list[str]:
    from scopereg.io.transforms import read_pose, write_pose
    from scopereg.io.volumes import read_volume

    pose = read_pose(source, convention=options.from_convention)
    frame = None if options.frame is None else _frame_of(options.frame, options)
    volume = None if options.volume is None else read_volume(options.volume)
    write_pose(pose, target, convention=options.convention, frame=frame, volume=volume)
    return [str(pose), str(target)]


def _frame_of(path: Path, options: ConvertOptions) -> Frame:
    from scopereg.io.frames import read_frame

    return read_frame(
        path, spacing_mm=_pixel_mm(options), index=options.index, region=options.region, calibration=options.calibration
    )


def _convert_volume(source: Path, target: Path, options: ConvertOptions) -> list[str]:
    from scopereg.io.volumes import read_volume, write_volume
    from scopereg.registration.reading import image_line, reader_notes

    with renaming({"spacing_mm": "voxel_mm"}):
        volume = read_volume(source, spacing_mm=_voxel_mm(options), index=options.index, series=options.series)
    write_volume(volume, target)
    return [image_line(volume), *_notes(reader_notes(volume)), str(target)]


def _convert_frame(source: Path, target: Path, options: ConvertOptions) -> list[str]:
    """A frame as a picture, or as a plane: in the world where its file places it, else in its own mm."""
    from scopereg.images import unit_range
    from scopereg.io.pictures import grey_pixels, png_bytes
    from scopereg.io.placement import write_frame, write_placed_frame
    from scopereg.registration.reading import image_line, reader_notes

    cine = _cine_of(source, options)
    frame = cine.only(options.index)
    lines = [image_line(frame), *_notes(reader_notes(frame))]
    if target.name.lower().endswith(PICTURE):
        write_bytes(target, png_bytes(grey_pixels(unit_range(frame.array))))
        x, y = frame.spacing_mm
        return [*lines, f"note    a picture does not keep its pixel size: --pixel-mm {x:g} {y:g}", str(target)]
    if frame.pose is not None:
        write_placed_frame(frame, frame.pose, target)
        return [*lines, f"note    placed by the file's {frame.pose.name}", str(target)]
    write_frame(frame, target)
    return [*lines, str(target)]


def _cine_of(source: Path, options: ConvertOptions) -> Cine:
    from scopereg.io.frames import read_cine

    return read_cine(source, spacing_mm=_pixel_mm(options), region=options.region, calibration=options.calibration)


def _convert_sequence(source: Path, target: Path, options: ConvertOptions) -> list[str]:
    """A cine or a folder of frames as a PLUS sequence, with the poses of a table or of the files."""
    from scopereg.io.plus_sequence import write_plus_sequence
    from scopereg.registration.reading import find_files, frame_times

    files = [source]
    if source.is_dir():
        files, _ = find_files(source, [target])
    cines = [_cine_of(path, options) for path in files]
    frames = [frame for cine in cines for frame in cine]
    names = [
        (path.relative_to(source).as_posix() if source.is_dir() else path.name, index)
        for path, cine in zip(files, cines, strict=True)
        for index in range(len(cine))
    ]
    poses = [frame.pose for frame in frames] if options.poses is None else _from_table(options.poses, names)
    stored = cines[0].times_s if len(cines) == 1 else (0.0,) if len(frames) == 1 else None
    times, clock = frame_times(source, len(frames), stored, options.rate)
    write_plus_sequence(frames, poses, target, times_s=times)
    placed = sum(pose is not None for pose in poses)
    return [f"{len(frames)} frames, {placed} of them with a pose; times {clock}", str(target)]


def _from_table(path: Path, names: Sequence[tuple[str, int]]) -> list[Pose | None]:
    from scopereg.registration.batch import read_table

    rows = {(file, index): pose for file, index, pose in read_table(path)}
    missing = [f"{file} frame {index}" for file, index in names if (file, index) not in rows]
    if missing:
        raise ScopeRegError(
            f"it has no row for {len(missing)} of {len(names)} frames, first {missing[0]}",
            where=str(path),
            fix="pass the table that scopereg register wrote of the same file or folder",
        )
    return [rows[name] for name in names]


def _notes(notes: Sequence[str]) -> list[str]:
    return [f"note    {note}" for note in notes]


_CONVERTERS: dict[Kind, Callable[[Path, Path, ConvertOptions], list[str]]] = {
    "pose": _convert_pose,
    "volume": _convert_volume,
    "frame": _convert_frame,
    "sequence": _convert_sequence,
}
