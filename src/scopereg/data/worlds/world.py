"""draw_worlds: a batch of worlds, the volume of each and frames of it whose poses are known."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from scopereg.data.worlds.acquisition import scan_frames, scan_volumes
from scopereg.data.worlds.draws import Draws
from scopereg.data.worlds.fields import Box
from scopereg.data.worlds.motion import draw_motion
from scopereg.data.worlds.ranges import Shape, WorldRanges, check_shape
from scopereg.data.worlds.structures import add_bodies, add_shadowing, add_sheets, add_tubes
from scopereg.data.worlds.sweep import Sweep, draw_sweep
from scopereg.data.worlds.tissue import blend_labels, draw_fields
from scopereg.errors import ScopeRegError
from scopereg.geometry import MIN_INSIDE, VoxelPoses, check_magnitude, inside_fraction, rotation_from_euler_deg
from scopereg.threads import watched

_TRIES = 6  # poses drawn for a frame, of which the first that shows enough of the volume is taken
_ROUNDS = 12  # until a point that was displaced is found to a thousandth of a voxel
_RANGES = WorldRanges()


class WorldBatch(NamedTuple):
    """Worlds as a scanner shows them; frames of a world follow each other."""

    frames: Float[Tensor, "nf h w"]  # in [0, 1]
    volumes: Float[Tensor, "n d h w"]  # in [0, 1]
    rotation: Float[Tensor, "nf 3 3"]  # frame to volume
    translation: Float[Tensor, "nf 3"]  # centred voxels
    belongs: Bool[Tensor, " nf"]  # frames of this world and not of another


class DeformedWorlds(NamedTuple):
    """Worlds, and where every point of a frame lies in its deformed volume, not only the best rigid pose."""

    batch: WorldBatch
    sweep: Sweep
    poses: VoxelPoses  # of frames in the tissue as they show it
    box: Box

    def where(self, points: Float[Tensor, "k 2"]) -> Float[Tensor, "nf k 3"]:
        """Where points of frames lie in their volumes; both in centred voxels."""
        rotation, translation = self.poses
        true = points @ rotation[..., :2].transpose(1, 2) + translation[:, None]
        return self.sweep.where_points_lie(true, self.box, _ROUNDS)


@torch.no_grad()
@watched(steady=True)
def draw_worlds(
    count: int,
    frames: int,
    shape: Shape,
    generator: torch.Generator,
    *,
    magnitude: float = 10.0,
    ranges: WorldRanges = _RANGES,
) -> WorldBatch:
    """`count` worlds with volumes of `shape` (D, H, W) and `frames` frames each, on the generator's device.

    Poses are within +-magnitude voxels and degrees of the middle of the volume. The state of the generator alone
    decides what is drawn; on one kind of device it is the same to the last bit.
    """
    return draw_deformed_worlds(count, frames, shape, generator, magnitude=magnitude, ranges=ranges).batch


@torch.no_grad()
@watched(steady=True)
def draw_deformed_worlds(
    count: int,
    frames: int,
    shape: Shape,
    generator: torch.Generator,
    *,
    magnitude: float = 10.0,
    ranges: WorldRanges = _RANGES,
) -> DeformedWorlds:
    """The same worlds with what `WorldRanges.deformation` did to them, but not the misplacement of their planes."""
    _check(count, frames, shape, magnitude)
    box, draws = Box(shape), Draws(count, generator)
    motion = draw_motion(box, ranges, draws)
    maps = motion.moved(draw_tissue(box, ranges, draws), box)
    sweep = draw_sweep(box, ranges, draws)
    scanned = scan_volumes(maps, box, sweep, motion.speckle_stretch, ranges, draws)
    each = Draws(count * frames, generator)
    poses = draw_poses(each, magnitude, shape, ranges)
    images = scan_frames(maps, box, scanned, poses, ranges, each)
    found = sweep.where_frames_lie(poses, box)
    belongs = torch.ones(count * frames, dtype=torch.bool, device=generator.device)
    if ranges.negative_chance:
        belongs = ~each.chance(ranges.negative_chance)
        images = torch.where(belongs[:, None, None], images, images.roll(frames, 0))  # those of the world before
    return DeformedWorlds(WorldBatch(images, scanned.volumes.contiguous(), *found, belongs), sweep, poses, box)


def draw_tissue(box: Box, ranges: WorldRanges, draws: Draws) -> Float[Tensor, "n 3 z y x"]:
    """Maps of a batch of anatomies, on the nodes of the box."""
    fields = draw_fields(box, ranges, draws)
    tissue, maps = blend_labels(fields, ranges, draws), draws.with_axes(3)
    for add in (add_bodies, add_tubes, add_sheets, add_shadowing):
        add(tissue, fields, ranges, maps)
    return tissue.stacked()


def draw_poses(draws: Draws, magnitude: float, shape: Shape, ranges: WorldRanges) -> VoxelPoses:
    """Poses whose frames show enough of the volume; offsets of each are within a share of the magnitude of its own.

    As `sample_poses`, but without asking the device how many were good: of several tries the first good one is taken,
    and where none is, the last one drawn back to the middle.
    """
    numbers = draws.uniform((-1.0, 1.0), _TRIES, 6) * draws.log_uniform(ranges.offset, 1, 1) * magnitude
    numbers = torch.cat([numbers, numbers[:, -1:] * 0.3], 1)  # (B, tries + 1, 6)
    flat = numbers.flatten(0, 1)
    inside = inside_fraction(rotation_from_euler_deg(flat[:, 3:]), flat[:, :3], shape)
    good = (inside >= MIN_INSIDE).unflatten(0, (draws.count, -1))
    good[:, -1].fill_(True)
    first = good.int().argmax(1)
    chosen = numbers.gather(1, first[:, None, None].expand(-1, 1, 6))[:, 0]
    return VoxelPoses(rotation_from_euler_deg(chosen[:, 3:]), chosen[:, :3])


def _check(count: int, frames: int, shape: Shape, magnitude: float) -> None:
    if count < 1 or frames < 1:
        raise ScopeRegError(
            f"{count} worlds with {frames} frames",
            where="draw_worlds(count, frames)",
            fix="ask for at least one of each",
        )
    check_shape(shape, "draw_worlds(shape)")
    check_magnitude(magnitude, "draw_worlds")
