"""CU-Reg (Lei et al., MICCAI 2024): slice and volume joined by gated cross attention, with a predicted organ prompt.

This is the adapted form whose size is published: a 1-wide convolution as gate and a global last pool, for any size.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scopereg.devices import full_precision
from scopereg.errors import ScopeRegError
from scopereg.networks.baselines.pose import poses_from_vectors
from scopereg.networks.baselines.psp_encoder import SLICE_STRIDE, PspEncoder
from scopereg.networks.baselines.resnext import EXPANSION, WIDTHS, ResNeXt, halve_depth
from scopereg.networks.scope_reg import NetworkResult, check_inputs

FRAMES = 4  # the target and three others of the same volume
_CHANNELS = 64
_INNER = _CHANNELS // 2
_TRUNK_STAGES = 3


class CuRegOutput(NamedTuple):
    """What the network predicts of a target among other frames of its volume."""

    vectors: Tensor  # (B, 6), translation in voxels, then angles about x, y, z in degrees
    distances: Tensor  # (B, 3), of the other frames' centres from the target's, voxels
    prompt: Tensor  # (B, 2, H, W), probabilities of background and organ


class CuReg(nn.Module):
    """Slice (B, H, W) and volume (V, D, H, W) in [0, 1] to the slice's pose in the volume; H and W multiples of 8.

    Training gives three other frames beside the target, see `predict`; `forward` has the target alone and repeats it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.frame_mix = nn.Sequential(nn.Conv2d(FRAMES, 64, 1), nn.Conv2d(64, 3, 1))
        self.slice_encoder = PspEncoder()
        self.slice_down = nn.Sequential(_halve(32, 64), nn.ReLU(inplace=True), _halve(64, 64), nn.ReLU(inplace=True))
        self.prompt_down = nn.Sequential(_halve(2, 32), _halve(32, 64))
        self.volume_encoder = nn.Sequential(
            nn.Conv3d(1, 32, 9, 2, 4, bias=False),
            nn.BatchNorm3d(32),
            nn.ReLU(inplace=True),
            halve_depth(32),
            nn.ReLU(inplace=True),
            nn.Conv3d(32, _CHANNELS, 3, 2, 1, bias=False),
            nn.ReLU(inplace=True),
        )
        self.slice_attention = GatedCrossAttention()
        self.volume_attention = GatedCrossAttention()
        self.fusion = LocalGlobalFusion()
        self.trunk = ResNeXt(128, used=_TRUNK_STAGES)
        features = EXPANSION * WIDTHS[_TRUNK_STAGES - 1]
        self.translation = _head(features, 512, 256, 128)
        self.rotation = _head(features, 512, 256, 128)
        self.distances = _head(features, 512, 128)

    def forward(self, slice: Tensor, volume: Tensor) -> NetworkResult:
        check_inputs(slice, volume)
        vectors = self.predict(slice[:, None].expand(-1, FRAMES, -1, -1), volume).vectors
        return NetworkResult(*poses_from_vectors(vectors))

    def predict(self, stacks: Tensor, volumes: Tensor) -> CuRegOutput:
        """Predictions for stacks (B, 4, H, W): the target first, then three other frames of its volume."""
        _check_stacks(stacks, volumes)
        dtype = next(self.parameters()).dtype  # images in half precision may meet weights in single
        volume = self.volume_encoder(volumes[:, None].to(dtype))  # (V, 64, T, H/4, W/4)
        volume = volume.repeat_interleave(stacks.shape[0] // volumes.shape[0], 0)
        features, prompt = self.slice_encoder(self.frame_mix(stacks.to(dtype)))
        planes = volume.shape[2]
        slices = self.slice_down(features)[:, :, None].expand(-1, -1, planes, -1, -1)
        hint = self.prompt_down(prompt.to(dtype))[:, :, None]
        fused = self.fusion(self.slice_attention(slices, volume) + hint, self.volume_attention(volume, slices) + hint)
        descriptor = self.trunk(fused).to(dtype).mean((2, 3, 4))
        with full_precision(descriptor.device):
            vectors = torch.cat([self.translation(descriptor), self.rotation(descriptor)], 1)
            return CuRegOutput(vectors.float(), self.distances(descriptor).float(), prompt.float())


class GatedCrossAttention(nn.Module):
    """Maps (B, 64, T, H, W) of this branch with what the other adds to them; adds nothing at the start.

    Tokens of the other branch ask those of this one, and their answers are added here, place by place: the original
    mixes the two up, and so must this. `fused` attention keeps no map of all pairs of tokens.
    """

    fused = True

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Conv3d(_CHANNELS, _INNER, 1)
        self.phi = nn.Conv3d(_CHANNELS, _INNER, 1)
        self.gate = nn.Sequential(nn.Conv3d(_CHANNELS, _CHANNELS, 1), nn.SiLU())
        # The original computes this and throws it away; here it only counts among the parameters.
        self.unused_g = nn.Conv3d(_CHANNELS, _INNER, 1)
        norm = nn.BatchNorm3d(_CHANNELS)
        nn.init.zeros_(norm.weight)
        self.output = nn.Sequential(nn.Conv3d(_INNER, _CHANNELS, 1), norm)

    def forward(self, this: Tensor, other: Tensor) -> Tensor:
        values, gate = self.gate(other).chunk(2, 1)
        attend = fused_attention if self.fused else plain_attention
        query, key, value = (_tokens(maps) for maps in (self.phi(other), self.theta(this), values))
        attended = attend(query, key, value).transpose(1, 2).unflatten(2, this.shape[2:])
        added: Tensor = this + self.output(attended * gate)
        return added


def _tokens(maps: Tensor) -> Tensor:
    """Maps (B, C, T, H, W) as tokens (B, N, C), in memory too: else the fused kernels step back to the plain form."""
    return maps.flatten(2).transpose(1, 2).contiguous()


def fused_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Values (B, N, C) averaged for each query (B, N, C) by its likeness to the keys (B, N, C), which is not scaled."""
    return F.scaled_dot_product_attention(query[:, None], key[:, None], value[:, None], scale=1.0)[:, 0]


def plain_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The same as it is defined, with the map of all pairs: 16 GiB at 512 x 512."""
    return (query @ key.transpose(1, 2)).softmax(-1) @ value


class LocalGlobalFusion(nn.Module):
    """Both branches (B, 64, T, H, W), each place joined with the average over all: (B, 128, T, H, W)."""

    def __init__(self) -> None:
        super().__init__()
        self.slice = nn.Conv3d(_CHANNELS, 256, 1)
        self.volume = nn.Conv3d(_CHANNELS, 256, 1)
        self.both = _pointwise(2 * _CHANNELS, 512, 1024)
        self.reduce = _pointwise(2 * _CHANNELS + 512 + 1024, 1024, 512, 128)
        for layer in self.reduce:
            if isinstance(layer, nn.Conv3d):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                assert layer.bias is not None
                nn.init.zeros_(layer.bias)

    def forward(self, slices: Tensor, volumes: Tensor) -> Tensor:
        both = torch.cat([slices, volumes], 1)
        everywhere = self.both(both).mean((2, 3, 4), keepdim=True).expand(-1, -1, *both.shape[2:])
        local = F.relu(self.slice(slices)), F.relu(self.volume(volumes))
        reduced: Tensor = self.reduce(torch.cat([both, *local, everywhere], 1))
        return reduced


def _halve(inputs: int, outputs: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False)


def _pointwise(*channels: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(channels):
        layers += [nn.Conv3d(inputs, outputs, 1), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


def _head(*channels: int) -> nn.Sequential:
    """Three numbers from a descriptor (B, channels[0])."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(channels):
        layers += [nn.Linear(inputs, outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.Linear(channels[-1], 3))


def _check_stacks(stacks: Tensor, volumes: Tensor) -> None:
    if stacks.ndim != 4 or stacks.shape[1] != FRAMES:
        raise ScopeRegError(
            f"the stacks have shape {tuple(stacks.shape)}",
            where="CuReg.predict(stacks)",
            fix=f"pass (B, {FRAMES}, H, W): the target, then {FRAMES - 1} other frames of its volume",
        )
    check_inputs(stacks[:, 0], volumes)
    height, width = stacks.shape[2:]
    if height % SLICE_STRIDE or width % SLICE_STRIDE:
        raise ScopeRegError(
            f"slices of {height} x {width} pixels do not divide by {SLICE_STRIDE}",
            where="network(slice, volume)",
            fix=f"crop or pad the images to multiples of {SLICE_STRIDE}",
        )
