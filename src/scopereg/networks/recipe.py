"""Recipe: how a network is trained besides what all have in common: its loss on a batch, and settings of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from scopereg.geometry import VoxelPoses


class Batch(NamedTuple):
    """Frames with the poses to find; B / V frames in a row belong to each volume."""

    slices: Tensor  # (B, H, W)
    volumes: Tensor  # (V, D, H, W)
    rotation: Tensor  # (B, 3, 3), slice to volume
    translation: Tensor  # (B, 3), voxels
    masks: Tensor | None = None  # (B, H, W) bool, where the frames show the organ; for networks that learn from it

    @property
    def poses(self) -> VoxelPoses:
        return VoxelPoses(self.rotation, self.translation)

    def each(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """A batch of what every tensor becomes."""
        changed = {name: change(value) for name, value in self._asdict().items() if value is not None}
        return Batch(**changed)

    def tensors(self) -> list[Tensor]:
        """Those that it has."""
        return [value for value in self if value is not None]


@dataclass(frozen=True)
class Recipe:
    """What belongs to a method and not to the run; the usual training where nothing is given.

    Settings are those of `training.settings.TrainSettings` by name; what `scopereg train` is told wins over them.
    """

    objective: Callable[[Any, Batch], Tensor] | None = None
    """`objective(network, batch)` gives the losses (B,); none: the pose loss of `training.losses`."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """In place of what either preset says."""
    paper: Mapping[str, Any] = field(default_factory=dict)
    """Besides, under the preset paper."""
    muregpro: Mapping[str, Any] = field(default_factory=dict)
    """Besides, on mu-RegPro."""
    epochs: tuple[int, int] = (500, 1500)
    """As published, on CAMUS (and everything else) and on mu-RegPro."""
    draws: bool = False
    """The network draws random numbers in a step (dropout, rollouts): they are seeded by step."""
    start_within: float | None = None
    """It goes on from a start: worlds measure it on frames within so many voxels and degrees of the middle."""
    masks: bool = False
    """It learns from the organ's mask where there is one."""
