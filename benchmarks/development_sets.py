"""The eight development sets of zero_shot.py, made from the files of a data folder and kept as bytes.

    python benchmarks/development_sets.py --data DATA -o out/zero_shot/quick

writes small copies of all of them (19 MB), for `quick_sets.load_quick_sets` beside a training run. No model is trained
on these sets. Five are real ultrasound: `liver` (frames that a tracker placed, in a volume compounded from the other
frames of the sweep), `uterus`, `resect` (brain), `camus-m` (heart) and `trus-b` (prostate); three are phantoms. Where
frames are cut from a volume they are honest ones (docs/protocol.md), and the reference is a part of that volume.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import SimpleITK as sitk
import torch
from camus_m import camus_m, upright
from quick_sets import Case, DevelopmentSet, read_set, write_set

from scopereg.data.examples import case_examples
from scopereg.data.frames import cut_frames, reference_field
from scopereg.data.grids import inner, regrid, to_uint8
from scopereg.data.muregpro import load_muregpro
from scopereg.data.phantom.anatomy import ANATOMIES
from scopereg.data.phantom.sets import make_phantoms
from scopereg.data.poses import FRAMES_PER_CASE, evaluation_poses
from scopereg.data.seeds import generator_for
from scopereg.data.splits import split_camus, split_patients
from scopereg.data.store import VolumeSet
from scopereg.data.tracked import around, start_poses
from scopereg.errors import ScopeRegError
from scopereg.evaluation.real_protocol import sweep_case
from scopereg.geometry import VoxelPoses, compose_poses, invert_poses
from scopereg.io.read_image import read_image
from scopereg.io.sweeps import read_npz_sweep
from scopereg.progress import say

ROOT = Path(__file__).parents[1]
DATA, OUT = ROOT.parent / "shared" / "data", ROOT / "out" / "zero_shot"
VERSION = 1  # of what is made here: another one is made anew
PLANES, DEEP_PLANES = 32, 48  # of references, for offsets up to 10 and beyond
SIDE = 128
LIVER_MM, LIVER_STARTS, LIVER_BLOCK = 1.2, 3, 5
UTERUS_MM, RESECT_MM = 0.6, 0.45
RESECT_PLACES = 2  # references of each brain
LEAST_SIDE, STEP = 64, 16  # smaller volumes are left out; sides are whole steps, so that references are alike
MARGIN = (48, 32, 32)  # voxels of surroundings that frames are cut from, mirrored where a volume ends
CAMUS_PATIENTS, PHANTOM_PATIENTS = 48, 24
QUICK_MAGNITUDE = 10.0
FIRST_PATIENT = 130_000  # of phantoms: neither trained nor calibrated on, nor in another benchmark

Shape = tuple[int, int, int]
Array = npt.NDArray[Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data")
    parser.add_argument("--out", type=Path, default=OUT, help="folder to keep whole sets in")
    parser.add_argument("-o", "--output", type=Path, default=OUT / "quick", help="folder for the small copies")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for path in write_quick_sets(options.data, options.out / "sets", options.output):
        say(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


def development_set(name: str, magnitude: float, data: Path, folder: Path, seed: int = 0) -> DevelopmentSet:
    """A set at offsets within +-magnitude, from its file in `folder`, or made and kept there."""
    if name not in SETS:
        raise ScopeRegError(f"unknown set {name!r}", where="--sets", fix=f"use some of {', '.join(SETS)}")
    path = folder / f"{name}-pm{magnitude:g}-seed{seed}-v{VERSION}.npz"
    if not path.exists():
        cases = in_order(SETS[name](data, magnitude, seed), seed)
        write_set(path, DevelopmentSet(name, magnitude, SPACING_MM[name], cases, {"seed": seed, "version": VERSION}))
    return read_set(path)


def write_quick_sets(data: Path, folder: Path, quick: Path, seed: int = 0) -> list[Path]:
    """Small copies of all sets at +-10, to be read by `quick_sets.load_quick_sets` wherever a network is trained."""
    paths = []
    for name in SETS:
        paths.append(quick / f"{name}.npz")
        write_set(paths[-1], development_set(name, QUICK_MAGNITUDE, data, folder, seed).quick())
    return paths


def in_order(cases: Iterator[Case], seed: int) -> tuple[Case, ...]:
    """Cases in an order of their own for each seed, whatever files they come from."""
    return tuple(sorted(cases, key=lambda case: hashlib.sha256(f"{seed} {case.name}".encode()).digest()))


def planes_of(magnitude: float) -> int:
    return PLANES if magnitude <= 10 else DEEP_PLANES


def liver(data: Path, magnitude: float, seed: int) -> Iterator[Case]:
    """Frames of a sweep, each from several starts. One patient: blocks of successive frames stand for patients."""
    shape = (planes_of(magnitude), SIDE, SIDE)
    real = sweep_case(read_npz_sweep(needed(data / "liver_sweep.npz")), LIVER_MM, shape=shape)
    truth = VoxelPoses(*(part.float() for part in real.truth))
    for draw in range(seed, seed + LIVER_STARTS):
        start = VoxelPoses(*(part.float() for part in start_poses(truth, magnitude, draw, shape)))
        there = compose_poses(invert_poses(start), truth)
        for index, volume in enumerate(around(real.reference, start, shape)):
            yield Case(
                f"liver-{real.rows[index]:04d}-{draw}",
                f"block{index // LIVER_BLOCK}",
                as_bytes(volume.array),
                as_bytes(real.images[index : index + 1]),
                there.rotation[index : index + 1],
                there.translation[index : index + 1],
            )


def uterus(data: Path, magnitude: float, seed: int) -> Iterator[Case]:
    for path in listed(data / "uterus", "*.nii.gz"):
        yield from cut_cases(path, path.name.split(".")[0], UTERUS_MM, magnitude, seed)


def resect(data: Path, magnitude: float, seed: int) -> Iterator[Case]:
    for path in listed(data / "resect", "case*_us.nii.gz"):
        yield from cut_cases(path, path.name.split("_")[0], RESECT_MM, magnitude, seed, places=RESECT_PLACES)


def cut_cases(
    path: Path, patient: str, spacing_mm: float, magnitude: float, seed: int, places: int = 1
) -> Iterator[Case]:
    """References at places of a volume with content, each with honest frames of the whole; none in small volumes."""
    voxels, spacing, *_ = read_image(path)
    steps = [spacing_mm / own for own in reversed(spacing)]
    counts = [int(n / step + 1e-3) for n, step in zip(voxels.shape, steps, strict=True)]
    shape = room(counts, planes_of(magnitude))
    if shape is None:
        return
    fine = voxels if np.allclose(steps, 1, atol=0.01) else regrid(voxels, [0.0] * 3, steps, counts)
    for place in range(places):
        name = patient if places == 1 else f"{patient}{'abcdefgh'[place]}"
        corner = place_with_content(fine > 0.5, shape, generator_for(f"reference of {name}", seed))
        yield cut_case(fine, corner, shape, name, patient, magnitude, seed)


def room(counts: list[int], planes: int) -> Shape | None:
    """Shape of a reference in a volume of so many voxels: up to planes x 128 x 128; None where there is too little."""
    height, width = (min(SIDE, n // STEP * STEP) for n in counts[1:])
    return (planes, height, width) if counts[0] >= planes and min(height, width) >= LEAST_SIDE else None


def place_with_content(content: Array, shape: Shape, generator: torch.Generator) -> Shape:
    """First voxel of a box of `shape`: one of the places with 95 % or more of the most content (bool) there is."""
    sums = np.pad(content.astype(np.int64), ((1, 0),) * 3).cumsum(0).cumsum(1).cumsum(2)
    for axis, size in enumerate(shape):
        ends, starts = np.arange(size, sums.shape[axis]), np.arange(sums.shape[axis] - size)
        sums = sums.take(ends, axis) - sums.take(starts, axis)
    good = np.argwhere(sums >= 0.95 * sums.max())
    z, y, x = good[int(torch.randint(len(good), (), generator=generator))].tolist()
    return z, y, x


def cut_case(voxels: Array, corner: Shape, shape: Shape, name: str, patient: str, magnitude: float, seed: int) -> Case:
    """The reference at a corner and honest frames that are cut from the volume around it."""
    counts = [n + 2 * m for n, m in zip(shape, MARGIN, strict=True)]
    starts = [float(first - m) for first, m in zip(corner, MARGIN, strict=True)]
    larger = to_uint8(regrid(voxels, starts, [1.0] * 3, counts), inner(counts, MARGIN), name)
    images = torch.from_numpy(larger)[None]
    poses = evaluation_poses([name], shape, magnitude, seed=seed)
    generator = generator_for(f"honest frames of {name}", seed, round(magnitude * 1000))
    frames = cut_frames(images.float() / 255, MARGIN, poses, "honest", generator, unseen=True)
    return Case(name, patient, reference_field(images, MARGIN)[0].clone(), as_bytes(frames), *poses)


def camus_test(data: Path, magnitude: float, seed: int) -> Iterator[Case]:
    """Patients of the publishers' first two subgroups, 32 planes at all offsets: time has no surroundings."""
    with np.load(needed(data / "camus_stills.npz")) as file:
        everyone = [f"patient{number:04d}" for number in file["patient"]]
        rows = sorted(split_camus(everyone).test, key=lambda row: hashlib.sha256(everyone[row].encode()).digest())
        rows = rows[:CAMUS_PATIENTS]
        stills = {key: file[key][rows] for key in file.files}
    with tempfile.TemporaryDirectory() as folder:
        source, stack = Path(folder, "stills.npz"), Path(folder, "stack.npy")
        np.savez(source, **stills)
        morph = [str(data / "camus_from_stills.py"), "--source", str(source), "--stack", str(stack), "--surroundings"]
        subprocess.run([sys.executable, *morph], check=True, stdout=subprocess.DEVNULL)
        images = upright(stack)
    volumes = camus_m(images, torch.zeros_like(images), [everyone[row] for row in rows])
    yield from set_cases(volumes, range(len(volumes)), magnitude, seed)


