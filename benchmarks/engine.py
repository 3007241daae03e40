"""What each step of the engine gains: frames per second with the steps added in turn, then each taken away again.

    python benchmarks/engine.py --out benchmarks/engine.csv
    python benchmarks/engine.py --shipped --threads 1 2 --resolutions 128 --out benchmarks/engine-shipped-cpu.csv
    python benchmarks/engine.py --shipped --device cuda --resolutions 128 192 --out benchmarks/engine-shipped.csv

One run, batch 1, from arrays on the host to a pose on the host, rows in turn, each the median of several blocks. With
`--shipped` a session of `universal` instead: its network, its fine stage, its verdict. There the processor
time of all threads stands beside: it is the same on a machine that others use too.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from scopereg import networks
from scopereg.evaluation.speed.modes import Setting
from scopereg.io.files import write_sheet
from scopereg.networks.encoders import Stem
from scopereg.networks.published import forward_as_published
from scopereg.networks.scope_reg import ScopeReg
from scopereg.networks.streaming import Located, Streaming
from scopereg.ops import decode, descent
from scopereg.ops.decode import plain
from scopereg.ops.replay import Piped, Replayed
from scopereg.provenance import device_name, library_versions

BLOCKS, SECONDS = 5, 0.3
REPEATS, GPU_REPEATS, WORLD_MM = 15, 300, 0.6
Call = Callable[[], Tensor]


def pose(found: Located | networks.NetworkResult) -> Tensor:
    return torch.cat([found.rotation.flatten(1), found.translation], 1)


def rows(size: int, device: torch.device) -> dict[str, Call]:
    """The ladder, by what is new on each rung."""
    torch.manual_seed(0)
    network = networks.create("scope-reg").eval()
    assert isinstance(network, ScopeReg)
    exact, half = Streaming(network, device, "float32"), Streaming(network, device)
    network = network.to(device)
    frame, volume = torch.rand(1, size, size), torch.rand(32, size, size)

    def eager(run: Callable[[Tensor, Tensor], Tensor]) -> Call:
        return lambda: run(frame.to(device), volume.to(device)).cpu()

    @torch.inference_mode()
    def published(image: Tensor, reference: Tensor) -> Tensor:
        set_stem(network, blocked=False)
        return pose(forward_as_published(network, image, reference[None]))

    @torch.inference_mode()
    def forward(image: Tensor, reference: Tensor) -> Tensor:
        set_stem(network, blocked=True)
        return pose(network(image, reference[None]))

    def whole(streaming: Streaming) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda image, reference: pose(streaming.whole(image, reference))

    recorded = Replayed(lambda image, reference: (whole(half)(image, reference),))
    piped = Piped(lambda image, reference: (whole(half)(image, reference),), device)
    prepared = half.prepare(volume)
    stream = Piped(lambda image: (pose(half.locate(prepared, image)),), device)
    bare = half.prepare(volume, table=False)
    scanning = Piped(lambda image: (pose(half.locate(bare, image)),), device)
    return {
        "as published, eager": eager(published),
        "gates once, directions together, blocked stem": eager(forward),
        "+ norms folded, one product for all gates": plainly(eager(whole(exact))),
        "+ decoding in three kernels": eager(whole(exact)),
        "+ encoders in float16 (float32 on a CPU)": eager(whole(half)),
        "+ recorded as a graph": eager(lambda image, reference: recorded(image, reference)[0]),
        "+ copies through pinned memory in the graph (whole)": lambda: piped(frame, volume)[0],
        "+ volume prepared": lambda: scanning(frame)[0],
        "+ table of coordinate states (streaming)": lambda: stream(frame)[0],
    }


def shipped(size: int, device: torch.device) -> dict[str, Callable[[], object]]:
    """What a session of the model does for a frame, one part after the other; plainly is PyTorch without kernels."""
    from scopereg.images import Frame, Volume
    from scopereg.registration.model import load

    image, voxels = Setting(size, device).smooth_images()
    frame, volume = Frame(image, WORLD_MM), Volume(voxels, WORLD_MM)
    model = load(device=str(device))
    fines = (None, model.fine, model.fine)
    alone, both, steps = (replace(model, calibration=None, fine=fine).prepare(volume) for fine in fines)
    judged = model.prepare(volume)

    def without_kernel() -> object:
        usual, descent.serves = descent.serves, lambda table: False
        try:
            return steps.locate(image[None])
        finally:
            descent.serves = usual

    return {
        "network": lambda: alone.locate(image[None]),
        "+ fine stage, its steps in PyTorch": without_kernel,
        "+ fine stage": lambda: both.locate(image[None]),
        "+ quality features": lambda: judged.examine(image[None]),
        "+ frame and verdict (Session.register)": lambda: judged.register(frame),
    }


def measure_shipped(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, tuple[float, float]]:
    """Median seconds of each, by the clock and of all threads' processors, in turns."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for repeat in range(-2, repeats):
        for name, call in calls.items():
            clock, processor = time.perf_counter(), time.process_time()
            call()
            if repeat >= 0:
                taken[name].append((time.perf_counter() - clock, time.process_time() - processor))
    return {
        name: (statistics.median(row[0] for row in each), statistics.median(row[1] for row in each))
        for name, each in taken.items()
    }


