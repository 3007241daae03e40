"""ResNet-8 encoders for slices (2D) and volumes (3D), stride 8 (paper, section 3.1)."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from scopereg.errors import ScopeRegError

STRIDE = 8
CHANNELS = 256

NormName = Literal["batch", "instance"]

_CONV = {2: nn.Conv2d, 3: nn.Conv3d}
_POOL = {2: nn.MaxPool2d, 3: nn.MaxPool3d}
_NORM = {("batch", 2): nn.BatchNorm2d, ("batch", 3): nn.BatchNorm3d,
         ("instance", 2): nn.InstanceNorm2d, ("instance", 3): nn.InstanceNorm3d}  # fmt: skip


def _norm(name: NormName, axes: int, channels: int) -> nn.Module:
    if (name, axes) not in _NORM:
        raise ScopeRegError(f"unknown norm {name!r}", where="networks.create(norm)", fix="use batch or instance")
    return _NORM[name, axes](channels, affine=True)


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

    def forward(self, features: Tensor) -> Tensor:
        return self.activation(self.residual(features) + self.shortcut(features))


class Encoder(nn.Sequential):
    """Image (B, 1, [D,] H, W) to features (B, 256, [D/8,] H/8, W/8): stem, pool, three residual stages."""

    def __init__(self, axes: int, norm: NormName = "batch") -> None:
        super().__init__(
            _CONV[axes](1, 64, 7, 2, 3, bias=False),
            _norm(norm, axes, 64),
            nn.ReLU(inplace=True),
            _POOL[axes](3, 2, 1),
            BasicBlock(axes, 64, 64, 1, norm),
            BasicBlock(axes, 64, 128, 2, norm),
            BasicBlock(axes, 128, CHANNELS, 1, norm),
        )
