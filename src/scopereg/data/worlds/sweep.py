"""Sweep: how a volume came about: where its voxels truly look, which of them were seen, and what that does to poses."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from scopereg.data.mismatch.rays import Rays
from scopereg.data.worlds.draws import Draws, on_device
from scopereg.data.worlds.fields import Box
from scopereg.data.worlds.ranges import WorldRanges
from scopereg.geometry import VoxelPoses, place_plane, plane_points, weighted_kabsch

_CONTROL = (3, 4, 4)  # nodes of the displacement between volume and frames, z y x
_FIT_POINTS = 8  # along each side of a frame, that its pose is fitted to


@dataclass(frozen=True)
class Sweep:
    """Volumes (n) of worlds: every voxel shows the tissue at its own place, displaced a little."""

    points: Float[Tensor, "n d h w 3"]  # centred voxels x, y, z of the world
    control: Float[Tensor, "n 3 cz cy cx"]  # the smooth part of the displacement in voxels x, y, z

    def filled(self, rays: Rays, ranges: WorldRanges, draws: Draws) -> Bool[Tensor, "n d h w"]:
        """Voxels that some frame of the sweep has shown."""
        maps, (depth, height, width) = draws.with_axes(3), self.points.shape[1:4]
        z = torch.linspace(-1, 1, depth, device=draws.device)[:, None, None]
        # A probe that is tilted sees a wedge: narrow at its face, wide behind.
        face, opening = maps.uniform((0.3, 0.9)), maps.uniform((0.4, 1.6))
        wedge = z.abs() <= face + opening * rays.depth[:, None]
        seen = torch.where(maps.chance(ranges.wedge_chance), wedge, True)
        coarse = draws.normal(1, 4, 6, 6)
        field = F.interpolate(coarse, (depth, height, width), mode="trilinear", align_corners=True)[:, 0]
        holes = (field > maps.uniform((1.0, 1.8))) & maps.chance(ranges.hole_chance)
        return seen & ~holes

    def where_frames_lie(self, poses: VoxelPoses, box: Box) -> VoxelPoses:
        """The best rigid poses in the volumes of frames that lie at `poses` (B, ...) in the worlds."""
        count = len(poses.rotation)
        height, width = box.shape[1:]
        scale = on_device(((width - 1) / (_FIT_POINTS - 1), (height - 1) / (_FIT_POINTS - 1)), self.points.device)
        source = plane_points((_FIT_POINTS, _FIT_POINTS), device=self.points.device).reshape(-1, 2) * scale
        true = source @ poses.rotation[..., :2].transpose(1, 2) + poses.translation[:, None]  # (B, N, 3)
        place = self.where_points_lie(true, box)
        fit = weighted_kabsch(source.expand(count, -1, -1), place, torch.ones_like(place[..., 0]))
        return VoxelPoses(fit.rotation, fit.translation)

    def where_points_lie(self, true: Float[Tensor, "b k 3"], box: Box, rounds: int = 2) -> Float[Tensor, "b k 3"]:
        """The voxels v that show points of the worlds, b / n in a row for each: v + displacement(v) = true."""
        half = on_device(tuple((n - 1) / 2 for n in reversed(box.shape)), self.points.device)
        place = true
        for _ in range(rounds):
            grid = (place / half).reshape(len(self.control), -1, 1, 1, 3)
            moved = F.grid_sample(self.control, grid, padding_mode="border", align_corners=True)
            place = true - moved.flatten(2).transpose(1, 2).reshape(true.shape)
        return place


def draw_sweep(box: Box, ranges: WorldRanges, draws: Draws) -> Sweep:
    """Volumes of a batch of worlds, some deformed and some with planes that are out of place."""
    depth, height, width = box.shape
    maps = draws.with_axes(4)
    strength = maps.uniform(ranges.deformation) * maps.chance(ranges.deformed_chance)
    control = draws.normal(3, *_CONTROL) * strength
    displaced = F.interpolate(control, box.shape, mode="trilinear", align_corners=True)
    amount = draws.with_axes(3).uniform(ranges.jitter, 1) * draws.with_axes(3).chance(ranges.jitter_chance, 1)
    jitter = draws.normal(3, depth, 1, 1) * amount
    identity = torch.eye(3, device=draws.device)[None]
    plane = place_plane(identity, torch.zeros(1, 3, device=draws.device), (height, width))[0]  # (H, W, 3)
    z = torch.arange(depth, device=draws.device) - (depth - 1) / 2
    points = plane + F.pad(z[:, None, None, None], (2, 0))  # (D, H, W, 3)
    return Sweep(points + (displaced + jitter).movedim(1, -1), control)
