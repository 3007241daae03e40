"""Compounding: how long 600 frames of 400 x 400 take, and what frames that were left out tell of poses that are wrong.

    python benchmarks/compound.py speed --out benchmarks/compound.csv
    python benchmarks/compound.py poses --out benchmarks/compound_poses.csv

`speed` writes a made-up sweep of 80 mm as a compressed PLUS sequence and lets the command make a volume of it in a
process of its own, with its page, on the cores that are free; then the steps of it in one process, and those in plain
PyTorch on a part of the frames, scaled up to all. `cpu_s` is the time of all threads: on a busy machine `wall_s` is
longer. `poses` disturbs the poses of the liver sweep (../shared/data) and compounds it: `median_mm` and `p95_mm` are
what is told of the frames that were left out.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from development_sets import DATA

from scopereg.compounding.chosen_grid import choose_grid
from scopereg.compounding.compound import compound_sweeps
from scopereg.compounding.settings import CompoundSettings
from scopereg.compounding.totals import Totals
from scopereg.geometry import Pose
from scopereg.io.files import write_sheet
from scopereg.io.plus_sequence import write_plus_images
from scopereg.io.sweeps import TrackedSweep, read_sweep
from scopereg.ops import bridges, correlation, splat

COUNT, SIDE, PIXEL_MM, LENGTH_MM = 600, 400, 0.3, 80.0
PLAIN_COUNT = 60  # frames of the slow twin
COLUMNS = ("step", "frames", "wall_s", "cpu_s", "megavoxels", "threads", "times_as_fast")


def made_up(count: int = COUNT) -> TrackedSweep:
    """Speckled blobs within a fan, along a slightly rocking way."""
    generator = torch.Generator().manual_seed(0)
    blobs = F.interpolate(torch.rand(1, 1, 9, 12, 12, generator=generator), (COUNT, SIDE, SIDE), mode="trilinear")[0, 0]
    y, x = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    across = (x - SIDE / 2).abs()
    fan = (across < 60 + 0.45 * y) & (y * y + across * across < (0.98 * SIDE) ** 2)
    images = torch.empty(COUNT, SIDE, SIDE, dtype=torch.uint8)
    for row in range(COUNT):
        speckle = torch.rand(SIDE, SIDE, generator=generator)
        images[row] = (255 * blobs[row] * (0.4 + 0.6 * speckle) * fan).round()
    matrices = []
    for row in range(COUNT):
        s = row / (COUNT - 1) - 0.5
        way = (2.0 * np.sin(6 * s), 1.0 * np.cos(4 * s), LENGTH_MM * s)
        matrices.append(Pose.from_euler_deg((6 * s, 8 * s, 3 * np.sin(9 * s)), way).matrix)
    rows = np.linspace(0, COUNT - 1, count).round().astype(int).tolist()
    sweep = TrackedSweep("made-up", images, (PIXEL_MM, PIXEL_MM), np.stack(matrices), fan)
    return sweep if count == COUNT else sweep.subset(rows)


@contextmanager
def clocked(rows: list[dict[str, Any]], step: str, frames: int, **more: Any) -> Iterator[None]:
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    took = {"wall_s": round(time.perf_counter() - wall, 2), "cpu_s": round(time.process_time() - cpu, 2)}
    rows.append({"step": step, "frames": frames, **took, "threads": torch.get_num_threads(), **more})
    print(rows[-1], flush=True)


def speed(out: Path) -> None:
    rows: list[dict[str, Any]] = []
    sweep = made_up()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sweep.igs.mha"
        poses = [Pose.from_matrix(matrix, "Image", "Reference") for matrix in sweep.image_to_world]
        write_plus_images(sweep.images.numpy(), poses, path, spacing_mm=sweep.spacing_mm)
        for name, more in (("command, first time", []), ("command", []), ("command, max", ["--mode", "max"])):
            rows.append(_command(name, path, more, Path(folder) / "cache"))
            print(rows[-1], flush=True)
    chosen = choose_grid([sweep], CompoundSettings())
    _steps(rows, sweep, chosen.grid, "")
    few = made_up(PLAIN_COUNT)
    with _plain():
        _steps(rows, few, chosen.grid, ", plain PyTorch")
    _compare(rows)
    write_sheet(out, [{name: row.get(name, "") for name in COLUMNS} for row in rows], COLUMNS)


def _command(name: str, path: Path, more: list[str], cache: Path) -> dict[str, Any]:
    """The verb in a process of its own; its kernels are compiled in the first."""
    words = [sys.executable, "-m", "scopereg", "compound", str(path), *more, "-o", str(path.parent / "volume.nii.gz")]
    before, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPYCACHEPREFIX": str(cache)}
    for variable in ("OMP_NUM_THREADS", "PYTHONDONTWRITEBYTECODE"):  # as people have it
        environment.pop(variable, None)
    subprocess.run([*words, "-q"], check=True, env=environment)
    took, after = time.perf_counter() - wall, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"step": name, "frames": COUNT, "wall_s": round(took, 2), "cpu_s": round(cpu, 2)}


def _steps(rows: list[dict[str, Any]], sweep: TrackedSweep, grid: Any, note: str) -> None:
    size = {"megavoxels": round(math.prod(grid.shape) / 1e6, 1)}
    totals = Totals.empty(grid)
    with clocked(rows, f"sums{note}", len(sweep), **size):
        totals.add(sweep, range(len(sweep)))
    with clocked(rows, f"holes{note}", len(sweep), **size):
        totals.voxels(5.0)
    with clocked(rows, f"all with frames left out{note}", len(sweep), **size):
        compound_sweeps(sweep, CompoundSettings(voxel_mm=grid.spacing_mm))


@contextmanager
def _plain() -> Iterator[None]:
    """Without the kernels."""
    with ExitStack() as stack:
        for module in (splat, bridges, correlation):
            stack.enter_context(mock.patch.object(module, "is_fast", return_value=False))
        yield


def _compare(rows: list[dict[str, Any]]) -> None:
    """How many times as fast sums are, for each frame."""
    by_step = {row["step"]: row for row in rows}
    for step in ("sums", "holes"):
        fast, slow = by_step[step], by_step[f"{step}, plain PyTorch"]
        scale = COUNT / PLAIN_COUNT if step == "sums" else 1
        fast["times_as_fast"] = round(slow["cpu_s"] * scale / max(fast["cpu_s"], 1e-3), 1)


Matrices = np.ndarray


def _jitter(sigma_mm: float) -> Callable[[Matrices], Matrices]:
    def disturbed(matrices: Matrices) -> Matrices:
        found = matrices.copy()
        found[:, :3, 3] += np.random.default_rng(0).normal(0, sigma_mm, (len(found), 3))
        return found

    return disturbed


def _turning(sigma_deg: float) -> Callable[[Matrices], Matrices]:
    """Jitter of the angles of the probe alone."""

    def disturbed(matrices: Matrices) -> Matrices:
        angles = np.random.default_rng(0).normal(0, sigma_deg, (len(matrices), 3))
        return np.stack([m @ Pose.from_euler_deg(a, (0, 0, 0)).matrix for m, a in zip(matrices, angles, strict=True)])

    return disturbed


def _breathing(reach_mm: float, frames: float) -> Callable[[Matrices], Matrices]:
    """The patient moves along one axis, and back."""

    def disturbed(matrices: Matrices) -> Matrices:
        found = matrices.copy()
        found[:, 1, 3] += reach_mm / 2 * np.sin(2 * np.pi * np.arange(len(found)) / frames)
        return found

    return disturbed


def _late(frames: int) -> Callable[[Matrices], Matrices]:
    def disturbed(matrices: Matrices) -> Matrices:
        return matrices[np.maximum(np.arange(len(matrices)) - frames, 0)]

    return disturbed


def _calibrated(off_mm: float, off_deg: float) -> Callable[[Matrices], Matrices]:
    """ImageToProbe that is wrong: every frame is off in the same way in its own axes."""

    def disturbed(matrices: Matrices) -> Matrices:
        return matrices @ Pose.from_euler_deg((off_deg, 0, 0), (off_mm, 0, 0)).matrix

    return disturbed


DISTURBED: dict[str, Callable[[Matrices], Matrices]] = {
    "as recorded": lambda matrices: matrices,
    "jitter 0.25 mm on each axis": _jitter(0.25),
    "jitter 0.5 mm on each axis": _jitter(0.5),
    "jitter 1 mm on each axis": _jitter(1.0),
    "jitter 2 mm on each axis": _jitter(2.0),
    "jitter 0.5 degrees about each axis": _turning(0.5),
    "jitter 1 degree about each axis": _turning(1.0),
    "breathing 4 mm in 40 frames": _breathing(4.0, 40),
    "breathing 10 mm in 40 frames": _breathing(10.0, 40),
    "poses 3 frames late": _late(3),
    "calibration off by 5 mm and 5 degrees": _calibrated(5.0, 5.0),
}


def poses(out: Path) -> None:
    sweep = read_sweep(DATA / "liver_sweep.npz")
    rows = []
    for name, disturbed in DISTURBED.items():
        told = replace(sweep, image_to_world=disturbed(np.array(sweep.image_to_world)))
        left_out = compound_sweeps(told, CompoundSettings(voxel_mm=1.2)).left_out
        assert left_out is not None
        facts = left_out.facts
        rows.append(
            {
                "poses": name,
                "frames": facts["frames"],
                "median_mm": facts["shift_mm"]["median"],
                "p95_mm": facts["shift_mm"]["p95"],
                "jitter_mm": facts["jitter_mm"],
                "steady_mm": facts["steady_mm"],
                "correlation": facts["correlation"],
                "best_correlation": facts["best_correlation"],
                "words": facts["verdict"].split(": ", 2)[2],
            }
        )
        print(rows[-1], flush=True)
    write_sheet(out, rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("speed", "poses"))
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    {"speed": speed, "poses": poses}[given.part](given.out)
