"""Volumes to files through SimpleITK (NIfTI, NRRD, MHA), in LPS as ITK has it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import SimpleITK as sitk
import torch

from scopereg.errors import ScopeRegError
from scopereg.images import Volume
from scopereg.io.files import atomic_path

FORMATS = (".nii.gz", ".nii", ".nrrd", ".mha")  # one file each: .mhd keeps its voxels in a second one


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
