"""CU-Reg (Lei et al., MICCAI 2024): slice and volume joined by gated cross attention, with a predicted organ prompt.

This is the adapted form whose size is published: a 1-wide convolution as gate and a global last pool, for any size.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scopereg.devices import full_precision
from scopereg.errors import ScopeRegError
from scopereg.networks.baselines.resnext import EXPANSION, WIDTHS, ResNeXt, halve_depth
from scopereg.networks.baselines.terms import (
    image_mse,
    pose_smooth_l1,
    pose_vectors,
    poses_from_vectors,
    resampled_slices,
    smooth_l1,
    structural_similarity,
)
from scopereg.networks.encoders import BasicBlock
from scopereg.networks.recipe import Batch, Recipe
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


@dataclass(frozen=True)
class CuRegWeights:
    """Weights of the terms, as published."""

    translation: float = 1.0
    """Of the smooth-L1 error of the translation, in voxels."""
    rotation: float = 1.0
    """Of the smooth-L1 error of the angles, in degrees."""
    distances: float = 0.1
    """Of the smooth-L1 error of the distances to the other frames, in voxels, where there are others."""
    similarity: float = 0.5
    """Of 1 - SSIM of the volume at the predicted pose and the frame."""
    prompt: float = 0.1
    """Of the mean squared error of the prompt against the organ's mask, where there is one."""


def objective(network: CuReg, batch: Batch, *, weights: CuRegWeights | None = None) -> Tensor:
    """The loss (B,) of the frames of a batch.

    With 4 frames or more of each volume, a target has the next three of its volume beside it; with fewer, itself.
    """
    weights = weights or CuRegWeights()
    frames = len(batch.slices) // len(batch.volumes)
    stacks = with_neighbours(batch.slices, frames)
    found = network.predict(stacks, batch.volumes)
    translation, rotation = pose_smooth_l1(found.vectors, pose_vectors(batch.rotation, batch.translation))
    loss = weights.translation * translation + weights.rotation * rotation
    if frames >= FRAMES:
        distances = neighbour_distances(batch.translation.float(), frames)
        loss = loss + weights.distances * smooth_l1(found.distances, distances)
    resampled = resampled_slices(batch.volumes, *poses_from_vectors(found.vectors))
    loss = loss + weights.similarity * (1 - structural_similarity(resampled, batch.slices))
    if batch.masks is not None:
        loss = loss + weights.prompt * image_mse(found.prompt, prompt_target(batch.masks))
    return loss


def with_neighbours(values: Tensor, frames: int) -> Tensor:
    """Each of values (B, ...) with the next three of its group of `frames`, round and round: (B, 4, ...).

    In a group of fewer than four each stands four times, as at inference.
    """
    if frames < FRAMES:
        return torch.stack([values] * FRAMES, 1)
    groups = values.unflatten(0, (-1, frames))
    return torch.stack([groups.roll(-step, 1) for step in range(FRAMES)], 2).flatten(0, 1)


def neighbour_distances(translation: Tensor, frames: int) -> Tensor:
    """Distances (B, 3) in voxels of the centres (B, 3) of the three neighbours from the frame's own."""
    centres = with_neighbours(translation, frames)
    return torch.linalg.vector_norm(centres[:, 1:] - centres[:, :1], dim=-1)


def prompt_target(masks: Tensor) -> Tensor:
    """Masks (B, H, W) as the prompt should be, (B, 2, H, W): one channel for the background, one for the organ."""
    return torch.stack([~masks.bool(), masks.bool()], 1).float()


# It looks at frames in fours, see `with_neighbours`.
RECIPE = Recipe(
    objective,
    settings={
        "optimizer": "adam",
        "learning_rate": 5e-5,
        "decay": "drop",
        "batch": 24,
        "frames_per_volume": 4,
        "warmup": 0,
        "clip": 0.0,
        "weight_decay": 0.0,
    },
    muregpro={"decay": "constant"},
    draws=True,
    masks=True,
)
