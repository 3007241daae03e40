"""Volumes of DICOM: a series of slices in a folder, or one enhanced file with many planes.

Order and geometry come from the headers, read with pydicom: ITK's reader takes a folder with missing slices for a
volume of thicker ones and a folder with two copies of a slice for one of thinner ones, with no more than a warning.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pydicom.dataset import Dataset, FileDataset
from pydicom.uid import UID

from scopereg.errors import ScopeRegError
from scopereg.io.dicom.header import (
    frame_count,
    identifiers,
    is_dicom,
    number,
    numbers,
    pixel_spacing_mm,
    read_dataset,
)
from scopereg.io.dicom.pixels import decode_frame
from scopereg.io.dicom.planes import Stack, stack_planes
from scopereg.io.grey import grey_values
from scopereg.io.read_image import ImageFile

if TYPE_CHECKING:
    from scopereg.io.stored import StoredVolume  # needs torch, which processes that only read slices do without

Array = npt.NDArray[np.float64]
_ONE_OF_A_SERIES = ("sop_instance_uid",)
_MOST_LISTED = 6
_SHARED = {  # by the slices of a volume
    "PatientID": "patients",
    "PatientName": "patients",
    "StudyInstanceUID": "studies",
    "FrameOfReferenceUID": "frames of reference",
}


class _File(NamedTuple):
    """One file of a series, without its pixels."""

    path: Path
    dataset: FileDataset


class _Slice(NamedTuple):
    """One file of a series whose header tells its plane."""

    path: Path
    dataset: FileDataset
    position_mm: Array
    axes: Array
    grid: tuple[Any, ...]  # what all slices of a volume share


def read_dicom_series(folder: Path, series: str | None = None, index: int | None = None) -> StoredVolume:
    """The volume of the DICOM slices in a folder, or of the one enhanced file in it.

    `series` is the identifier of one of several series, or its beginning; `index` is for `read_enhanced`.
    """
    found = find_series(folder)
    if not found:
        raise ScopeRegError("no DICOM files in it", where=str(folder), fix="pass the folder that holds the slices")
    fitting = {uid: files for uid, files in found.items() if series is None or uid.startswith(series)}
    if len(fitting) != 1:
        names = [f"{uid} ({len(files)} files, {_described(files[0].dataset)})" for uid, files in found.items()]
        held = "; ".join(names[:_MOST_LISTED]) + ("; ..." if len(names) > _MOST_LISTED else "")
        what = f"it holds {len(found)} series" if series is None else f"{len(fitting)} series fit {series!r}"
        raise ScopeRegError(f"{what}: {held}", where=str(folder), fix="choose one: series=, or copy it to a folder")
    (files,) = fitting.values()
    if len(files) == 1 and frame_count(files[0].dataset) > 1:
        return read_enhanced(files[0].path, index)
    if index not in (None, 0):
        raise ScopeRegError(f"index is {index}, but it holds one volume", where=str(folder), fix="leave index out")
    image, first = _stacked(files, folder)
    facts = identifiers(first)
    for name in _ONE_OF_A_SERIES:
        facts.pop(name, None)
    return _volume(image, folder, {**facts, "slices": len(image.array)})


def read_slices(paths: Sequence[Path], folder: Path) -> ImageFile:
    """The volume of the slices of one series, in whatever order; an error if any is missing, twice or another's."""
    return _stacked([_File(path, read_dataset(path, pixels=False)) for path in paths], folder)[0]


def _stacked(files: Sequence[_File], folder: Path) -> tuple[ImageFile, FileDataset]:
    """The volume of slices, and the header of the first."""
    slices = [_slice_of(*file) for file in files]
    _check_alike(slices, folder)
    stack = stack_planes(
        np.stack([one.position_mm for one in slices]),
        np.stack([one.axes for one in slices]),
        [one.path.name for one in slices],
        str(folder),
    )
    ordered = [slices[row] for row in stack.order]
    planes = [_values(read_dataset(one.path), 0, str(one.path)) for one in ordered]
    return _image(planes, stack, ordered[0].grid[2:4]), ordered[0].dataset


