"""EUReg (Wang and Wang, MICCAI 2025): a coarse flow by attention, and two heads that read the pose from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scopereg.devices import full_precision
from scopereg.geometry import VoxelPoses, centred_axis, rotation_from_euler_deg
from scopereg.networks.baselines.pyramid import CHANNELS, Pyramid, check_images, check_shape, encoded_shape
from scopereg.networks.baselines.terms import pose_vectors, resampled_slices, smooth_l1
from scopereg.networks.recipe import Batch, Recipe
from scopereg.networks.scope_reg import NetworkResult

_LEAST = (16, 64, 64)  # two encoded planes, and one cell after the three poolings of the heads
_START = 1e-5  # standard deviation of the weights that are to begin at almost nothing


class FlowPose(NamedTuple):
    """What the heads say and the flow that they read, for `forward` and for the objective."""

    flow: Tensor  # (B, 3, H', W'), x, y, z in encoded voxels
    translation: Tensor  # (B, 3), voxels
    angles_deg: Tensor  # (B, 3), about x, y, z


class EuReg(nn.Module):
    """Slice (B, H, W) and volume (V, D, H, W) in [0, 1] to the slice's pose in its volume.

    `shape` (D, H, W) is that of the volumes: the heads' first linear layers grow with it. `dim` is the width of the
    features that are compared; 12 is what was trained.
    """

    def __init__(self, *, shape: Sequence[int] = (32, 128, 128), dim: int = 12) -> None:
        super().__init__()
        self.shape = check_shape("eureg", shape, _LEAST)
        self.dim = dim
        self.encoded = encoded_shape(self.shape)
        _, height, width = self.encoded
        self.slice_encoder, self.volume_encoder = Pyramid(2), Pyramid(3)
        self.flow = CoarseFlow(dim)
        self.translation_head = FlowHead(nn.AvgPool2d, height, width)
        self.rotation_head = FlowHead(nn.MaxPool2d, height, width)
        self.radius = math.hypot(height // 2, width // 2)  # encoded voxels

    def forward(self, slice: Tensor, volume: Tensor) -> NetworkResult:
        pose = self.flow_pose(slice, volume)
        return NetworkResult(rotation_from_euler_deg(pose.angles_deg), pose.translation)

    def flow_pose(self, slices: Tensor, volumes: Tensor) -> FlowPose:
        """The flow of slices (B, H, W) into volumes (V, D, H, W) and the pose that the heads see in it."""
        check_images("eureg", self.shape, slices, volumes)
        dtype = next(self.parameters()).dtype  # images in half precision may meet weights in single
        features_s = self.slice_encoder(slices[:, None].to(dtype))
        features_v = self.volume_encoder(volumes[:, None].to(dtype))
        # Coordinates in bfloat16 would be wrong by a quarter of a voxel.
        with full_precision(slices.device):
            flow = self.flow(features_s.to(dtype), features_v.to(dtype))
            shift = self.translation_head(flow.to(dtype)).float()  # encoded voxels
            turned = (flow - shift[..., None, None]) / self.radius
            angles = self.rotation_head(turned.to(dtype)).float()
            return FlowPose(flow, scale_axes(shift, self.voxels_per_cell), angles)

    @property
    def voxels_per_cell(self) -> tuple[float, float, float]:
        """Voxels in one encoded voxel along x, y, z: first and last voxels of both grids are laid over each other."""
        x, y, z = ((full - 1) / (cells - 1) for full, cells in zip(self.shape[::-1], self.encoded[::-1], strict=True))
        return x, y, z


class CoarseFlow(nn.Module):
    """Features (B, 64, H', W') and (V, 64, D', H', W') to the flow (B, 3, H', W') of the slice's cells, float32.

    Each cell goes to the mean of all encoded voxels, weighed by the softmax of the plain dot product.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.slice_features, self.volume_features = _comparable(dim), _comparable(dim)

    def forward(self, features_s: Tensor, features_v: Tensor) -> Tensor:
        cells = self.slice_features(features_s.flatten(2).mT).float()  # (B, L, dim)
        voxels = self.volume_features(features_v.flatten(2).mT).float()  # (V, N, dim)
        # Slices of one volume in one row of cells: no volume is copied.
        rows = cells.reshape(len(voxels), -1, cells.shape[-1])
        attention = torch.softmax(rows @ voxels.mT, -1)  # (V, L B/V, N)
        depth, height, width = features_v.shape[2:]
        seen = (attention @ grid_points(depth, height, width, cells.device)).reshape(len(cells), -1, 3)
        flow = seen - grid_points(1, height, width, cells.device)
        return flow.mT.unflatten(-1, (height, width))


class FlowHead(nn.Sequential):
    """Flow (B, 3, H', W') to three numbers (B, 3); `pool` is what tells the two heads apart."""

    def __init__(self, pool: type[nn.AvgPool2d] | type[nn.MaxPool2d], height: int, width: int) -> None:
        layers: list[nn.Module] = []
        for inputs, outputs in ((3, 32), (32, 64), (64, 128)):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.LeakyReLU(), pool(2)]
        last = _almost_nothing(nn.Linear(128, 3))
        super().__init__(
            *layers,
            nn.Flatten(),
            nn.Linear(128 * (height // 8) * (width // 8), 256),
            nn.LeakyReLU(),
            nn.Linear(256, 128),
            nn.LeakyReLU(),
            last,
        )


def grid_points(depth: int, height: int, width: int, device: torch.device) -> Tensor:
    """Centres (D H W, 3) of a grid's voxels as x, y, z, counted from its centre."""
    axes = (centred_axis(size, device=device) for size in (depth, height, width))
    z, y, x = torch.meshgrid(*axes, indexing="ij")
    return torch.stack([x, y, z], -1).flatten(0, 2)


def scale_axes(vectors: Tensor, factors: tuple[float, float, float]) -> Tensor:
    """Vectors (B, 3) with each axis times its factor; plain numbers keep their digits in a network of any type."""
    return torch.stack([axis * factor for axis, factor in zip(vectors.unbind(-1), factors, strict=True)], -1)


def _comparable(dim: int) -> nn.Sequential:
    return nn.Sequential(_almost_nothing(nn.Linear(CHANNELS[-1], dim)), nn.LayerNorm(dim))


def _almost_nothing(layer: nn.Linear) -> nn.Linear:
    nn.init.normal_(layer.weight, std=_START)
    nn.init.zeros_(layer.bias)
    return layer


WINDOW = 9  # pixels, the side of the box of the local correlation
_FLAT = 1e-5  # keeps the correlation of two flat boxes at zero


def objective(network: EuReg, batch: Batch) -> Tensor:
    """The loss (B,): pose, flow and image terms, all with the weight 1."""
    found = network.flow_pose(batch.slices, batch.volumes)
    with full_precision(batch.slices.device):
        true = pose_vectors(batch.rotation, batch.translation)
        seen = resampled_slices(batch.volumes, rotation_from_euler_deg(found.angles_deg), found.translation)
        pose = smooth_l1(found.translation, true[:, :3]) + smooth_l1(found.angles_deg, true[:, 3:])
        return pose + flow_loss(found.flow, true_flow(network, batch.poses)) - local_ncc(seen, batch.slices.float())


def true_flow(network: EuReg, true: VoxelPoses) -> Tensor:
    """The flow (B, 3, H', W') in encoded voxels that a pose means to EUReg.

    The rotation turns encoded voxels as if they were cubes, which they are not: that is how the flow was taught.
    """
    _, height, width = network.encoded
    points = grid_points(1, height, width, true.rotation.device).T  # (3, L)
    # Sums of products: a matmul would lose digits under TF32.
    turned = (true.rotation[..., None] * points[None, None]).sum(2)  # (B, 3, L)
    x, y, z = (1 / factor for factor in network.voxels_per_cell)
    moved = turned - points + scale_axes(true.translation, (x, y, z))[..., None]
    return moved.unflatten(-1, (height, width))


def flow_loss(flow: Tensor, wanted: Tensor) -> Tensor:
    """Smooth-L1 (B,) of two fields (B, 3, H', W'), and of one number each: how much they vary over all of the batch."""
    values = F.smooth_l1_loss(flow, wanted, reduction="none").mean((1, 2, 3))
    return values + F.smooth_l1_loss(_variation(flow), _variation(wanted))


def local_ncc(first: Tensor, second: Tensor) -> Tensor:
    """Mean (B,) over all pixels of the squared correlation of images (B, H, W) in boxes of 9 x 9, zeros outside."""
    pixels = WINDOW**2
    sums = _box_sums(torch.stack([first, second, first * first, second * second, first * second], 1))
    sum_1, sum_2, square_1, square_2, product = sums.unbind(1)
    shared = product - sum_1 * sum_2 / pixels
    # Rounding makes some variances of flat boxes negative; with a large one at their side they would divide by zero.
    spread_1 = (square_1 - sum_1.square() / pixels).clamp_min(0)
    spread_2 = (square_2 - sum_2.square() / pixels).clamp_min(0)
    return (shared.square() / (spread_1 * spread_2 + _FLAT)).mean((1, 2))


def _box_sums(images: Tensor) -> Tensor:
    # A pooling, not a convolution: cuDNN convolves in TF32, too coarse for variances.
    return F.avg_pool2d(images, WINDOW, stride=1, padding=WINDOW // 2) * WINDOW**2


def _variation(field: Tensor) -> Tensor:
    """Mean squared forward difference () of fields (B, 3, H', W'), x and y alike."""
    along_x, along_y = field.diff(dim=-1), field.diff(dim=-2)
    return (along_x.square().mean() + along_y.square().mean()) / 2


RECIPE = Recipe(
    objective,
    settings={
        "optimizer": "adam",
        "learning_rate": 1e-4,
        "decay": "polynomial",
        "batch": 6,
        "frames_per_volume": 2,
        "warmup": 0,
        "clip": 0.0,
        "weight_decay": 0.0,
    },
    paper={"frames_per_volume": 1},
    epochs=(1000, 30000),
)
