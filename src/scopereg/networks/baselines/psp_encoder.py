"""The slice encoder of CU-Reg: a pyramid scene parsing network on ResNet-34, from random weights."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scopereg.networks.encoders import BasicBlock

SLICE_STRIDE = 8  # of the ResNet; the decoder undoes it by three steps of 2
_STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 1), (512, 3, 1))  # channels, blocks, stride
_POOLS = (1, 2, 3, 6)


class ResNet34(nn.Module):
    """Images (B, 3, H, W) to features (B, 512, H/8, W/8): the last two stages keep the resolution, undilated."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        )
        blocks, inputs = [], 64
        for channels, count, stride in _STAGES:
            for index in range(count):
                blocks.append(BasicBlock(2, inputs, channels, stride if index == 0 else 1, "batch"))
                inputs = channels
        self.blocks = nn.Sequential(*blocks)
        # Never called, as in the original, where it counts among the parameters.
        self.unused_classifier = nn.Linear(512, 1000)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.blocks(self.stem(images))
        return features


class Pyramid(nn.Module):
    """Features (B, 512, H, W) beside their averages over 1, 4, 9 and 36 fields, mixed to (B, 1024, H, W)."""

    def __init__(self) -> None:
        super().__init__()
        self.levels = nn.ModuleList(
            nn.Sequential(nn.AdaptiveAvgPool2d(size), nn.Conv2d(512, 512, 1, bias=False)) for size in _POOLS
        )
        self.mix = nn.Conv2d(512 * (len(_POOLS) + 1), 1024, 1)

    def forward(self, features: Tensor) -> Tensor:
        size = features.shape[-2:]
        levels = [F.interpolate(level(features), size, mode="bilinear") for level in self.levels]
        return F.relu(self.mix(torch.cat([*levels, features], 1)))


class UpBlock(nn.Sequential):
    """(B, inputs, H, W) to (B, outputs, 2 H, 2 W)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.BatchNorm2d(outputs),
            nn.PReLU(),
        )


class PspEncoder(nn.Module):
    """Images (B, 3, H, W) to features (B, 32, H, W) and the odds (B, 2, H, W) of background and organ."""

    def __init__(self) -> None:
        super().__init__()
        self.resnet = ResNet34()
        self.decoder = nn.Sequential(
            Pyramid(),
            nn.Dropout2d(0.3),
            UpBlock(1024, 256),
            nn.Dropout2d(0.15),
            UpBlock(256, 64),
            nn.Dropout2d(0.15),
            UpBlock(64, 64),
        )
        self.feature = nn.Conv2d(64, 32, 1)
        self.prompt = nn.Conv2d(64, 2, 1)
        # Never called either; with as many classes as the prompt has, the published count comes out.
        self.unused_classifier = nn.Sequential(nn.Linear(256, 256), nn.ReLU(inplace=True), nn.Linear(256, 2))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        decoded = self.decoder(self.resnet(images))
        return self.feature(decoded), self.prompt(decoded).softmax(1)
