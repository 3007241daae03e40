"""`scopereg evaluate`: methods over the frames of a fold, under each protocol and magnitude."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from scopereg.commands.flags import renaming
from scopereg.commands.output import tell
from scopereg.commands.shared import (
    CamusSize,
    Cases,
    Device,
    EvaluatedName,
    FirstSeed,
    Fold,
    Folder,
    MadeVoxelSize,
    Methods,
    Positional,
    ProtocolName,
    SkipBad,
    SplitSeed,
)
from scopereg.data.registry import ANATOMIES, SWEEP, check_dataset
from scopereg.errors import ScopeRegError
from scopereg.progress import counting
from scopereg.registration.settings import DEFAULT

if TYPE_CHECKING:
    from scopereg.data.splits import Split
    from scopereg.data.store import VolumeSet
    from scopereg.evaluation.results import FrameResult
    from scopereg.evaluation.source import Source
    from scopereg.registration.method import Method

_LEAST_NAME = 9  # columns of a method's name, however narrow the terminal


@dataclass(frozen=True)
class EvaluateOptions:
    """Locate the frames of a fold with one or more methods and write one CSV row per frame.

    Methods: identity, simpleitk-mi, simpleitk-ncc, elastix, a model of the package by name, or a .safetensors file,
    also one of scopereg adapt. Behind a network `:2` makes two passes and `:wide` looks all over the volume; behind any
    method `+refine`, or `+` and a classical method, goes on from its poses. Rows of a calibrated network also hold
    the error to expect and whether the pose is reliable. A frame that a classical method cannot locate counts as left
    where it started. Interrupted runs resume with the same command.
    """

    dataset: Positional[EvaluatedName] = "echo"
    """Phantoms by anatomy, or what `data` holds; sweep: a tracked sweep, the real protocol."""
    methods: Methods = ("identity", DEFAULT)
    """Methods to evaluate; NAME=METHOD calls one NAME in tables: mine=out/a/model.safetensors."""
    data: Path | None = None
    """Folder of the dataset as published, a prepared set, or the file of a sweep; phantoms need none."""
    calibration: Path | None = None
    """PLUS configuration file with ImageToProbe, for sweeps whose file does not hold it."""
    voxel_mm: Annotated[float, MadeVoxelSize] = 1.2
    """Voxel size of the reference compounded from a sweep."""
    held_out: tuple[int, int] = (5, 5)
    """Blocks of frames of a sweep that are sought instead of compounded, and the frames in each."""
    output: Folder = Path("out/evaluate")
    """Folder for the results, one file per method, protocol and magnitude."""
    protocols: tuple[ProtocolName, ...] = ("paper", "honest")
    """paper: frames cut out of the volume. honest: other acquisitions, with what no network was trained on."""
    magnitudes: tuple[float, ...] = (10.0,)
    """Largest pose offsets, in voxels and degrees on each axis."""
    fold: Fold = 0
    part: Literal["test", "validation", "train"] = "test"
    """Part of the fold."""
    cases: Cases = None
    count: int = 40
    """Phantom patients to make."""
    first_seed: FirstSeed = 100_000
    size: CamusSize = 128
    seed: SplitSeed = 0
    skip_bad: SkipBad = False
    device: Device = "auto"


def run(options: EvaluateOptions) -> int:
    """Evaluate everything asked for, then print the means."""
    from scopereg.evaluation.results import read_results
    from scopereg.registration.method import create_named

    console = Console()
    if not options.methods or not options.protocols or not options.magnitudes:
        raise ScopeRegError(
            "nothing to evaluate", where="scopereg evaluate", fix="name at least one method, protocol and magnitude"
        )
    if options.dataset != SWEEP:
        check_dataset(options.dataset, "DATASET")
    with renaming({"method": "methods"}):
        chosen = create_named(options.methods, options.device)  # wrong names before long work
    if options.dataset == SWEEP:
        paths, title = _sweep(options, chosen)
    else:
        paths, title = _fold(options, chosen)
    results = [read_results(path)[0] for path in paths]
    means = [_means(rows) for rows in results]
    tell(title=title, files=paths, results=means)
    console.print(_table(means, title))
    for line in _lost(results):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    console.print(f"results: {options.output}    tables: scopereg compare {options.output}", soft_wrap=True)
    return 0


def _fold(options: EvaluateOptions, chosen: list[Method]) -> tuple[list[Path], str]:
    """Results files of a part of a fold, and their title."""
    from scopereg.data.poses import FRAMES_PER_CASE
    from scopereg.evaluation.runner import EvaluateSettings, evaluate

    volumes, split = _load(options)
    source = _source(options)
    paths = []
    for magnitude, protocol, method in product(options.magnitudes, options.protocols, chosen):
        settings = EvaluateSettings(
            protocol, magnitude, options.fold, options.part, FRAMES_PER_CASE, options.seed, options.cases
        )
        with counting(f"{method.name}, {protocol}, pm {magnitude:g}") as progress:
            paths.append(evaluate(volumes, split, method, settings, options.output, source=source, progress=progress))
    return paths, f"{volumes.name}, fold {options.fold}, {options.part} part"


def _sweep(options: EvaluateOptions, chosen: list[Method]) -> tuple[list[Path], str]:
    """Results files of the held-out frames of a tracked sweep, and their title."""
    from scopereg.evaluation.real_protocol import evaluate_sweep, sweep_case
    from scopereg.evaluation.runner import EvaluateSettings
    from scopereg.io.sweeps import read_sweep

    if options.data is None:
        raise ScopeRegError(
            "no sweep is given", where="--data", fix="pass a PLUS sequence (.igs.mha) or a .npz file of a tracked sweep"
        )
    sweep, source = read_sweep(options.data, options.calibration), _source(options)
    case = sweep_case(sweep, options.voxel_mm, held_out=options.held_out)
    paths = []
    for magnitude, method in product(options.magnitudes, chosen):
        settings = EvaluateSettings("real", magnitude, seed=options.seed, frames=1)
        with counting(f"{method.name}, real, pm {magnitude:g}") as progress:
            paths.append(evaluate_sweep(case, method, settings, options.output, source=source, progress=progress))
    return paths, f"{sweep.name}, held-out frames against the tracker, {options.voxel_mm:g} mm"


def _load(options: EvaluateOptions) -> tuple[VolumeSet, Split]:
    """The volumes and their split; phantoms are new patients, so that all of them are a test."""
    from scopereg.data.datasets import load_dataset
    from scopereg.data.phantom.sets import make_phantoms
    from scopereg.data.poses import FRAMES_PER_CASE
    from scopereg.data.splits import Split, split_set

    if options.dataset in ANATOMIES and options.data is None:
        with counting("making phantoms") as progress:
            volumes = make_phantoms(
                options.dataset,
                options.count,
                seed=options.first_seed,
                frames=FRAMES_PER_CASE,
                magnitude=options.magnitudes[0],
                device="cpu",
                progress=progress,
            )
        _check_phantoms(options)
        every = tuple(range(len(volumes)))
        return volumes, Split((), (), every, "phantoms that no model was trained on")
    with counting("reading") as progress:
        volumes = load_dataset(
            options.dataset,
            options.data,
            size=options.size,
            skip_bad=options.skip_bad,
            keep=options.output / _kept(options),
            progress=progress,
        )
    return volumes, split_set(volumes, options.fold, options.seed)


def _kept(options: EvaluateOptions) -> Path:
    """Folder of the prepared set, from that of the results."""
    from scopereg.data.datasets import kept_name

    name = kept_name(options.dataset, options.data, size=options.size, skip_bad=options.skip_bad)
    return Path("data") / name


def _source(options: EvaluateOptions) -> Source:
    """Where the images are; a report makes phantoms again."""
    from scopereg.evaluation.source import Source

    if options.data is None:
        return Source()
    path = str(options.data.resolve())
    if options.dataset == SWEEP:
        calibration = "" if options.calibration is None else str(options.calibration.resolve())
        return Source(SWEEP, path, calibration=calibration, spacing_mm=options.voxel_mm, held_out=options.held_out)
    return Source(options.dataset, path, _kept(options).as_posix(), options.size, options.skip_bad)


def _check_phantoms(options: EvaluateOptions) -> None:
    if len(options.magnitudes) > 1 and "honest" in options.protocols:
        raise ScopeRegError(
            "honest frames of phantoms are acquired for one magnitude",
            where="--magnitudes",
            fix="evaluate one magnitude at a time",
        )
    if options.part != "test":
        raise ScopeRegError("phantoms made here are all a test", where="--part", fix="use --part test")


def _lost(results: list[list[FrameResult]]) -> list[str]:
    """A line for each reason why frames were not located: the means, p95 and max above are without them."""
    reasons = Counter((row.method, row.failure) for rows in results for row in rows if row.failure)
    return [f"{method} did not locate {count} frames: {reason}" for (method, reason), count in reasons.items()]


def _table(means: list[dict[str, Any]], title: str) -> Table:
    from scopereg.evaluation.tables import NOTHING
    from scopereg.geometry import SUCCESS_MM

    magnitudes = {row["magnitude"] for row in means}
    title += f", pm {min(magnitudes):g}" if len(magnitudes) == 1 else ""
    table = Table(title=title, title_justify="left", box=SIMPLE, collapse_padding=True, pad_edge=False)
    numbers = ("frames", "mTRE mm", "p95", "max", f"<= {SUCCESS_MM:g} mm", "ok", "ms")
    for name in ("protocol", *["pm"] * (len(magnitudes) > 1), "method", *numbers):
        words = {"protocol": max(len(row["protocol"]) for row in means), "method": _LEAST_NAME}
        # Folded, not cut: simpleitk-mi and simpleitk-ncc begin alike.
        table.add_column(name, justify="left" if name in words else "right", overflow="fold", min_width=words.get(name))
    for row in means:
        table.add_row(
            row["protocol"],
            *[f"{row['magnitude']:g}"] * (len(magnitudes) > 1),
            row["method"],
            f"{row['frames']} ({row['lost']} lost)" if row["lost"] else str(row["frames"]),
            NOTHING if row["mean_mm"] is None else f"{row['mean_mm']:.2f}",
            f"{row['p95_mm']:.2f}",
            f"{row['max_mm']:.2f}",
            f"{row['within']:.1%}".replace(".0%", "%"),
            "" if row["ok"] is None else f"{row['ok']:.0%}",
            f"{row['time_ms']:.0f}",
        )
    return table


def _means(rows: list[FrameResult]) -> dict[str, Any]:
    """What the frames of a results file come to; `ok` is the share that a calibrated network calls reliable."""
    from scopereg.evaluation.results import is_failure
    from scopereg.evaluation.statistics import tail
    from scopereg.geometry import SUCCESS_MM

    errors = [row.mtre_mm for row in rows if math.isfinite(row.mtre_mm)]
    far = tail([row.mtre_mm for row in rows])
    judged = [row.ok == "yes" for row in rows if row.ok]
    return {
        "protocol": rows[0].protocol,
        "magnitude": rows[0].magnitude,
        "method": rows[0].method,
        "frames": len(rows),
        "lost": len(rows) - len(errors),
        "mean_mm": sum(errors) / len(errors) if errors else None,
        "p95_mm": far.p95,
        "max_mm": far.maximum,
        "within": sum(not is_failure(row, SUCCESS_MM) for row in rows) / len(rows),
        "ok": sum(judged) / len(judged) if judged else None,
        "time_ms": sum(row.time_ms for row in rows) / len(rows),
    }
