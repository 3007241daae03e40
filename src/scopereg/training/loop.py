"""Loop: the steps of a training or an adaptation, one after the other along a schedule, until somebody says stop.

Lightning Fabric brings the processes of a run on several devices; a run on one needs none of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from scopereg.interruption import Stop
from scopereg.networks.recipe import Batch
from scopereg.threads import watched
from scopereg.training.schedule import Schedule
from scopereg.training.source import Source
from scopereg.training.step import CapturedStep, PlainStep, Weights, seed_draws

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_STEPS_BETWEEN_TALKS = 8  # of the processes of one run about the time


@dataclass
class Standing:
    """Where a run stands."""

    step: int = 0
    seconds: float = 0.0  # spent so far, also before an interruption
    rate_factor: float = 1.0  # what stalled errors have left of the learning rate


class Loop:
    """Steps of a network; what comes between two of them is told by who runs it."""

    def __init__(
        self,
        weights: Weights,
        source: Source,
        schedule: Schedule,
        state: Standing,
        stop: Stop,
        *,
        capture: bool = False,
        fabric: Fabric | None = None,
    ) -> None:
        """`stop` says when somebody asks to end.

        With a `fabric` of several processes each takes the steps, and all move by the mean of their gradients.
        """
        self.weights, self.source, self.schedule = weights, source, schedule
        self.state, self.stop = state, stop
        self.fabric = fabric if fabric is not None and fabric.world_size > 1 else None
        self.rank = 0 if self.fabric is None else self.fabric.global_rank
        self.step = self._make_step(capture)
        self._since = 0.0
        self._counted = state.step

    def _make_step(self, capture: bool) -> PlainStep | CapturedStep:
        if self.fabric is None:
            plain = PlainStep(self.weights)
            return CapturedStep(plain) if capture and self.weights.device.type == "cuda" else plain
        step = PlainStep(self.weights, self.fabric.backward)
        step.losses = self.fabric.setup_module(_Together(step))
        return step

    @watched(steady=True)
    def run(self, between: Callable[[bool], bool]) -> None:
        """Step until the schedule ends, or until `between(asked)` says after a step that it is over.

        `asked` tells whether somebody asked to stop.
        """
        state, self._since = self.state, time.monotonic() - self.state.seconds
        while not self.schedule.finished(state.step, state.seconds):
            self._step()
            if between(self.read_clock()):
                break

    def _step(self) -> None:
        state = self.state
        self.weights.set_rate(state.rate_factor * self.schedule.rate(state.step, state.seconds), state.step)
        seed_draws(self.weights.settings, self.rank, state.step)
        self.step(self.source.batch(state.step))
        state.step += 1
        self.source.draw_ahead(state.step)

    def read_clock(self) -> bool:
        """Set the seconds spent; whether a stop was asked for. One process decides for all, or some would wait."""
        now = time.monotonic() - self._since, self.stop.signal
        if self.fabric is not None:
            if self.state.step % _STEPS_BETWEEN_TALKS:
                return False
            now = self.fabric.broadcast(now)
        self.state.seconds, self.stop.signal = now
        return self.stop.asked

    def mean_loss(self) -> tuple[float, int]:
        """Mean loss of the steps since the last call, and how many they are.

        It is that of all processes: where one alone gave up, the others would wait for it.
        """
        steps = max(self.state.step - self._counted, 1)
        total: Any = self.step.total.clone()
        if self.fabric is not None:
            total = self.fabric.all_reduce(total, reduce_op="mean")
        loss = float(total) / steps
        self.step.total.zero_()
        self._counted = self.state.step
        return loss, steps


class _Together(nn.Module):
    """The losses of a step as a module, which a strategy of several processes wraps to bring gradients together.

    The average belongs to it: its buffers are the same in all processes then, and with them the validation.
    """

    def __init__(self, step: PlainStep) -> None:
        super().__init__()
        self.network, self.average = step.weights.network, step.weights.average
        self._losses: Callable[[Batch], Tensor] = step.losses

    def forward(self, batch: Batch) -> Any:
        return self._losses(batch)


def on_device(network: nn.Module, device: torch.device, processes: int = 1) -> nn.Module:
    """The network on its device, laid out as that wants; norms of several processes on GPUs share their statistics."""
    network = network.to(device)
    if device.type != "cuda":
        return network
    return channels_last(nn.SyncBatchNorm.convert_sync_batchnorm(network) if processes > 1 else network)


def channels_last(module: nn.Module) -> nn.Module:
    """The module with the weights of its convolutions in the layout that GPUs want; values and shapes stay."""
    layouts = {4: torch.channels_last, 5: torch.channels_last_3d}
    for weight in module.parameters():
        if weight.ndim in layouts:
            weight.data = weight.data.contiguous(memory_format=layouts[weight.ndim])
    return module
