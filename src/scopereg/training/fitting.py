"""Fitting: a run from volumes to a weights file; started, interrupted and resumed in one folder."""

from __future__ import annotations

import copy
import logging
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric
from lightning_fabric.loggers import TensorBoardLogger
from lightning_fabric.utilities.rank_zero import rank_zero_only

from scopereg import networks
from scopereg.data.frames import PROTOCOLS
from scopereg.data.store import VolumeSet
from scopereg.data.worlds import WorldRanges
from scopereg.devices import memory_in_words, reproducible, resolve_device
from scopereg.errors import ScopeRegError
from scopereg.interruption import stoppable
from scopereg.io.files import output_folder
from scopereg.networks.weights import load_network, save_network
from scopereg.provenance import library_version, provenance
from scopereg.threads import watched
from scopereg.training.display import Display
from scopereg.training.folder import CHECKPOINT, LOG, MODEL, RUN, TrainFolder
from scopereg.training.loop import Loop, Standing, on_device
from scopereg.training.network import create_network, network_options
from scopereg.training.presets import preset, with_length
from scopereg.training.schedule import Schedule
from scopereg.training.settings import TrainSettings, plain
from scopereg.training.step import Weights, copy_counters
from scopereg.training.task import Task, volumes_task, worlds_task
from scopereg.training.validation import errors_mm, identity_errors_mm, make_examples, summarise

__all__ = ["CHECKPOINT", "MODEL", "RUN", "Machine", "Training", "fit", "train", "train_worlds"]

_LESS_MEMORY = "lower batch=, raise frames_per_volume=, or train on smaller volumes"


@dataclass(frozen=True)
class Machine:
    """Where a run takes place; nothing of it decides the outcome but the number of devices."""

    device: str = "auto"
    devices: int = 1
    nodes: int = 1

    @property
    def processes(self) -> int:
        return self.devices * self.nodes


@dataclass
class Progress(Standing):
    """Where a training stands; travels in its checkpoints."""

    loss: float = float("nan")  # mean since the last validation
    best_mm: float = float("inf")  # lowest validation error under the protocol trained for
    best_step: int = 0
    stalled: int = 0  # validations since the error or, after that, the learning rate fell
    metrics: dict[str, float] = field(default_factory=dict)  # of the last validation

    def validated(self, metrics: dict[str, float], settings: TrainSettings) -> None:
        """Note down a validation; where errors have not fallen for longer than the patience, the rate falls."""
        self.metrics, error = metrics, metrics[f"{settings.protocol}_mean_mm"]
        if error < self.best_mm:
            self.best_mm, self.best_step = error, self.step
        self.stalled = 0 if self.best_step == self.step else self.stalled + 1
        if settings.decay == "plateau" and self.stalled > settings.plateau_patience:
            self.rate_factor, self.stalled = self.rate_factor * settings.plateau_factor, 0


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
    watch: Callable[[Training], None] | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """As `train`, on random worlds (`scopereg.data.worlds`) that are drawn while training."""
    settings = with_length(settings or preset("fast", dataset="worlds"), "worlds")
    return fit(worlds_task(settings, ranges), settings, folder, machine, watch=watch, quiet=quiet)


