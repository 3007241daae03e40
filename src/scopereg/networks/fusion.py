"""State-space slice-volume fusion: two scans over the planes of a volume, steered by the slice (paper, 3.2.1).

Tokens are cells of the encoded lattice in row-major order, L = H' W'; channels come last. Each scan runs in four
directions at once, every direction with weights of its own, and the four results are summed.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from scopereg.networks.encoders import CHANNELS
from scopereg.ops import coordinate_scan, directional_scan
from scopereg.ops.decode.plain import decay_rates
from scopereg.ops.gates import positive, softplus

WIDTH = 2 * CHANNELS  # C', channels inside the fusion
STATES = 32  # S
DIRECTIONS = 4
QUIET = 3e-3  # spread of weights that start almost silent, so that an untrained network answers with the identity


class TokenProjection(nn.Module):
    """Layer norm and 1x1 projection of features to tokens with channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(CHANNELS)
        self.linear = nn.Linear(CHANNELS, WIDTH)

    def forward(self, features: Float[Tensor, "b 256 *cells"]) -> Float[Tensor, "b *cells 512"]:
        return self.linear(self.norm(features.movedim(1, -1)))


class DirectionalLinear(nn.Module):
    """One linear map per direction on the same tokens."""

    def __init__(self, outputs: int, *, bias: bool) -> None:
        super().__init__()
        bound = 1 / math.sqrt(WIDTH)
        self.weight = nn.Parameter(torch.empty(DIRECTIONS, outputs, WIDTH).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(DIRECTIONS, outputs).uniform_(-bound, bound)) if bias else None

    def forward(self, tokens: Float[Tensor, "b *cells 512"]) -> Float[Tensor, "b 4 *cells outputs"]:
        # All directions in one product: the tokens are read once.
        bias = None if self.bias is None else self.bias.flatten()
        mapped = F.linear(tokens, self.weight.flatten(0, 1), bias)
        return mapped.unflatten(-1, self.weight.shape[:2]).movedim(-2, 1)


class FeatureScan(nn.Module):
    """Fuses appearance: values from the volume, write gate, readout and step from the slice (Y_f).

    The gates come from the slice alone, so they are computed once and serve all D' planes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.write = DirectionalLinear(STATES, bias=False)
        self.read = DirectionalLinear(STATES, bias=False)
        self.step = DirectionalLinear(WIDTH, bias=True)
        self.log_decay = nn.Parameter(first_log_decays(STATES).repeat(DIRECTIONS, WIDTH, 1))
        self.skip = nn.Parameter(torch.ones(DIRECTIONS, WIDTH))
        nn.init.normal_(self.step.weight, std=1e-2)
        assert self.step.bias is not None
        steps = torch.empty_like(self.step.bias).uniform_(math.log(1e-3), math.log(1e-1)).exp()
        self.step.bias.data.copy_(inverse_softplus(steps))

    def gates(
        self, x_s: Float[Tensor, "b l c"]
    ) -> tuple[Float[Tensor, "b k l c"], Float[Tensor, "b k l s"], Float[Tensor, "b k l s"]]:
        """Step, write gate and readout from slice tokens."""
        return softplus(self.step(x_s)), self.write(x_s), self.read(x_s)

    def decay(self) -> Float[Tensor, "k c s"]:
        """A, negative."""
        return decay_rates(self.log_decay)

    def forward(
        self, x_v: Float[Tensor, "b d l c"], x_s: Float[Tensor, "b l c"], order: Int64[Tensor, "k l"]
    ) -> Float[Tensor, "b d l c"]:
        """Y_f from volume tokens, slice tokens and orders."""
        return self.scan(x_v, self.gates(x_s), order)

    def scan(
        self, x_v: Float[Tensor, "b d l c"], gates: tuple[Tensor, Tensor, Tensor], order: Int64[Tensor, "k l"]
    ) -> Float[Tensor, "b d l c"]:
        """The same by gates that are there already."""
        step, write, read = gates
        return directional_scan(x_v, step, self.decay(), write, read, self.skip, order)


class CoordinateScan(nn.Module):
    """Carries the volume's coordinates through the same recurrence, so that its kernel is a correspondence weight (Z).

    Positive gates, one shared row of decays, one scalar step and no skip make every weight non-negative and equal for
    all four channels (x, y, z, 1): the last channel is then the exact mass of the weights.
    """

    def __init__(self) -> None:
        super().__init__()
        self.write = DirectionalLinear(STATES, bias=True)
        self.read = DirectionalLinear(STATES, bias=True)
        self.step = DirectionalLinear(1, bias=True)
        self.log_decay = nn.Parameter(first_log_decays(STATES).repeat(DIRECTIONS, 1))
        nn.init.normal_(self.step.weight, std=QUIET)
        assert self.step.bias is not None
        self.step.bias.data.fill_(float(inverse_softplus(torch.tensor(0.1))))

    def volume_gates(
        self, x_v: Float[Tensor, "b d l c"]
    ) -> tuple[Float[Tensor, "b k d l"], Float[Tensor, "b k d l s"]]:
        """Step and write gate from volume tokens."""
        return positive(self.step(x_v)).squeeze(-1), positive(self.write(x_v))

    def readout(self, x_s: Float[Tensor, "b l c"]) -> Float[Tensor, "b k l s"]:
        """Readout from slice tokens."""
        return positive(self.read(x_s))

    def decay(self) -> Float[Tensor, "k s"]:
        """A, negative."""
        return decay_rates(self.log_decay)

    def forward(
        self,
        x_v: Float[Tensor, "b d l c"],
        x_s: Float[Tensor, "b l c"],
        points: Float[Tensor, "d l 4"],
        order: Int64[Tensor, "k l"],
    ) -> Float[Tensor, "b d l 4"]:
        """Z: weighted sums of the volume's points and, last, the mass of their weights."""
        return self.scan(x_v, self.readout(x_s), points, order)

    def scan(
        self,
        x_v: Float[Tensor, "b d l c"],
        readout: Float[Tensor, "b k l s"],
        points: Float[Tensor, "d l 4"],
        order: Int64[Tensor, "k l"],
    ) -> Float[Tensor, "b d l 4"]:
        """The same by a readout that is there already."""
        step, write = self.volume_gates(x_v)
        return coordinate_scan(points, step, self.decay(), write, readout, order)


def first_log_decays(states: int) -> Float[Tensor, " s"]:
    """Where decays start: log 1 .. log S."""
    return torch.arange(1, states + 1).float().log()


def inverse_softplus(value: Float[Tensor, "*size"]) -> Float[Tensor, "*size"]:
    """x with softplus(x) = value, exact for small values too."""
    return value + torch.log(-torch.expm1(-value))
