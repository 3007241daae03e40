"""Augmentation of volumes that keeps anatomy: mirrored, turned, stretched and gently bent, with their surroundings.

Frames are cut from the changed volume afterwards, so poses need no correction.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from scopereg.geometry import rotation_from_euler_deg

_CONTROL = (3, 5, 5)  # points of the bending field along z, y, x


@dataclass(frozen=True)
class AugmentOptions:
    """Limits of the change of a volume; half-widths of uniform draws unless said otherwise."""

    mirror_chance: float = 0.5
    """Probability of mirroring left and right."""
    reverse_chance: float = 0.5
    """Probability of reversing the planes."""
    turn_deg: float = 12.0
    """Turn within the image plane."""
    tilt_deg: float = 3.0
    """Turns out of the image plane, each of two."""
    log_scale: float = 0.15
    """Logarithm of the stretch, along each axis on its own."""
    shift: float = 0.06
    """Shift along each axis of the image plane, as a share of the reference's size."""
    bend: float = 0.02
    """Spread of the displacements at the control points of a smooth field, as a share of each axis."""
    log_gamma: float = 0.3
    """Logarithm of the exponent of the grey map."""


_USUAL = AugmentOptions()


@torch.no_grad()
def augment_volumes(volumes: Tensor, generator: torch.Generator, options: AugmentOptions = _USUAL) -> Tensor:
    """Volumes (B, D, H, W) in [0, 1], each changed in its own way; what comes in from outside is mirrored."""
    return augment_channels(volumes[:, None], generator, options)[:, 0]


@torch.no_grad()
def augment_channels(volumes: Tensor, generator: torch.Generator, options: AugmentOptions = _USUAL) -> Tensor:
    """Volumes (B, C, D, H, W): all channels are moved alike, the grey map is for the first alone."""
    count, shape = len(volumes), tuple(volumes.shape[2:])
    affine = _draw_affines(count, shape, generator, options)
    grid = F.affine_grid(affine, [count, 1, *shape], align_corners=True)
    # Normalised coordinates run from -1 to 1: a share of the axis counts double.
    control = 2 * options.bend * torch.randn(count, 3, *_CONTROL, generator=generator, device=generator.device)
    grid += F.interpolate(control, shape, mode="trilinear", align_corners=True).movedim(1, -1)
    changed = F.grid_sample(volumes, grid, padding_mode="reflection", align_corners=True).clamp(0, 1)
    gamma = torch.rand(count, 1, 1, 1, generator=generator, device=generator.device) * 2 - 1
    changed[:, 0] = changed[:, 0] ** (options.log_gamma * gamma).exp()
    return changed


def _draw_affines(count: int, shape: tuple[int, ...], generator: torch.Generator, options: AugmentOptions) -> Tensor:
    """Maps (B, 3, 4) from the changed volume to the given one, in normalised x, y, z."""
    draw = torch.rand(count, 10, generator=generator, device=generator.device)
    ways = 2 * draw[:, :8] - 1
    turns_deg = ways[:, :3] * _row(generator.device, options.tilt_deg, options.tilt_deg, options.turn_deg)
    scale = torch.exp(options.log_scale * ways[:, 3:6])
    signs = torch.stack(
        [
            torch.where(draw[:, 8] < options.mirror_chance, -1.0, 1.0),
            torch.ones_like(scale[:, 0]),
            torch.where(draw[:, 9] < options.reverse_chance, -1.0, 1.0),
        ],
        -1,
    )
    # Stretched and mirrored before the turn: factors of the columns.
    matrix = rotation_from_euler_deg(turns_deg) * (scale * signs)[:, None, :]
    half = _row(generator.device, *((n - 1) / 2 for n in reversed(shape))).clamp_min(0.5)  # x, y, z in voxels
    normalised = matrix * half[None, None, :] / half[None, :, None]
    moved = F.pad(2 * options.shift * ways[:, 6:8], (0, 1))
    return torch.cat([normalised, moved[..., None]], -1)


def _row(device: torch.device, *numbers: float) -> Tensor:
    """Numbers as a tensor, without waiting for the device where it can be helped."""
    row = torch.tensor(numbers, dtype=torch.float32)
    return row.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else row.to(device)


def mirror_frames(
    images: Tensor, rotation: Tensor, translation: Tensor, mirrored: Tensor, reversed_: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Frames (B, H, W) and poses as they are after their volumes were mirrored (x) or reversed (z); masks (B,)."""
    images = torch.where(mirrored[:, None, None], images.flip(-1), images)
    ones = torch.ones_like(translation[:, 0])
    signs = torch.stack([torch.where(mirrored, -ones, ones), ones, torch.where(reversed_, -ones, ones)], -1)
    # q' = S q and p' = S p: a mirrored frame is met in a mirrored volume, and z of a slice point is 0.
    return images, signs[:, :, None] * rotation * signs[:, None, :], signs * translation


def mirror_volumes(volumes: Tensor, mirrored: Tensor, reversed_: Tensor) -> Tensor:
    """Volumes (B, ..., D, H, W) mirrored left and right, or reversed along depth, where the masks (B,) say so."""
    per_volume = (-1, *(1,) * (volumes.ndim - 1))
    volumes = torch.where(mirrored.reshape(per_volume), volumes.flip(-1), volumes)
    return torch.where(reversed_.reshape(per_volume), volumes.flip(-3), volumes)
