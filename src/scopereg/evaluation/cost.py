"""Cost of a network: parameters and multiply-adds, counted as in the paper and with the scans added."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from scopereg.networks.published import forward_as_published
from scopereg.networks.scope_reg import ScopeReg
from scopereg.networks.streaming import Streaming

SCAN_OPERATIONS = 9  # per token, channel and state: the figure that the state-space literature agreed on

_ATEN, _SCAN = torch.ops.aten, torch.ops.scopereg.scan


@dataclass(frozen=True)
class Cost:
    """Costs of one forward pass at batch 1."""

    parameters: int
    gflops: float  # one multiply-add is one, norms and sampling included, scans not counted
    scan_gflops: float  # 9 B L D N of every scan

    @property
    def total_gflops(self) -> float:
        return self.gflops + self.scan_gflops


def count_parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def published_cost(network: ScopeReg, shape: tuple[int, int, int]) -> Cost:
    """The published form on a volume of `shape` (D, H, W): the row of the paper's cost table."""
    return network_cost(_Published(network), shape)


def network_cost(network: nn.Module, shape: tuple[int, int, int]) -> Cost:
    """One slice and one volume of `shape` (D, H, W). Nothing is computed: weights and images are shapes alone."""
    weights = {name: tensor.to("meta") for name, tensor in (*network.named_parameters(), *network.named_buffers())}
    inputs = (torch.empty(1, *shape[1:], device="meta"), torch.empty(1, *shape, device="meta"))
    modes = {module: module.training for module in network.modules()}
    try:
        network.eval()
        return _counted(network, lambda: torch.func.functional_call(network, weights, inputs))
    finally:
        for module, training in modes.items():
            module.training = training


def streaming_cost(network: ScopeReg, shape: tuple[int, int, int], *, prepared: bool) -> Cost:
    """One slice as sessions locate it: with its volume (D, H, W), or in one that is `prepared`."""
    streaming = Streaming(network, "meta", "float32")
    frame, volume = torch.empty(1, *shape[1:], device="meta"), torch.empty(shape, device="meta")
    if not prepared:
        return _counted(network, lambda: streaming.whole(frame, volume))
    ready = streaming.prepare(volume)
    return _counted(network, lambda: streaming.locate(ready, frame))


def _counted(network: nn.Module, call: Callable[[], object]) -> Cost:
    with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=_known()) as counter:
        call()
    return _cost(count_parameters(network), counter.get_flop_counts().get("Global", {}))


def _known() -> dict[Any, Callable[..., int]]:
    """The formulas by operation, and by its overload too: else the counter takes norms apart before it looks here."""
    return _FORMULAS | {
        getattr(operation, name): formula for operation, formula in _FORMULAS.items() for name in operation.overloads()
    }


def _cost(parameters: int, counted: dict[Any, int]) -> Cost:
    """PyTorch's own formulas, all of products, take a multiply-add for two operations; the paper takes it for one."""
    total = sum(count if operation in _FORMULAS else count / 2 for operation, count in counted.items())
    scans = counted.get(_SCAN, 0)
    return Cost(parameters, (total - scans) / 1e9, scans / 1e9)


class _Published(nn.Module):
    """The published forward as a module."""

    def __init__(self, network: ScopeReg) -> None:
        super().__init__()
        self.network = network

    def forward(self, slices: Tensor, volumes: Tensor) -> tuple[Any, ...]:
        return tuple(forward_as_published(self.network, slices, volumes))


def _sampling(*inputs: Any, out_shape: Any, **more: Any) -> int:
    return 4 * prod(out_shape)


def _batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, *rest: Any, **more: Any
) -> int:
    """Count a product for fixed moments, a sum if scaled; and for instance norms the moments too."""
    operations = (4, 5) if training else (1, 2)
    return operations[weight is not None] * prod(x)


def _layer_norm(x: Any, normalised: Any, weight: Any, *rest: Any, **more: Any) -> int:
    return (4, 5)[weight is not None] * prod(x)


def _group_norm(x: Any, weight: Any, *rest: Any, **more: Any) -> int:
    return (4, 5)[weight is not None] * prod(x)


def _scan(y: Any, steps: int, **more: Any) -> int:
    return SCAN_OPERATIONS * steps


# What PyTorch's counter does not know. Norms and sampling are counted as fvcore did, by which the published figures and
# the tables of this project were made.
_FORMULAS: dict[Any, Callable[..., int]] = {
    _ATEN.native_batch_norm: _batch_norm,
    _ATEN.native_layer_norm: _layer_norm,
    _ATEN.native_group_norm: _group_norm,
    _ATEN.upsample_bilinear2d: _sampling,
    _ATEN.grid_sampler_2d: _sampling,
    _ATEN.grid_sampler_3d: _sampling,
    _SCAN: _scan,
}
