"""Fitting: a run from volumes to a weights file; started, interrupted and resumed in one folder."""

from __future__ import annotations

import csv
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as lightning
import torch
from pytorch_lightning.loggers import CSVLogger, Logger, TensorBoardLogger
from torch.utils.data import DataLoader, IterableDataset

from scopereg import networks
from scopereg.data.store import VolumeSet
from scopereg.data.worlds import WorldRanges
from scopereg.devices import memory_in_words, reproducible, resolve_device
from scopereg.errors import ScopeRegError
from scopereg.interruption import interruptible
from scopereg.io.files import output_folder, write_text
from scopereg.networks.weights import load_network, save_network
from scopereg.provenance import library_version, provenance
from scopereg.training.checkpoint import SafetensorsIO, read_checkpoint
from scopereg.training.display import Display
from scopereg.training.module import PoseTraining, network_options
from scopereg.training.presets import preset, with_length
from scopereg.training.settings import TrainSettings, differences, from_plain, plain
from scopereg.training.task import Task, volumes_task, worlds_task
from scopereg.training.validation import PROTOCOLS, errors_mm, identity_errors_mm, make_examples, summarise

MODEL, CHECKPOINT, RUN = "model.safetensors", "last.ckpt", "run.json"
_LESS_MEMORY = "lower batch=, raise frames_per_volume=, or train on smaller volumes"


@dataclass(frozen=True)
class Machine:
    """Where a run takes place; nothing of it decides the outcome but the number of devices."""

    device: str = "auto"
    devices: int = 1
    nodes: int = 1


def train(
    volumes: VolumeSet,
    settings: TrainSettings | None = None,
    folder: Path | str = "out/train",
    machine: Machine | None = None,
    *,
    quiet: bool = False,
) -> dict[str, Any]:
    """Train on a set of volumes; `folder` then holds model.safetensors, run.json, last.ckpt and log/metrics.csv.

    A run that was interrupted goes on where its last checkpoint stands. Returns what run.json holds.
    """
    # A prepared set may go by a name of its own.
    dataset = "muregpro" if volumes.facts.get("dataset") == "mu-RegPro" else volumes.name
    settings = with_length(settings or TrainSettings(), dataset)
    return fit(volumes_task(volumes, settings), settings, folder, machine, quiet=quiet)


