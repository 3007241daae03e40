"""Thickness of frames: how much of the volume each of their pixels averages across the plane, beyond the volume's own.

A volume made by the same beam as the frame is as thick as it already: what a likeness averages is the excess alone. A
refinement by grey values averages across the frame, wherever it lies. A network, and its fine stage, are given the
volume averaged along its third axis, across which frames lie that they can find.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from scopereg.geometry.beam import FWHM, Thickness
from scopereg.images import Frame, Volume, field_of_view
from scopereg.registration.grey import blur_along

_DEPTHS = 32  # that a mean thickness is taken over
_WIDER = 1.1  # times as wide at one end as at the other: the picture of a fan


def spread_voxels(thickness: Thickness, frame: Frame, spacing_mm: float) -> Tensor:
    """Standard deviations (H, W) of Gaussians as wide as the slices, in voxels."""
    return widths_mm(thickness, frame) / (FWHM * spacing_mm)


def widths_mm(thickness: Thickness, frame: Frame) -> Tensor:
    """Of each pixel (H, W)."""
    return thickness.at_mm(*_depths_mm(frame))[:, None].expand(frame.shape)


def note_of(thickness: Thickness | None, frame: Frame) -> str:
    """What is taken for the thickness of a frame, in words; where none is told, what its depth lets expect."""
    if thickness is not None and thickness.mm is not None:
        return f"the frame is compared as {thickness.mm:g} mm thicker than the volume"
    widths = widths_mm(Thickness(None), frame)[frame.seen.cpu()]
    told = f"{float(widths.min()):.1f} to {float(widths.max()):.1f} mm" if widths.numel() else "no"
    by_depth = f"by its depth of {_depths_mm(frame)[1]:.0f} mm the frame"
    if thickness is None:
        return f"{by_depth} shows slices {told} thick, and the volume is taken to be as thick"
    return f"{by_depth} is compared as {told} thicker than the volume"


def averaged(volume: Volume, thickness: Thickness, depth_mm: float) -> Volume:
    """An isotropic volume averaged along its third axis as frames do that lie in its planes and are so deep."""
    mean_mm = float(thickness.at_mm(torch.linspace(0, depth_mm, _DEPTHS), depth_mm).mean())
    seen = field_of_view(volume.array) if volume.known is None else volume.known
    shares = seen.to(volume.array.dtype)
    spread = mean_mm / (FWHM * volume.isotropic_spacing_mm)
    both = blur_along(torch.stack([volume.array * shares, shares]), 1, spread)
    return replace(volume, array=torch.where(seen, both[0] / both[1].clamp_min(1e-6), volume.array))


def _depths_mm(frame: Frame) -> tuple[Tensor, float]:
    """Distance (H,) of each row from the probe, and that of the farthest one that is seen.

    The probe is above the first row, or below the last one where the picture is wider at the top: fans open away from
    it.
    """
    seen, step_mm = frame.seen.cpu(), frame.spacing_mm[1]
    rows = seen.any(1).nonzero().flatten()
    if not len(rows):
        return torch.zeros(frame.shape[0]), step_mm
    first, last = int(rows[0]), int(rows[-1])
    widths = seen[first : last + 1].float().sum(1)
    quarter = max(len(widths) // 4, 1)
    upset = float(widths[:quarter].mean()) > _WIDER * float(widths[-quarter:].mean())
    place = torch.arange(frame.shape[0], dtype=torch.float32)
    depths = (last - place if upset else place - first).clamp(0, last - first) * step_mm
    return depths, max(last - first, 1) * step_mm
