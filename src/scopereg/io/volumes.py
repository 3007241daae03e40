"""Volumes in and out: one door for NIfTI, NRRD, MHA, MHD and DICOM, with axes and sizes checked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from scopereg.errors import ScopeRegError
from scopereg.image_fields import as_sizes
from scopereg.images import Volume
from scopereg.io.apart import Allowance, read_apart
from scopereg.io.dicom.header import says_dicom
from scopereg.io.dicom.volumes import read_dicom_series, read_enhanced
from scopereg.io.formats import ImageFile, ImageHeader, checked_grid
from scopereg.io.grey import grey_values
from scopereg.io.limits import largest_bytes
from scopereg.io.metaimage import is_sequence
from scopereg.io.modality import AUTO, with_modality
from scopereg.io.read_image import ending_of, endings, read_with_header, write_image
from scopereg.io.records import Record
from scopereg.io.stored import StoredVolume, given_spacing_note, is_anatomical
from scopereg.io.volume_masks import with_mask
from scopereg.progress import timed

_CHILD = "scopereg.io.apart.volumes:volume"
_GIVE_IT = "give the size of a voxel in mm: spacing_mm="


def read_volume(
    path: Path | str,
    *,
    spacing_mm: float | Sequence[float] | None = None,
    index: int | None = None,
    series: str | None = None,
    detached: bool = True,
    volume_mask: Path | str | None = None,
    modality: str = AUTO,
) -> StoredVolume:
    """A volume from NIfTI, NRRD, MHA or MHD, a DICOM series (its folder) or an enhanced multi-frame DICOM file.

    `spacing_mm` (x, y, z) is needed where the file states none; `index` chooses between points in time and `series`
    between DICOM series. Bytes become 0 to 1, other values stay. Every voxel keeps its place in LPS mm: a volume with
    left-handed axes gets its slices in the opposite order, which its facts tell. `detached=False` is for files that
    somebody else brought: their voxels must lie in the file itself. What is labelled in a `volume_mask` counts, and
    nothing else (`io.volume_masks`). The `modality` is us, mr or ct; auto: what the file tells (`io.modality`).
    """
    volume = with_modality(_read(Path(path), spacing_mm, index, series, detached), modality)
    return volume if volume_mask is None else with_mask(volume, volume_mask)


def _read(
    path: Path, spacing_mm: float | Sequence[float] | None, index: int | None, series: str | None, detached: bool
) -> StoredVolume:
    """A volume of a file or folder of any kind."""
    if not path.exists():
        raise ScopeRegError("there is no such file or folder", where=str(path), fix="check the name and the folder")
    dicom = path.is_dir() or says_dicom(path)
    if dicom and spacing_mm is not None:
        raise ScopeRegError("DICOM states the size of its voxels", where="read_volume(spacing_mm)", fix="leave it out")
    if series is not None and not path.is_dir():
        raise ScopeRegError("it is a file, not a folder of series", where=str(path), fix="leave series out")
    if not dicom and not ending_of(path.name):
        raise ScopeRegError(
            f"unknown kind of volume {path.suffix!r}",
            where=str(path),
            fix=f"pass a file ending in {', '.join(endings())}, an enhanced DICOM file or a folder of slices",
        )
    with timed(f"read {path}"):
        if path.is_dir():
            return read_dicom_series(path, series, index)
        return read_enhanced(path, index) if dicom else _read_image_volume(path, spacing_mm, index, detached)


def _read_image_volume(
    path: Path, given: float | Sequence[float] | None, index: int | None, detached: bool
) -> StoredVolume:
    if is_sequence(path):
        raise ScopeRegError(
            "it is a sequence of frames, not a volume",
            where=str(path),
            fix="make a volume of it (scopereg compound), or read it frame by frame",
        )
    header, array = read_with_header(path, detached=detached)
    return _volume(header, _at_one_time(array, index, path), path, given)


def read_foreign(path: Path) -> StoredVolume:
    """A volume of a file that somebody else brought: NIfTI, NRRD or MHA, whole in that file, read in a child process.

    Nothing of the file is looked at here, and what is shown of it is what the child answered.
    """
    try:
        size, most = path.stat().st_size, largest_bytes()
        allowance = Allowance(memory=2**28 + 2 * most, answer=most, seconds=20.0 + size / 2**20)
    except OSError as error:
        raise ScopeRegError(f"it cannot be read: {error.strerror}", where=str(path), fix="bring it again") from None
    answer = read_apart(_CHILD, path, str(path), allowance, ending=ending_of(path.name), fresh=True)
    (array,), facts = answer.arrays, Record.of(answer.facts, str(path), "bring it again")
    axes = array.ndim
    header = ImageHeader(
        array.shape[::-1],
        facts.numbers("spacing_mm", axes),
        np.array(facts.numbers("direction", axes * axes)).reshape(axes, axes),
        str(array.dtype),
        origin_mm=facts.numbers("origin_mm", axes),
        states_spacing=facts.truth("states_spacing"),
        notes=tuple(str(note)[:500] for note in facts.list("notes", most=20)),
        anatomical=facts.truth("anatomical"),
    )
    return _volume(checked_grid(header, str(path)), _at_one_time(array, None, path), path, None)


def _volume(
    header: ImageHeader, array: npt.NDArray[Any], path: Path, given: float | Sequence[float] | None
) -> StoredVolume:
    if array.ndim != 3 or min(array.shape) < 2:
        raise ScopeRegError(
            f"it holds {' x '.join(map(str, array.shape[::-1]))} pixels, which is no volume",
            where=str(path),
            fix="pass a 3D image; a single plane is a frame",
        )
    stated = header.spacing_mm[:3] if header.states_spacing else None
    if given is None and stated is None:
        raise ScopeRegError("it does not say how large a voxel is", where=str(path), fix=_GIVE_IT)
    spacing = header.spacing_mm[:3] if given is None else as_sizes(given, 3, "read_volume(spacing_mm)")
    facts: dict[str, Any] = {"spacing_from": "header" if given is None else "given", "notes": list(header.notes)}
    if given is not None:
        facts["notes"] += given_spacing_note(spacing, stated, "the header").get("notes", [])
    if header.anatomical:
        facts["anatomical"] = True
    if header.modality:
        facts["modality"] = header.modality[:40]
    origin, direction = np.array(header.origin_mm[:3]), header.direction[:3, :3]
    values = grey_values(array, str(path))
    if np.linalg.det(direction) < 0:
        origin = origin + direction[:, 2] * spacing[2] * (len(values) - 1)
        direction = direction * [1, 1, -1]
        values = np.ascontiguousarray(values[::-1])
        facts["notes"] += ["the axes of the file are left-handed: slices are read in opposite order"]
    # A tensor, not an array, of which the volume would make a copy.
    return StoredVolume(torch.from_numpy(values), spacing, origin.tolist(), direction, path=path, facts=facts)


def _at_one_time(array: npt.NDArray[Any], index: int | None, path: Path) -> npt.NDArray[Any]:
    if array.ndim == 4:
        if index is None or not 0 <= index < len(array):
            raise ScopeRegError(
                f"it holds {len(array)} volumes" + ("" if index is None else f", index is {index}"),
                where=str(path),
                fix=f"choose one by its number: index=, from 0 to {len(array) - 1}",
            )
        return array[index]
    if index not in (None, 0):
        raise ScopeRegError(f"index is {index}, but it holds one volume", where=str(path), fix="leave index out")
    return array


def write_volume(volume: Volume, path: Path | str) -> Path:
    """Write the voxels as float32 with spacing, origin and direction; the format follows the file's ending."""
    return write_image(_on_grid(volume.array, volume), path)


def write_grey(volume: Volume, path: Path | str, filled: torch.Tensor) -> Path:
    """Write grey values from 0 to 1 as bytes; voxels that are filled are 1 or more, all others 0."""
    grey = (volume.array.detach().cpu() * 255).round_().clamp_(1, 255).to(torch.uint8)
    return write_image(_on_grid(grey.mul_(filled), volume), path)


def write_labels(volume: Volume, path: Path | str) -> Path:
    """Write the labels of a volume as uint8 on the same grid."""
    if volume.labels is None:
        raise ScopeRegError("the volume has no labels", where="write_labels(volume)", fix="write the volume alone")
    low, high = int(volume.labels.min()), int(volume.labels.max())
    if not (low >= 0 and high <= 255):
        raise ScopeRegError(
            f"class numbers run from {low} to {high}", where="write_labels(volume)", fix="number them from 0 to 255"
        )
    return write_image(_on_grid(volume.labels.to(torch.uint8), volume), path)


def _on_grid(values: torch.Tensor, volume: Volume) -> ImageFile:
    voxels = values.detach().cpu().numpy()
    return ImageFile(voxels, volume.spacing_mm, volume.origin_mm, volume.direction, is_anatomical(volume))
