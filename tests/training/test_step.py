"""One step: weights move by the rate, gradients are clipped, the average follows, options of the loss count."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from scopereg.data.store import VolumeSet
from scopereg.geometry import VoxelPoses
from scopereg.networks import NetworkResult
from scopereg.networks.recipe import Batch
from scopereg.training.loop import channels_last
from scopereg.training.losses import pose_loss, slice_field, total_loss
from scopereg.training.network import create_network
from scopereg.training.settings import TrainSettings
from scopereg.training.source import FrameSource
from scopereg.training.step import RUNS_BEFORE_CAPTURE, CapturedStep, PlainStep, Weights, copy_counters

CPU = torch.device("cpu")
SETTINGS = TrainSettings(batch=4, frames_per_volume=2, magnitude=3.0, weight_decay=0.0, clip=0.0, average=0.0)


class Shift(nn.Module):
    """A network of three numbers: it answers with the same translation always, and a field that bends with it."""

    def __init__(self, start: float = 0.0) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.full((3,), start))
        self.register_buffer("seen", torch.tensor(0))

    def forward(self, slices: Tensor, volumes: Tensor) -> NetworkResult:
        self.seen += 1
        count = len(slices)
        field = slice_field(torch.zeros(count, 3, 4, 4))
        field = field + self.shift[:, None, None] * (1 + field[:, :1] ** 2)
        return NetworkResult(torch.eye(3).expand(count, 3, 3), self.shift.expand(count, 3), field)


def weights_of(network: nn.Module, settings: TrainSettings = SETTINGS) -> Weights:
    return Weights(network, copy.deepcopy(network).requires_grad_(False), settings, CPU)


def some_batch(count: int = 4) -> Batch:
    generator = torch.Generator().manual_seed(0)
    translation = torch.rand(count, 3, generator=generator) + 1
    return Batch(torch.zeros(count, 8, 8), torch.zeros(1, 8, 8, 8), torch.eye(3).expand(count, 3, 3), translation)


def stepped(settings: TrainSettings, steps: int, rate: float = 0.1) -> tuple[Weights, list[Tensor]]:
    """Weights after some steps, and what they were after each."""
    weights = weights_of(Shift(), settings)
    step, seen = PlainStep(weights), []
    for number in range(steps):
        weights.set_rate(rate, number)
        step(some_batch())
        seen.append(weights.network.shift.detach().clone())
    return weights, seen


def test_a_step_moves_the_weights_by_the_rate_against_the_gradient() -> None:
    """Adam's first step is the rate times the sign of the gradient; the poses lie at positive shifts."""
    _, (after,) = stepped(SETTINGS, 1, rate=0.1)
    torch.testing.assert_close(after, torch.full((3,), 0.1), atol=1e-4, rtol=0)


def test_a_rate_of_zero_leaves_the_weights() -> None:
    _, seen = stepped(replace(SETTINGS, weight_decay=0.5), 3, rate=0.0)
    assert torch.equal(seen[-1], torch.zeros(3))


def test_weights_decay_by_the_rate() -> None:
    weights = weights_of(Shift(1.0), replace(SETTINGS, weight_decay=0.5))
    weights.set_rate(0.1, 0)
    weights.network.shift.grad = torch.zeros(3)
    weights.update()
    torch.testing.assert_close(weights.network.shift.detach(), torch.full((3,), 1 - 0.1 * 0.5))


def test_every_weight_of_the_real_network_moves(tiny_set: Callable[..., VolumeSet]) -> None:
    weights = weights_of(create_network(SETTINGS).train())
    before = copy.deepcopy(weights.network.state_dict())
    weights.set_rate(0.01, 0)
    PlainStep(weights)(FrameSource(tiny_set(), SETTINGS).batch(0))
    for name, parameter in weights.network.named_parameters():
        assert not torch.equal(parameter, before[name]), name


# the average


def test_the_average_forgets_its_start_and_then_follows_its_decay() -> None:
    decay, wanted = 0.3, torch.zeros(3)
    weights, seen = stepped(replace(SETTINGS, average=decay), 6)
    for step, trained in enumerate(seen):
        keep = min(decay, (1 + step) / (10 + step))
        wanted = keep * wanted + (1 - keep) * trained
    torch.testing.assert_close(weights.average.shift, wanted)
    assert not torch.allclose(weights.average.shift, seen[-1], atol=1e-3)


def test_without_averaging_the_last_weights_are_kept() -> None:
    weights, seen = stepped(replace(SETTINGS, average=0.0), 3)
    assert torch.equal(weights.average.shift, seen[-1])


def test_the_average_is_never_trained() -> None:
    weights, _ = stepped(SETTINGS, 1)
    assert weights.average.shift.grad is None
    assert all(parameter is not weights.average.shift for parameter in weights.optimizer.param_groups[0]["params"])


def test_counters_are_copied_and_not_averaged() -> None:
    weights, _ = stepped(replace(SETTINGS, average=0.9), 3)
    assert int(weights.average.seen) == 0
    copy_counters(weights.network, weights.average)
    assert int(weights.average.seen) == 3


# what a checkpoint brings


