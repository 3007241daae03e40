"""Volumes in and out: one door for NIfTI, NRRD, MHA, MHD and DICOM, with axes and sizes checked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import SimpleITK as sitk
import torch

from scopereg.errors import ScopeRegError
from scopereg.geometry.rotations import ROTATION_TOLERANCE
from scopereg.images import Volume, as_sizes
from scopereg.io.dicom.header import DICOM_ENDINGS, is_dicom
from scopereg.io.dicom.volumes import read_dicom_series, read_enhanced
from scopereg.io.files import atomic_path
from scopereg.io.grey import grey_values
from scopereg.io.metaimage import is_sequence
from scopereg.io.nifti import orientation_notes, read_nifti_header
from scopereg.io.read_image import FORMATS as READ_FORMATS
from scopereg.io.read_image import quiet_itk, read_image
from scopereg.io.spacings import GIVE_IT, states_spacing
from scopereg.io.stored import StoredVolume, given_spacing_note

# Written as one file each: .mhd keeps its voxels in a second one.
FORMATS = (".nii.gz", ".nii", ".nrrd", ".mha")
_NIFTI = (".nii", ".nii.gz")


def read_volume(
    path: Path | str,
    *,
    spacing_mm: float | Sequence[float] | None = None,
    index: int | None = None,
    series: str | None = None,
) -> StoredVolume:
    """A volume from NIfTI, NRRD, MHA or MHD, a DICOM series (its folder) or an enhanced multi-frame DICOM file.

    `spacing_mm` (x, y, z) is needed where the file states none; `index` chooses between points in time and `series`
    between DICOM series. Bytes become 0 to 1, other values stay. Every voxel keeps its place in LPS mm: a volume with
    left-handed axes gets its slices in the opposite order, which its facts tell.
    """
    path = Path(path)
    if not path.exists():
        raise ScopeRegError("there is no such file or folder", where=str(path), fix="check the name and the folder")
    dicom = path.is_dir() or is_dicom(path) or path.name.lower().endswith(DICOM_ENDINGS)
    if dicom and spacing_mm is not None:
        raise ScopeRegError("DICOM states the size of its voxels", where="read_volume(spacing_mm)", fix="leave it out")
    if series is not None and not path.is_dir():
        raise ScopeRegError("it is a file, not a folder of series", where=str(path), fix="leave series out")
    if path.is_dir():
        return read_dicom_series(path, series, index)
    if dicom:
        return read_enhanced(path, index)
    if not path.name.lower().endswith(READ_FORMATS):
        raise ScopeRegError(
            f"unknown kind of volume {path.suffix!r}",
            where=str(path),
            fix=f"pass a file ending in {', '.join(READ_FORMATS)}, an enhanced DICOM file or a folder of slices",
        )
    return _read_image_volume(path, spacing_mm, index)


def _read_image_volume(path: Path, given: float | Sequence[float] | None, index: int | None) -> StoredVolume:
    if is_sequence(path):
        raise ScopeRegError(
            "it is a sequence of frames, not a volume",
            where=str(path),
            fix="reconstruct a volume from it (scopereg data, or PLUS), or read it frame by frame",
        )
    array, stated, origin, direction, notes = _grid(path, index)
    if array.ndim != 3 or min(array.shape) < 2:
        raise ScopeRegError(
            f"it holds {' x '.join(map(str, array.shape[::-1]))} pixels, which is no volume",
            where=str(path),
            fix="pass a 3D image; a single plane is a frame",
        )
    stated_spacing = stated if states_spacing(path) else None
    if given is None and stated_spacing is None:
        raise ScopeRegError("it does not say how large a voxel is", where=str(path), fix=GIVE_IT)
    spacing = tuple(stated) if given is None else as_sizes(given, 3, "read_volume(spacing_mm)")
    facts: dict[str, Any] = {"spacing_from": "header" if given is None else "given", "notes": notes}
    if given is not None:
        facts["notes"] = [*notes, *given_spacing_note(spacing, stated_spacing, "the header").get("notes", [])]
    _check_square(direction, path)
    values = grey_values(array, str(path))
    if np.linalg.det(direction) < 0:
        origin = origin + direction[:, 2] * spacing[2] * (len(values) - 1)
        direction = direction * [1, 1, -1]
        values = np.ascontiguousarray(values[::-1])
        facts["notes"] = [*facts["notes"], "the axes of the file are left-handed: slices are read in opposite order"]
    return StoredVolume(values, spacing, origin.tolist(), direction, path=path, facts=facts)


def _grid(
    path: Path, index: int | None
) -> tuple[npt.NDArray[Any], tuple[float, ...], npt.NDArray[np.float64], npt.NDArray[np.float64], list[str]]:
    """Voxels (z, y, x) of one point in time with spacing, origin and direction, and notes on the header."""
    with quiet_itk():
        array, spacing, origin, direction = read_image(path)
    notes = []
    if path.name.lower().endswith(_NIFTI):
        notes = orientation_notes(read_nifti_header(path), np.array(origin[:3]), direction[:3, :3], path)
    if array.ndim == 4:
        if index is None or not 0 <= index < len(array):
            raise ScopeRegError(
                f"it holds {len(array)} volumes" + ("" if index is None else f", index is {index}"),
                where=str(path),
                fix=f"choose one by its number: index=, from 0 to {len(array) - 1}",
            )
        array = array[index]
    elif index not in (None, 0):
        raise ScopeRegError(f"index is {index}, but it holds one volume", where=str(path), fix="leave index out")
    return array, spacing[:3], np.array(origin[:3]), direction[:3, :3], notes


def _check_square(direction: npt.NDArray[np.float64], path: Path) -> None:
    gram = direction.T @ direction
    if not np.allclose(gram, np.eye(3), atol=ROTATION_TOLERANCE):
        cosines = [round(float(gram[i, j]), 4) for i, j in ((0, 1), (0, 2), (1, 2))]
        raise ScopeRegError(
            f"its axes are sheared: cosines {cosines} between x and y, x and z, y and z",
            where=str(path),
            fix="resample it to a square grid first, for example with 3D Slicer's Resample Scalar Volume",
        )


def write_volume(volume: Volume, path: Path | str) -> Path:
    """Write the voxels as float32 with spacing, origin and direction; the format follows the file's ending."""
    return write_itk(to_itk(volume.array, volume), path)


