"""Anywhere: how alike a frame and a volume are at any pose, told from coarse features that were taught to tell.

At a stride of 8 voxels a few hundred places of a frame are compared with the volume where a pose puts them. A product
of two weighed vectors for each place, and their sum: so that all shifts of a frame together are one correlation
(`alike_everywhere`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from scopereg.geometry import VoxelPoses, rotation_from_vector
from scopereg.geometry.steps import moved
from scopereg.networks.lattice import Lattice, kept
from scopereg.networks.passes import place
from scopereg.networks.pyramid import read_table
from scopereg.ops.shifts import shifted_sums

STRIDE = 8
_STRANGERS, _NEIGHBOURS = 28, 20  # other poses that the true one of a frame is told from: anywhere, and near it
_NEAR = (12.0, 32.0)  # voxels that neighbours are off
_JITTER = 4.0  # voxels on each axis: a search does not meet the true pose itself
_TURN = math.radians(25)
_APART = 12.0  # voxels from which another place of the volume is another


class FarFrame(NamedTuple):
    """Frames as they are compared with a volume anywhere."""

    vectors: Float[Tensor, "b n c"]
    weights: Float[Tensor, "b n"]  # sum to 1, where anything is seen
    seen: Float[Tensor, "b n"]
    points: Float[Tensor, "n 3"]  # voxels from the middle of the frame


class FarVolume(NamedTuple):
    """Volumes as they are compared with a frame anywhere; vectors are weighed already."""

    table: Float[Tensor, "v d h w c"]
    lattice: Lattice


def alike(frames: FarFrame, volumes: FarVolume, poses: VoxelPoses) -> Float[Tensor, "b k"]:
    """How alike frames are to their volumes, at K poses of each (B K, ...); at most 1, and 0 outside of the volume."""
    count = len(frames.vectors)
    points = place(frames.points, *poses) / STRIDE  # (B K, N, 3)
    found, inside = read_table(volumes.table, volumes.lattice, points)
    found = (found * inside.unsqueeze(-1)).unflatten(0, (count, -1))
    return torch.einsum("bknc,bnc,bn->bk", found, frames.vectors, frames.weights)


def alike_everywhere(frame: FarFrame, volume: FarVolume, rotation: Float[Tensor, "r 3 3"]) -> Float[Tensor, "r d h w"]:
    """As `alike` of one frame, turned so, with its middle on every cell of the volume."""
    counted = (frame.weights[0] > 0).nonzero()[:, 0]
    vectors = (frame.vectors[0] * frame.weights[0].unsqueeze(1))[counted]
    products = (vectors @ volume.table[0].flatten(0, 2).T).unflatten(1, volume.lattice.shape)
    return shifted_sums(products, frame.points[counted] / STRIDE @ rotation.transpose(1, 2))


def cells_voxels(lattice: Lattice, device: torch.device) -> Float[Tensor, "m 3"]:
    """Where the cells of a volume lie as x, y, z, in voxels from its middle."""
    return STRIDE * kept(_cells, lattice, device)


def telling_loss(
    frames: FarFrame, volumes: FarVolume, true: VoxelPoses, lever: float, sharpness: Float[Tensor, ""]
) -> Float[Tensor, "b"]:
    """Cross-entropy of the true pose, or one close to it, among others anywhere in the volume and not far from it."""
    count, device = len(frames.vectors), frames.vectors.device
    around = moved(true, _JITTER * _signed((count, 6), device), lever)
    strangers = _strangers(volumes, count, device)
    neighbours = _neighbours(true, lever)
    rotation, translation = (
        torch.cat([one.unsqueeze(1), *(part.unflatten(0, (count, -1)) for part in others)], 1).flatten(0, 1)
        for one, *others in zip(around, strangers, neighbours, strict=True)
    )
    found = sharpness * alike(frames, volumes, VoxelPoses(rotation, translation))
    return F.cross_entropy(found, torch.zeros(count, dtype=torch.int64, device=device), reduction="none")


def places_loss(
    frames: FarFrame, volumes: FarVolume, true: VoxelPoses, sharpness: Float[Tensor, ""]
) -> Float[Tensor, "b"]:
    """Cross-entropy of each place's own place in the volume among all others that lie apart from it."""
    points = place(frames.points, *true)  # (B, N, 3), voxels
    own, inside = read_table(volumes.table, volumes.lattice, points / STRIDE)
    cells = cells_voxels(volumes.lattice, points.device)
    each = len(points) // len(volumes.table)
    every = volumes.table.flatten(1, 3).repeat_interleave(each, 0)  # (B, M, C)
    apart = points.square().sum(-1, keepdim=True) + cells.square().sum(-1) - 2 * points @ cells.T
    others = (frames.vectors @ every.transpose(1, 2)) * sharpness
    others = others.masked_fill(apart < _APART**2, -math.inf)
    right = (frames.vectors * own).sum(-1) * sharpness
    losses = torch.logaddexp(right, torch.logsumexp(others, -1)) - right
    counted = inside * frames.seen
    return (losses * counted).sum(1) / counted.sum(1).clamp_min(1)


def _strangers(volumes: FarVolume, count: int, device: torch.device) -> VoxelPoses:
    """Poses (B K, ...) anywhere in the volume."""
    halves = kept(_halves, volumes.lattice, device)
    translation = _signed((count * _STRANGERS, 3), device) * halves
    return VoxelPoses(rotation_from_vector(_TURN * _signed((count * _STRANGERS, 3), device)), translation)


def _neighbours(true: VoxelPoses, lever: float) -> VoxelPoses:
    """Poses (B K, ...) not far from the true ones, in any direction."""
    count, device = len(true.rotation), true.rotation.device
    steps = F.normalize(torch.randn(count * _NEIGHBOURS, 6, device=device), dim=1)
    least, most = _NEAR
    steps = steps * (least + (most - least) * torch.rand(len(steps), 1, device=device))
    return moved(VoxelPoses(*(part.repeat_interleave(_NEIGHBOURS, 0) for part in true)), steps, lever)


def _signed(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Evenly between -1 and 1."""
    return 2 * torch.rand(shape, device=device) - 1


def _cells(lattice: Lattice, device: torch.device) -> Tensor:
    """Where the cells of a volume lie, (M, 3) as x, y, z, in cells from its middle."""
    z, y, x = torch.meshgrid(*lattice.axes(device), indexing="ij")
    return torch.stack([x, y, z], -1).flatten(0, 2)


def _halves(lattice: Lattice, device: torch.device) -> Tensor:
    """Half the size of a volume along x, y, z, in voxels."""
    return -STRIDE * torch.tensor(lattice.start[::-1], device=device)
