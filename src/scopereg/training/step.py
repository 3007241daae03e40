"""One training step: forward, loss, backward, clip, update, average; run as it is, or recorded as a CUDA graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from scopereg import networks
from scopereg.data.seeds import stream_seed
from scopereg.networks.recipe import Batch
from scopereg.training.losses import total_loss
from scopereg.training.settings import TrainSettings

RUNS_BEFORE_CAPTURE = 3  # plain steps, so that libraries have set themselves up and the optimiser has its state
Shapes = tuple[torch.Size, ...]  # of the tensors of a batch
_AVERAGE_START = 10  # steps over which the average forgets the first, random weights


class Weights:
    """The trained network, its moving average and what updates both."""

    def __init__(self, network: nn.Module, average: nn.Module, settings: TrainSettings, device: torch.device) -> None:
        self.network, self.average, self.settings, self.device = network, average, settings, device
        on_gpu = device.type == "cuda"
        # As tensors on the device they can change under a recorded graph.
        self.rate = torch.tensor(0.0, device=device)
        self.keep = torch.tensor(0.0, device=device)
        kinds = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}
        self.optimizer = kinds[settings.optimizer](
            network.parameters(),
            lr=self.rate if on_gpu else 0.0,
            weight_decay=settings.weight_decay,
            fused=on_gpu,
            capturable=on_gpu,
        )
        kept, new = average.state_dict().values(), network.state_dict().values()
        pairs = [(a, b) for a, b in zip(kept, new, strict=True) if a.is_floating_point()]
        self._averaged, self._trained = [a for a, _ in pairs], [b for _, b in pairs]

    def adopt_state(self) -> None:
        """Make the optimiser's state that a checkpoint brought that of this device, as if it had grown here."""
        for group in self.optimizer.param_groups:
            # Among these the rate: a recorded graph reads this tensor, not the number that the checkpoint holds.
            group.update(self.optimizer.defaults)
        for weight, state in self.optimizer.state.items():
            state["step"] = state["step"].to(weight.device)
            # Laid out as their weights are: a checkpoint does not know of layouts, kernels do.
            for name in ("exp_avg", "exp_avg_sq"):
                state[name] = torch.empty_like(weight).copy_(state[name])

    def set_rate(self, rate: float, step: int) -> None:
        """Learning rate and averaging of the next update."""
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        self.keep.fill_(
            min(self.settings.average, (1 + step) / (_AVERAGE_START + step)) if self.settings.average else 0
        )

    @torch.no_grad()
    def update(self) -> None:
        """Move the weights along their gradients and the average along with them."""
        if self.settings.clip:
            nn.utils.clip_grad_norm_(self.network.parameters(), self.settings.clip, foreach=True)
        self.optimizer.step()
        torch._foreach_mul_(self._averaged, self.keep)
        torch._foreach_add_(self._averaged, torch._foreach_mul(self._trained, 1 - self.keep))


def seed_draws(settings: TrainSettings, rank: int, step: int) -> None:
    """Seed what a network draws inside of a step, by seed and step alone: a resumed run draws what it would have."""
    if networks.recipe(settings.network).draws:
        torch.manual_seed(stream_seed("training draws", settings.seed, rank, step))


def copy_counters(source: nn.Module, target: nn.Module) -> None:
    """Buffers that count instead of weigh are copied: an average of them means nothing."""
    kept: dict[str, Tensor] = dict(target.named_buffers())
    for name, value in source.named_buffers():
        if not value.is_floating_point():
            kept[name].copy_(value)


class PlainStep:
    """A step as a sequence of calls; runs anywhere.

    Several processes put their own way of calling `losses` in its place, and of going backward.
    """

    def __init__(self, weights: Weights, backward: Callable[[Tensor], None] = torch.Tensor.backward) -> None:
        self.weights, self.backward = weights, backward
        self.objective = networks.recipe(weights.settings.network).objective
        self.losses: Callable[[Batch], Tensor] = self._losses
        self.total = torch.zeros((), device=weights.device)  # sum of the losses since it was last set to zero

    def __call__(self, batch: Batch) -> None:
        self.gradients(batch)
        self.weights.update()

    def gradients(self, batch: Batch) -> None:
        """Gradients of the mean loss, in place of those of the step before."""
        self.weights.optimizer.zero_grad(set_to_none=True)
        loss = self.losses(batch).mean()
        self.backward(loss)
        self.total += loss.detach()

    def _losses(self, batch: Batch) -> Tensor:
        """Losses (B,) of the frames."""
        network, settings, kind = self.weights.network, self.weights.settings, self.weights.device.type
        # Casts are not cached: a graph must repeat them with every new value of the weights.
        with torch.autocast(kind, torch.bfloat16, enabled=settings.bfloat16 and kind == "cuda", cache_enabled=False):
            if self.objective is not None:
                return self.objective(network, batch)
            result = network(batch.slices, batch.volumes)
        return total_loss(result, batch.poses, settings)


class CapturedStep:
    """The same step recorded once for every shape of batch and replayed: hundreds of launches become one. One GPU.

    Recordings run one after the other and leave nothing for each other but the weights, so they share their memory.
    """

    def __init__(self, step: PlainStep) -> None:
        self.step = step
        self._runs: Counter[Shapes] = Counter()
        self._recordings: dict[Shapes, _Recording] = {}
        self._pool: Any = None

    @property
    def total(self) -> Tensor:
        return self.step.total

    def __call__(self, batch: Batch) -> None:
        shapes = tuple(value.shape for value in batch.tensors())
        if self._runs[shapes] < RUNS_BEFORE_CAPTURE:
            self._run_aside(batch)
        else:
            if shapes not in self._recordings:
                self._recordings[shapes] = self._record(batch)
            self._recordings[shapes].replay(batch)
        self._runs[shapes] += 1

    def _run_aside(self, batch: Batch) -> None:
        # Capture wants the steps before it on another stream than the default one.
        main, aside = torch.cuda.current_stream(), torch.cuda.Stream()
        aside.wait_stream(main)
        with torch.cuda.stream(aside):
            self.step(batch)
        main.wait_stream(aside)

    def _record(self, batch: Batch) -> _Recording:
        inputs = batch.each(torch.clone)
        self.step.weights.optimizer.zero_grad(set_to_none=True)
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, pool=self._pool):
            self.step(inputs)
        return _Recording(graph, inputs)


class _Recording(NamedTuple):
    """A step of one shape, and the tensors that it reads."""

    graph: torch.cuda.CUDAGraph
    inputs: Batch

    def replay(self, batch: Batch) -> None:
        for place, value in zip(self.inputs.tensors(), batch.tensors(), strict=True):
            place.copy_(value)
        self.graph.replay()
