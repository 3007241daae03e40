"""The steps of decoding in plain PyTorch: what they are, on any device."""

from __future__ import annotations

from typing import NamedTuple

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from scopereg.geometry import weighted_kabsch
from scopereg.ops.scan import bidirectional_mass, coordinate_readout
from scopereg.ops.scan.checks import compute_dtype

GATE_RANGE = (1e-6, 1e4)  # where positive gates stay: products of several then neither vanish nor overflow in float32
MASS_RANGE = (1e-30, 1e30)  # where masses stay in float32


class Sizes(NamedTuple):
    """Of the scans."""

    directions: int
    channels: int
    states: int

    @property
    def columns(self) -> int:
        return self.directions * (self.channels + 3 * self.states)


class Gates(NamedTuple):
    """What a slice steers the scans with."""

    step: Float[Tensor, "b k l c"]  # of the feature scan
    write: Float[Tensor, "b k l s"]
    read: Float[Tensor, "b k l s"]
    coordinate_read: Float[Tensor, "b k l s"]  # positive


class Fit(NamedTuple):
    """A rigid motion and how well it fits."""

    rotation: Float[Tensor, "b 3 3"]
    translation: Float[Tensor, "b 3"]
    residual: Float[Tensor, " b"]  # weighted root mean square of what is left


def split_gates(mapped: Float[Tensor, "b l columns"], sizes: Sizes) -> Gates:
    k, c, s = sizes
    step, *small = mapped.float().split([k * c, k * s, k * s, k * s], -1)
    write, read, coordinate = (part.unflatten(-1, (k, s)).movedim(-2, 1).contiguous() for part in small)
    step = F.softplus(step).unflatten(-1, (k, c)).movedim(-2, 1).contiguous()
    return Gates(step, write, read, positive(coordinate))


def weigh_planes(
    logits: Float[Tensor, "b d l gates"],
    log_decay: Float[Tensor, " n"],
    moments: Float[Tensor, "..."],
    readout: Float[Tensor, "b k l s"] | None,
) -> tuple[Float[Tensor, "b l 3"], Float[Tensor, "b l"]]:
    if readout is not None:
        moments = coordinate_readout(moments, readout)  # (B, D', L, 4)
    return correspondence(moments, depth_mass(logits, log_decay))


def depth_mass(logits: Float[Tensor, "b d l gates"], log_decay: Float[Tensor, " n"]) -> Float[Tensor, "b d l"]:
    """How much each plane matters for each token: a scan of ones over depth, both ways, summed."""
    batch, _, length, _ = logits.shape
    gates = positive(logits)  # (B, D', L, 2 N + 1)
    columns = gates.transpose(1, 2).flatten(0, 1)  # (B L, D', 2 N + 1): one short sequence per token
    states = len(log_decay)
    write, read, step = columns.split([states, states, 1], -1)
    mass = bidirectional_mass(step.squeeze(-1), decay_rates(log_decay), write, read)
    return mass.unflatten(0, (batch, length)).transpose(1, 2)


def correspondence(
    moments: Float[Tensor, "b d l 4"], gate: Float[Tensor, "b d l"]
) -> tuple[Float[Tensor, "b l 3"], Float[Tensor, "b l"]]:
    """Planes weighed and summed (eq. reduce), then normalised by the mass (eq. phi).

    The largest gate of a token is taken out of the sums and put back into the evidence alone: the coordinates do not
    depend on it, and the sums stay in range. Gates have a floor, so the mass needs no epsilon.
    """
    largest = gate.amax(1, keepdim=True).clamp(*MASS_RANGE)  # (B, 1, L)
    total = ((gate / largest).unsqueeze(-1) * moments.to(compute_dtype(moments))).sum(1)  # (B, L, 4)
    mass = total[..., 3].clamp(*MASS_RANGE)
    evidence = (largest.squeeze(1) * mass).clamp(*MASS_RANGE)
    return total[..., :3] / mass.unsqueeze(-1), evidence


def fit_plane(points: Float[Tensor, "l 2"], coordinates: Float[Tensor, "b l 3"], evidence: Float[Tensor, "b l"]) -> Fit:
    source = points.expand(len(coordinates), -1, -1)
    fit = weighted_kabsch(source, coordinates, evidence)
    placed = (fit.rotation[:, None, :, :2] * source.unsqueeze(-2)).sum(-1) + fit.translation[:, None]
    share = evidence / evidence.sum(-1, keepdim=True).clamp_min(MASS_RANGE[0])
    residual = (share * (placed - coordinates).square().sum(-1)).sum(-1).sqrt()
    return Fit(fit.rotation, fit.translation, residual)


def positive(gate: Float[Tensor, "*size"]) -> Float[Tensor, "*size"]:
    """Softplus in float32, held off zero and infinity: in exact numbers it is positive, in float32 it can underflow."""
    return F.softplus(gate.to(compute_dtype(gate))).clamp(*GATE_RANGE)


def decay_rates(log_decay: Float[Tensor, "*size"]) -> Float[Tensor, "*size"]:
    """A, negative whatever is learned."""
    return -log_decay.to(compute_dtype(log_decay)).exp()
