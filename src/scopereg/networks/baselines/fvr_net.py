"""FVR-Net (Guo et al., MICCAI 2021): volume and slice, joined along depth, through a 3D ResNeXt to six numbers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scopereg.devices import full_precision
from scopereg.errors import ScopeRegError
from scopereg.networks.baselines.resnext import EXPANSION, WIDTHS, ResNeXt, halve_depth, halved
from scopereg.networks.baselines.terms import image_mse, pose_vectors, poses_from_vectors, resampled_slices, vector_mse
from scopereg.networks.recipe import Batch, Recipe
from scopereg.networks.scope_reg import NetworkResult, check_inputs

SLICE_PLANES = 32  # channels of the slice's first convolution, taken as planes of a volume
_WINDOW = 4  # widest window of the last average in plane
_HIDDEN = 512


class FvrNet(nn.Module):
    """Slice (B, H, W) and volume (V, D, H, W) in [0, 1] to the slice's pose in the volume.

    `shape` (D, H, W) is that of the volumes: the first layer of the head grows with it.
    """

    def __init__(self, *, shape: tuple[int, int, int] = (32, 128, 128)) -> None:
        super().__init__()
        self.shape = tuple(shape)
        if len(self.shape) != 3 or min(self.shape) < 1:
            raise ScopeRegError(
                f"the shape is {self.shape}",
                where='networks.create("fvr-net", shape)',
                fix="pass the planes, rows and columns of the volumes, such as (32, 128, 128)",
            )
        self.norm = nn.BatchNorm3d(32)  # of both branches
        self.volume_first, self.volume_second = _stem()
        self.slice_planes = nn.Conv2d(1, SLICE_PLANES, 5, padding=2)
        self.slice_first, self.slice_second = _stem()
        # Never called, as in the original, where it counts among the parameters.
        self.unused_norm = nn.BatchNorm3d(64)
        self.trunk = ResNeXt(64)
        depth, height, width = _trunk_shape(self.shape)
        window = depth, min(_WINDOW, height), min(_WINDOW, width)
        places = (height - window[1] + 1) * (width - window[2] + 1)
        self.pool = nn.AvgPool3d(window, stride=1)
        self.head = nn.Sequential(
            nn.Linear(EXPANSION * WIDTHS[-1] * places, _HIDDEN), nn.ReLU(inplace=True), nn.Linear(_HIDDEN, 6)
        )

    def forward(self, slice: Tensor, volume: Tensor) -> NetworkResult:
        return NetworkResult(*poses_from_vectors(self.pose_vectors(slice, volume)))

    def pose_vectors(self, slices: Tensor, volumes: Tensor) -> Tensor:
        """Poses (B, 6) of slices (B, H, W): translation in voxels, then angles about x, y, z in degrees."""
        check_inputs(slices, volumes)
        self._check_shape(volumes)
        dtype = next(self.parameters()).dtype  # images in half precision may meet weights in single
        slices, volumes = slices.to(dtype), volumes.to(dtype)
        features_v = self._encode(volumes[:, None], self.volume_first, self.volume_second)
        planes = self.slice_planes(slices[:, None])[:, None]  # (B, 1, 32, H, W): channels become planes
        features_s = self._encode(planes, self.slice_first, self.slice_second)
        features_v = features_v.repeat_interleave(slices.shape[0] // volumes.shape[0], 0)
        features = self.trunk(torch.cat([features_v, features_s], 2)).to(dtype)
        with full_precision(features.device):
            vectors: Tensor = self.head(self.pool(features).flatten(1))
        return vectors.float()

    def _encode(self, images: Tensor, first: nn.Module, second: nn.Module) -> Tensor:
        """Features (B, 64, D/4, H/2, W/2) of images (B, 1, D, H, W)."""
        return F.relu(second(F.relu(self.norm(first(images)))))

    def _check_shape(self, volumes: Tensor) -> None:
        if volumes.shape[1:] != self.shape:
            raise ScopeRegError(
                f"the volumes have shape {tuple(volumes.shape[1:])}, the network was made for {self.shape}",
                where="network(slice, volume)",
                fix='resample the volumes, or make the network with their shape: networks.create("fvr-net", shape)',
            )


def _stem() -> tuple[nn.Module, nn.Module]:
    return nn.Conv3d(1, 32, 9, 2, 4, bias=False), halve_depth(64)


def _trunk_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Planes, rows and columns that the trunk leaves of a volume of `shape` joined with a slice."""
    depth, height, width = shape
    joined = halved(depth, 2) + halved(SLICE_PLANES, 2)
    stages = len(WIDTHS)
    return halved(joined, stages), halved(height, 1 + stages), halved(width, 1 + stages)


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


RECIPE = Recipe(
    objective,
    settings={
        "optimizer": "adam",
        "learning_rate": 1e-4,
        "decay": "steps",
        "batch": 16,
        "warmup": 0,
        "clip": 0.0,
        "weight_decay": 0.0,
    },
    paper={"frames_per_volume": 1},
    muregpro={"learning_rate": 5e-5, "decay": "constant"},
    epochs=(150, 1500),
)