def trus_test(data: Path, magnitude: float, seed: int) -> Iterator[Case]:
    """Both halves of every patient of the test part, 40 planes at all offsets."""
    script = script_of(needed(data / "muregpro_from_trus.py"))
    names = [f"case{number:06d}" for number in range(73)]
    test = {names[row] for row in split_patients(names).test}
    with tempfile.TemporaryDirectory() as folder:
        write_trus(script, data, Path(folder), test)
        volumes = load_muregpro(folder, probe="high", labels=False, name="TRUS-B")
    yield from set_cases(volumes, range(len(volumes)), magnitude, seed)


def write_trus(script: ModuleType, data: Path, folder: Path, names: set[str]) -> None:
    """Volumes as `main` of the script writes them, for some patients and without nibabel."""
    with np.load(data / "trus_lowres.npz") as file:
        blurred = file["volume"]
    (folder / "us_images").mkdir()
    for name in sorted(names):
        number = int(name.removeprefix("case"))
        grey = script.resample(blurred[number].transpose(2, 1, 0), 3) * (1 + 0.5 * (script.speckle(number) - 1))
        image = sitk.GetImageFromArray(np.ascontiguousarray(grey.clip(0, 255).round().astype(np.uint8).T))
        image.SetSpacing([script.SPACING_MM] * 3)
        image.SetDirection((-1, 0, 0, 0, -1, 0, 0, 0, 1))  # RAS, as nibabel writes it
        sitk.WriteImage(image, str(folder / "us_images" / f"{name}.nii.gz"))