@watched(steady=True)
def fit(
    task: Task,
    settings: TrainSettings,
    folder: Path | str,
    machine: Machine | None = None,
    *,
    watch: Callable[[Training], None] | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Train on what a task tells, or go on with the run in the folder; `watch` is called after each validation.

    One run at a time works in a folder, another is refused.
    """
    place, machine = TrainFolder(output_folder(folder)), machine or Machine()
    facts = _facts(task, settings, machine)
    with _alone(place, machine):
        checkpoint = place.found(settings, facts["data_sha256"])
        report = place.report() if checkpoint is not None else None
        if report is not None and report.get("finished"):
            return report
        device = resolve_device(machine.device)
        with reproducible(device), memory_in_words("train", place.kept, _LESS_MEMORY), Display(quiet) as display:
            with _quiet_lightning():
                run = Training(task, settings, place, _fabric(machine, device, settings), facts, display, watch)
                run.fit(checkpoint)
            return run.report()


class Training:
    """One call of `fit`: the network that learns, its average, and what is written when."""

    def __init__(
        self,
        task: Task,
        settings: TrainSettings,
        folder: TrainFolder,
        fabric: Fabric,
        facts: dict[str, Any],
        display: Display,
        watch: Callable[[Training], None] | None = None,
    ) -> None:
        self.task, self.settings, self.folder, self.facts = task, settings, folder, facts
        self.fabric, self.display, self.watch = fabric, display, watch
        self.device, self.rank = fabric.device, fabric.global_rank
        self.network = on_device(create_network(settings, task.shape), self.device, fabric.world_size).train()
        self.average = copy.deepcopy(self.network).requires_grad_(False)
        self.weights = Weights(self.network, self.average, settings, self.device)
        self.examples = make_examples(task.validation(self.device), magnitude=task.magnitude, seed=settings.seed)
        self.state, self.curve = Progress(), ""
        self.schedule = Schedule.from_settings(settings, task.epoch, fabric.world_size)
        self.frames_per_step = settings.batch * fabric.world_size
        self.ended_by: str | None = None
        self.pictures = _pictures(folder) if self.rank == 0 else None

    def fit(self, checkpoint: dict[str, Any] | None) -> None:
        """Step to the end of the schedule, or until somebody asks to stop."""
        if checkpoint is not None:
            self._resume(checkpoint)
        source, capture = self.task.source(self.device, self.rank), self.settings.capture
        try:
            with stoppable() as stop:
                self.loop = Loop(
                    self.weights, source, self.schedule, self.state, stop, capture=capture, fabric=self.fabric
                )
                self.loop.run(self._between)
            self.ended_by = stop.name
        finally:
            if self.pictures is not None:
                self.pictures.finalize("")

    def _resume(self, checkpoint: dict[str, Any]) -> None:
        self.network.load_state_dict(checkpoint["network"])
        self.average.load_state_dict(checkpoint["average"])
        self.weights.optimizer.load_state_dict(checkpoint["optimizer"])
        self.weights.adopt_state()
        self.state = Progress(**checkpoint["progress"])
        self.curve = self.folder.earlier_curve(checkpoint)

    def _between(self, asked: bool) -> bool:
        """After each step: a validation where one is due, a checkpoint there and where somebody asks to stop."""
        state = self.state
        due = self.schedule.finished(state.step, state.seconds) or state.step % self.settings.validate_every == 0
        if due or asked:
            self._check_loss()
            if due:
                self.validate()
            elif self.rank == 0:
                self.save()
        if self.rank == 0:
            self.display.step(self)
        return asked

    def _check_loss(self) -> None:
        """Mean loss since the last check; an error when it is not a number, before anything is written."""
        loss, steps = self.loop.mean_loss()
        if not math.isfinite(loss):
            raise ScopeRegError(
                f"the loss became {loss} within the {steps} steps before step {self.state.step}",
                where="train",
                fix="model.safetensors and last.ckpt are from before that; train in a new folder (output=) with a "
                "lower learning_rate=, a lower clip= or bfloat16=False, or look for volumes with strange values",
            )
        self.state.loss = loss

    def validate(self) -> None:
        """Errors of the averaged network under both protocols; then all that is kept is written."""
        copy_counters(self.network, self.average)
        metrics: dict[str, float] = {}
        for protocol in PROTOCOLS:
            for passes in range(1, self.settings.passes + 1):
                start = protocol if passes == 1 else f"{protocol}_{passes}_passes"
                summary = summarise(errors_mm(self.average, self.examples, protocol, passes))
                metrics |= {f"{start}_{key}": value for key, value in summary.items()}
        self.state.validated(metrics, self.settings)
        if self.rank == 0:
            self._write()

    def _write(self) -> None:
        """The curve, the weights if they are to be kept, then the checkpoint, then a line."""
        state = self.state
        row = {"loss": state.loss, "seconds": state.seconds, **state.metrics}
        self.curve = self.folder.extend_curve(self.curve, {**row, "step": state.step})
        if self.pictures is not None:
            self.pictures.log_metrics(row, step=state.step)
        if self.task.endless or state.best_step == state.step:
            facts = {**self.facts, "step": state.step, "minutes": state.seconds / 60, "validation": state.metrics}
            save_network(
                self.average,
                self.folder.model,
                name=self.settings.network,
                options=network_options(self.settings, self.task.shape),
                facts=facts,
            )
        # The checkpoint comes last: a run that is killed in between repeats a validation, it does not skip one.
        self.save()
        self.display.validated(self)
        if self.watch is not None:
            self.watch(self)

    def save(self) -> None:
        """The checkpoint, and whose it is."""
        content = {
            "network": self.network.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.weights.optimizer.state_dict(),
            "progress": asdict(self.state),
            "settings": plain(self.settings),
            "data_sha256": self.facts["data_sha256"],
        }
        self.folder.keep(content, self.curve)

    def report(self) -> dict[str, Any]:
        """run.json, with the test part measured where that was asked for."""
        state = self.state
        finished = self.schedule.finished(state.step, state.seconds)
        ending = {} if finished else {"ended_by": self.ended_by}
        content = {**self.facts, "finished": finished, **ending, "progress": asdict(state)}
        if self.rank != 0:  # it may come here before the weights are written
            return content
        if finished and self.settings.test and self.task.test is not None:
            content["test"] = self.test()
        return self.folder.write_report(content)

    def test(self) -> dict[str, Any]:
        """Errors of the kept network on the held-out part, beside no registration at all."""
        assert self.task.test is not None
        part = self.task.test(self.device)
        examples = make_examples(part, magnitude=self.task.magnitude, seed=self.settings.seed)
        network = load_network(self.folder.model, self.device)
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


def _fabric(machine: Machine, device: Any, settings: TrainSettings) -> Fabric:
    """What Lightning brings: this process on its device, or one of several that it starts."""
    strategy = "auto"
    if machine.processes > 1:
        # Baselines have parts that their authors count and never use: no process may wait for their gradients.
        own = networks.recipe(settings.network).objective is not None
        strategy = "ddp_find_unused_parameters_true" if own else "ddp"
    fabric = Fabric(
        accelerator="gpu" if device.type == "cuda" else device.type,
        devices=[device.index] if device.index is not None else machine.devices,
        num_nodes=machine.nodes,
        strategy=strategy,
    )
    fabric.launch()
    return fabric


def _alone(folder: TrainFolder, machine: Machine) -> AbstractContextManager[None]:
    """The lock of the folder, which the first process holds for all of a run."""
    return folder.lock() if machine.processes == 1 or getattr(rank_zero_only, "rank", 0) == 0 else nullcontext()


def _pictures(folder: TrainFolder) -> TensorBoardLogger | None:
    """The curves for TensorBoard, where that is installed."""
    if not library_version("tensorboard"):
        return None
    return TensorBoardLogger(str(folder.path), name="", version=LOG)


def _facts(task: Task, settings: TrainSettings, machine: Machine) -> dict[str, Any]:
    """What run.json and the weights say of their making."""
    return {
        **task.facts,
        "settings": plain(settings),
        "machine": asdict(machine),
        **provenance(seed=settings.seed, data_sha256=task.data_sha256, device=str(resolve_device(machine.device))),
    }


@contextmanager
def _quiet_lightning() -> Iterator[None]:
    """Lightning keeps its hints and advertisements to itself; errors are exceptions and pass."""
    logger = logging.getLogger("lightning_fabric")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="lightning_fabric")
            yield
    finally:
        logger.setLevel(level)
