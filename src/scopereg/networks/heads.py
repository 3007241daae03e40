"""Regression of a pose from one pooled descriptor, for the arms without a closed-form solver (paper, supplement)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scopereg.devices import full_precision
from scopereg.geometry import rotation_from_6d
from scopereg.networks.encoders import CHANNELS, STRIDE
from scopereg.networks.fusion import WIDTH, TokenProjection
from scopereg.networks.scope_reg import NetworkResult

_IDENTITY_6D = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)


def _head(outputs: int, bias: Tensor) -> nn.Sequential:
    last = nn.Linear(CHANNELS // 2, outputs)
    nn.init.normal_(last.weight, std=0.01)
    last.bias.data.copy_(bias)
    return nn.Sequential(
        nn.Linear(CHANNELS, CHANNELS),
        nn.LayerNorm(CHANNELS),
        nn.SiLU(),
        nn.Linear(CHANNELS, CHANNELS // 2),
        nn.LayerNorm(CHANNELS // 2),
        nn.SiLU(),
        last,
    )


class PoseHeads(nn.Module):
    """Descriptor (B, C) to a pose: translation in cells, rotation through its 6D form; near identity at the start."""

    def __init__(self) -> None:
        super().__init__()
        self.translation = _head(3, torch.zeros(3))
        self.rotation = _head(6, torch.tensor(_IDENTITY_6D))

    def forward(self, descriptor: Tensor) -> NetworkResult:
        with full_precision(descriptor.device):
            descriptor = descriptor.to(next(self.parameters()).dtype)
            rotation = rotation_from_6d(self.rotation(descriptor).float())
            return NetworkResult(rotation, self.translation(descriptor).float() * STRIDE)


class VolumeDescriptor(nn.Module):
    """Fused tokens (B, D', L, C') gated by the volume, projected back, added to F_v and averaged: (B, C)."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = TokenProjection()
        self.output = nn.Linear(WIDTH, CHANNELS)

    def forward(self, fused: Tensor, volume_features: Tensor) -> Tensor:
        gate = nn.functional.silu(self.gate(volume_features)).flatten(2, 3)  # (B, D', L, C')
        return self.output(fused * gate).mean((1, 2)) + volume_features.mean((2, 3, 4))


class CoordinateDescriptor(nn.Sequential):
    """Coordinate field (B, 3, H', W') through a small CNN, averaged: (B, C)."""

    def __init__(self) -> None:
        layers: list[nn.Module] = []
        for inputs, outputs, stride in ((3, 64, 1), (64, 128, 2), (128, CHANNELS, 2)):
            layers += [nn.Conv2d(inputs, outputs, 3, stride, 1), nn.GroupNorm(8, outputs), nn.GELU()]
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())

    def forward(self, coordinates: Tensor) -> Tensor:
        encoded: Tensor = super().forward(coordinates.to(next(self.parameters()).dtype))
        return encoded
