"""Correlation-weighted coordinate decoder: from fused scans to a coordinate and an evidence per slice token (3.2)."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from scopereg.networks.fusion import (
    QUIET,
    WIDTH,
    CoordinateScan,
    FeatureScan,
    first_log_decays,
)
from scopereg.networks.lattice import Lattice
from scopereg.ops.decode import weigh_planes
from scopereg.ops.decode.plain import depth_mass
from scopereg.ops.replay import side_by_side

DEPTH_STATES = 16


class Correspondence(NamedTuple):
    """What the decoder says of each slice token."""

    coordinates: Float[Tensor, "b l 3"]  # q: where it lies in the volume, in cells of the lattice
    evidence: Float[Tensor, "b l"]  # w: how much speaks for it


class Steering(NamedTuple):
    """All that the decoder takes from a slice's tokens alone."""

    gates: tuple[Tensor, Tensor, Tensor]  # of the feature scan
    readout: Float[Tensor, "b k l s"]  # of the coordinate scan


class DepthGate(nn.Module):
    """How much each plane matters for each slice token: a scan of ones over depth, both ways, summed."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, 2 * DEPTH_STATES + 1)
        nn.init.normal_(self.linear.weight, std=QUIET)
        self.log_decay = nn.Parameter(first_log_decays(DEPTH_STATES))

    def forward(self, fused: Float[Tensor, "b d l c"]) -> Float[Tensor, "b d l"]:
        return depth_mass(self.linear(fused), self.log_decay)


class CoordinateDecoder(nn.Module):
    """CWCD: fuse, scan the coordinates, weigh the planes, normalise.

    With `matching` the depth gate also sees the product of the slice's token with the volume's on every plane, so that
    what it learns can be their likeness. No weights are added; False is published.
    """

    def __init__(self, *, matching: bool = False) -> None:
        super().__init__()
        self.matching = matching
        self.feature_scan = FeatureScan()
        self.coordinate_scan = CoordinateScan()
        self.depth_gate = DepthGate()

    def forward(
        self,
        x_s: Float[Tensor, "b l c"],
        x_v: Float[Tensor, "b d l c"],
        lattice: Lattice,
        steering: Steering | None = None,
    ) -> Correspondence:
        """From slice tokens and volume tokens; with `steering` from gates that are there."""
        order, points = lattice.orders(x_s.device), lattice.volume_points(x_s.device)
        readout = self.coordinate_scan.readout(x_s) if steering is None else steering.readout

        def fuse() -> Tensor:
            return (
                self.fuse(x_s, x_v, lattice) if steering is None else self.feature_scan.scan(x_v, steering.gates, order)
            )

        moments, fused = side_by_side(  # Z (B, D', L, 4), Y_f (B, D', L, C')
            lambda: self.coordinate_scan.scan(x_v, readout, points, order), fuse, x_v, readout
        )
        if self.matching:
            fused = fused + x_s[:, None] * x_v
        gate = self.depth_gate
        return Correspondence(*weigh_planes(gate.linear(fused), gate.log_decay, moments, None))

    def steer(self, x_s: Float[Tensor, "b l c"]) -> Steering:
        """The gates of a slice, for several decoding passes."""
        return Steering(self.feature_scan.gates(x_s), self.coordinate_scan.readout(x_s))

    def fuse(
        self, x_s: Float[Tensor, "b l c"], x_v: Float[Tensor, "b d l c"], lattice: Lattice
    ) -> Float[Tensor, "b d l c"]:
        """Y_f."""
        return self.feature_scan(x_v, x_s, lattice.orders(x_s.device))
