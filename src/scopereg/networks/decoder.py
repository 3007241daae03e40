"""Correlation-weighted coordinate decoder: from fused scans to a coordinate and an evidence per slice token (3.2)."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from scopereg.networks.fusion import (
    QUIET,
    WIDTH,
    CoordinateScan,
    FeatureScan,
    decay_rates,
    first_log_decays,
    positive,
)
from scopereg.networks.lattice import Lattice
from scopereg.ops import bidirectional_mass

DEPTH_STATES = 16
MASS_RANGE = (1e-30, 1e30)  # where masses stay in float32


class Correspondence(NamedTuple):
    """What the decoder says of each slice token."""

    coordinates: Tensor  # (B, L, 3), q: where it lies in the volume, in cells of the lattice
    evidence: Tensor  # (B, L), w: how much speaks for it


class DepthGate(nn.Module):
    """How much each plane matters for each slice token (B, D', L): a scan of ones over depth, both ways, summed."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, 2 * DEPTH_STATES + 1)
        nn.init.normal_(self.linear.weight, std=QUIET)
        self.log_decay = nn.Parameter(first_log_decays(DEPTH_STATES))

    def forward(self, fused: Tensor) -> Tensor:
        batch, _, length, _ = fused.shape
        gates = positive(self.linear(fused))  # (B, D', L, 33)
        columns = gates.transpose(1, 2).flatten(0, 1)  # (B L, D', 33): one short sequence per token
        write, read, step = columns.split([DEPTH_STATES, DEPTH_STATES, 1], -1)
        mass = bidirectional_mass(step.squeeze(-1), decay_rates(self.log_decay), write, read)
        return mass.unflatten(0, (batch, length)).transpose(1, 2)


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

    def forward(self, x_s: Tensor, x_v: Tensor, lattice: Lattice) -> Correspondence:
        """From slice tokens (B, L, C') and volume tokens (B, D', L, C')."""
        order = lattice.orders(x_s.device)
        fused = self.fuse(x_s, x_v, lattice)  # Y_f (B, D', L, C')
        if self.matching:
            fused = fused + x_s[:, None] * x_v
        moments = self.coordinate_scan(x_v, x_s, lattice.volume_points(x_s.device), order)  # Z (B, D', L, 4)
        return correspondence(moments, self.depth_gate(fused))

    def fuse(self, x_s: Tensor, x_v: Tensor, lattice: Lattice) -> Tensor:
        """Y_f (B, D', L, C')."""
        return self.feature_scan(x_v, x_s, lattice.orders(x_s.device))


def correspondence(moments: Tensor, gate: Tensor) -> Correspondence:
    """Planes weighed and summed (eq. reduce), then normalised by the mass (eq. phi).

    The largest gate of a token is taken out of the sums and put back into the evidence alone: the coordinates do not
    depend on it, and the sums stay in range. Gates have a floor, so the mass needs no epsilon.
    """
    largest = gate.amax(1, keepdim=True).clamp(*MASS_RANGE)  # (B, 1, L)
    total = ((gate / largest).unsqueeze(-1) * moments.float()).sum(1)  # (B, L, 4)
    mass = total[..., 3].clamp(*MASS_RANGE)
    evidence = (largest.squeeze(1) * mass).clamp(*MASS_RANGE)
    return Correspondence(total[..., :3] / mass.unsqueeze(-1), evidence)
