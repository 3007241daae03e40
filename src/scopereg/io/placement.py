"""Frames and cuts as one-slice images that lie where they belong: any viewer shows them in the volume."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import SimpleITK as sitk
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame, Volume
from scopereg.io.formats import ImageFile
from scopereg.io.read_image import write_image


def write_placed_frame(frame: Frame, pose: Pose, path: Path | str) -> Path:
    """Write the frame as an oblique plane in the volume's world (NIfTI, NRRD or MHA by the ending), float32."""
    return write_image(placed_image(frame.array, frame, pose), path)


def write_frame(frame: Frame, path: Path | str) -> Path:
    """Write the frame as a plane in its own mm: together with the transform file a viewer puts it in place."""
    return write_image(placed_image(frame.array, frame, Pose.identity(frame.frame_of_reference, "Self")), path)


def write_resliced(volume: Volume, frame: Frame, pose: Pose, path: Path | str) -> Path:
    """Write the volume cut at the pose: pixels and place of the frame, values of the volume, 0 outside of it."""
    return write_image(resliced_image(volume, frame, pose), path)


def placed_image(values: Tensor, frame: Frame, pose: Pose) -> ImageFile:
    """Values (H, W) on the pixels of `frame` as a one-slice image at `pose`; as thick as a pixel is wide."""
    if pose.source != frame.frame_of_reference:
        raise ScopeRegError(
            f"the pose is {pose.name}, the frame is in {frame.frame_of_reference}",
            where="write_placed_frame(pose)",
            fix=f"pass the pose from {frame.frame_of_reference} to the volume",
        )
    first = pose.apply([*frame.origin_mm, 0.0])
    spacing = (*frame.spacing_mm, frame.spacing_mm[0])
    return ImageFile(values[None].detach().cpu().numpy(), spacing, tuple(first.tolist()), pose.rotation)


def resliced_image(volume: Volume, frame: Frame, pose: Pose) -> ImageFile:
    """The volume on the pixels of the frame at `pose`, linear, in any spacing of the two."""
    if pose.target != volume.frame_of_reference:
        raise ScopeRegError(
            f"the pose is {pose.name}, the volume is in {volume.frame_of_reference}",
            where="write_resliced(pose)",
            fix=f"pass the pose from {frame.frame_of_reference} to {volume.frame_of_reference}",
        )
    grid = placed_image(frame.array, frame, pose)
    placed = itk_image(frame.array[None], *grid[1:4])
    stay = sitk.Transform(3, sitk.sitkIdentity)
    cut = sitk.Resample(to_itk(volume.array, volume), placed, stay, sitk.sitkLinear, 0.0)
    return grid._replace(array=sitk.GetArrayFromImage(cut))


def to_itk(values: Tensor, volume: Volume) -> sitk.Image:
    """A tensor (D, H, W) on the grid of `volume` as a SimpleITK image."""
    return itk_image(values, volume.spacing_mm, volume.origin_mm, volume.direction)


def itk_image(
    values: Tensor, spacing_mm: Sequence[float], origin_mm: Sequence[float], direction: npt.NDArray[np.float64]
) -> sitk.Image:
    """A tensor (D, H, W) placed in LPS millimetres; the columns of `direction` are its x, y and z axes."""
    image = sitk.GetImageFromArray(values.detach().cpu().numpy())
    image.SetSpacing(spacing_mm)
    image.SetOrigin(origin_mm)
    image.SetDirection(direction.ravel().tolist())
    return image
