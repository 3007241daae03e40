"""What EUReg is trained for: pose, coarse flow, and how alike the slice is to the volume at the predicted pose."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from scopereg.devices import full_precision
from scopereg.geometry import VoxelPoses, rotation_from_euler_deg
from scopereg.networks.baselines.eureg import EuReg, grid_points, scale_axes
from scopereg.training.objectives.similarity import pose_vectors, resampled_slices, smooth_l1
from scopereg.training.source import Batch

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