def script_of(path: Path) -> ModuleType:
    """A script as a module; of nibabel, which it imports, it needs nothing here."""
    sys.modules.setdefault("nibabel", ModuleType("nibabel"))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def phantoms(anatomy: str) -> Callable[[Path, float, int], Iterator[Case]]:
    def made(data: Path, magnitude: float, seed: int) -> Iterator[Case]:
        usual = ANATOMIES[anatomy].usual_shape
        shape = usual if magnitude <= 10 else (DEEP_PLANES, *usual[1:])
        first = FIRST_PATIENT + seed * 1000
        volumes = make_phantoms(
            anatomy, PHANTOM_PATIENTS, seed=first, frames=FRAMES_PER_CASE, magnitude=magnitude, shape=shape
        )
        yield from set_cases(volumes, range(len(volumes)), magnitude, seed)

    return made


def set_cases(volumes: VolumeSet, rows: range, magnitude: float, seed: int) -> Iterator[Case]:
    """Volumes of a set with their honest frames, the same as `scopereg evaluate` has."""
    for row in rows:
        found = case_examples(volumes, row, "honest", magnitude, seed=seed)
        images = as_bytes(found.volume), as_bytes(found.frames)
        yield Case(volumes.cases[row], volumes.patients[row], *images, *found.poses)


def as_bytes(values: torch.Tensor) -> torch.Tensor:
    return (values.clamp(0, 1) * 255).round().to(torch.uint8)


def needed(path: Path) -> Path:
    if not path.exists():
        raise ScopeRegError("there is no such file", where=str(path), fix="name the folder of the data with --data")
    return path


def listed(folder: Path, pattern: str) -> list[Path]:
    paths = sorted(needed(folder).glob(pattern))
    if not paths:
        raise ScopeRegError(f"no {pattern} in it", where=str(folder), fix="name the folder of the data with --data")
    return paths


SETS: dict[str, Callable[[Path, float, int], Iterator[Case]]] = {
    "liver": liver,
    "uterus": uterus,
    "resect": resect,
    "camus-m": camus_test,
    "trus-b": trus_test,
    **{f"phantom-{anatomy}": phantoms(anatomy) for anatomy in ("echo", "prostate", "abdomen")},
}
SPACING_MM = {
    "liver": LIVER_MM,
    "uterus": UTERUS_MM,
    "resect": RESECT_MM,
    "camus-m": 0.616,
    "trus-b": 0.8,
    **{f"phantom-{name}": ANATOMIES[name].usual_spacing_mm for name in ("echo", "prostate", "abdomen")},
}


if __name__ == "__main__":
    main()
