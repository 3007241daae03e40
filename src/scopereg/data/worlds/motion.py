"""Motion: worlds whose third axis is time: one section of tissue that heart or breath move to and fro."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from scopereg.data.worlds.draws import Draws
from scopereg.data.worlds.fields import MAP_STEP, Box
from scopereg.data.worlds.ranges import WorldRanges

_CONTROL = (4, 4)  # nodes of the displacement within the plane, y x


@dataclass(frozen=True)
class Motion:
    """Motion of the worlds (n) of a batch."""

    moving: Bool[Tensor, " n"]
    points: Float[Tensor, "n z y x 3"]  # where the tissue at the nodes of the maps comes from, centred voxels x, y, z
    speckle_stretch: Float[Tensor, " n"]  # how much longer speckle lasts along time than a point spread: it moves along

    def moved(self, maps: Float[Tensor, "n c z y x"], box: Box) -> Float[Tensor, "n c z y x"]:
        """The maps of worlds that move; the others as they are."""
        found = F.grid_sample(maps, box.grid(self.points), padding_mode="reflection", align_corners=True)
        return torch.where(self.moving[:, None, None, None, None], found, maps)


def draw_motion(box: Box, ranges: WorldRanges, draws: Draws) -> Motion:
    """Every plane of a moving world shows nearly the same section, displaced by a wave of time."""
    along = [MAP_STEP * (torch.arange(n, device=draws.device, dtype=torch.float32) - (n - 1) / 2) for n in box.nodes]
    z, y, x = torch.meshgrid(*along, indexing="ij")  # centred voxels of the nodes
    maps = draws.with_axes(3)
    turns = z / maps.log_uniform(ranges.motion_period) + maps.uniform((0.0, 1.0))
    wave = torch.sin(2 * math.pi * turns)  # (n, *nodes)
    control = draws.normal(2, *_CONTROL) * draws.with_axes(3).uniform(ranges.motion)
    displaced = F.interpolate(control, box.nodes[1:], mode="bicubic", align_corners=True)  # (n, 2, H, W)
    dx, dy = (part[:, None] * wave for part in displaced.unbind(1))
    points = torch.stack([x + dx, y + dy, (z * maps.uniform(ranges.motion_drift)).expand_as(dx)], -1)
    moving = draws.chance(ranges.moving_chance)
    lasting = moving & draws.chance(ranges.lasting_speckle_chance)
    stretch = torch.where(lasting, draws.log_uniform(ranges.lasting_speckle_width), 1.0)
    return Motion(moving, points, stretch)
