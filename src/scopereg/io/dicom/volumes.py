"""Volumes of DICOM: a series of slices in a folder, or one enhanced file with many planes.

Planes are sorted by position, and must be parallel and evenly spaced, none missing, none twice. Order and geometry come
from the headers, read with pydicom: ITK's reader takes a folder with missing slices for a volume of thicker ones and a
folder with two copies of a slice for one of thinner ones, with no more than a warning.
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
    number,
    numbers,
    pixel_spacing_mm,
    place_mm,
    read_dataset,
    reading,
    says_dicom,
)
from scopereg.io.dicom.pixels import StoredPixels, layout_of
from scopereg.io.formats import ImageFile
from scopereg.io.grey import grey_values
from scopereg.io.limits import check_size
from scopereg.io.read_image import ending_of

if TYPE_CHECKING:
    from scopereg.io.stored import StoredVolume  # needs torch, which processes that only read slices do without

Array = npt.NDArray[np.float64]
_PARALLEL = 1e-3  # difference between direction cosines that rounding in headers explains
_SKEW = 5e-3  # length or cosine of axes beyond what rounding to two decimals explains
_UNEVEN = 0.02  # share of a step by which distances between planes may differ
_ROUNDING_MM = 2e-3  # of positions written with two or three decimals
_SHEAR = 0.01  # sideways drift per step forward, from which the volume is a sheared one
_ONE_OF_A_SERIES = ("sop_instance_uid",)
_MOST_LISTED = 6
_STANDARD = "1.2.840.10008."  # how all classes of the standard begin
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


class Stack(NamedTuple):
    """A volume made of planes."""

    order: list[int]  # planes from the first to the last along z
    origin_mm: Array  # (3,)
    direction: Array  # columns are the x, y and z axes
    step_mm: float  # between planes


def read_dicom_series(folder: Path, series: str | None = None, index: int | None = None) -> StoredVolume:
    """The volume of the DICOM slices in a folder, or of the one enhanced file in it.

    `series` is the identifier of one of several series, or its beginning; `index` is for `read_enhanced`.
    """
    with reading(folder):
        return _series_in(folder, series, index)


def _series_in(folder: Path, series: str | None, index: int | None) -> StoredVolume:
    found = find_series(folder)
    if not found:
        images = sorted(path for path in folder.iterdir() if ending_of(path.name))
        choice = f"pass one volume: {images[0]}" if images else "pass the folder that holds the slices"
        raise ScopeRegError("no DICOM files in it", where=str(folder), fix=choice)
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
    return _volume(image, folder, {**facts, "slices": len(image.array), "anatomical": True})


def read_slices(paths: Sequence[Path], folder: Path) -> ImageFile:
    """The volume of the slices of one series, in whatever order; an error if any is missing, twice or another's."""
    with reading(folder):
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
    rows, columns, *spacing_mm = ordered[0].grid
    voxels = _room(len(ordered), rows, columns, folder)
    for plane, one in zip(voxels, ordered, strict=True):
        plane[:] = _values(one.dataset, _pixels_of(one), 0, str(one.path))
    return _image(voxels, stack, spacing_mm), ordered[0].dataset


def _pixels_of(one: _Slice) -> StoredPixels:
    """Pixels of a slice; an error if the file has changed since its header was read."""
    dataset = read_dataset(one.path)
    pixels = StoredPixels(dataset, str(one.path))
    if pixels.layout[:3] != (1, *one.grid[:2]):
        raise ScopeRegError("it changed while it was read", where=str(one.path), fix="wait until it is copied")
    return pixels


def _room(count: int, rows: int, columns: int, path: Path) -> npt.NDArray[np.float32]:
    """An array for so many planes, if they are within the limit."""
    check_size((count, rows, columns), 4, str(path))
    return np.empty((count, rows, columns), np.float32)


def find_series(folder: Path) -> dict[str, list[_File]]:
    """Files with images of each series in a folder, by the series' identifier."""
    found: dict[str, list[_File]] = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and says_dicom(path):
            header = read_dataset(path, pixels=False)
            with reading(path):
                if number(header, "Rows"):
                    found.setdefault(str(header.get("SeriesInstanceUID", "")), []).append(_File(path, header))
                elif _promises_image(header):
                    raise ScopeRegError(
                        "its header is cut short: no size of the image", where=str(path), fix="copy or export it again"
                    )
    return found