def find_series(folder: Path) -> dict[str, list[_File]]:
    """Files with images of each series in a folder, by the series' identifier."""
    found: dict[str, list[_File]] = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and is_dicom(path):
            header = read_dataset(path, pixels=False)
            if number(header, "Rows"):
                found.setdefault(str(header.get("SeriesInstanceUID", "")), []).append(_File(path, header))
            elif _promises_image(header):
                raise ScopeRegError(
                    "its header is cut short: no size of the image", where=str(path), fix="copy or export it again"
                )
    return found


def _promises_image(header: FileDataset) -> bool:
    """Whether a file should hold an image by its class, which stands first; one without a class may."""
    kind = header.file_meta.get("MediaStorageSOPClassUID") or header.get("SOPClassUID")
    return kind is None or UID(kind).name.endswith(("Image Storage", "Volume Storage"))


def read_enhanced(path: Path, index: int | None = None) -> StoredVolume:
    """The volume of a multi-frame file whose frames tell their planes; `index` chooses between points in time."""
    dataset = read_dataset(path)
    groups = [_groups(dataset, row) for row in range(frame_count(dataset))]
    planes = [_plane(group, dataset) for group in groups]
    if any(plane is None for plane in planes):
        raise _no_planes(dataset, path)
    rows = _rows_of_one_time(groups, index, path)
    known = [plane for row in rows if (plane := planes[row]) is not None]
    stack = stack_planes(
        np.stack([position for position, _, _ in known]),
        np.stack([axes for _, axes, _ in known]),
        [f"frame {row}" for row in rows],
        str(path),
    )
    frames = [rows[place] for place in stack.order]
    values = [_values(dataset, row, str(path), groups[row]) for row in frames]
    facts: dict[str, Any] = {**identifiers(dataset), "slices": len(values)}
    if uid := dataset.get("VolumeFrameOfReferenceUID"):
        facts |= {"frame_of_reference_uid": str(uid), "notes": ["places are in the scanner's volume, not the patient"]}
    return _volume(_image(values, stack, known[0][2]), path, facts)


def _described(header: Dataset) -> str:
    return f"{header.get('Modality', '?')} {header.get('SeriesDescription', '')}".strip()


def _slice_of(path: Path, header: FileDataset) -> _Slice:
    position, axes = numbers(header, "ImagePositionPatient", 3), numbers(header, "ImageOrientationPatient", 6)
    spacing = pixel_spacing_mm(header)
    if frame_count(header) > 1 or position is None or axes is None or spacing is None:
        raise ScopeRegError(
            "no slice of a volume: it does not tell its place, its axes and its pixel size"
            if frame_count(header) == 1
            else f"it holds {frame_count(header)} frames among slices of one",
            where=str(path),
            fix="pass a folder with slices alone; frames of ultrasound are read one by one, with read_frame",
        )
    grid = (int(header.Rows), int(header.Columns), *(round(step, 6) for step in spacing))
    return _Slice(path, header, position, axes, grid)


def _check_alike(slices: Sequence[_Slice], folder: Path) -> None:
    for one in slices:
        if one.grid != slices[0].grid:
            raise ScopeRegError(
                f"{one.path.name} and {slices[0].path.name} differ in size or spacing: "
                f"{_grid_words(one.grid)} and {_grid_words(slices[0].grid)}",
                where=str(folder),
                fix="pass the slices of one stack",
            )
        for keyword, words in _SHARED.items():
            if str(one.dataset.get(keyword) or "") != str(slices[0].dataset.get(keyword) or ""):
                # The identifiers stay unsaid: messages and reports are passed on, names of patients are not.
                raise ScopeRegError(
                    f"{one.path.name} and {slices[0].path.name} are of different {words}",
                    where=str(folder),
                    fix="pass the slices of one stack, without files of another",
                )


def _grid_words(grid: tuple[Any, ...]) -> str:
    rows, columns, x, y = grid
    return f"{columns} x {rows} pixels of {x:g} x {y:g} mm"


def _groups(dataset: Dataset, row: int) -> list[Dataset]:
    """Functional groups that hold for one frame: its own first, then those of all frames."""
    own = dataset.get("PerFrameFunctionalGroupsSequence") or ()
    return [*own[row : row + 1], *(dataset.get("SharedFunctionalGroupsSequence") or ())]