def test_the_state_of_an_optimiser_on_another_device_is_adopted() -> None:
    """There the rate is a tensor, and the step may be recorded."""
    weights, _ = stepped(SETTINGS, 2)
    brought = copy.deepcopy(weights.optimizer.state_dict())
    brought["param_groups"][0].update(lr=torch.tensor(0.7), capturable=True, fused=True)
    fresh = weights_of(Shift())
    fresh.optimizer.load_state_dict(brought)
    fresh.adopt_state()
    fresh.set_rate(0.1, 2)
    (group,) = fresh.optimizer.param_groups
    assert (group["lr"], group["capturable"], group["fused"]) == (0.1, False, False)
    assert int(fresh.optimizer.state[fresh.network.shift]["step"]) == 2


def test_moments_are_laid_out_as_their_weights_are() -> None:
    network = channels_last(nn.Conv2d(4, 4, 3))
    weights = weights_of(network)
    network(torch.rand(1, 4, 5, 5)).sum().backward()
    weights.update()
    moments = weights.optimizer.state[network.weight]
    wanted = moments["exp_avg"].clone()
    moments["exp_avg"] = wanted.contiguous()
    assert moments["exp_avg"].stride() != network.weight.stride()
    weights.adopt_state()
    assert moments["exp_avg"].stride() == network.weight.stride()
    assert torch.equal(moments["exp_avg"], wanted)


# gradients


@pytest.mark.parametrize(("clip", "wanted"), [(0.0, None), (0.25, 0.25), (1e6, None)])
def test_gradients_are_clipped_to_the_norm_asked_for(clip: float, wanted: float | None) -> None:
    weights = weights_of(Shift(), replace(SETTINGS, clip=clip, loss="squared"))
    PlainStep(weights).gradients(some_batch())
    whole = float(weights.network.shift.grad.norm())
    assert whole > 0.25
    weights.update()
    assert float(weights.network.shift.grad.norm()) == pytest.approx(whole if wanted is None else wanted, rel=1e-4)


def test_gradients_of_a_step_do_not_add_to_those_before() -> None:
    step = PlainStep(weights_of(Shift()))
    found = []
    for _ in range(2):
        step.gradients(some_batch())
        found.append(step.weights.network.shift.grad.clone())
    assert torch.equal(*found)


def test_the_gradient_is_that_of_the_mean_loss() -> None:
    weights = weights_of(Shift(), replace(SETTINGS, loss="squared"))
    PlainStep(weights).gradients(some_batch())
    # The mean of |s - t|^2 over frames has the gradient 2 (s - mean t).
    torch.testing.assert_close(weights.network.shift.grad, -2 * some_batch().translation.mean(0), atol=1e-4, rtol=1e-4)


# the loss


@pytest.mark.parametrize(
    "option",
    [{}, {"loss": "squared"}, {"lever_voxels": 10.0}, {"coordinates": 0.7}, {"flow": 0.7}, {"elasticity": 0.7}],
)
def test_settings_of_the_loss_reach_the_step(option: dict[str, Any]) -> None:
    tilted = some_batch()._replace(rotation=torch.tensor([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]]).expand(4, 3, 3))
    network, settings = Shift(0.5), replace(SETTINGS, **option)
    step = PlainStep(weights_of(network, settings))
    step.gradients(tilted)
    with torch.no_grad():
        result = network(tilted.slices, tilted.volumes)
        wanted, usual = (total_loss(result, tilted.poses, chosen).mean() for chosen in (settings, SETTINGS))
    torch.testing.assert_close(step.total, wanted)
    assert (abs(float(wanted - usual)) > 1e-3) is bool(option)


def test_losses_add_up_until_they_are_set_to_zero() -> None:
    step = PlainStep(weights_of(Shift(), replace(SETTINGS, loss="squared")))
    for _ in range(2):
        step.gradients(some_batch())
    nowhere = VoxelPoses(torch.eye(3).expand(4, 3, 3), torch.zeros(4, 3))
    torch.testing.assert_close(step.total, 2 * pose_loss(nowhere, some_batch().poses).mean())


# on a GPU


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("bfloat16", [False, True])
def test_a_captured_step_does_what_a_plain_one_does(tiny_set: Callable[..., VolumeSet], bfloat16: bool) -> None:
    """The rate changes from step to step: a graph that had recorded one would go astray.

    Weights are compared by the way they went. One by one they differ: where a gradient is next to nothing, rounding
    decides its sign, and Adam goes a full step either way.
    """
    device = torch.device("cuda")
    settings = replace(SETTINGS, bfloat16=bfloat16, average=0.9, clip=50.0)
    # Two shapes that take turns: their recordings share memory.
    sources = [FrameSource(tiny_set(shape=shape).to(device), settings) for shape in ((16, 32, 32), (24, 48, 32))]
    ways, averages, totals = [], [], []
    for captured in (False, True):
        network = channels_last(create_network(settings).to(device).train())
        start = joined(network)
        weights = Weights(network, copy.deepcopy(network).requires_grad_(False), settings, device)
        step = CapturedStep(PlainStep(weights)) if captured else PlainStep(weights)
        for number in range(2 * (RUNS_BEFORE_CAPTURE + 4)):
            weights.set_rate(1e-4 / (1 + number), number)
            step(sources[number % 2].batch(number))
        ways.append(joined(network) - start)
        averages.append(joined(weights.average) - start)
        totals.append(step.total)
    torch.testing.assert_close(totals[1], totals[0], rtol=0.01, atol=0)
    for plain, replayed in (ways, averages):
        assert torch.nn.functional.cosine_similarity(plain, replayed, dim=0) > (0.9 if bfloat16 else 0.97)
        assert 0.97 < float(replayed.norm() / plain.norm()) < 1.03


def joined(network: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().float().flatten() for parameter in network.parameters()]).clone()
