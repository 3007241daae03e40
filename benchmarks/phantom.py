"""Time of phantom volumes and of frames in them: `python benchmarks/phantom.py --out benchmarks/phantom.csv`."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from scopereg.data import phantom
from scopereg.geometry import sample_poses
from scopereg.io.files import write_sheet

SHAPE, SEEDS, FRAMES = (32, 128, 128), 8, 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="CSV file to write")
    options = parser.parse_args()
    rows = [measure(name, options.device) for name in phantom.names()]
    for row in rows:
        print(row)
    if options.out:
        write_sheet(options.out, rows)


def measure(name: str, device: str) -> dict[str, object]:
    patient = phantom.create(name, seed=SEEDS, shape=SHAPE, device=device)  # warm up
    poses = sample_poses(FRAMES, 10, SHAPE, torch.Generator().manual_seed(0))
    patient.acquire(*poses)
    volumes = [
        clock(device, lambda seed=seed: phantom.create(name, seed, SHAPE, device=device)) for seed in range(SEEDS)
    ]
    frames = [clock(device, lambda seed=seed: patient.acquire(*poses, seed=seed)) for seed in range(SEEDS)]
    where = torch.cuda.get_device_name(device) if device.startswith("cuda") else f"cpu x{torch.get_num_threads()}"
    return {
        "device": where,
        "anatomy": name,
        "shape": "x".join(map(str, SHAPE)),
        "volume_s_median": round(statistics.median(volumes), 3),
        "volume_s_max": round(max(volumes), 3),
        f"honest_{FRAMES}_frames_s_median": round(statistics.median(frames), 3),
        "torch": torch.__version__,
    }


def clock(device: str, run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
