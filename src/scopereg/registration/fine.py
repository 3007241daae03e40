"""Fine: a volume prepared for the fine stage of a network, which brings what the network found to a part of a voxel."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from scopereg.devices import full_precision
from scopereg.geometry import VoxelPoses
from scopereg.geometry.steps import inverse_positive, solve_positive
from scopereg.networks.anywhere import alike
from scopereg.networks.fine import FINEST, FineFrame, FineStage, FineVolume

_STEADY = 1e-6  # curvature that is none: along what nothing tells a step is long, but a number
_LEAST = 1e-6  # residual and variance whose logarithm is taken
_UNSAID = 0.005  # stretch that says nothing


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
        frame, volume = frames.levels[FINEST], self.encoded.levels[FINEST]
        with full_precision(poses.rotation.device):
            at = self.stage.normal(FINEST, frame, volume, poses, stretched=True)
            steady = at.matrix + _STEADY * torch.eye(8, device=at.matrix.device)
            variance = inverse_positive(steady[:, :6, :6]).diagonal(dim1=1, dim2=2).sum(1)
            variance = variance * at.residual / len(frame.points)
            stretch = (solve_positive(steady, at.slope)[:, 6:].abs().amax(1) / frame.lever).clamp_max(1.0)
        return torch.stack(
            [
                at.residual.clamp_min(_LEAST).log(),
                (variance.clamp_min(_LEAST).sqrt() * spacing_mm).log(),
                alike(frames.far, self.encoded.far, poses)[:, 0],
                (stretch + _UNSAID).log(),
            ],
            1,
        )
