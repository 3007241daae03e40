"""The arms of the paper's ablation tables, from the parts of SCoPE-Reg."""

from __future__ import annotations

from torch import Tensor, nn

from scopereg.networks.attention import CrossAttention
from scopereg.networks.decoder import CoordinateDecoder
from scopereg.networks.encoders import NormName
from scopereg.networks.fusion import FeatureScan
from scopereg.networks.heads import CoordinateDescriptor, PoseHeads, VolumeDescriptor
from scopereg.networks.lattice import Lattice, scan_orders
from scopereg.networks.scope_reg import NetworkResult, ScopeReg, SliceVolumeEncoder, solve_pose


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

    def fuse(self, x_s: Tensor, x_v: Tensor, lattice: Lattice) -> Tensor:
        _, height, width = lattice.shape
        axial = super().fuse(x_s, x_v, lattice)
        volume = x_v.unflatten(2, (height, width))  # (B, D', H', W', C')
        grid = x_s.unflatten(1, (height, width))  # (B, H', W', C')
        # Coronal: one plane (D', W') for each row; sagittal: one plane (D', H') for each column.
        coronal = _scan_side_planes(self.coronal_scan, volume.transpose(1, 2), grid)  # (B, H', D', W', C')
        sagittal = _scan_side_planes(self.sagittal_scan, volume.permute(0, 3, 1, 2, 4), grid.transpose(1, 2))
        return axial + coronal.transpose(1, 2).flatten(2, 3) + sagittal.permute(0, 2, 3, 1, 4).flatten(2, 3)


def _scan_side_planes(scan: FeatureScan, planes: Tensor, lines: Tensor) -> Tensor:
    """Scan planes (B, N, D', M, C'), each steered by its line of slice tokens (B, N, M, C') repeated over depth."""
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
