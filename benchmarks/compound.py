"""Compounding: how long 600 frames of 400 x 400 take, and what frames that were left out tell of poses that are wrong.

    python benchmarks/compound.py speed --out benchmarks/compound.csv
    python benchmarks/compound.py poses --out benchmarks/compound_poses.csv
    python benchmarks/compound.py join --out benchmarks/compound_join.csv
    python benchmarks/compound.py plus --out benchmarks/compound_plus.csv

`speed` writes a made-up sweep of 80 mm as a compressed PLUS sequence and lets the command make a volume of it in a
process of its own, with its page, on the cores that are free; then the steps of it in one process, and those in plain
PyTorch on a part of the frames, scaled up to all. `cpu_s` is the time of all threads: on a busy machine `wall_s` is
longer. `poses` disturbs the poses of the liver sweep (../shared/data) and compounds it: `median_mm` and `p95_mm` are
what is told of the frames that were left out. In a second part two sweeps that cross are cut out of the volume of that
sweep, the second one about its depth by a right angle, and `meets_mm` is how far off the second fits the first. `join`
takes that sweep apart into two of every second frame, moves the second one and lets it be found in the volume of the
first: `error_mm` is the mean distance of its frames from where they belong. `plus` compares with what PLUS itself makes
of its spine phantom (../shared/data/plus) on the same voxels.
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
from scopereg.compounding.joining import join_sweeps
from scopereg.compounding.left_out import LeftOut
from scopereg.compounding.settings import CompoundSettings, JoinSettings
from scopereg.compounding.totals import Totals
from scopereg.data.compound import corners_mm
from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame, Volume
from scopereg.io.files import write_sheet
from scopereg.io.plus_sequence import write_plus_images
from scopereg.io.sweeps import TrackedSweep, read_sweep
from scopereg.io.volumes import read_volume
from scopereg.ops import bridges, correlation, splat
from scopereg.report.frame_pictures import cut_at

COUNT, SIDE, PIXEL_MM, LENGTH_MM = 600, 400, 0.3, 80.0
PLAIN_COUNT = 60  # frames of the slow twin
COLUMNS = ("step", "frames", "wall_s", "cpu_s", "peak_gb", "megavoxels", "threads", "times_as_fast")


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
    peak_gb = round(after.ru_maxrss / 2**20, 2)  # of the largest child so far
    return {"step": name, "frames": COUNT, "wall_s": round(took, 2), "cpu_s": round(cpu, 2), "peak_gb": peak_gb}


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


CROSSING = ("as recorded", "jitter 1 mm on each axis", "poses 3 frames late", "calibration off by 5 mm and 5 degrees")


def poses(out: Path) -> None:
    sweep = read_sweep(DATA / "liver_sweep.npz")
    rows = []
    for name, disturbed in DISTURBED.items():
        told = replace(sweep, image_to_world=disturbed(np.array(sweep.image_to_world)))
        left_out = compound_sweeps(told, CompoundSettings(voxel_mm=1.2)).left_out
        rows.append(_row("the sweep", name, left_out))
        print(rows[-1], flush=True)
    both = crossing(sweep)
    for name in CROSSING:
        told = [replace(one, image_to_world=DISTURBED[name](np.array(one.image_to_world))) for one in both]
        made = compound_sweeps(told, CompoundSettings(voxel_mm=1.2))
        (agreement,) = made.agreements
        rows.append(_row("two that cross", name, made.left_out) | {"meets_mm": round(agreement.usual_mm, 2)})
        print(rows[-1], agreement.verdict, flush=True)
    write_sheet(out, [{"meets_mm": "", **row} for row in rows], list(rows[-1]))


def _row(sweeps: str, name: str, left_out: LeftOut | None) -> dict[str, Any]:
    assert left_out is not None
    facts = left_out.facts
    return {
        "sweeps": sweeps,
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


def crossing(sweep: TrackedSweep) -> tuple[TrackedSweep, TrackedSweep]:
    """Frames cut out of the volume that a sweep makes: every second one, and as many from another side."""
    volume = compound_sweeps(sweep, CompoundSettings(voxel_mm=1.2), left_out=False).volume
    first = sweep.subset(range(0, len(sweep), 2))
    lit = volume.array.nonzero().float().mean(0).flip(0).numpy() * volume.spacing_mm
    middle = np.asarray(volume.origin_mm) + volume.direction @ lit
    about = Pose(volume.direction, middle).matrix
    turn = about @ Pose.from_euler_deg((0, 90, 0), (0, 0, 0)).matrix @ np.linalg.inv(about)
    poses = [Pose.from_matrix(turn @ matrix) for matrix in first.image_to_world]
    cuts = [_cut(volume, first, Pose.from_matrix(matrix)) for matrix in first.image_to_world]
    others = [_cut(volume, first, pose) for pose in poses]
    one = replace(first, images=torch.stack(cuts), name="first")
    return one, replace(
        first, images=torch.stack(others), image_to_world=np.stack([pose.matrix for pose in poses]), name="across"
    )


def _cut(volume: Volume, sweep: TrackedSweep, pose: Pose) -> torch.Tensor:
    grey = cut_at(volume, Frame(torch.zeros(sweep.seen.shape), sweep.spacing_mm, (0, 0)), pose)
    return (255 * grey.clamp(0, 1)).round().to(torch.uint8)


def join(out: Path) -> None:
    sweep = read_sweep(DATA / "liver_sweep.npz")
    rows = []
    for first, second, overlap in (
        ((0, 140), (1, 140), "all"),
        ((0, 100), (41, 140), "half"),
        ((0, 60), (81, 140), "none"),
    ):
        for how, reach_mm, reach_deg in (("near", 10.0, 5.0), ("near", 20.0, 10.0), ("anywhere", 200.0, 90.0)):
            for seed in range(2):
                random = np.random.default_rng(seed)
                moved = Pose.from_euler_deg(
                    random.uniform(-reach_deg, reach_deg, 3), random.uniform(-reach_mm, reach_mm, 3)
                )
                one, other = sweep.subset(range(*first, 2)), sweep.subset(range(*second, 2))
                there = replace(other, image_to_world=moved.matrix @ other.image_to_world, name="second")
                rows.append(
                    {"overlap": overlap, "join": how, "up_to_mm": reach_mm, "up_to_deg": reach_deg, "seed": seed}
                )
                rows[-1] |= _joined(one, other, there, how)
                print(rows[-1], flush=True)
    write_sheet(out, rows)


def _joined(one: TrackedSweep, other: TrackedSweep, there: TrackedSweep, how: Any) -> dict[str, Any]:
    begin = time.process_time()
    try:
        sweeps, (told,) = join_sweeps([one, there], CompoundSettings(), JoinSettings(how, device="cpu"))
    except ScopeRegError as error:
        return {"joined": "no", "error_mm": "", "cpu_s": round(time.process_time() - begin, 1), "words": error.what}
    apart = np.linalg.norm(corners_mm(sweeps[1]) - corners_mm(other), axis=-1).mean()
    took = round(time.process_time() - begin, 1)
    return {"joined": "yes", "error_mm": round(float(apart), 2), "cpu_s": took, "words": told.verdict}


def plus(out: Path) -> None:
    folder = DATA / "plus"
    sweep = read_sweep(folder / "SpinePhantomFreehand.igs.mha", next(folder.glob("*.xml")))
    theirs = read_volume(folder / "SpinePhantomFreehandReconstructed.mha")
    first, step = np.array(theirs.origin_mm), theirs.isotropic_spacing_mm
    ends = np.stack([first, first + (np.array(theirs.size) - 1) * step], 1)
    rows = []
    for bridge_mm in (0.0, 4.5, 5.0):  # theirs: sticks of up to nine voxels of 0.5 mm
        settings = CompoundSettings(voxel_mm=step, bridge_mm=bridge_mm, roi=tuple(ends.ravel().tolist()))
        ours = compound_sweeps(sweep, settings, left_out=False)
        both = ours.filled & (theirs.array > 0)
        alike = np.corrcoef(ours.volume.array[both], theirs.array[both])[0, 1]
        apart = float((ours.volume.array - theirs.array)[both].abs().mean() * 255)
        filled, known = (round(float(each.float().mean()), 4) for each in (ours.filled, theirs.array > 0))
        row = {"bridge_mm": bridge_mm, "filled": filled, "filled_by_plus": known, "correlation": round(float(alike), 3)}
        rows.append({**row, "grey_levels_apart": round(apart, 1)})
        print(rows[-1], flush=True)
    write_sheet(out, rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("speed", "poses", "join", "plus"))
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    {"speed": speed, "poses": poses, "join": join, "plus": plus}[given.part](given.out)
