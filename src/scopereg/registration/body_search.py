"""BodySearch: where a body may lie, told by the features of all of its frames at once, before any network looks.

Features that tell places are cheap to compare (`networks.anywhere`): thousands of poses of a body cost less than one
look of a network at one frame. Poses around a start are drawn; without one, a few frames tell where the body would lie
as they are sought in all of the volume. The best go on by small steps to where all frames are more alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from scopereg.geometry import Pose, VoxelPoses, compose_poses, rotation_from_euler_deg
from scopereg.geometry.steps import moved
from scopereg.registration.body_likeness import BodyOnGround
from scopereg.registration.places import first_look, tilts_of
from scopereg.registration.settings import SearchSettings

_DRAWS = 2048  # poses around a start
_REACH_VOXELS, _REACH_DEG = 24.0, 22.0  # that they are drawn within: what networks find from a start, and a little more
_SOUGHT = 3  # frames that are sought in all of the volume, each by itself
_COMPARED = 5  # frames that poses are compared by
_FEW, _POINTS = 3, 96  # frames, and points of each, that all poses are compared by at first
_PARENTS, _CHILDREN = 48, 8  # poses that go on, and steps tried from each
_SPREADS = (6.0, 3.0)  # voxels: usual size of these steps, round by round


@torch.inference_mode()
def likely_poses(on_ground: BodyOnGround, start: Pose | None, settings: SearchSettings) -> list[Pose]:
    """`BodyToVolume` of the best places, the best first; many of them are one place. None without learned features."""
    if not on_ground.tells_places:
        return []
    generator = torch.Generator().manual_seed(0)
    poses = _anywhere(on_ground, settings) if start is None else _around(on_ground.to_voxels(start), generator)
    few, rows = (spread_rows(len(on_ground.body), most) for most in (_FEW, _COMPARED))
    told = on_ground.place_likeness(poses, few, _POINTS)
    for spread in (*_SPREADS, 0.0):
        poses = _pick(poses, told.topk(min(_PARENTS, len(poses.rotation))).indices)
        if spread:
            steps = spread * torch.randn(len(poses.rotation) * _CHILDREN, 6, generator=generator).to(poses.rotation)
            children = moved(_repeated(poses, _CHILDREN), steps, on_ground.lever)
            poses = VoxelPoses(*(torch.cat(parts) for parts in zip(poses, children, strict=True)))
            told = on_ground.place_likeness(poses, rows)
    return [on_ground.from_voxels(_pick(poses, slice(row, row + 1))) for row in range(len(poses.rotation))]


def spread_rows(count: int, most: int) -> list[int]:
    """At most so many rows, evenly from all."""
    return list(dict.fromkeys(np.linspace(0, count - 1, min(most, count)).round().astype(int).tolist()))


def _around(start: VoxelPoses, generator: torch.Generator) -> VoxelPoses:
    """The start and poses around it, as seen from there."""
    draws = 2 * torch.rand(_DRAWS, 6, generator=generator) - 1
    draws[0] = 0
    turned = VoxelPoses(rotation_from_euler_deg(_REACH_DEG * draws[:, 3:]), _REACH_VOXELS * draws[:, :3])
    turned = VoxelPoses(*(part.to(start.rotation) for part in turned))
    return compose_poses(_repeated(start, _DRAWS), turned)


def _anywhere(on_ground: BodyOnGround, settings: SearchSettings) -> VoxelPoses:
    """Where the body would lie by single frames, each compared with the volume at every shift and tilt."""
    told: list[VoxelPoses] = []
    for row in spread_rows(len(on_ground.body), _SOUGHT):
        read, relative, encoded = on_ground.sought(row)
        found = first_look(read, encoded.far, tilts_of(settings).to(relative.rotation), 0, settings.hypotheses).poses
        rotation = found.rotation @ relative.rotation.transpose(1, 2)
        shift = (rotation @ relative.translation.unsqueeze(-1)).squeeze(-1)
        told.append(VoxelPoses(rotation, found.translation - shift))
    return VoxelPoses(*(torch.cat(parts) for parts in zip(*told, strict=True)))


def _pick(poses: VoxelPoses, rows: Tensor | slice | Sequence[int]) -> VoxelPoses:
    return VoxelPoses(poses.rotation[rows], poses.translation[rows])


def _repeated(poses: VoxelPoses, count: int) -> VoxelPoses:
    return VoxelPoses(*(part.repeat_interleave(count, 0) for part in poses))
