"""Fine: a volume prepared for the fine stage of a network, which brings what the network found to a part of a voxel."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from scopereg.devices import full_precision
from scopereg.geometry import VoxelPoses
from scopereg.geometry.steps import inverse_positive, moved, solve_positive
from scopereg.networks.anywhere import alike
from scopereg.networks.fine import FINEST, FineFrame, FineStage, FineVolume, Normal

_STEADY = 1e-6  # curvature that is none: along what nothing tells a step is long, but a number
_LEAST = 1e-6  # residual and variance whose logarithm is taken
_UNSAID = 0.005  # stretch that says nothing
_LEAST_INSIDE = 0.3  # share of what a frame's features weigh that must lie in the volume to be alike at all
_LARGEST = 0.12  # step in the size of pixels


class Stretched(NamedTuple):
    """Where frames fit better with pixels of other sizes."""

    poses: VoxelPoses
    factors: Float[Tensor, "b 2"]  # how many times as wide and as high the pixels are there


class PreparedFine:
    """Frames of one volume, on its grid."""

    def __init__(self, stage: FineStage, volume: Float[Tensor, "d h w"], encoded: FineVolume | None = None) -> None:
        """`volume` in [0, 1]; `encoded` where somebody has that already."""
        self.stage = stage
        with torch.inference_mode():
            self.encoded = encoded or stage.encode(volume[None].float())

    @torch.inference_mode()
    def read(self, images: Float[Tensor, "b h w"]) -> FineFrame:
        """Images in [0, 1], black where nothing is to be compared."""
        return self.stage.read(images.float())

    @torch.inference_mode()
    def locate(self, frames: FineFrame, start: VoxelPoses) -> VoxelPoses:
        """From poses that a network found, in centred voxels."""
        return self.stage.settle(frames, self.encoded, start)

    @torch.inference_mode()
    def features(self, frames: FineFrame, poses: VoxelPoses, spacing_mm: float) -> Float[Tensor, "b 4"]:
        """What tells how good poses are, see `confidence.FINE_FEATURES`.

        How far features of frame and volume are apart; how surely they tell the pose; how alike the frame is to this
        place at all; and by how much it would fit better with pixels of another size.
        """
        frame = frames.levels[FINEST]
        with full_precision(poses.rotation.device):
            at, step = self._with_stretch(FINEST, frames, poses)
            steady = at.matrix + _STEADY * torch.eye(8, device=at.matrix.device)
            variance = inverse_positive(steady[:, :6, :6]).diagonal(dim1=1, dim2=2).sum(1)
            variance = variance * at.residual / len(frame.points)
            stretch = (step[:, 6:].abs().amax(1) / frame.lever).clamp_max(1.0)
        return torch.stack(
            [
                at.residual.clamp_min(_LEAST).log(),
                (variance.clamp_min(_LEAST).sqrt() * spacing_mm).log(),
                alike(frames.far, self.encoded.far, poses)[:, 0],
                (stretch + _UNSAID).log(),
            ],
            1,
        )

    @torch.inference_mode()
    def likeness(self, frames: FineFrame, poses: VoxelPoses) -> Float[Tensor, "b"]:
        """How alike frames are to the volume: the cosine of their details, and how alike the place is as a whole.

        Details of any two pictures of tissue are somewhat alike (0.6), places are not (0): about 0.95 where a frame
        lies, and 0 where too little of it lies in the volume.
        """
        with full_precision(poses.rotation.device):
            found = self.stage.agreement(FINEST, frames.levels[FINEST], self.encoded.levels[FINEST], poses)
            told = 1 - found.residual / 2 + alike(frames.far, self.encoded.far, poses)[:, 0]
        return torch.where(found.inside >= _LEAST_INSIDE, told, 0.0)

    @torch.inference_mode()
    def stretched(self, frames: FineFrame, poses: VoxelPoses, *, coarsely: bool = False) -> Stretched:
        """One step in the pose and the size of pixels together, from poses where the features agree."""
        with full_precision(poses.rotation.device):
            _, step = self._with_stretch(FINEST - coarsely, frames, poses)
        factors = 1 - (step[:, 6:] / frames.lever).clamp(-_LARGEST, _LARGEST)
        return Stretched(moved(poses, -step[:, :6], frames.lever), factors)

    def _with_stretch(self, level: int, frames: FineFrame, poses: VoxelPoses) -> tuple[Normal, Float[Tensor, "b 8"]]:
        """The equations of a step with two stretches, and their solution."""
        at = self.stage.normal(level, frames.levels[level], self.encoded.levels[level], poses, stretched=True)
        steady = at.matrix + _STEADY * torch.eye(8, device=at.matrix.device)
        return at, solve_positive(steady, at.slope)

    @property
    def device(self) -> torch.device:
        return self.encoded.levels[0].table.device
