"""Whether a session keeps anything of the frames it has located: `python benchmarks/session_soak.py`.

Frames of a small volume from two threads, first in batches, then one by one, in a session that lives all along, with
another prepared and closed beside it now and then. Memory, tensors alive and open files are written down on the way.
"""

from __future__ import annotations

import argparse
import gc
import os
import threading
import time
from pathlib import Path

import torch

import scopereg
from scopereg.data import phantom
from scopereg.images import Frame, Volume
from scopereg.io.files import write_sheet
from scopereg.provenance import device_name, library_versions
from scopereg.registration.session import Session
from scopereg.registration.settings import DEFAULT

BATCH = 128
SAME = 0.05  # mm, and of the rotation: batches of another size sum in another order
SIZE = 16  # voxels along a side: what leaks by frame does so whatever their size
POINTS = 10  # rows of the table, of each way
FIELDS = ("way", "frames", "seconds", "memory_mib", "gpu_mib", "tensors", "open_files", "device", "versions")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=1_000_000, help="located in batches")
    parser.add_argument("--singles", type=int, default=20_000, help="located one by one")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--model", default=DEFAULT)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    arguments = parser.parse_args()
    model = scopereg.load(arguments.model, arguments.device)
    made = phantom.create("echo", seed=200_001, shape=(2 * SIZE, 4 * SIZE, 4 * SIZE))
    volume = Volume(made.volume.array[:SIZE, :SIZE, :SIZE].contiguous(), made.spacing_mm)
    frames = [Frame(plane + 0.01, spacing_mm=made.spacing_mm) for plane in volume.array]
    rows: list[list[object]] = []
    began_s = time.perf_counter()
    with model.prepare(volume) as session:
        for batch, frames_in_all in ((BATCH, arguments.frames), (1, arguments.singles)):
            soak(session, frames, 4 * BATCH, batch)  # what is set up once is no leak
            for point in range(POINTS + 1):
                done = point * frames_in_all // POINTS
                row = [f"batches of {batch}", done, round(time.perf_counter() - began_s, 1), *held(model.device)]
                rows.append([*row, device_name(str(model.device)), versions()])
                print(*rows[-1], sep="  ", flush=True)
                write(arguments.out, rows)
                if point < POINTS:
                    soak(session, frames, frames_in_all // POINTS, batch)
                    model.prepare(volume).close()


def soak(session: Session, frames: list[Frame], count: int, batch: int) -> None:
    """Locate at least so many frames, half of them in each of two threads; all must come out as the first time."""
    rounds = -(-count // (2 * batch))
    asked = [[frames[(start + n) % len(frames)] for n in range(batch)] for start in range(len(frames))]
    wanted = [result.pose.matrix for result in session.register_all(frames)]
    wrong: list[float] = []

    def work() -> None:
        for number in range(rounds):
            start = number % len(asked)
            for n, result in enumerate(session.register_all(asked[start])):
                off = float(abs(result.pose.matrix - wanted[(start + n) % len(frames)]).max())
                if off > SAME:
                    wrong.append(off)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise SystemExit(f"{len(wrong)} poses differ from the first ones, by up to {max(wrong):.3g} mm")


def held(device: torch.device) -> tuple[float, float, int, int]:
    """Resident memory of the process and of the GPU in MiB, tensors, open files."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    on_gpu = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    tensors = sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects())
    mib = round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)
    return mib, round(on_gpu / 2**20, 1), tensors, len(os.listdir("/proc/self/fd"))


def versions() -> str:
    return " ".join(f"{name} {number}" for name, number in library_versions().items() if name in ("torch", "numba"))


def write(path: Path, rows: list[list[object]]) -> None:
    write_sheet(path, (dict(zip(FIELDS, row, strict=True)) for row in rows))


if __name__ == "__main__":
    main()
