"""Frames per second of the training step on one GPU: plain, and with each thing that makes it faster added in turn.

    python benchmarks/training.py --out benchmarks/training.csv

Rows are measured in one run, one after another, each the median of several blocks of steps; `ratio` is to the first.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from scopereg.data.store import VolumeSet
from scopereg.io.sheets import write_sheet
from scopereg.networks import NetworkResult
from scopereg.networks.encoders import Stem
from scopereg.networks.published import forward_as_published
from scopereg.provenance import device_name, library_versions
from scopereg.training.module import channels_last, create_network
from scopereg.training.settings import TrainSettings
from scopereg.training.source import Batch, FrameSource
from scopereg.training.step import CapturedStep, PlainStep, Weights

SHAPE = (32, 128, 128)
BLOCKS, STEPS = 7, 16
BASE = TrainSettings(batch=16, frames_per_volume=1, minutes=1.0, reach=1.0, matching=False, looks=1)  # as published


class AsPublished(torch.nn.Module):
    """SCoPE-Reg with the forward pass of the paper: slice tokens replicated over depth, one direction at a time."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, slices: torch.Tensor, volumes: torch.Tensor) -> NetworkResult:
        return forward_as_published(self.network, slices, volumes)


def make_step(settings: TrainSettings, *, fast_layout: bool, published: bool = False) -> PlainStep | CapturedStep:
    device = torch.device("cuda")
    network = create_network(settings).to(device).train()
    network = AsPublished(network) if published else network
    for module in network.modules():
        if isinstance(module, Stem):
            module.blocked = fast_layout
    if fast_layout:
        channels_last(network)
    weights = Weights(network, copy.deepcopy(network).requires_grad_(False), settings, device)
    weights.set_rate(1e-5, 100)
    step = PlainStep(weights)
    return CapturedStep(step) if settings.capture else step


def frames_per_second(run: Callable[[int], None], batch: int) -> float:
    for index in range(STEPS):
        run(index)
    rates = []
    for block in range(1, BLOCKS + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for index in range(STEPS):
            run(block * STEPS + index)
        torch.cuda.synchronize()
        rates.append(STEPS * batch / (time.perf_counter() - start))
    return statistics.median(rates)


def fixed_batch(settings: TrainSettings, source: FrameSource) -> Batch:
    return FrameSource(source.volumes, settings).batch(0).each(torch.clone)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/training.csv"))
    arguments = parser.parse_args()
    images = torch.randint(0, 255, (64, SHAPE[0], SHAPE[1] + 48, SHAPE[2] + 48), dtype=torch.uint8, device="cuda")
    names = tuple(map(str, range(len(images))))
    volumes = VolumeSet("random", images, 0.616, names, names, margin=(0, 24, 24))
    captured, shared = replace(BASE, capture=True), replace(BASE, capture=True, frames_per_volume=4)
    variants = [
        ("as published", replace(BASE, capture=False), False, False),
        ("gates once for all planes, directions together", replace(BASE, capture=False), False, False),
        ("+ blocked stem, channels last", replace(BASE, capture=False), True, False),
        ("+ captured as a CUDA graph", captured, True, False),
        ("+ 4 frames share a volume", shared, True, False),
        ("+ batch 64", replace(shared, batch=64), True, False),
        ("batch 16, frames drawn (honest, augmented)", shared, True, True),
        ("batch 64, frames drawn (honest, augmented)", replace(shared, batch=64), True, True),
        ("batch 16, frames drawn, three looks", replace(shared, looks=3, matching=True, reach=1.75), True, True),
    ]
    rows = []
    for name, settings, fast_layout, drawn in variants:
        step = make_step(settings, fast_layout=fast_layout, published=name == "as published")
        source = FrameSource(volumes, settings)
        if drawn:

            def run(index: int, step=step, source=source) -> None:
                step(source.batch(index))
                source.draw_ahead(index + 1)
        else:
            batch = fixed_batch(settings, source)

            def run(index: int, step=step, batch=batch) -> None:
                step(batch)

        torch.cuda.reset_peak_memory_stats()
        rate = frames_per_second(run, settings.batch)
        memory = torch.cuda.max_memory_allocated() / 2**20
        rows.append([name, settings.batch, settings.frames_per_volume, f"{rate:.0f}", f"{memory:.0f}"])
        print(*rows[-1], sep="  ", flush=True)
        del step, source, run
    first = float(rows[0][3])
    made = [
        device_name("cuda"),
        " ".join(f"{k} {v}" for k, v in library_versions().items() if k in ("torch", "triton")),
    ]
    columns = ["step", "batch", "frames_per_volume", "frames_per_s", "peak_mib", "ratio", "device", "versions"]
    lines = ([*row, f"{float(row[3]) / first:.2f}", *made] for row in rows)
    write_sheet(arguments.out, (dict(zip(columns, line, strict=True)) for line in lines))


if __name__ == "__main__":
    main()