def _promises_image(header: FileDataset) -> bool:
    """Whether a file should hold an image by its class, which stands first; one without a class, or a damaged, may."""
    kind = UID(header.file_meta.get("MediaStorageSOPClassUID") or header.get("SOPClassUID") or _STANDARD)
    damaged = kind.name == kind and kind.startswith(_STANDARD)  # it is in no list
    return damaged or kind.name.endswith(("Image Storage", "Volume Storage"))


def read_enhanced(path: Path, index: int | None = None) -> StoredVolume:
    """The volume of a multi-frame file whose frames tell their planes; `index` chooses between points in time."""
    dataset = read_dataset(path)
    with reading(path):
        count, rows, columns, *_ = layout_of(dataset, str(path))
        groups = _groups(dataset, count)
        planes = [_plane(group, dataset) for group in groups]
        if any(plane is None for plane in planes):
            raise _no_planes(dataset, path)
        chosen = _frames_of_one_time(groups, index, path)
        known = [plane for row in chosen if (plane := planes[row]) is not None]
        stack = stack_planes(
            np.stack([position for position, _, _ in known]),
            np.stack([axes for _, axes, _ in known]),
            [f"frame {row}" for row in chosen],
            str(path),
        )
        facts: dict[str, Any] = {**identifiers(dataset), "slices": len(known)}
        if uid := dataset.get("VolumeFrameOfReferenceUID"):
            notes = ["places are in the scanner's volume, not the patient"]
            facts |= {"frame_of_reference_uid": str(uid), "notes": notes}
        if all(_in_patient(groups[row]) for row in chosen):
            facts["anatomical"] = True
    voxels = _room(len(known), rows, columns, path)
    pixels = StoredPixels(dataset, str(path))
    for plane, row in zip(voxels, (chosen[place] for place in stack.order), strict=True):
        plane[:] = _values(dataset, pixels, row, str(path), groups[row])
    return _volume(_image(voxels, stack, known[0][2]), path, facts)


def _described(header: Dataset) -> str:
    return f"{header.get('Modality', '?')} {header.get('SeriesDescription', '')}".strip()


def _slice_of(path: Path, header: FileDataset) -> _Slice:
    with reading(path):
        position, axes = place_mm(header, "ImagePositionPatient"), numbers(header, "ImageOrientationPatient", 6)
        spacing, count = pixel_spacing_mm(header), frame_count(header)
        if count > 1 or position is None or axes is None or spacing is None:
            raise ScopeRegError(
                "no slice of a volume: it does not tell its place, its axes and its pixel size"
                if count == 1
                else f"it holds {count} frames among slices of one",
                where=str(path),
                fix="pass a folder with slices alone; frames of ultrasound are read one by one, with read_frame",
            )
        rows, columns = int(number(header, "Rows") or 0), int(number(header, "Columns") or 0)
        return _Slice(path, header, position, axes, (rows, columns, *(round(step, 6) for step in spacing)))


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


def _groups(dataset: Dataset, count: int) -> list[list[Dataset]]:
    """Functional groups that hold for each frame: its own first, then those of all frames."""
    own = list(dataset.get("PerFrameFunctionalGroupsSequence") or ())
    shared = list(dataset.get("SharedFunctionalGroupsSequence") or ())
    return [[*own[row : row + 1], *shared] for row in range(count)]


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
            position = place_mm(place, f"ImagePosition{ending}")
            axes = numbers(turn, f"ImageOrientation{ending}", 6)
            if position is not None and axes is not None:
                return position, axes, spacing
    return None


def _in_patient(groups: Sequence[Dataset]) -> bool:
    """Whether `_plane` is one in the patient."""
    place, turn = _entry(groups, "PlanePositionSequence"), _entry(groups, "PlaneOrientationSequence")
    if place is None or turn is None:
        return False
    return (
        place_mm(place, "ImagePositionPatient") is not None and numbers(turn, "ImageOrientationPatient", 6) is not None
    )


def _frames_of_one_time(groups: Sequence[Sequence[Dataset]], index: int | None, path: Path) -> list[int]:
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


def _values(
    dataset: FileDataset, pixels: StoredPixels, row: int, where: str, groups: Sequence[Dataset] = ()
) -> npt.NDArray[np.float32]:
    """Grey values of one plane, after the header's slope and intercept."""
    stored = pixels.frame(row)
    with reading(where):
        transformation = _entry(groups, "PixelValueTransformationSequence")
        source = transformation if transformation is not None else dataset
        slope, intercept = (_rescale(source, f"Rescale{name}", where) for name in ("Slope", "Intercept"))
    if slope in (None, 1.0) and intercept in (None, 0.0):
        return grey_values(stored, where, colours=stored.ndim == 3)
    slope = 1.0 if slope is None else slope
    with np.errstate(over="ignore"):
        values = grey_values(stored.astype(np.float32), where) * np.float32(slope) + np.float32(intercept or 0.0)
    if slope == 0 or not np.isfinite(values).all():
        raise ScopeRegError(
            f"its values after slope {slope:g} and intercept {intercept or 0.0:g} are no numbers, or all the same",
            where=where,
            fix="export it again",
        )
    return values


