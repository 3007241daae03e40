"""What it takes to prepare a volume and to find a frame in it on a CPU: memory and processor time, by size.

    python benchmarks/memory.py [--sides 128 256 384 512]

Each size is a process of its own: a volume of smooth noise, isotropic voxels of 0.4 mm, a frame of 300 x 300 pixels
(or as large as the volume) out of its middle, `universal` with one thread. Peaks are those of the whole process, Python
and libraries (0.3 GiB) included; `read` is after the volume is there, `prepared` after the locator, `found` after the
first frame, for whose field of view the volume is prepared.
"""

from __future__ import annotations

import argparse
import csv
import resource
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import torch

from scopereg.images import Frame, Volume
from scopereg.io.files import write_sheet
from scopereg.progress import say

TABLE = Path(__file__).with_suffix(".csv")
COLUMNS = ("side", "megavoxels", "read_gib", "prepared_gib", "found_gib", "prepare_s", "find_s", "ok")
MM = 0.4


def smooth_noise(side: int) -> torch.Tensor:
    draws = torch.Generator().manual_seed(side)
    total = torch.zeros(side, side, side)
    for step, weight in ((16, 1.0), (8, 0.6), (4, 0.3)):
        coarse = torch.rand((1, 1, *[side // step] * 3), generator=draws)
        total += weight * torch.nn.functional.interpolate(coarse, size=(side,) * 3, mode="trilinear")[0, 0]
    return 0.05 + 0.9 * (total - total.min()) / (total.max() - total.min())


def measured(side: int) -> None:
    """One row, printed."""
    from scopereg.registration.locator import Locator

    torch.set_num_threads(1)
    volume = Volume(smooth_noise(side), MM)
    width = min(300, side)
    first = (side - width) // 2
    frame = Frame(volume.array[side // 2, first : first + width, first : first + width].clone(), MM)
    peaks, times = [_peak_gib()], [time.process_time()]
    locator = Locator(volume, "universal", device="cpu")
    peaks, times = [*peaks, _peak_gib()], [*times, time.process_time()]
    found = locator.locate(frame)
    peaks, times = [*peaks, _peak_gib()], [*times, time.process_time()]
    seconds = [f"{after - before:.1f}" for before, after in pairwise(times)]
    row = [side, f"{side**3 / 1e6:.0f}", *(f"{peak:.2f}" for peak in peaks), *seconds, found.ok]
    csv.writer(sys.stdout).writerow(row)


def _peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sides", nargs="+", type=int, default=[128, 256, 384, 512])
    parser.add_argument("--out", type=Path, default=TABLE)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        measured(options.one)
        return
    rows = []
    for side in options.sides:
        command = [sys.executable, __file__, "--one", str(side)]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        say(told.strip())
        rows.append(dict(zip(COLUMNS, told.strip().split(","), strict=True)))
        write_sheet(options.out, rows, COLUMNS)


if __name__ == "__main__":
    main()
