"""Frames per second of the training step on one GPU: plain, and with each thing that makes it faster added in turn.

    python benchmarks/training.py --out benchmarks/training.csv --before out/before/src

Rows are measured in one run, one after another, each the median of several blocks of steps; `ratio` is to the first.
`--before` names the source of an earlier version (`git archive COMMIT src | tar -x -C out/before`): its step is
measured in the same run, in a process of its own, as rows that begin with "before:".
"""

from __future__ import annotations

import argparse
import copy
import csv
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from scopereg.data.store import VolumeSet
from scopereg.io.files import write_sheet
from scopereg.networks import NetworkResult
from scopereg.networks.encoders import Stem
from scopereg.networks.published import forward_as_published
from scopereg.networks.recipe import Batch
from scopereg.provenance import device_name, library_versions
from scopereg.training.loop import channels_last
from scopereg.training.network import create_network
from scopereg.training.settings import TrainSettings
from scopereg.training.source import FrameSource
from scopereg.training.step import CapturedStep, PlainStep, Weights

SHAPE = (32, 128, 128)
DEEP = (128, 128, 128)
BLOCKS, STEPS = 5, 16
DRAWN = "batch 16, frames drawn (honest, augmented)"
LOOKS = "batch 16, frames drawn, three looks"
BESIDE = (DRAWN, LOOKS)  # rows that are measured of an earlier version too
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


def volume_set(shape: tuple[int, int, int]) -> VolumeSet:
    images = torch.randint(0, 255, (64, shape[0], shape[1] + 48, shape[2] + 48), dtype=torch.uint8, device="cuda")
    names = tuple(map(str, range(len(images))))
    return VolumeSet("random", images, 0.616, names, names, margin=(0, 24, 24))


def variants() -> list[tuple[str, TrainSettings, bool, bool]]:
    """Name, settings, whether the layout is the fast one, whether frames are drawn."""
    plain, captured = replace(BASE, capture=False), replace(BASE, capture=True)
    shared = replace(captured, frames_per_volume=4)
    three = replace(shared, looks=3, matching=True, reach=1.75)
    return [
        ("as published", plain, False, False),
        ("gates once for all planes, directions together", plain, False, False),
        ("+ blocked stem, channels last", plain, True, False),
        ("+ captured as a CUDA graph", captured, True, False),
        ("+ 4 frames share a volume", shared, True, False),
        ("+ batch 64", replace(shared, batch=64), True, False),
        (DRAWN, shared, True, True),
        ("batch 64, frames drawn (honest, augmented)", replace(shared, batch=64), True, True),
        (LOOKS, three, True, True),
        ("batch 64, frames drawn, three looks", replace(three, batch=64), True, True),
        ("batch 16, frames drawn, three looks, 128 planes", three, True, True),
    ]


def measure(name: str, settings: TrainSettings, fast_layout: bool, drawn: bool) -> list[object]:
    step = make_step(settings, fast_layout=fast_layout, published=name == "as published")
    source = FrameSource(volume_set(DEEP if name.endswith("128 planes") else SHAPE), settings)
    batch = fixed_batch(settings, source)

    def run(index: int) -> None:
        step(source.batch(index) if drawn else batch)
        if drawn:
            source.draw_ahead(index + 1)

    torch.cuda.reset_peak_memory_stats()
    rate = frames_per_second(run, settings.batch)
    memory = torch.cuda.max_memory_allocated() / 2**20
    return [name, settings.batch, settings.frames_per_volume, f"{rate:.0f}", f"{memory:.0f}"]


def measure_before(source: Path) -> list[list[object]]:
    """The rows of `BESIDE` as the package at `source` has them."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "before.csv"
        paths = os.pathsep.join([str(source), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, __file__, "--out", str(out), "--rows", *BESIDE]
        subprocess.run(command, env=os.environ | {"PYTHONPATH": paths}, check=True)
        with out.open(newline="") as file:
            found = list(csv.DictReader(file))
    return [[f"before: {row['step']}", *(row[column] for column in COLUMNS[1:5])] for row in found]


COLUMNS = ["step", "batch", "frames_per_volume", "frames_per_s", "peak_mib", "ratio", "device", "versions"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/training.csv"))
    parser.add_argument("--before", type=Path, help="source of an earlier version, to be measured beside this one")
    parser.add_argument("--rows", nargs="*", help="only these rows")
    arguments = parser.parse_args()
    rows = []
    for variant in variants():
        if not arguments.rows or variant[0] in arguments.rows:
            rows.append(measure(*variant))
            print(*rows[-1], sep="  ", flush=True)
    if arguments.before:
        rows += measure_before(arguments.before)
    first = float(str(rows[0][3]))
    made = [
        device_name("cuda"),
        " ".join(f"{k} {v}" for k, v in library_versions().items() if k in ("torch", "triton")),
    ]
    lines = ([*row, f"{float(str(row[3])) / first:.2f}", *made] for row in rows)
    write_sheet(arguments.out, (dict(zip(COLUMNS, line, strict=True)) for line in lines))


if __name__ == "__main__":
    main()
