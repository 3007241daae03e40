"""The network of a run: made with the fresh weights of its seed, or with those of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from scopereg import networks
from scopereg.errors import ScopeRegError
from scopereg.networks.weights import load_network
from scopereg.training.presets import PAPER
from scopereg.training.settings import TrainSettings

Shape = tuple[int, int, int]
USUAL_SHAPE: Shape = (32, 128, 128)
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")  # what a batch norm keeps beside its weights


def create_network(settings: TrainSettings, shape: Shape = USUAL_SHAPE) -> nn.Module:
    """The network of a run on volumes of `shape`, with the fresh weights of its seed."""
    state = torch.get_rng_state()
    torch.manual_seed(settings.seed)
    try:
        network = networks.create(settings.network, **network_options(settings, shape))
    finally:
        torch.set_rng_state(state)
    return network if settings.start is None else start_from(network, settings.start)


def start_from(network: nn.Module, path: Path) -> nn.Module:
    """The network with the weights of a file, which must fit it."""
    given = load_network(path).state_dict()
    wanted = network.state_dict()
    if not any(key.endswith(STATISTICS) for key in wanted):  # instance norms: those of batch norms have no use here
        given = {key: value for key, value in given.items() if not key.endswith(STATISTICS)}
    if {key: value.shape for key, value in given.items()} != {key: value.shape for key, value in wanted.items()}:
        raise ScopeRegError(
            f"its weights do not fit a {type(network).__name__}",
            where=str(path),
            fix="start from weights of the network that you train (network=)",
        )
    network.load_state_dict(given)
    return network


def network_options(settings: TrainSettings, shape: Shape = USUAL_SHAPE) -> dict[str, Any]:
    """Options of `networks.create`: of SCoPE-Reg those that differ from the published network, as JSON knows them."""
    known = networks.options(settings.network)
    wanted: dict[str, Any] = {"norm": settings.norm, "shape": list(shape)}
    if settings.network == "scope-reg":
        own = ("depth_stride", "reach", "matching", "looks", "later_planes")
        wanted |= {name: getattr(settings, name) for name in own if getattr(settings, name) != getattr(PAPER, name)}
    return {name: value for name, value in wanted.items() if name in known}
