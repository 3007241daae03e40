"""ResNet-8 encoders for slices (2D) and volumes (3D), stride 8 (paper, section 3.1)."""

from __future__ import annotations

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from scopereg.errors import ScopeRegError
from scopereg.ops.norms import instance_norm

STRIDE = 8
CHANNELS = 256
DEPTH_STRIDES = (8, 4)  # of volumes along depth; 8 is published

NormName = Literal["batch", "instance"]

_CONV = {2: nn.Conv2d, 3: nn.Conv3d}
_LAST = {2: torch.channels_last, 3: torch.channels_last_3d}


class VolumeNorm(nn.BatchNorm3d):
    """A batch norm of volumes that are taken for long planes on a GPU: PyTorch has fast kernels for planes alone."""

    def forward(self, features: Float[Tensor, "b c *size"]) -> Float[Tensor, "b c *size"]:
        if not features.is_cuda:
            return super().forward(features)
        planes = features.flatten(2, 3)  # (B, C, D H, W), a view where channels lie together
        return super().forward(planes).unflatten(2, features.shape[2:4])

    def _check_input_dim(self, features: Tensor) -> None:
        """Planes or volumes."""


_BATCH_NORM = {2: nn.BatchNorm2d, 3: VolumeNorm}


class InstanceNorm(nn.Module):
    """Every channel of every image to mean 0 and variance 1, then scaled: an image's own contrast does not count.

    What follows in a residual block, the sum with a shortcut and the cut at zero, can be done in the same pass.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(
        self,
        features: Float[Tensor, "b c *size"],
        shortcut: Float[Tensor, "b c *size"] | None = None,
        *,
        relu: bool = False,
    ) -> Float[Tensor, "b c *size"]:
        return instance_norm(features, self.weight, self.bias, shortcut, relu=relu)


def _norm(name: NormName, axes: int, channels: int) -> nn.Module:
    if name not in get_args(NormName):
        raise ScopeRegError(f"unknown norm {name!r}", where="networks.create(norm)", fix="use batch or instance")
    return InstanceNorm(channels) if name == "instance" else _BATCH_NORM[axes](channels)


class Stem(nn.Module):
    """Convolution of one channel, 7 wide, stride 2, no bias.

    On a GPU it runs as the same sums over blocks, see `blocked_stem`, unless `blocked` says no.
    """

    blocked = True

    def __init__(self, axes: int) -> None:
        super().__init__()
        self.axes = axes
        self.weight = nn.Parameter(_CONV[axes](1, 64, 7, bias=False).weight.detach())

    def forward(self, image: Float[Tensor, "b 1 *size"]) -> Float[Tensor, "b 64 *half"]:
        if self.blocked and image.is_cuda and not torch.compiler.is_exporting():
            return blocked_stem(image, self.weight, self.axes)
        return plain_stem(image, self.weight, self.axes)


def plain_stem(
    image: Float[Tensor, "b 1 *size"], weight: Float[Tensor, "c 1 *kernel"], axes: int
) -> Float[Tensor, "b c *half"]:
    """The stem as it is defined."""
    return (F.conv2d if axes == 2 else F.conv3d)(image, weight, stride=2, padding=3)


def blocked_stem(
    image: Float[Tensor, "b 1 *size"], weight: Float[Tensor, "c 1 *kernel"], axes: int
) -> Float[Tensor, "b c *half"]:
    """The stem with every block of 2 pixels on each axis as channels: 4 wide, stride 1, 2^axes channels.

    Tensor cores want several channels. An eighth tap of zero, in front, makes the kernel whole blocks. Sizes are even.
    """
    return (F.conv2d if axes == 2 else F.conv3d)(blocks_of(image, axes), stem_kernel(weight, axes))


def stem_kernel(weight: Float[Tensor, "c 1 *kernel"], axes: int) -> Float[Tensor, "c parts *half"]:
    """The stem's weights for blocks."""
    return _blocks(F.pad(weight, (1, 0) * axes), axes)


def blocks_of(image: Float[Tensor, "b 1 *size"], axes: int) -> Float[Tensor, "b parts *half"]:
    """The image as blocks, with the border that the stem wants."""
    return _blocks(F.pad(image, (4, 2) * axes), axes)


