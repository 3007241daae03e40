"""Parts: which weights of a network learn a volume, and the statistics of its norms, which are measured."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from scopereg.errors import ScopeRegError
from scopereg.networks.recipe import Batch
from scopereg.networks.scope_reg import ScopeReg
from scopereg.ops import available_backends
from scopereg.training.settings import PartsName

# Gates are what comes after the feature scan: no gradient goes through it, which is most of the work without kernels.
_PREFIXES: dict[str, tuple[str, ...]] = {
    "gates": ("decoder.coordinate_scan.", "decoder.depth_gate."),
    "decoder": ("decoder.", "encoder.slice_projection.", "encoder.volume_projection."),
    "all": ("",),
}
_RATES = {"gates": 1e-3, "decoder": 3e-4, "all": 1e-4}
_FRAMES = {"cpu": 8}


def choose_parts(parts: PartsName, device: torch.device) -> str:
    """Their name, chosen for the device where that is asked for."""
    if parts != "auto":
        return parts
    slow = device.type == "cpu" and available_backends(device)["cpu"] is not None
    return "gates" if slow else "all"


def usual_rate(parts: str) -> float:
    """Learning rate of these parts."""
    return _RATES[parts]


def usual_frames(device: torch.device) -> int:
    """Frames that share a step."""
    return _FRAMES.get(device.type, 48)


def check_network(network: nn.Module, where: str) -> ScopeReg:
    """The network, if it is one that can be adapted."""
    if type(network) is not ScopeReg:
        raise ScopeRegError(
            f"it holds a {type(network).__name__}: only SCoPE-Reg can be adapted",
            where=where,
            fix="start from a model of the package, or from weights of scope-reg that scopereg train wrote",
        )
    return network


def release(network: ScopeReg, parts: str) -> frozenset[str]:
    """Let the parts learn and hold the rest; the names of all that changes, statistics of norms included."""
    learns = {name for name, _ in network.named_parameters() if name.startswith(_PREFIXES[parts])}
    for name, weight in network.named_parameters():
        weight.requires_grad_(name in learns)
    return frozenset(learns | set(_statistics(network)))


def _statistics(network: nn.Module) -> list[str]:
    return [name for name, _ in network.named_buffers() if name.endswith(("running_mean", "running_var"))]


def learning(network: ScopeReg) -> ScopeReg:
    """The network in the mode that learns; its norms keep their statistics, as in use."""
    network.train()
    for norm in norms_of(network):
        norm.eval()
    return network


@torch.no_grad()
def measure_statistics(network: ScopeReg, batches: Iterable[Batch]) -> None:
    """Give the norms the mean and variance that they meet on these images; nothing is learned."""
    norms = norms_of(network)
    if not norms:  # instance norms expect nothing
        return
    before = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain mean over all batches
    network.train()
    for batch in batches:
        network.encoder(batch.slices, batch.volumes)
    for norm, momentum in zip(norms, before, strict=True):
        norm.momentum = momentum


def norms_of(network: nn.Module) -> list[_BatchNorm]:
    """The norms that keep statistics."""
    return [module for module in network.modules() if isinstance(module, _BatchNorm)]
