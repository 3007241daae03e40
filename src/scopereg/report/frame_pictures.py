"""Frame pictures: a frame small enough for a page, the volume cut where it lies, and their difference."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from scopereg.geometry import Pose, sample_points
from scopereg.images import Frame, Volume, field_of_view, unit_range
from scopereg.io.pictures import Pixels, difference_pixels, grey_pixels


def small(frame: Frame, *, widest: int = 0, pixels: int = 0) -> Frame:
    """The frame with square pixels, at most so many along a side, or in all."""
    step = min(frame.spacing_mm)
    if widest:
        step = max(step, max(frame.extent_mm) / widest)
    if pixels:
        step = max(step, math.sqrt(math.prod(frame.extent_mm) / pixels), max(frame.extent_mm) / pixels)
    return frame.resampled(step)


def cut_at(volume: Volume, frame: Frame, pose: Pose) -> Tensor:
    """The volume (H, W) on the pixels of the frame at a pose, linear, 0 outside of it; whatever the spacings are."""
    rows, columns = torch.meshgrid(*(torch.arange(n, dtype=torch.float64) for n in frame.shape), indexing="ij")
    spacing, origin = frame.spacing_mm, frame.origin_mm
    places = [columns * spacing[0] + origin[0], rows * spacing[1] + origin[1], torch.zeros_like(rows)]
    points = pose.apply(torch.stack(places, -1).numpy())
    own = (points - volume.centre_mm) @ volume.direction / volume.spacing_mm  # voxels, from the middle
    array = volume.array.detach()
    return sample_points(array[None], torch.from_numpy(own).to(array)[None])[0].cpu()


def pictures_of(frame: Frame, cut: Tensor) -> tuple[Pixels, Pixels, Pixels]:
    """The frame, its cut, and their difference where both show something, gain taken out."""
    image = frame.array.detach().cpu()
    both = field_of_view(image) & (cut > 0)
    return grey_pixels(unit_range(image)), grey_pixels(unit_range(cut)), difference_pixels(image, cut, both)
