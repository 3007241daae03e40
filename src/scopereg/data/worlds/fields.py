"""Fields: the box that a world fills, and smooth random fields over it."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from scopereg.data.phantom.speckle import speckle_field
from scopereg.data.worlds.draws import Draws, on_device
from scopereg.data.worlds.ranges import Shape

MARGIN: Shape = (28, 32, 32)  # voxels of world around the volume: frames look beyond its border
MAP_STEP = 2  # voxels between the nodes of a world's maps
FIELD_STEP = 4  # voxels between the nodes of smooth fields before they are interpolated
SMOOTH = 5.0  # voxels of correlation length from which that is exact enough


class Box(NamedTuple):
    """A world's room: the volume's voxels and the margin around them."""

    shape: Shape

    @property
    def size(self) -> Shape:
        """Voxels of the whole."""
        depth, height, width = (n + 2 * m for n, m in zip(self.shape, MARGIN, strict=True))
        return depth, height, width

    @property
    def nodes(self) -> Shape:
        """Nodes of the maps along each axis."""
        return self.nodes_at(MAP_STEP)

    def nodes_at(self, step: int) -> Shape:
        """Nodes so many voxels apart, in sizes that Fourier transforms like; the last voxel may lie beyond them."""
        depth, height, width = (-(-n // step) for n in self.size)
        return depth, height, width

    def grid(self, points: Float[Tensor, "*points 3"]) -> Float[Tensor, "*points 3"]:
        """Points in centred voxels x, y, z as `grid_sample` counts on the maps."""
        spans = tuple(MAP_STEP * (n - 1) / 2 for n in reversed(self.nodes))
        return points / on_device(spans, points.device)


class Fields:
    """Random fields for a batch of worlds, all with zero mean and unit variance over worlds."""

    def __init__(self, box: Box, draws: Draws, stretch: Float[Tensor, " n"]) -> None:
        """`stretch` lengthens all correlations along z, for worlds whose third axis is time."""
        self.box, self.draws, self.stretch = box, draws, stretch

    def widths(self, bounds: tuple[float, float], aspect: tuple[float, float] = (0.6, 1.6)) -> Float[Tensor, "n 3"]:
        """Correlation lengths in voxels along z, y, x."""
        free = self.draws.with_axes(0)
        widths = free.log_uniform(bounds, 1) * free.log_uniform(aspect, 3)
        return torch.cat([widths[:, :1] * self.stretch[:, None], widths[:, 1:]], 1)

    def draw(
        self, count: int, bounds: tuple[float, float], aspect: tuple[float, float] = (0.6, 1.6)
    ) -> Float[Tensor, "n {count} z y x"]:
        """`count` fields for each world, on the nodes of the maps."""
        widths = self.widths(bounds, aspect)
        step = FIELD_STEP if bounds[0] >= SMOOTH else MAP_STEP
        nodes = self.box.nodes_at(step)
        pairs = (count + 1) // 2  # the parts of a complex field are two real ones
        each = (widths / step).repeat_interleave(pairs, 0)
        drawn = speckle_field(self.draws.count * pairs, nodes, tuple(each.unbind(1)), self.draws.generator)
        real = torch.view_as_real(drawn).movedim(-1, 1) * math.sqrt(2)
        fields = real.reshape(self.draws.count, 2 * pairs, *nodes)[:, :count]
        # The coarse lattice may reach a voxel or two farther: nobody sees such a stretch of a random field.
        return (
            fields if step == MAP_STEP else F.interpolate(fields, self.box.nodes, mode="trilinear", align_corners=True)
        )
