"""The variants of the paper's ablation tables, from the parts of SCoPE-Reg, and the parts that they alone have.

Two of these parts stand in for one of SCoPE-Reg's: cross-attention for the feature scan, and the regression of a pose
from one pooled descriptor for the closed-form fit (paper, supplement).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from scopereg.devices import full_precision
from scopereg.geometry import rotation_from_6d
from scopereg.networks.decoder import CoordinateDecoder
from scopereg.networks.encoders import CHANNELS, STRIDE, NormName
from scopereg.networks.fusion import WIDTH, FeatureScan, TokenProjection
from scopereg.networks.lattice import Lattice, scan_orders
from scopereg.networks.scope_reg import NetworkResult, ScopeReg, SliceVolumeEncoder, solve_pose

HEADS = 8  # of the cross-attention
_IDENTITY_6D = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)


class CrossAttentionHeads(nn.Module):
    """Cross-attention fusion, pose by regression."""

    def __init__(self, *, norm: NormName = "batch") -> None:
        super().__init__()
        self.encoder = SliceVolumeEncoder(norm)
        self.attention = CrossAttention()
        self.descriptor = VolumeDescriptor()
        self.heads = PoseHeads()

    def forward(self, slice: Tensor, volume: Tensor) -> NetworkResult:
        tokens = self.encoder(slice, volume)
        fused = self.attention(tokens.volume, tokens.slice, tokens.lattice)
        return self.heads(self.descriptor(fused, tokens.volume_features))


class FusionHeads(nn.Module):
    """State-space fusion (SSVF), pose by regression."""

    def __init__(self, *, norm: NormName = "batch") -> None:
        super().__init__()
        self.encoder = SliceVolumeEncoder(norm)
        self.feature_scan = FeatureScan()
        self.descriptor = VolumeDescriptor()
        self.heads = PoseHeads()

    def forward(self, slice: Tensor, volume: Tensor) -> NetworkResult:
        tokens = self.encoder(slice, volume)
        fused = self.feature_scan(tokens.volume, tokens.slice, tokens.lattice.orders(tokens.slice.device))
        return self.heads(self.descriptor(fused, tokens.volume_features))


class DecoderHeads(nn.Module):
    """Coordinate decoder (CWCD), pose by regression from the coordinate field."""

    def __init__(self, *, norm: NormName = "batch") -> None:
        super().__init__()
        self.encoder = SliceVolumeEncoder(norm)
        self.decoder = CoordinateDecoder()
        self.descriptor = CoordinateDescriptor()
        self.heads = PoseHeads()

    def forward(self, slice: Tensor, volume: Tensor) -> NetworkResult:
        tokens = self.encoder(slice, volume)
        coordinates, evidence = self.decoder(tokens.slice, tokens.volume, tokens.lattice)
        found = solve_pose(coordinates, evidence, tokens.lattice)
        pose = self.heads(self.descriptor(found.coordinates))
        return pose._replace(coordinates=found.coordinates, evidence=found.evidence)


class TriPlaneDecoder(CoordinateDecoder):
    """The decoder with feature scans over coronal and sagittal planes added to Y_f.

    Across depth the slice has no tokens of its own: those of a slice cell steer all planes behind it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.coronal_scan = FeatureScan()
        self.sagittal_scan = FeatureScan()

    def fuse(
        self, x_s: Float[Tensor, "b l c"], x_v: Float[Tensor, "b d l c"], lattice: Lattice
    ) -> Float[Tensor, "b d l c"]:
        _, height, width = lattice.shape
        axial = super().fuse(x_s, x_v, lattice)
        volume = x_v.unflatten(2, (height, width))  # (B, D', H', W', C')
        grid = x_s.unflatten(1, (height, width))  # (B, H', W', C')
        # Coronal: one plane (D', W') for each row; sagittal: one plane (D', H') for each column.
        coronal = _scan_side_planes(self.coronal_scan, volume.transpose(1, 2), grid)  # (B, H', D', W', C')
        sagittal = _scan_side_planes(self.sagittal_scan, volume.permute(0, 3, 1, 2, 4), grid.transpose(1, 2))
        return axial + coronal.transpose(1, 2).flatten(2, 3) + sagittal.permute(0, 2, 3, 1, 4).flatten(2, 3)


