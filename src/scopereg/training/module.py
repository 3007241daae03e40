"""PoseTraining: a training run as Lightning sees it."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytorch_lightning as lightning
import torch
from torch import Tensor, nn

from scopereg import networks
from scopereg.data.frames import PROTOCOLS
from scopereg.errors import ScopeRegError
from scopereg.networks.weights import load_network
from scopereg.training.presets import PAPER
from scopereg.training.schedule import Schedule
from scopereg.training.settings import TrainSettings, plain
from scopereg.training.step import CapturedStep, PlainStep, Weights, seed_draws
from scopereg.training.task import Task
from scopereg.training.validation import Examples, errors_mm, summarise

Shape = tuple[int, int, int]
USUAL_SHAPE: Shape = (32, 128, 128)
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")  # what a batch norm keeps beside its weights
_STEPS_BETWEEN_TALKS = 8  # of the processes of one run about the time


@dataclass
class Progress:
    """Where a run stands; travels in its checkpoints."""

    step: int = 0
    seconds: float = 0.0  # spent so far, also before an interruption
    loss: float = float("nan")  # mean since the last validation
    best_mm: float = float("inf")  # lowest validation error under the protocol trained for
    best_step: int = 0
    stalled: int = 0  # validations since the error or, after that, the learning rate fell
    rate_factor: float = 1.0  # what stalled errors have left of the learning rate
    metrics: dict[str, float] = field(default_factory=dict)  # of the last validation


class PoseTraining(lightning.LightningModule):
    """Draws, steps, validates; Lightning brings devices, loggers and checkpoints together.

    `on_validated(self)` is called on the first process after each validation, and `on_stopped(self)` when the run was
    asked to stop between two of them.
    """

    def __init__(
        self,
        settings: TrainSettings,
        task: Task,
        examples: Examples,
        *,
        on_step: Callable[[PoseTraining], None] | None = None,
        on_validated: Callable[[PoseTraining], None] | None = None,
        on_stopped: Callable[[PoseTraining], None] | None = None,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.settings, self.task, self.examples = settings, task, examples
        self.on_step, self.on_validated, self.on_stopped = on_step, on_validated, on_stopped
        self.network = create_network(settings, task.shape)
        self.average = copy.deepcopy(self.network).requires_grad_(False)
        self.state = Progress()
        self.stop_asked = False
        self._since = time.monotonic()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        device = self.device
        if device.type == "cuda":
            for module in (self.network, self.average):
                channels_last(module)
        self.weights = Weights(self.network, self.average, self.settings, device)
        return self.weights.optimizer

    def on_fit_start(self) -> None:
        devices = self.trainer.world_size
        self.schedule = Schedule.from_settings(self.settings, self.task.epoch, devices)
        self.source = self.task.source(self.device, self.global_rank)
        self.examples = self.examples._replace(volumes=self.examples.volumes.to(self.device))
        alone = devices == 1
        plain = PlainStep(self.weights) if alone else PlainStep(self.weights, self.manual_backward)
        self.step = CapturedStep(plain) if self.settings.capture and alone and self.device.type == "cuda" else plain
        self._since = time.monotonic() - self.state.seconds
        self._counted = self.state.step
        # A run that was killed between its last checkpoint and run.json has no step left.
        self.trainer.should_stop = self.schedule.finished(self.state.step, self.state.seconds)

    def on_train_start(self) -> None:
        self.weights.adopt_state()  # not before: the optimiser's state is the last that Lightning restores

    def training_step(self, batch: Any, batch_idx: int) -> None:
        state = self.state
        self.weights.set_rate(state.rate_factor * self.schedule.rate(state.step, state.seconds), state.step)
        seed_draws(self.settings, self.global_rank, state.step)
        self.step(self.source.batch(state.step))
        state.step += 1
        self.source.draw_ahead(state.step)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        state = self.state
        stopped = self._read_clock()
        finished = self.schedule.finished(state.step, state.seconds)
        due = finished or state.step % self.settings.validate_every == 0
        if due or stopped:
            self.check_loss()
            if due:
                self.validate()
            elif self.on_stopped is not None and self.trainer.is_global_zero:
                self.on_stopped(self)
            self.trainer.should_stop = finished or stopped
        if self.on_step is not None and self.trainer.is_global_zero:
            self.on_step(self)

    def _read_clock(self) -> bool:
        """Set the seconds spent; whether a stop was asked for. One process decides for all, or some would wait."""
        now = time.monotonic() - self._since, self.stop_asked
        if self.trainer.world_size > 1:
            if self.state.step % _STEPS_BETWEEN_TALKS:
                return False
            now = self.trainer.strategy.broadcast(now)
        self.state.seconds, stopped = now
        return stopped

    def check_loss(self) -> None:
        """Mean loss since the last check; an error when it is not a number, before anything is written."""
        steps = max(self.state.step - self._counted, 1)
        # Of all processes: where one alone gave up, the others would wait for it.
        loss = float(self.trainer.strategy.reduce(self.step.total, reduce_op="mean")) / steps
        self.step.total.zero_()
        self._counted = self.state.step
        if loss != loss or loss in (float("inf"), float("-inf")):
            raise ScopeRegError(
                f"the loss became {loss} within the {steps} steps before step {self.state.step}",
                where="train",
                fix="model.safetensors and last.ckpt are from before that; train in a new folder (output=) with a "
                "lower learning_rate=, a lower clip= or bfloat16=False, or look for volumes with strange values",
            )
        self.state.loss = loss

    def validate(self) -> None:
        """Errors of the averaged network under both protocols, and whether it is the best so far."""
        copy_counters(self.network, self.average)
        metrics: dict[str, float] = {}
        for protocol in PROTOCOLS:
            summary = summarise(errors_mm(self.average, self.examples, protocol))
            metrics |= {f"{protocol}_{key}": value for key, value in summary.items()}
            for passes in range(2, self.settings.passes + 1):
                summary = summarise(errors_mm(self.average, self.examples, protocol, passes))
                metrics |= {f"{protocol}_{passes}_passes_{key}": value for key, value in summary.items()}
        state = self.state
        state.metrics = metrics
        if metrics[f"{self.settings.protocol}_mean_mm"] < state.best_mm:
            state.best_mm, state.best_step = metrics[f"{self.settings.protocol}_mean_mm"], state.step
        self._watch_plateau()
        if self.trainer.is_global_zero:
            logged = {"loss": state.loss, "seconds": state.seconds, **metrics}
            for logger in self.loggers:
                logger.log_metrics(logged, step=state.step)
            if self.on_validated is not None:
                self.on_validated(self)

    def _watch_plateau(self) -> None:
        """Lower the learning rate where the error has not fallen for longer than the patience lasts."""
        settings, state = self.settings, self.state
        state.stalled = 0 if state.best_step == state.step else state.stalled + 1
        if settings.decay == "plateau" and state.stalled > settings.plateau_patience:
            state.rate_factor, state.stalled = state.rate_factor * settings.plateau_factor, 0

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["progress"] = asdict(self.state)
        checkpoint["settings"] = plain(self.settings)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.state = Progress(**checkpoint["progress"])


def create_network(settings: TrainSettings, shape: Shape = USUAL_SHAPE) -> nn.Module:
    """The network of a run on volumes of `shape`, with the fresh weights of its seed."""
    state = torch.get_rng_state()
    torch.manual_seed(settings.seed)
    try:
        network = networks.create(settings.network, **network_options(settings, shape))
    finally:
        torch.set_rng_state(state)
    return network if settings.start is None else start_from(network, settings.start)


def start_from(network: nn.Module, path: Path) -> nn.Module:
    """The network with the weights of a file, which must fit it."""
    given = load_network(path).state_dict()
    wanted = network.state_dict()
    if not any(key.endswith(STATISTICS) for key in wanted):  # instance norms: those of batch norms have no use here
        given = {key: value for key, value in given.items() if not key.endswith(STATISTICS)}
    if {key: value.shape for key, value in given.items()} != {key: value.shape for key, value in wanted.items()}:
        raise ScopeRegError(
            f"its weights do not fit a {type(network).__name__}",
            where=str(path),
            fix="start from weights of the network that you train (network=)",
        )
    network.load_state_dict(given)
    return network


def network_options(settings: TrainSettings, shape: Shape = USUAL_SHAPE) -> dict[str, Any]:
    """Options of `networks.create`: of SCoPE-Reg those that differ from the published network, as JSON knows them."""
    known = networks.options(settings.network)
    wanted: dict[str, Any] = {"norm": settings.norm, "shape": list(shape)}
    if settings.network == "scope-reg":
        own = ("depth_stride", "reach", "matching", "looks", "later_planes")
        wanted |= {name: getattr(settings, name) for name in own if getattr(settings, name) != getattr(PAPER, name)}
    return {name: value for name, value in wanted.items() if name in known}


def channels_last(module: nn.Module) -> nn.Module:
    """The module with the weights of its convolutions in the layout that GPUs want; values and shapes stay."""
    layouts = {4: torch.channels_last, 5: torch.channels_last_3d}
    for weight in module.parameters():
        if weight.ndim in layouts:
            weight.data = weight.data.contiguous(memory_format=layouts[weight.ndim])
    return module


def copy_counters(source: nn.Module, target: nn.Module) -> None:
    """Buffers that count instead of weigh are copied: an average of them means nothing."""
    kept: dict[str, Tensor] = dict(target.named_buffers())
    for name, value in source.named_buffers():
        if not value.is_floating_point():
            kept[name].copy_(value)