def write_labels(volume: Volume, path: Path | str) -> Path:
    """Write the labels of a volume as uint8 on the same grid."""
    if volume.labels is None:
        raise ScopeRegError("the volume has no labels", where="write_labels(volume)", fix="write the volume alone")
    low, high = int(volume.labels.min()), int(volume.labels.max())
    if not (low >= 0 and high <= 255):
        raise ScopeRegError(
            f"class numbers run from {low} to {high}", where="write_labels(volume)", fix="number them from 0 to 255"
        )
    return write_itk(to_itk(volume.labels.to(torch.uint8), volume), path)


def to_itk(values: torch.Tensor, volume: Volume) -> sitk.Image:
    """A tensor (D, H, W) on the grid of `volume` as a SimpleITK image."""
    return itk_image(values, volume.spacing_mm, volume.origin_mm, volume.direction)


def itk_image(
    values: torch.Tensor,
    spacing_mm: Sequence[float],
    origin_mm: Sequence[float],
    direction: npt.NDArray[np.float64],
) -> sitk.Image:
    """A tensor (D, H, W) placed in LPS millimetres; the columns of `direction` are its x, y and z axes."""
    image = sitk.GetImageFromArray(values.detach().cpu().numpy())
    image.SetSpacing(spacing_mm)
    image.SetOrigin(origin_mm)
    image.SetDirection(direction.ravel().tolist())
    return image


def write_itk(image: sitk.Image, path: Path | str) -> Path:
    """Write a SimpleITK image, whole or not at all; the format follows the file's ending."""
    path = Path(path)
    if not path.name.lower().endswith(FORMATS):
        raise ScopeRegError(f"unknown ending {path.suffix!r}", where=str(path), fix=f"use one of {', '.join(FORMATS)}")
    with atomic_path(path) as temporary:
        try:
            sitk.WriteImage(image, str(temporary), useCompression=True)
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1]
            raise ScopeRegError(
                f"ITK cannot write it: {reason}",
                where=str(path),
                fix=f"use an ending in lower case: {', '.join(FORMATS)}",
            ) from error
    return path
