"""Max-pooling of planes and volumes, 3 wide, border 1: the same values everywhere, by whatever is fast there."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Pool(nn.Module):
    """Features (B, C, [D,] H, W) without negative values, pooled with a stride of 2, or as given along D, H, W."""

    def __init__(self, axes: int, stride: int | tuple[int, ...] = 2) -> None:
        super().__init__()
        self.axes, self.stride = axes, stride

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_exporting():
            if self.axes == 3 and x.is_cuda:
                return pool_volume(x, self.stride)
            if self.axes == 2 and x.device.type == "cpu" and not x.requires_grad:
                return pool_plane(x)
        return (F.max_pool2d if self.axes == 2 else F.max_pool3d)(x, 3, self.stride, 1)


def pool_volume(x: Tensor, stride: int | tuple[int, ...]) -> Tensor:
    """A volume (B, C, D, H, W) over the planes, then across them.

    On a GPU PyTorch has no kernel for volumes whose channels lie together, only for planes; and the gradient of the
    kernel that it has is summed in no fixed order, so that two runs would differ.
    """
    along, *_ = stride if isinstance(stride, tuple) else (stride,)
    planes = x.transpose(1, 2)  # (B, D, C, H, W)
    pooled = F.max_pool2d(planes.flatten(0, 1), 3, 2, 1).unflatten(0, planes.shape[:2])
    edge = torch.full_like(pooled[:, :1], -torch.inf)
    before, behind = torch.cat([edge, pooled[:, :-1]], 1), torch.cat([pooled[:, 1:], edge], 1)
    across = torch.maximum(torch.maximum(before[:, ::along], pooled[:, ::along]), behind[:, ::along])
    return across.transpose(1, 2).contiguous(memory_format=torch.channels_last_3d)


def pool_plane(x: Tensor) -> Tensor:
    """A plane (B, C, H, W) over rows, then columns; stride 2.

    On a CPU PyTorch's own walks pixel by pixel and takes eight times as long.
    """
    x = F.pad(x, (1, 1, 1, 1))
    x = torch.maximum(torch.maximum(x[:, :, 0:-2:2], x[:, :, 1:-1:2]), x[:, :, 2::2])
    return torch.maximum(torch.maximum(x[..., 0:-2:2], x[..., 1:-1:2]), x[..., 2::2])