def _rescale(source: Dataset, keyword: str, where: str) -> float | None:
    """A number of the rescaling, None if it is not told; one that is told and no number would change every value."""
    value = number(source, keyword)
    if value is None and source.get(keyword) not in (None, ""):
        raise ScopeRegError(f"its {keyword} is {source.get(keyword)!r:.80}", where=where, fix="export it again")
    return value


def _image(voxels: npt.NDArray[np.float32], stack: Stack, spacing_mm: Sequence[float]) -> ImageFile:
    x_mm, y_mm = spacing_mm
    return ImageFile(voxels, (x_mm, y_mm, stack.step_mm), tuple(stack.origin_mm.tolist()), stack.direction)


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


def stack_planes(positions_mm: Array, axes: Array, names: Sequence[str], where: str) -> Stack:
    """Order planes with first pixels at `positions_mm` (N, 3) and rows and columns along `axes` (N, 6).

    z runs along rows x columns, so that the axes are right-handed. Planes that turn, lie on each other, leave gaps or
    drift sideways are refused, named by `names`.
    """
    if len(positions_mm) < 2:
        raise ScopeRegError("it is a single slice, not a volume", where=where, fix="pass the folder with all slices")
    turned = np.abs(axes - axes[0]).max(1)
    if turned.max() > _PARALLEL:
        raise ScopeRegError(
            f"the slices are not parallel: {names[int(turned.argmax())]} is turned against {names[0]}",
            where=where,
            fix="pass the slices of one stack: scouts and other planes belong into folders of their own",
        )
    x_axis, y_axis = axes.mean(0)[:3], axes.mean(0)[3:]
    direction = _square_axes(x_axis, y_axis, where)
    along = positions_mm @ direction[:, 2]
    order = [int(row) for row in np.argsort(along, kind="stable")]
    _check_steps(along[order], [names[row] for row in order], where)
    first, last = positions_mm[order[0]], positions_mm[order[-1]]
    step = float((along[order[-1]] - along[order[0]]) / (len(order) - 1))
    aside = np.linalg.norm(direction[:, :2].T @ (last - first)) / (along[order[-1]] - along[order[0]])
    if aside > _SHEAR:
        raise ScopeRegError(
            f"the slices are shifted sideways by {aside:.3f} mm per mm: the volume is sheared (a tilted gantry)",
            where=where,
            fix="resample it to a square grid first, for example with 3D Slicer or dcm2niix",
        )
    return Stack(order, first, direction, step)


def _square_axes(x_axis: Array, y_axis: Array, where: str) -> Array:
    """Axes x, y, z as columns: the nearest square ones, as headers round them."""
    lengths = np.linalg.norm([x_axis, y_axis], axis=1)
    if np.abs(lengths - 1).max() > _SKEW or abs(float(x_axis @ y_axis)) > _SKEW:
        raise ScopeRegError(
            f"rows and columns are no directions at right angles: {np.round(x_axis, 4)} and {np.round(y_axis, 4)}",
            where=where,
            fix="export the images again",
        )
    left, _, right = np.linalg.svd(np.stack([x_axis, y_axis, np.cross(x_axis, y_axis)], 1))
    direction: Array = left @ right
    return direction


def _check_steps(along: Array, names: Sequence[str], where: str) -> None:
    steps = np.diff(along)
    usual = float(np.median(steps))
    same = np.flatnonzero(steps < max(_ROUNDING_MM / 2, 0.01 * usual))
    if len(same):
        one, other = names[same[0]], names[same[0] + 1]
        raise ScopeRegError(
            f"{len(same)} slices lie where another one does: {one} and {other}",
            where=where,
            fix="keep one of several copies, phases or time points",
        )
    uneven = np.abs(steps - usual)
    worst = int(uneven.argmax())
    if uneven[worst] > max(_UNEVEN * usual, _ROUNDING_MM):
        raise ScopeRegError(
            f"slices are missing or uneven: {names[worst]} and {names[worst + 1]} are {steps[worst]:.3g} mm apart, "
            f"most are {usual:.3g} mm",
            where=where,
            fix="copy the whole series again",
        )
