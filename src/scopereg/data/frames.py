"""Frames of volumes under a protocol: cut out with zeros outside (paper), or as another acquisition (honest)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from scopereg.data.mismatch import honest_frames
from scopereg.errors import ScopeRegError, did_you_mean
from scopereg.geometry import VoxelPoses, place_plane, sample_points

Protocol = Literal["paper", "honest"]
PROTOCOLS: tuple[Protocol, ...] = ("paper", "honest")

Margin = tuple[int, int, int]  # voxels of surroundings on each side along z, y, x


def check_protocol(protocol: str, where: str) -> None:
    """An error unless it is one of PROTOCOLS."""
    if protocol not in PROTOCOLS:
        raise ScopeRegError(
            f"unknown protocol {protocol!r}{did_you_mean(protocol, PROTOCOLS)}",
            where=where,
            fix=f"use {' or '.join(PROTOCOLS)}",
        )


def reference_field(images: Tensor, margin: Margin) -> Tensor:
    """The reference volumes (V, D, H, W) inside of images with surroundings; a view."""
    rows = tuple(slice(m, n - m) for m, n in zip(margin, images.shape[1:], strict=True))
    return images[:, rows[0], rows[1], rows[2]]


def cut_frames(
    images: Tensor,
    margin: Margin,
    poses: VoxelPoses,
    protocol: Protocol,
    generator: torch.Generator,
    *,
    unseen: bool = False,
) -> Tensor:
    """Frames (B, H, W) of volumes (V, D, H, W) with surroundings at poses (B, ...), B / V in a row for each volume.

    paper: cut from the reference, zeros outside. honest: cut from the reference and its surroundings, mirrored where
    those end, then made another acquisition; `unseen` adds what no network is trained on.
    """
    check_protocol(protocol, "cut_frames(protocol)")
    whole = _cut(images, margin, poses, protocol)
    return whole if protocol == "paper" else honest_frames(whole, generator, unseen=unseen)[0]


def cut_masks(masks: Tensor, margin: Margin, poses: VoxelPoses, protocol: Protocol) -> Tensor:
    """Masks (B, H, W) of the frames that `cut_frames` cuts, from masks (V, D, H, W) with surroundings, 0 to 1."""
    return _cut(masks, margin, poses, protocol) > 0.5


def _cut(images: Tensor, margin: Margin, poses: VoxelPoses, protocol: Protocol) -> Tensor:
    field = reference_field(images, margin)
    height, width = field.shape[-2:]
    points = place_plane(*poses, (height, width)).reshape(len(images), -1, height, width, 3)
    if protocol == "paper":
        return sample_points(field, points).reshape(-1, height, width)
    return sample_points(images, points, padding="reflection").reshape(-1, height, width)