def _entry(groups: Sequence[Dataset], keyword: str) -> Dataset | None:
    for group in groups:
        for item in group.get(keyword) or ():
            entry: Dataset = item
            return entry
    return None


def _plane(groups: Sequence[Dataset], dataset: Dataset) -> tuple[Array, Array, tuple[float, float]] | None:
    """Place of the first pixel, axes and pixel size of one frame: in the patient, or in the scanner's volume."""
    measures = _entry(groups, "PixelMeasuresSequence")
    spacing = pixel_spacing_mm(measures if measures is not None else dataset)
    for kind in ("", "Volume"):
        ending = kind or "Patient"
        place, turn = _entry(groups, f"PlanePosition{kind}Sequence"), _entry(groups, f"PlaneOrientation{kind}Sequence")
        if place is not None and turn is not None and spacing is not None:
            position = numbers(place, f"ImagePosition{ending}", 3)
            axes = numbers(turn, f"ImageOrientation{ending}", 6)
            if position is not None and axes is not None:
                return position, axes, spacing
    return None


def _rows_of_one_time(groups: Sequence[Sequence[Dataset]], index: int | None, path: Path) -> list[int]:
    """Frames of one point in time: all, unless the file holds several and `index` chooses."""
    times = [_time(group) for group in groups]
    points = sorted(set(times))
    if not 0 <= (index or 0) < len(points) or (index is None and len(points) > 1):
        raise ScopeRegError(
            f"it holds {len(points)} volumes, one after the other in time" if index is None else f"index is {index}",
            where=str(path),
            fix=f"choose one by its number: index=, from 0 to {len(points) - 1}",
        )
    return [row for row, time in enumerate(times) if time == points[index or 0]]


def _time(groups: Sequence[Dataset]) -> float:
    entry = _entry(groups, "TemporalPositionSequence")
    offset = number(entry, "TemporalPositionTimeOffset") if entry is not None else None
    content = _entry(groups, "FrameContentSequence")
    place = number(content, "TemporalPositionIndex") if content is not None else None
    return offset if offset is not None else place if place is not None else 0.0


def _no_planes(dataset: Dataset, path: Path) -> ScopeRegError:
    count = frame_count(dataset)
    if count == 1:
        return ScopeRegError(
            "it is a single image, not a volume",
            where=str(path),
            fix="pass the folder with all slices of the series, or read it as a frame",
        )
    return ScopeRegError(
        f"its {count} frames do not tell their planes: it is a cine, or a 3D image in the maker's own coding",
        where=str(path),
        fix="read a cine frame by frame; export 3D images as Enhanced US Volume, NRRD or NIfTI with the maker's tool",
    )


def _values(dataset: FileDataset, row: int, where: str, groups: Sequence[Dataset] = ()) -> npt.NDArray[np.float32]:
    """Grey values of one plane, after the header's slope and intercept."""
    pixels = decode_frame(dataset, row, where)
    transformation = _entry(groups, "PixelValueTransformationSequence")
    source = transformation if transformation is not None else dataset
    slope, intercept = number(source, "RescaleSlope"), number(source, "RescaleIntercept") or 0.0
    slope = 1.0 if slope is None else slope
    if (slope, intercept) == (1.0, 0.0):
        return grey_values(pixels, where, colours=pixels.ndim == 3)
    return grey_values(pixels.astype(np.float32), where) * np.float32(slope) + np.float32(intercept)


def _image(planes: Sequence[npt.NDArray[np.float32]], stack: Stack, spacing_mm: Sequence[float]) -> ImageFile:
    origin_mm = tuple(stack.origin_mm.tolist())
    return ImageFile(np.stack(planes), (*spacing_mm, stack.step_mm), origin_mm, stack.direction)


def _volume(image: ImageFile, path: Path, facts: dict[str, Any]) -> StoredVolume:
    from scopereg.io.stored import StoredVolume

    return StoredVolume(
        image.array,
        image.spacing_mm,
        origin_mm=image.origin_mm,
        direction=image.direction,
        path=path,
        facts={"spacing_from": "DICOM positions", **facts},
    )
