"""What a network costs at batch 1 on a GPU, and the memory that a run took."""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

from scopereg.evaluation.speed.bench import MIB, Memory
from scopereg.networks.weights import load_network

_WARM_UP, _BLOCKS, _SECONDS = 10, 5, 0.4


@torch.inference_mode()
def cost_at_batch_1(weights: Path, shape: tuple[int, int, int], device: torch.device) -> dict[str, float]:
    """Frames per second, each with its volume encoded anew, and the peak memory in MiB, weights included."""
    if device.type != "cuda":
        return {}
    memory = Memory(device)
    network = load_network(weights, device)
    slices, volumes = torch.rand(1, *shape[1:], device=device), torch.rand(1, *shape, device=device)
    for _ in range(_WARM_UP):
        network(slices, volumes)
    torch.cuda.synchronize(device)
    memory.restart()
    begin = time.perf_counter()
    network(slices, volumes)
    torch.cuda.synchronize(device)
    count = max(1, round(_SECONDS / (time.perf_counter() - begin)))
    rates = []
    for _ in range(_BLOCKS):
        begin = time.perf_counter()
        for _ in range(count):
            network(slices, volumes)
        torch.cuda.synchronize(device)
        rates.append(count / (time.perf_counter() - begin))
    return {"fps": statistics.median(rates), "memory_mib": memory.peak_mib()}


def peak_memory_mib(device: torch.device) -> float | None:
    """The most that was allocated on a GPU since it was asked to count, or by this process ever; None if unknown."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / MIB
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return None
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / (MIB if sys.platform == "darwin" else 1024)


def start_counting(device: torch.device) -> None:
    """Forget the peak of what was done before."""
    if device.type == "cuda":
        torch.cuda.init()  # before that there is nothing to reset
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def facts_of(weights: Path, shape: tuple[int, int, int], device: torch.device) -> dict[str, Any]:
    """Parameters, and on a GPU speed and memory."""
    network = load_network(weights)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    del network
    return {"parameters": parameters, **cost_at_batch_1(weights, shape, device)}