def write_shipped(sizes: Sequence[int], threads: Sequence[int], device: torch.device, out: Path) -> None:
    versions = library_versions()
    told = " ".join(f"{name} {versions[name]}" for name in ("torch", "triton", "numba") if name in versions)
    lines = []
    for size in sizes:
        calls = shipped(size, device)
        for count in threads:
            torch.set_num_threads(count)
            repeats = REPEATS if device.type == "cpu" else GPU_REPEATS
            for name, (clock_s, processor_s) in measure_shipped(calls, repeats).items():
                lines.append(
                    {
                        "step": name,
                        "resolution": size,
                        "threads": count,
                        "processor_ms": f"{processor_s * 1e3:.3g}",
                        "clock_ms": f"{clock_s * 1e3:.3g}",
                        "frames_per_s": f"{1 / clock_s:.3g}",
                        "device": device_name(str(device)),
                        "versions": told,
                    }
                )
                print(*lines[-1].values(), sep="  ", flush=True)
    write_sheet(out, lines)


def set_stem(network: ScopeReg, *, blocked: bool) -> None:
    for module in network.modules():
        if isinstance(module, Stem):
            module.blocked = blocked


def plainly(call: Call) -> Call:
    """With the steps of decoding in plain PyTorch."""

    def run() -> Tensor:
        with plain_decoding():
            return call()

    return run


@contextmanager
def plain_decoding() -> Iterator[None]:
    usual = decode._backend
    decode._backend = lambda tensor: plain  # type: ignore[assignment]
    try:
        yield
    finally:
        decode._backend = usual


def measure(calls: dict[str, Call]) -> dict[str, float]:
    """Frames per second of each, in turns."""
    rates: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(3):
            call()
    for _ in range(BLOCKS):
        for name, call in calls.items():
            call()
            count, begin = 0, time.perf_counter()
            while time.perf_counter() - begin < SECONDS or not count:
                call()
                count += 1
            rates[name].append(count / (time.perf_counter() - begin))
    return {name: statistics.median(each) for name, each in rates.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/engine.csv"))
    parser.add_argument("--shipped", action="store_true", help="a session of universal")
    parser.add_argument("--threads", type=int, nargs="+", default=(1,), help="with --shipped")
    parser.add_argument("--resolutions", type=int, nargs="+", default=(128, 512))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    if options.shipped:
        write_shipped(options.resolutions, options.threads, torch.device(options.device), options.out)
        return
    device = torch.device(options.device)
    versions = library_versions()
    told = " ".join(f"{name} {versions[name]}" for name in ("torch", "triton", "numba") if name in versions)
    lines = []
    for size in options.resolutions:
        found = measure(rows(size, device))
        first = before = next(iter(found.values()))
        for name, rate in found.items():
            lines.append(
                [
                    name,
                    size,
                    f"{rate:.4g}",
                    f"{rate / before:.2f}",
                    f"{rate / first:.2f}",
                    device_name(str(device)),
                    told,
                ]
            )
            print(*lines[-1][:5], sep="  ", flush=True)
            before = rate
    columns = ["step", "resolution", "frames_per_s", "times_the_step_before", "times_the_first", "device", "versions"]
    write_sheet(options.out, (dict(zip(columns, line, strict=True)) for line in lines))


if __name__ == "__main__":
    main()
