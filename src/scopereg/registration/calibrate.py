"""`scopereg calibrate`: what the signs of a model say of its errors, learnt from frames whose pose is known."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from rich.console import Console

from scopereg.data.datasets import load_dataset
from scopereg.data.phantom.anatomy import ANATOMIES
from scopereg.data.phantoms import make_phantoms
from scopereg.data.splits import split_set
from scopereg.data.store import VolumeSet
from scopereg.data.worlds.sets import NAME as WORLDS
from scopereg.data.worlds.sets import make_worlds
from scopereg.errors import ScopeRegError
from scopereg.evaluation.examples import CaseExamples, case_examples
from scopereg.evaluation.metrics import mtre_mm
from scopereg.geometry import VoxelPoses
from scopereg.io.files import output_folder
from scopereg.options.models import CalibrateOptions
from scopereg.progress import counting
from scopereg.provenance import provenance
from scopereg.registration import model as models
from scopereg.registration.calibration import ENDING, STAGES, Calibration, Stage, key, path_beside, signs_of
from scopereg.registration.confidence import CLOSE_MM, Array, fit
from scopereg.registration.model import Registrar
from scopereg.registration.prepared_volume import case_on_grid
from scopereg.registration.refine import Refiner
from scopereg.registration.signs import LIKENESS
from scopereg.registration.working_grid import KnownSizes

PROTOCOL: Literal["honest"] = "honest"


class Observed(NamedTuple):
    """Frames with their signs and, where the truth is known, their errors: of the network, and after refinement."""

    signs: dict[Stage, Array]  # (N, 6)
    errors_mm: dict[Stage, Array]  # (N,); NaN where there is no truth
    patients: tuple[str, ...]


class Part(NamedTuple):
    """A dataset to calibrate on: all of what was made for it, or a part of what was read."""

    volumes: VolumeSet
    rows: Sequence[int]
    name: str  # of the part


def run(options: CalibrateOptions) -> int:
    """The verb: observe the frames of every dataset, fit once over all of them, write."""
    target = _target(options)
    registrar = models.load(options.model, options.device)
    check_signs(registrar)
    _check_datasets(options)
    output_folder(target.parent)
    parts = [_load(name, registrar, options) for name in options.dataset]
    found = []
    for part in parts:
        with counting(f"calibrating, {part.volumes.name}") as progress:
            found.append(observe(registrar, part.volumes, part.rows, options, progress))
    observed = together(found)
    made = calibrate(registrar, observed, _made_on(parts, found, options))
    made.save(target)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    for stage in STAGES:
        console.print(summary(made, observed, stage))
        if len(parts) > 1:
            for part, own in zip(parts, found, strict=True):
                console.print(f"  {part.volumes.name:10}{summary(made, own, stage)}")
    console.print(f"wrote   {target}")
    return 0


def _made_on(parts: Sequence[Part], found: Sequence[Observed], options: CalibrateOptions) -> dict[str, Any]:
    """What the calibration rests on; of several datasets the whole, and below `parts` each of them."""
    told = [_facts_of(part, len(own.patients)) for part, own in zip(parts, found, strict=True)]
    common = {"protocol": PROTOCOL, "magnitude": options.magnitude, "fold": options.fold}
    hashes = [part.volumes.sha256() for part in parts]
    if len(parts) == 1:
        return told[0] | common | provenance(seed=options.seed, data_sha256=hashes[0])
    whole: dict[str, Any] = {"dataset": " + ".join(part.volumes.name for part in parts)}
    whole |= {key: sum(own[key] for own in told) for key in ("cases", "frames")}
    whole["parts"] = [own | {"data_sha256": sha256} for own, sha256 in zip(told, hashes, strict=True)]
    every = hashlib.sha256(" ".join(hashes).encode()).hexdigest()
    return whole | common | provenance(seed=options.seed, data_sha256=every)


def _facts_of(part: Part, frames: int) -> dict[str, Any]:
    seeds = {"phantom_seeds": part.volumes.facts["seeds"]} if "seeds" in part.volumes.facts else {}
    return {"dataset": part.volumes.name, "part": part.name, "cases": len(part.rows), "frames": frames, **seeds}


def check_signs(registrar: Registrar) -> None:
    """An error for a network that shows none."""
    if registrar.streaming is None:
        raise ScopeRegError(
            f"a {type(registrar.network).__name__} shows no signs of how good its poses are",
            where=registrar.name,
            fix="calibrate weights of scope-reg",
        )


def _target(options: CalibrateOptions) -> Path:
    if options.output is not None:
        if not options.output.name.endswith(ENDING):
            raise ScopeRegError(f"it must end in {ENDING}", where=f"-o {options.output}", fix=f"write NAME{ENDING}")
        return options.output
    if options.model in models.names():
        raise ScopeRegError(
            "a model of the package has its calibration in the package", where="--output", fix=f"pass -o NAME{ENDING}"
        )
    return path_beside(options.model)


def _is_made(name: str, options: CalibrateOptions) -> bool:
    """Whether a dataset is drawn, not read: --data is for what is read, or else for a prepared set of phantoms."""
    return name == WORLDS or (name in ANATOMIES and (options.data is None or len(options.dataset) > 1))


def _check_datasets(options: CalibrateOptions) -> None:
    """An error for no dataset, the same twice, or several that would share one folder."""
    read = [name for name in options.dataset if not _is_made(name, options)]
    if not options.dataset or len(set(options.dataset)) < len(options.dataset) or len(read) > 1:
        raise ScopeRegError(
            f"got {' '.join(options.dataset) or 'none'}",
            where="calibrate(dataset)",
            fix="name each dataset once, and at most one that is read from --data",
        )


def _load(name: str, registrar: Registrar, options: CalibrateOptions) -> Part:
    """Volumes and the rows to use: a part of the data, or phantoms or worlds that are made for it."""
    if _is_made(name, options):
        with counting(f"making {name}") as progress:
            made = _make(name, registrar, options, progress)
        return Part(made, range(len(made)), "all")
    with counting("reading") as progress:
        volumes = load_dataset(name, options.data, size=options.size, skip_bad=options.skip_bad, progress=progress)
    rows = getattr(split_set(volumes, options.fold, options.seed), options.part)
    return Part(volumes, rows[: options.cases], options.part)


def _make(
    name: str, registrar: Registrar, options: CalibrateOptions, progress: Callable[[int, int], None]
) -> VolumeSet:
    how: dict[str, Any] = {"seed": options.first_seed, "frames": options.frames, "magnitude": options.magnitude}
    how["progress"] = progress
    if name in ANATOMIES:
        return make_phantoms(name, options.count, **how)
    sizes, trained = registrar.sizes, registrar.facts.get("shape")
    if sizes is None and trained:  # a network of one shape
        return make_worlds(options.count, shape=tuple(trained), **how)
    sizes = sizes or KnownSizes(magnitude_voxels=options.magnitude)
    return make_worlds(options.count, shape=sizes.usual_shape, **how)


def observe(
    registrar: Registrar,
    volumes: VolumeSet,
    rows: Sequence[int],
    options: CalibrateOptions,
    progress: Callable[[int, int], None] | None = None,
) -> Observed:
    """The frames of some rows, located and refined."""
    found = []
    for done, row in enumerate(rows, start=1):
        examples = case_examples(volumes, row, PROTOCOL, options.magnitude, seed=options.seed, frames=options.frames)
        found.append(observe_case(registrar, examples, volumes.spacing_mm, volumes.patients[row]))
        if progress is not None:
            progress(done, len(rows))
    return together(found)


def observe_case(
    registrar: Registrar, examples: CaseExamples, spacing_mm: float, patient: str, *, truth: bool = True
) -> Observed:
    """The frames of a case; without `truth` they are strangers, whose errors are NaN."""
    case = case_on_grid(registrar, examples.frames, examples.volume, spacing_mm)
    with registrar.prepare(case.volume, agreement=True) as session:
        found = session.examine(case.frames)
        near = case.back(found.poses)
        refined = Refiner(examples.volume.to(registrar.device)).refine(examples.frames, near).poses
        poses = {"network": near, "refined": VoxelPoses(*(part.cpu() for part in refined))}
        after = found.signs.clone()
        after[:, LIKENESS] = session.likeness(case.frames, case.placed(poses["refined"]))
    signs: dict[Stage, Array] = {"network": _array(found.signs), "refined": _array(after)}
    height, width = examples.frames.shape[1:]
    nothing = np.full(len(examples.frames), np.nan)
    errors: dict[Stage, Array] = {
        stage: _array(mtre_mm(poses[stage], examples.poses, (height, width), spacing_mm)) if truth else nothing
        for stage in STAGES
    }
    return Observed(signs, errors, (patient,) * len(examples.frames))


def together(parts: Sequence[Observed]) -> Observed:
    """Several as one."""
    if not parts:
        raise ScopeRegError("there are no frames", where="calibration", fix="use a part of the data that has patients")
    return Observed(
        {stage: np.concatenate([part.signs[stage] for part in parts]) for stage in STAGES},
        {stage: np.concatenate([part.errors_mm[stage] for part in parts]) for stage in STAGES},
        tuple(patient for part in parts for patient in part.patients),
    )


def calibrate(registrar: Registrar, observed: Observed, made_on: dict[str, Any]) -> Calibration:
    """The calibration of a model from frames of which the truth is known."""
    gauges = {}
    for stage in STAGES:
        for agreement in (False, True):
            names = signs_of(agreement)
            signs, errors = observed.signs[stage][:, : len(names)], observed.errors_mm[stage]
            gauges[key(stage, agreement)] = fit(names, signs, errors, observed.patients)
    return Calibration(registrar.fingerprint, made_on, gauges)


def summary(made: Calibration, observed: Observed, stage: Stage) -> str:
    """What became of the frames of the calibration, in one line."""
    gauge, errors = made.gauge(stage, False), observed.errors_mm[stage]
    verdicts = [gauge.judge(row[: len(gauge.signs)].tolist()) for row in observed.signs[stage]]
    fine = np.array([verdict.ok for verdict in verdicts])
    close = f"{(errors[fine] <= CLOSE_MM).mean():.0%} of these" if fine.any() else "none"
    return (
        f"{stage:8}{len(errors)} frames, mean error {errors.mean():.2f} mm, "
        f"{fine.mean():.0%} ok, {close} within {CLOSE_MM:g} mm"
    )


def _array(values: torch.Tensor) -> Array:
    return values.double().cpu().numpy()