def _blocks(image: Float[Tensor, "b 1 *size"], axes: int) -> Float[Tensor, "b parts *half"]:
    """An image of even sizes to its 2^axes parts, channels last in memory."""
    parted = image.squeeze(1).unflatten(-1, (-1, 2))
    for axis in range(2, axes + 1):
        parted = parted.unflatten(-2 * axis + 1, (-1, 2))
    # (B, D/2, 2, H/2, 2, W/2, 2): halves to the front, as one channel axis.
    halves, rest = [2 * n + 2 for n in range(axes)], [2 * n + 1 for n in range(axes)]
    return parted.permute(0, *halves, *rest).flatten(1, axes).contiguous(memory_format=_LAST[axes])


class Pool(nn.Module):
    """Max-pooling, 3 wide, border 1, by whatever is fast here: the same values everywhere.

    Of features without negative values, pooled with a stride of 2, or as given along D, H, W.
    """

    def __init__(self, axes: int, stride: int | tuple[int, ...] = 2) -> None:
        super().__init__()
        self.axes, self.stride = axes, stride

    def forward(self, x: Float[Tensor, "b c *size"]) -> Float[Tensor, "b c *half"]:
        if not torch.compiler.is_exporting():
            if self.axes == 3 and x.is_cuda:
                return pool_volume(x, self.stride)
            if self.axes == 2 and x.device.type == "cpu" and not x.requires_grad:
                return pool_plane(x)
        return (F.max_pool2d if self.axes == 2 else F.max_pool3d)(x, 3, self.stride, 1)


def pool_volume(x: Float[Tensor, "b c d h w"], stride: int | tuple[int, ...]) -> Float[Tensor, "b c d2 h2 w2"]:
    """A volume over the planes, then across them.

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


def pool_plane(x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h2 w2"]:
    """A plane over rows, then columns; stride 2.

    On a CPU PyTorch's own walks pixel by pixel and takes eight times as long.
    """
    x = F.pad(x, (1, 1, 1, 1))
    x = torch.maximum(torch.maximum(x[:, :, 0:-2:2], x[:, :, 1:-1:2]), x[:, :, 2::2])
    return torch.maximum(torch.maximum(x[..., 0:-2:2], x[..., 1:-1:2]), x[..., 2::2])


class BasicBlock(nn.Module):
    """Two 3-wide convolutions around a shortcut, which is a 1-wide convolution where the shape changes."""

    def __init__(self, axes: int, inputs: int, outputs: int, stride: int, norm: NormName) -> None:
        super().__init__()
        conv = _CONV[axes]
        self.residual = nn.Sequential(
            conv(inputs, outputs, 3, stride, 1, bias=False),
            _norm(norm, axes, outputs),
            nn.ReLU(inplace=True),
            conv(outputs, outputs, 3, 1, 1, bias=False),
            _norm(norm, axes, outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(conv(inputs, outputs, 1, stride, bias=False), _norm(norm, axes, outputs))
        self.activation = nn.ReLU(inplace=True)

    def forward(self, features: Float[Tensor, "b c *size"]) -> Float[Tensor, "b c2 *size2"]:
        first, norm, _, second, last = self.residual
        if isinstance(norm, InstanceNorm):
            inner = norm(first(features), relu=True)
            return last(second(inner), self.shortcut(features), relu=True)
        return self.activation(self.residual(features) + self.shortcut(features))


class Encoder(nn.Sequential):
    """Image to features at an eighth of its sizes: stem, pool, three residual stages.

    With a `depth_stride` of 4 the pool keeps the planes of a volume, and the features have D/4 of them.
    """

    def __init__(self, axes: int, norm: NormName = "batch", depth_stride: int = STRIDE) -> None:
        if depth_stride not in DEPTH_STRIDES:
            raise ScopeRegError(
                f"the stride along depth is {depth_stride}",
                where="networks.create(depth_stride)",
                fix=f"use {' or '.join(map(str, DEPTH_STRIDES))}",
            )
        pool_stride = (1, 2, 2) if axes == 3 and depth_stride == 4 else 2
        super().__init__(
            Stem(axes),
            _norm(norm, axes, 64),
            nn.ReLU(inplace=True),
            Pool(axes, pool_stride),
            BasicBlock(axes, 64, 64, 1, norm),
            BasicBlock(axes, 64, 128, 2, norm),
            BasicBlock(axes, 128, CHANNELS, 1, norm),
        )

    def forward(self, image: Float[Tensor, "b 1 *size"]) -> Float[Tensor, "b 256 *eighth"]:
        stem, norm, *rest = self
        if not isinstance(norm, InstanceNorm):
            return super().forward(image)  # type: ignore[no-untyped-call]
        features = norm(stem(image), relu=True)
        for layer in rest[1:]:
            features = layer(features)
        return features
