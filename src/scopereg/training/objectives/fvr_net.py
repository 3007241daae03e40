"""What FVR-Net is trained for: the six numbers of the pose, and the volume cut there against the frame."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from scopereg.networks.baselines.fvr_net import FvrNet
from scopereg.networks.baselines.pose import poses_from_vectors
from scopereg.training.objectives.similarity import image_mse, pose_vectors, resampled_slices, vector_mse
from scopereg.training.source import Batch


@dataclass(frozen=True)
class FvrNetWeights:
    """Weights of the terms."""

    pose: float = 1.0
    """Of the mean squared error of the six numbers, in voxels and degrees."""
    image: float = 1.0
    """Of the mean squared difference between the volume at the predicted pose and the frame."""


def objective(network: FvrNet, batch: Batch, *, weights: FvrNetWeights | None = None) -> Tensor:
    """The loss (B,) of the frames of a batch."""
    weights = weights or FvrNetWeights()
    vectors = network.pose_vectors(batch.slices, batch.volumes)
    pose = vector_mse(vectors, pose_vectors(batch.rotation, batch.translation))
    image = image_mse(resampled_slices(batch.volumes, *poses_from_vectors(vectors)), batch.slices)
    return weights.pose * pose + weights.image * image
