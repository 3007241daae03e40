"""Directions: how well the edges of an ultrasound volume lie along those of a volume of another modality.

Where tissue changes both change, whatever they show of it. Compared are directions alone, up to their sign: the mean
square of the cosine between the gradients of both, at the places where the ultrasound changes most. That has a wider
basin than LC2, and its maximum lies some millimetres off: it tells where to begin.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from scopereg.geometry import VoxelPoses, centred_axis
from scopereg.geometry.steps import moved
from scopereg.registration.grey import blur, gradients, normalise_locally
from scopereg.registration.likeness import NOTHING_SHARED

_EDGES = 0.1  # share of the places that count, those of the strongest edges
_MOST_PLACES = 2000
_QUIET = 0.3  # times the mean length of the other volume's gradient: weaker ones have no direction
_LEAST_INSIDE = 0.5  # of the places
_AT_ONCE = 64  # poses


class Directions:
    """The strongest edges of an ultrasound volume against the gradient of another volume, on voxels of one size."""

    def __init__(
        self,
        volume: Float[Tensor, "d h w"],
        known: Float[Tensor, "d h w"],
        ultrasound: Float[Tensor, "z y x"],
        seen: Float[Tensor, "z y x"],
        *,
        smooth: float,
        margin: float,
    ) -> None:
        """`smooth` is the standard deviation of the smoothing in voxels.

        Nearer than a `margin` of about so many voxels to the border of what is seen nothing counts: its own edge is no
        tissue, and there often is bone, which stays where it is when tissue moves.
        """
        slopes = gradients(normalise_locally(volume[None], known[None], smooth, 0.0, 0.0)[0])
        length = slopes.square().sum(0).sqrt()
        self.quiet = _QUIET * float(length[known > 0].mean()) if bool((known > 0).any()) else 1.0
        self.volume = torch.cat([slopes, known[None]])
        own = gradients(normalise_locally(ultrasound[None], seen[None], smooth, 0.0, 0.0)[0])
        places = (blur(seen[None], margin)[0] > 0.95).nonzero()
        strength = own[:, places[:, 0], places[:, 1], places[:, 2]].square().sum(0).sqrt()
        most = min(max(int(_EDGES * len(places)), 1), len(places))
        chosen = places[strength.topk(most).indices] if most else places
        chosen = chosen[:: max(len(chosen) // _MOST_PLACES, 1)]
        directions = own[:, chosen[:, 0], chosen[:, 1], chosen[:, 2]].T
        self.directions = directions / directions.norm(dim=1, keepdim=True).clamp_min(1e-12)
        axes = [centred_axis(n, device=ultrasound.device) for n in ultrasound.shape]
        self.points = torch.stack([axes[axis][chosen[:, axis]] for axis in (2, 1, 0)], -1)  # (N, 3), x, y, z
        halves = [max((n - 1) / 2, 0.5) for n in reversed(volume.shape)]
        self.halves = torch.tensor(halves, device=volume.device)

    def similarity(self, poses: VoxelPoses) -> Float[Tensor, "b"]:
        """Mean square of the cosine, about a third by chance; `NOTHING_SHARED` where too little lies inside."""
        rows = range(0, len(poses.rotation), _AT_ONCE)
        return torch.cat([self._similarity(*(part[row : row + _AT_ONCE] for part in poses)) for row in rows])

    def _similarity(self, rotation: Float[Tensor, "b 3 3"], shift: Float[Tensor, "b 3"]) -> Float[Tensor, "b"]:
        points = self.points @ rotation.transpose(1, 2) + shift[:, None]
        grid = (points / self.halves).reshape(1, 1, 1, -1, 3)
        there = F.grid_sample(self.volume[None], grid, align_corners=True).reshape(4, *points.shape[:2])
        inside = (there[3] > 0.99).to(there.dtype)
        along = torch.einsum("nc,bkc,kbn->bn", self.directions, rotation, there[:3])
        cosine = along.square() / (there[:3].square().sum(0) + self.quiet**2)
        count = inside.sum(1)
        found = (cosine * inside).sum(1) / count.clamp_min(1)
        return torch.where(count >= _LEAST_INSIDE * max(len(self.points), 1), found, NOTHING_SHARED)


def climbed(
    directions: Directions,
    poses: VoxelPoses,
    lever: float,
    *,
    step: float,
    rounds: int,
    generator: torch.Generator,
    tries: int = 8,
) -> tuple[VoxelPoses, Float[Tensor, "b"]]:
    """Each pose moved as long as one of some random steps, of `step` voxels at first, makes it more alike."""
    best, sizes = directions.similarity(poses), torch.full((len(poses.rotation),), step)
    count = len(sizes)
    for _ in range(rounds):
        drawn = torch.randn(count, tries, 6, generator=generator) * sizes[:, None, None]
        repeated = VoxelPoses(*(part.repeat_interleave(tries, 0) for part in poses))
        tried = moved(repeated, drawn.flatten(0, 1).to(poses.rotation), lever)
        found, which = directions.similarity(tried).unflatten(0, (count, tries)).max(1)
        rows = torch.arange(count, device=which.device) * tries + which
        better = found > best
        chosen = VoxelPoses(*(part[rows] for part in tried))
        poses = VoxelPoses(
            torch.where(better[:, None, None], chosen.rotation, poses.rotation),
            torch.where(better[:, None], chosen.translation, poses.translation),
        )
        best = torch.maximum(best, found)
        sizes = torch.where(better.cpu(), sizes, sizes * 0.8)
    return poses, best