def _scan_side_planes(
    scan: FeatureScan, planes: Float[Tensor, "b n d m c"], lines: Float[Tensor, "b n m c"]
) -> Float[Tensor, "b n d m c"]:
    """Scan planes, each steered by its line of slice tokens repeated over depth."""
    batch, count, depth, across, _ = planes.shape
    x_v = planes.flatten(0, 1).flatten(1, 2)[:, None]  # (B N, 1, D' M, C')
    x_s = lines.flatten(0, 1)[:, None].expand(-1, depth, -1, -1).flatten(1, 2)  # (B N, D' M, C')
    fused = scan(x_v, x_s, scan_orders(depth, across, planes.device))
    return fused[:, 0].unflatten(0, (batch, count)).unflatten(2, (depth, across))


class TriPlane(ScopeReg):
    """SCoPE-Reg with the tri-plane decoder."""

    def __init__(self, *, norm: NormName = "batch") -> None:
        super().__init__(norm=norm)
        self.decoder = TriPlaneDecoder()


class CrossAttention(nn.Module):
    """Volume tokens attend over volume and slice tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)

    def forward(
        self, x_v: Float[Tensor, "b d l c"], x_s: Float[Tensor, "b l c"], lattice: Lattice
    ) -> Float[Tensor, "b d l c"]:
        place = positions(lattice, x_v.device).to(x_v.dtype)  # (D', L, C')
        middle = positions(Lattice((1, *lattice.shape[1:]), (0.0, *lattice.start[1:])), x_v.device).to(x_s.dtype)
        volume = (x_v + place).flatten(1, 2)  # (B, D' L, C')
        both = torch.cat([volume, x_s + middle[0]], 1)
        query, key, value = (self._split(x) for x in (self.query(volume), self.key(both), self.value(both)))
        attended = F.scaled_dot_product_attention(query, key, value)
        return self.output(attended.transpose(1, 2).flatten(2)).unflatten(1, x_v.shape[1:3])

    @staticmethod
    def _split(tokens: Tensor) -> Tensor:
        return tokens.unflatten(-1, (HEADS, -1)).transpose(1, 2)  # (B, heads, N, C' / heads)


def positions(lattice: Lattice, device: torch.device) -> Float[Tensor, "d l c"]:
    """Sine and cosine codes of x, y and z, a third of the channels each, the rest zero."""
    points = lattice.volume_points(device)[..., :3]  # (D', L, 3)
    pairs = WIDTH // 6
    rates = torch.exp(-math.log(1e4) * torch.arange(pairs, device=device) / pairs)
    angles = points[..., None] * rates  # (D', L, 3, pairs)
    codes = torch.cat([angles.sin(), angles.cos()], -1).flatten(-2)
    return F.pad(codes, (0, WIDTH - codes.shape[-1]))


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
    """Descriptor to a pose: translation in cells, rotation through its 6D form; near identity at the start."""

    def __init__(self) -> None:
        super().__init__()
        self.translation = _head(3, torch.zeros(3))
        self.rotation = _head(6, torch.tensor(_IDENTITY_6D))

    def forward(self, descriptor: Float[Tensor, "b c"]) -> NetworkResult:
        with full_precision(descriptor.device):
            descriptor = descriptor.to(next(self.parameters()).dtype)
            rotation = rotation_from_6d(self.rotation(descriptor).float())
            return NetworkResult(rotation, self.translation(descriptor).float() * STRIDE)


class VolumeDescriptor(nn.Module):
    """Fused tokens gated by the volume, projected back, added to F_v and averaged."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = TokenProjection()
        self.output = nn.Linear(WIDTH, CHANNELS)

    def forward(
        self, fused: Float[Tensor, "b d l c"], volume_features: Float[Tensor, "b c2 d h w"]
    ) -> Float[Tensor, "b c2"]:
        gate = F.silu(self.gate(volume_features)).flatten(2, 3)  # (B, D', L, C')
        return self.output(fused * gate).mean((1, 2)) + volume_features.mean((2, 3, 4))


class CoordinateDescriptor(nn.Sequential):
    """Coordinate field through a small CNN, averaged."""

    def __init__(self) -> None:
        layers: list[nn.Module] = []
        for inputs, outputs, stride in ((3, 64, 1), (64, 128, 2), (128, CHANNELS, 2)):
            layers += [nn.Conv2d(inputs, outputs, 3, stride, 1), nn.GroupNorm(8, outputs), nn.GELU()]
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())

    def forward(self, coordinates: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b c"]:
        encoded: Tensor = super().forward(coordinates.to(next(self.parameters()).dtype))  # type: ignore[no-untyped-call]
        return encoded