def train_worlds(
    settings: TrainSettings | None = None,
    folder: Path | str = "out/train",
    machine: Machine | None = None,
    *,
    ranges: WorldRanges | None = None,
    watch: Callable[[PoseTraining], None] | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """As `train`, on random worlds (`scopereg.data.worlds`) that are drawn while training."""
    settings = with_length(settings or preset("fast", dataset="worlds"), "worlds")
    return fit(worlds_task(settings, ranges), settings, folder, machine, watch=watch, quiet=quiet)


def fit(
    task: Task,
    settings: TrainSettings,
    folder: Path | str,
    machine: Machine | None = None,
    *,
    watch: Callable[[PoseTraining], None] | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Train on what a task tells, or go on with the run in the folder; `watch` is called after each validation."""
    folder, machine = output_folder(folder), machine or Machine()
    facts = _facts(task, settings, machine)
    found = _found_run(folder, settings, facts)
    if found is not None and found.get("finished"):
        return found
    device = resolve_device(machine.device)
    memory = memory_in_words("train", lambda: _kept(folder), _LESS_MEMORY)
    with reproducible(device):
        with memory, Display(quiet) as display:
            run = _Run(task, settings, folder, device, facts, display, watch)
            run.fit(machine)
        return run.report()


class _Run:
    """One call of `fit`: the module, what it writes and when."""

    def __init__(
        self,
        task: Task,
        settings: TrainSettings,
        folder: Path,
        device: torch.device,
        facts: dict[str, Any],
        display: Display,
        watch: Callable[[PoseTraining], None] | None,
    ) -> None:
        self.task, self.settings, self.folder = task, settings, folder
        self.facts, self.display, self.device, self.watch = facts, display, device, watch
        examples = make_examples(task.validation(device), magnitude=task.magnitude, seed=settings.seed)
        self.module = PoseTraining(
            settings,
            task,
            examples,
            on_step=display.step,
            on_validated=self.keep,
            on_stopped=self.save,
        )

    def fit(self, machine: Machine) -> None:
        checkpoint = self.folder / CHECKPOINT
        resume = checkpoint if checkpoint.exists() else None
        with _quiet_lightning(), _interruptible(self.module):
            trainer = _trainer(machine, self.device, _loggers(self.folder, resume), self.settings.network)
            trainer.fit(self.module, DataLoader(_Endless(), batch_size=None), ckpt_path=resume)

    def keep(self, module: PoseTraining) -> None:
        """After each validation: the weights if they are to be kept, then the checkpoint, then a line."""
        state = module.state
        if self.task.endless or state.best_step == state.step:
            facts = {**self.facts, "step": state.step, "minutes": state.seconds / 60, "validation": state.metrics}
            save_network(
                module.average,
                self.folder / MODEL,
                name=self.settings.network,
                options=network_options(self.settings, self.task.shape),
                facts=facts,
            )
        # The checkpoint comes last: a run that is killed in between repeats a validation, it does not skip one.
        self.save(module)
        self.display.validated(module)
        if self.watch is not None:
            self.watch(module)

    def save(self, module: PoseTraining) -> None:
        """The checkpoint, and whose it is."""
        # Not through trainer.save_checkpoint, which waits for the other processes of a run: they do not come here.
        content = module.trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
        content["data_sha256"] = self.facts["data_sha256"]
        module.trainer.strategy.save_checkpoint(content, self.folder / CHECKPOINT)

    def report(self) -> dict[str, Any]:
        """run.json, with the test part measured where that was asked for."""
        module = self.module
        state = module.state
        finished = module.schedule.finished(state.step, state.seconds)
        content = {**self.facts, "finished": finished, "progress": asdict(state)}
        if module.trainer.is_global_zero:  # another process may come here before the weights are written
            if finished and self.settings.test and self.task.test is not None:
                content["test"] = self.test()
            write_text(self.folder / RUN, json.dumps(content, indent=2) + "\n")
        return content

    def test(self) -> dict[str, Any]:
        """Errors of the kept network on the held-out part, beside no registration at all."""
        assert self.task.test is not None
        part = self.task.test(self.device)
        examples = make_examples(part, magnitude=self.task.magnitude, seed=self.settings.seed)
        network = load_network(self.folder / MODEL, self.device)
        return {
            protocol: {
                "frames": len(examples.slices[protocol]),
                "identity_mm": float(identity_errors_mm(examples, protocol).mean()),
                **summarise(errors_mm(network, examples, protocol)),
                **{
                    f"{passes}_passes": summarise(errors_mm(network, examples, protocol, passes))
                    for passes in range(2, self.settings.passes + 1)
                },
            }
            for protocol in PROTOCOLS
        }


class _Endless(IterableDataset[int]):
    """Lightning wants batches; ours are drawn on the device by step number."""

    def __iter__(self) -> Iterator[int]:
        while True:
            yield 0


def _loggers(folder: Path, resume: Path | None) -> list[Logger]:
    path = folder / "log" / "metrics.csv"
    earlier: list[dict[str, Any]] = []
    if resume is not None and path.exists():
        last = read_checkpoint(resume)["progress"]["step"]
        with path.open(newline="", encoding="utf-8") as file:
            rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
        earlier = [row for row in rows if row["step"] <= last]
    # Written at each validation, or a run that is killed leaves none; Lightning removes the file of the run before.
    table = CSVLogger(folder, name="", version="log", flush_logs_every_n_steps=1)
    for row in earlier:
        table.log_metrics(row, int(row["step"]))
    if not library_version("tensorboard"):
        return [table]
    return [table, TensorBoardLogger(str(folder), name="", version="log")]


def _trainer(machine: Machine, device: torch.device, loggers: list[Logger], network: str) -> lightning.Trainer:
    on_gpu = device.type == "cuda"
    several = machine.devices * machine.nodes > 1
    return lightning.Trainer(
        accelerator="gpu" if on_gpu else device.type,
        devices=[device.index] if device.index is not None else machine.devices,
        num_nodes=machine.nodes,
        strategy=_strategy(network) if several else "auto",
        max_epochs=-1,
        logger=loggers,
        plugins=[SafetensorsIO()],
        sync_batchnorm=on_gpu and several,
        use_distributed_sampler=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )


def _strategy(network: str) -> str:
    """Baselines have parts that their authors count and never use: no process may wait for their gradients."""
    return "ddp_find_unused_parameters_true" if networks.recipe(network).objective is not None else "ddp"


def _facts(task: Task, settings: TrainSettings, machine: Machine) -> dict[str, Any]:
    """What run.json and the weights say of their making."""
    return {
        **task.facts,
        "settings": plain(settings),
        "machine": asdict(machine),
        **provenance(seed=settings.seed, data_sha256=task.data_sha256, device=str(resolve_device(machine.device))),
    }


def _kept(folder: Path) -> str:
    """What an error leaves of a run."""
    return "the last checkpoint is whole" if (folder / CHECKPOINT).exists() else "nothing was written yet"


def _found_run(folder: Path, settings: TrainSettings, facts: dict[str, Any]) -> dict[str, Any] | None:
    """run.json of an earlier call in this folder if it may be continued, None for a fresh folder."""
    checkpoint = folder / CHECKPOINT
    if not checkpoint.exists():
        return None
    content = read_checkpoint(checkpoint)
    earlier = from_plain(content["settings"])
    changed = differences(earlier, settings)
    if changed:
        names = ", ".join(f"{name} ({getattr(earlier, name)} there)" for name in changed)
        raise ScopeRegError(
            f"the run there has other settings: {names}",
            where=str(folder),
            fix="use the same settings to go on with it, or another folder (output=) for a new run",
        )
    if content.get("data_sha256") != facts["data_sha256"]:
        raise ScopeRegError(
            "the run there was trained on other data",
            where=str(folder),
            fix="use the same data to go on with it, or another folder (output=) for a new run",
        )
    path = folder / RUN
    found: dict[str, Any] | None = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    return found


@contextmanager
def _quiet_lightning() -> Iterator[None]:
    """Lightning keeps its hints and advertisements to itself; errors are exceptions and pass."""
    loggers = [logging.getLogger(name) for name in ("pytorch_lightning", "lightning_fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            for module in ("pytorch_lightning", "lightning_fabric"):
                warnings.filterwarnings("ignore", module=module)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def _interruptible(module: PoseTraining) -> Iterator[None]:
    """The first Ctrl-C ends the run in good order after the present step, the second at once."""

    def ask() -> None:
        module.stop_asked = True

    try:
        with interruptible(ask):
            yield
    except SystemExit as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # Lightning makes the second Ctrl-C an exit
            raise KeyboardInterrupt from None
        raise
