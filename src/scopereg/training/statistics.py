"""Statistics: what the norms of a network expect of images, measured anew without learning anything."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from scopereg.networks.scope_reg import ScopeReg
from scopereg.training.source import Batch


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
