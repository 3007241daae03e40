"""`scopereg train`: load a dataset, fit a network, tell the result and how to use it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from scopereg.commands.output import tell
from scopereg.commands.shared import DatasetName, Device, FirstModel, Folder, Positional
from scopereg.errors import ScopeRegError, listed
from scopereg.interruption import name_of, status_of
from scopereg.io.files import output_folder
from scopereg.progress import counting, say
from scopereg.training.presets import preset
from scopereg.training.settings import TrainSettings

if TYPE_CHECKING:
    from scopereg.data.store import VolumeSet

_COLUMNS = {
    "mean_mm": "mean mm",
    "median_mm": "median",
    "p95_mm": "95 %",
    "within_3_mm": "in 3 mm",
    "identity_mm": "unregistered",
}


@dataclass(frozen=True)
class RunOptions:
    """What a run works on, where its results go and on which devices."""

    dataset: Positional[DatasetName] = "echo"
    """Phantoms (echo, prostate, abdomen), random worlds, a dataset as published, or a folder of volumes of your own."""
    data: Path | None = None
    """Folder of the dataset as published, or of a set stored with save_set; phantoms need none."""
    output: Folder = Path("out/train")
    """Folder for the weights and everything else; one that holds an interrupted run goes on with it."""
    count: int = 400
    """Phantom patients to make; they are kept in OUTPUT/data."""
    frames: int = 32
    """Frames acquired in each phantom, 4 or more; 0: frames are cut from the volume and made to differ from it."""
    shape: tuple[int, int, int] | None = None
    """Voxels D H W of phantoms or of a folder's volumes; by default the anatomy's, or what the files have in common."""
    size: int = 128
    """Pixels along each side of a CAMUS image; its field stays 78.8 mm wide."""
    skip_bad: bool = False
    """Leave out files that cannot be used, instead of stopping; run.json names them."""
    device: Device = "auto"
    devices: int = 1
    """GPUs to train on, on each machine."""
    nodes: int = 1
    """Machines to train on, with a job launched on each."""


@dataclass(frozen=True)
class TrainOptions(TrainSettings, RunOptions):
    """Train a network on random worlds, phantoms, CAMUS, mu-RegPro or a folder; resumes what was interrupted.

    --preset fast or paper sets the defaults of the options below; single options win over it.
    """

    start: FirstModel = None

    @classmethod
    def preset_defaults(cls, name: str | None, network: str | None, dataset: str | None) -> TrainOptions:
        """The defaults under a preset for a network; a name that there is none of changes nothing, the parser tells."""
        return cls(**vars(preset(name or cls.preset, network or cls.network, dataset or cls.dataset)))

    def settings(self) -> TrainSettings:
        """The part that decides the outcome besides the data, as `train` takes it."""
        return TrainSettings(**{field.name: getattr(self, field.name) for field in fields(TrainSettings)})


def run(options: TrainOptions) -> int:
    """Train, or go on with what the folder holds.

    The status is 1 when the run never left its warm-up, 130 after Ctrl-C, 143 after SIGTERM.
    """
    _need_lightning()
    from lightning_fabric.utilities.rank_zero import rank_zero_only

    from scopereg.data.registry import WORLDS
    from scopereg.training.fitting import Machine, train, train_worlds
    from scopereg.training.folder import TrainFolder

    _check(options)
    folder = output_folder(options.output)
    quiet = getattr(rank_zero_only, "rank", 0) != 0  # one process of several speaks
    finished_before = TrainFolder(folder).finished()
    machine = Machine(options.device, options.devices, options.nodes)
    try:
        if options.dataset == WORLDS and options.data is None:
            result = train_worlds(options.settings(), folder, machine, quiet=quiet)
        else:
            result = train(_load(options, quiet), options.settings(), folder, machine, quiet=quiet)
    except KeyboardInterrupt as stop:
        result = {"finished": False, "ended_by": name_of(stop)}
    tell(folder=folder, **result)
    if not quiet:
        console = Console(markup=False, highlight=False)
        if finished_before:
            console.print(f"The run in {folder} was finished before: nothing is left to train.", soft_wrap=True)
        if result["finished"]:
            _show(result, folder, console)
        else:
            console.print(_how_to_resume(folder, result["ended_by"]), soft_wrap=True)
    if not result["finished"]:
        return status_of(result["ended_by"])
    steps, warmup = result["progress"]["step"], result["settings"]["warmup"]
    if steps >= warmup:
        return 0
    if not quiet:
        say(_never_learnt(steps, warmup))
    return 1


def _never_learnt(steps: int, warmup: int) -> str:
    from scopereg.training.forecast import INSTEAD

    return (
        f"The run never left its warm-up: {steps} of {warmup} steps. These weights have hardly learnt anything and are "
        f"not for use; {INSTEAD}. A run this short on purpose takes --warmup 0."
    )


def _need_lightning() -> None:
    if find_spec("lightning_fabric") is None:
        raise ScopeRegError(
            "pytorch-lightning is not installed", where="scopereg train", fix="pip install 'scopereg[train]'"
        )


def _check(options: TrainOptions) -> None:
    """Whatever can be refused before the long work starts."""
    import torch

    from scopereg.data.registry import ANATOMIES, check_dataset
    from scopereg.devices import resolve_device

    check_dataset(options.dataset, "DATASET")
    for name in ("devices", "nodes"):
        if getattr(options, name) < 1:
            raise ScopeRegError(f"{getattr(options, name)}", where=f"--{name}", fix="pass at least 1")
    if resolve_device(options.device).type == "cuda" and options.devices > torch.cuda.device_count():
        raise ScopeRegError(
            f"{options.devices} GPUs, but this machine has {torch.cuda.device_count()}",
            where="--devices",
            fix="ask for as many as there are; scopereg doctor lists them",
        )
    if options.dataset in ANATOMIES and options.data is None:
        _check_phantoms(options)


def _check_phantoms(options: TrainOptions) -> None:
    from scopereg.data.poses import FRAMES_PER_CASE

    if options.count < 1:
        raise ScopeRegError(f"{options.count} patients", where="--count", fix="ask for at least one")
    if options.frames != 0 and options.frames < FRAMES_PER_CASE:
        raise ScopeRegError(
            f"{options.frames} frames", where="--frames", fix=f"ask for {FRAMES_PER_CASE} or more, or for none (0)"
        )
    if options.frames and options.passes > 1 and options.protocol == "honest":
        raise ScopeRegError(
            "frames acquired beforehand are not near a first guess",
            where="--passes",
            fix="add --frames 0, which draws frames while training, or use --passes 1",
        )


def _load(options: TrainOptions, quiet: bool) -> VolumeSet:
    from scopereg import networks
    from scopereg.data.datasets import load_dataset
    from scopereg.data.registry import ANATOMIES
    from scopereg.devices import resolve_device
    from scopereg.training.folder import RUN

    making = options.dataset in ANATOMIES and options.data is None
    with counting("making phantoms" if making else "reading volumes", quiet) as progress:
        volumes = load_dataset(
            options.dataset,
            options.data,
            count=options.count,
            frames=options.frames,
            magnitude=options.magnitude,
            shape=options.shape,
            size=options.size,
            labels=networks.recipe(options.network).masks,  # others look at none, and files without them are as good
            skip_bad=options.skip_bad,
            device=resolve_device(options.device),
            keep=options.output / "data",
            progress=progress,
        )
    skipped = volumes.facts.get("skipped")
    if skipped and not quiet:
        print(f"left out {len(skipped)}: {listed(list(skipped))}; {RUN} will tell why", file=sys.stderr)
    return volumes


def _how_to_resume(folder: Path, ended_by: str | None) -> str:
    from scopereg.provenance import command_line
    from scopereg.training.folder import CHECKPOINT

    kept = "the last checkpoint is kept" if (folder / CHECKPOINT).exists() else "there is no checkpoint yet"
    word = "Ended by SIGTERM" if ended_by == "SIGTERM" else "Interrupted"
    return f"{word}; {kept}. To go on, run the same command again:\n  {command_line()}"


def _show(result: dict[str, Any], folder: Path, console: Console) -> None:
    from scopereg.data.worlds.sets import USUAL_SHAPE
    from scopereg.networks.weights import read_facts
    from scopereg.training.folder import MODEL

    model, shape = folder / MODEL, " ".join(map(str, result.get("shape", USUAL_SHAPE)))
    kept = read_facts(model)
    counts = ", ".join(f"{count} {part}" for part, count in result.get("volumes", {}).items())
    data = f"{result['dataset']} ({counts})" if counts else result["dataset"]
    title = f"{result['settings']['network']} on {data}, weights of step {kept['step']}"
    table = Table(title=title, title_justify="left", box=SIMPLE)
    for heading in ("part", "protocol"):
        table.add_column(heading)
    for heading in _COLUMNS.values():
        table.add_column(heading, justify="right")
    for row in _rows(kept["validation"], result.get("test", {}), result["settings"]["passes"]):
        table.add_row(*row)
    console.print(table)
    console.print(f"weights  {model}", soft_wrap=True)
    console.print(f'Python   scopereg.networks.weights.load_network("{model}")', soft_wrap=True)
    console.print(f"ONNX     scopereg export {model} --shape {shape} -o model.onnx", soft_wrap=True)


def _rows(validation: dict[str, float], test: dict[str, Any], passes: int) -> Iterator[list[str]]:
    """One row for each part, number of passes and protocol."""
    from scopereg.data.frames import PROTOCOLS

    for count in range(1, passes + 1):
        for protocol in PROTOCOLS:
            start = f"{protocol}_" if count == 1 else f"{protocol}_{count}_passes_"
            yield _row("validation", count, protocol, {key: validation.get(start + key) for key in _COLUMNS})
    for count in range(1, passes + 1):
        for name, found in test.items():
            yield _row("test", count, name, found if count == 1 else found[f"{count}_passes"])


def _row(part: str, passes: int, protocol: str, found: dict[str, Any]) -> list[str]:
    values = {key: found.get(key) for key in _COLUMNS}
    shown = ["" if x is None else f"{x:.0%}" if key == "within_3_mm" else f"{x:.2f}" for key, x in values.items()]
    return [part if passes == 1 else f"{part}, {passes} passes", protocol, *shown]
