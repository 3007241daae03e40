"""The 3D ResNeXt that FVR-Net and CU-Reg end in: four stages of bottlenecks with 32 groups, halving every axis.

Also the one layer that their stems share.
"""

from __future__ import annotations

from torch import Tensor, nn

GROUPS = 32
EXPANSION = 2  # a bottleneck gives twice its inner width
WIDTHS = (128, 256, 512, 1024)
BLOCKS = (3, 8, 36, 3)


class Bottleneck(nn.Module):
    """(B, inputs, D, H, W) to (B, 2 width, ...): 1-wide, grouped 3-wide and 1-wide convolutions around a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = EXPANSION * width
        self.residual = nn.Sequential(
            nn.Conv3d(inputs, width, 1, bias=False),
            nn.BatchNorm3d(width),
            nn.ReLU(inplace=True),
            nn.Conv3d(width, width, 3, stride, 1, groups=GROUPS, bias=False),
            nn.BatchNorm3d(width),
            nn.ReLU(inplace=True),
            nn.Conv3d(width, outputs, 1, bias=False),
            nn.BatchNorm3d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv3d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm3d(outputs))
        self.activation = nn.ReLU(inplace=True)

    def forward(self, features: Tensor) -> Tensor:
        activated: Tensor = self.activation(self.residual(features) + self.shortcut(features))
        return activated


class ResNeXt(nn.Module):
    """The four stages; `used` says how many of them `forward` runs. The others exist because they were counted."""

    def __init__(self, inputs: int, used: int = len(WIDTHS)) -> None:
        super().__init__()
        self.used = used
        self.stages = nn.ModuleList()
        for width, blocks in zip(WIDTHS, BLOCKS, strict=True):
            first = Bottleneck(inputs, width, 2)
            inputs = EXPANSION * width
            self.stages.append(nn.Sequential(first, *(Bottleneck(inputs, width, 1) for _ in range(blocks - 1))))

    def forward(self, features: Tensor) -> Tensor:
        for stage in self.stages[: self.used]:
            features = stage(features)
        return features


def halve_depth(outputs: int) -> nn.Sequential:
    """The second layer of a stem, (B, 32, D, H, W) to (B, outputs, D/2, H, W): 7-wide, no bias.

    Depth is padded beforehand: for 5 to 7 planes oneDNN's gradient of the same padded inside is wrong, or it writes
    where it must not.
    """
    return nn.Sequential(
        nn.ConstantPad3d((0, 0, 0, 0, 3, 3), 0.0), nn.Conv3d(32, outputs, 7, (2, 1, 1), (0, 3, 3), bias=False)
    )


def halved(size: int, times: int) -> int:
    """What is left of an axis after that many layers of stride 2, each of which rounds up."""
    return -(-size // 2**times)
