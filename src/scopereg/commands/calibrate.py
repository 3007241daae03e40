"""`scopereg calibrate`: what errors to expect of a model, learnt from frames whose pose is known."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rich.console import Console

from scopereg.commands.output import tell
from scopereg.commands.shared import (
    CamusSize,
    Cases,
    DatasetName,
    Device,
    FirstSeed,
    Fold,
    Magnitude,
    MaybeFile,
    ModelName,
    Positional,
    SkipBad,
    SplitSeed,
)
from scopereg.data.registry import ANATOMIES, WORLDS, check_dataset
from scopereg.errors import ScopeRegError
from scopereg.io.files import output_folder
from scopereg.progress import counting
from scopereg.registration.settings import DEFAULT

if TYPE_CHECKING:
    from scopereg.data.store import VolumeSet
    from scopereg.registration.calibrate import Observed
    from scopereg.registration.model import Registrar


@dataclass(frozen=True)
class CalibrateOptions:
    """Learn from frames whose pose is known what errors to expect of a model, and write it beside the weights.

    Frames are honest ones: of phantoms made for it, or of a part of the data that the model was not trained on.
    """

    model: Positional[ModelName] = DEFAULT
    dataset: Positional[tuple[DatasetName, ...]] = ("echo",)
    """Phantoms by anatomy, worlds, or what `data` holds; of several the frames are pooled: one verdict for all."""
    data: Path | None = None
    """Folder of the dataset as published, or a prepared set; phantoms and worlds need none."""
    output: MaybeFile = None
    """File to write, NAME.calibration.json; by default beside the weights, where it is found again."""
    fold: Fold = 0
    part: Literal["validation", "test"] = "validation"
    """Part of the fold."""
    cases: Cases = None
    frames: int = 4
    """Frames in each volume."""
    magnitude: Magnitude = 10.0
    count: int = 60
    """Phantom patients, and worlds, to make of each kind."""
    likenesses: tuple[str, ...] = ("grey",)
    """Refinements whose poses get verdicts beside the network's own: grey, learned, or what was registered."""
    first_seed: FirstSeed = 30_000
    size: CamusSize = 128
    seed: SplitSeed = 0
    skip_bad: SkipBad = False
    device: Device = "auto"


class Part(NamedTuple):
    """A dataset to calibrate on: all of what was made for it, or a part of what was read."""

    volumes: VolumeSet
    rows: Sequence[int]
    name: str  # of the part


def run(options: CalibrateOptions) -> int:
    """The verb: observe the frames of every dataset, fit once over all of them, write."""
    from scopereg.registration import model as models
    from scopereg.registration.calibrate import calibrate, check_features, observe, summary, together

    target = _target(options)
    _check_likenesses(options.likenesses)
    # Without the calibration beside it, which may be of the weights before: a new one is made here.
    registrar = models.load(options.model, options.device, calibrated=False)
    check_features(registrar)
    _check_datasets(options)
    output_folder(target.parent)
    parts = [_load(name, registrar, options) for name in options.dataset]
    found = []
    for part in parts:
        with counting(f"calibrating, {part.volumes.name}") as progress:
            own = observe(
                registrar,
                part.volumes,
                part.rows,
                magnitude=options.magnitude,
                seed=options.seed,
                frames=options.frames,
                likenesses=options.likenesses,
                progress=progress,
            )
            found.append(own)
    observed = together(found)
    made = calibrate(registrar, observed, _made_on(parts, found, options))
    made.save(target)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    for stage in made.error_models:
        console.print(summary(made, observed, stage))
        if len(parts) > 1:
            for part, own in zip(parts, found, strict=True):
                console.print(f"  {part.volumes.name:10}{summary(made, own, stage)}")
    console.print(f"wrote   {target}")
    tell(
        file=target,
        frames=len(observed.patients),
        stages={stage: summary(made, observed, stage) for stage in made.error_models},
    )
    return 0


def _made_on(parts: Sequence[Part], found: Sequence[Observed], options: CalibrateOptions) -> dict[str, Any]:
    """What the calibration rests on; of several datasets the whole, and below `parts` each of them."""
    from scopereg.provenance import provenance
    from scopereg.registration.calibrate import PROTOCOL

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


def _target(options: CalibrateOptions) -> Path:
    from scopereg.registration import model as models
    from scopereg.registration.calibration import ENDING, path_beside

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


def _check_likenesses(names: Sequence[str]) -> None:
    """An error for one that nobody knows, for one named twice, and without grey values, which `register` refines by."""
    from scopereg.registration.grey import GREY
    from scopereg.registration.method import likenesses

    known = likenesses()
    if GREY not in names or len(set(names)) < len(names) or not set(names) <= set(known):
        raise ScopeRegError(
            f"got {' '.join(names) or 'none'}",
            where="calibrate(likenesses)",
            fix=f"name {GREY}, and once each what else is known: {', '.join(known)}",
        )


def _check_datasets(options: CalibrateOptions) -> None:
    """An error for no dataset, one that nobody knows, the same twice, or several that would share one folder."""
    for name in options.dataset:
        check_dataset(name, "DATASET")
    read = [name for name in options.dataset if not _is_made(name, options)]
    if not options.dataset or len(set(options.dataset)) < len(options.dataset) or len(read) > 1:
        raise ScopeRegError(
            f"got {' '.join(options.dataset) or 'none'}",
            where="calibrate(dataset)",
            fix="name each dataset once, and at most one that is read from --data",
        )


def _load(name: str, registrar: Registrar, options: CalibrateOptions) -> Part:
    """Volumes and the rows to use: a part of the data, or phantoms or worlds that are made for it."""
    from scopereg.data.datasets import load_dataset
    from scopereg.data.splits import split_set

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
    from scopereg.data.phantom.sets import make_phantoms
    from scopereg.data.worlds.sets import make_worlds
    from scopereg.registration.working_grid import KnownSizes

    how: dict[str, Any] = {"seed": options.first_seed, "frames": options.frames, "magnitude": options.magnitude}
    how["progress"] = progress
    if name in ANATOMIES:
        return make_phantoms(name, options.count, **how)
    sizes, trained = registrar.sizes, registrar.facts.get("shape")
    if sizes is None and trained:  # a network of one shape
        return make_worlds(options.count, shape=tuple(trained), **how)
    sizes = sizes or KnownSizes(magnitude_voxels=options.magnitude)
    return make_worlds(options.count, shape=sizes.usual_shape, **how)
