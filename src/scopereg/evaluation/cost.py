"""What a network costs: parameters and multiply-adds, counted as the paper counts them and with the scans added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from scopereg.errors import ScopeRegError
from scopereg.networks.decoder import DEPTH_STATES
from scopereg.networks.encoders import STRIDE
from scopereg.networks.fusion import DIRECTIONS, STATES, WIDTH
from scopereg.networks.published import forward_as_published
from scopereg.networks.scope_reg import ScopeReg

SCAN_OPERATIONS = 9  # per token, channel and state: the figure that the state-space literature agreed on


@dataclass(frozen=True)
class Cost:
    """Costs of one forward pass at batch 1."""

    parameters: int
    gflops: float  # fvcore's total, one multiply-add is one, scans not counted
    scan_gflops: float  # 9 B L D N of every scan

    @property
    def total_gflops(self) -> float:
        return self.gflops + self.scan_gflops


def count_parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def published_cost(network: ScopeReg, shape: tuple[int, int, int]) -> Cost:
    """The published form on a volume of `shape` (D, H, W): the row of the paper's cost table."""
    planes, height, width = (-(-n // STRIDE) for n in shape)  # padded to the stride
    tokens = height * width
    feature = DIRECTIONS * planes * tokens * WIDTH * STATES
    coordinate = DIRECTIONS * planes * tokens * 4 * STATES
    depth = 2 * planes * tokens * DEPTH_STATES
    scans = SCAN_OPERATIONS * (feature + coordinate + depth)
    return Cost(count_parameters(network), count_gflops(_Published(network), shape), scans / 1e9)


def count_gflops(network: nn.Module, shape: tuple[int, int, int]) -> float:
    """fvcore's count for one slice and one volume of `shape` (D, H, W), in 1e9 multiply-adds."""
    try:
        from fvcore.nn import FlopCountAnalysis
    except ImportError:
        raise ScopeRegError(
            "fvcore is not installed", where="count_gflops", fix="pip install 'scopereg[eval]'"
        ) from None
    device = next(network.parameters()).device
    inputs = (torch.zeros(1, *shape[1:], device=device), torch.zeros(1, *shape, device=device))
    modes = {module: module.training for module in network.modules()}
    try:
        analysis = FlopCountAnalysis(network.eval(), inputs)
        analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
        return float(analysis.total()) / 1e9
    finally:
        for module, training in modes.items():
            module.training = training


class _Published(nn.Module):
    """The published forward with a scan that computes nothing, since fvcore does not count scans."""

    def __init__(self, network: ScopeReg) -> None:
        super().__init__()
        self.network = network

    def forward(self, slices: Tensor, volumes: Tensor) -> tuple[Any, ...]:
        return tuple(forward_as_published(self.network, slices, volumes, scan=_no_scan))


def _no_scan(u: Tensor, *gates: Tensor | None) -> Tensor:
    # The gates must stay in the traced graph, or their projections would be dropped as dead code.
    return u + sum(gate.sum() for gate in gates if gate is not None)
