"""Baselines go through the same training as SCoPE-Reg: whole runs, their random draws, and their schedules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from scopereg.data.store import VolumeSet
from scopereg.networks.weights import load_network
from scopereg.training.fitting import MODEL, Machine, Progress, train
from scopereg.training.network import create_network
from scopereg.training.presets import preset
from scopereg.training.settings import TrainSettings
from scopereg.training.source import FrameSource
from scopereg.training.step import PlainStep, Weights, seed_draws

Maker = Callable[..., VolumeSet]
BATCH = {"cu-reg": 4, "eureg": 2}
SHAPE = {"cu-reg": (8, 24, 24), "eureg": (16, 64, 64)}


def settings(network: str) -> TrainSettings:
    """Four steps, validated after two; as the preset in everything that belongs to the method."""
    batch = BATCH[network]
    return replace(
        preset("fast", network), batch=batch, frames_per_volume=batch, magnitude=3.0, epochs=batch, validate_every=2
    )


def volumes(tiny_set: Maker, network: str) -> VolumeSet:
    plain = tiny_set(6, SHAPE[network])  # four of them train
    return replace(plain, labels=(plain.images > 127).byte())


def test_a_baseline_trains_and_its_weights_come_back(tiny_set: Maker, folder: Path) -> None:
    result = train(volumes(tiny_set, "eureg"), settings("eureg"), folder, Machine("cpu"), quiet=True)
    assert result["finished"]
    found, shape = load_network(folder / MODEL), SHAPE["eureg"]
    assert tuple(found.shape) == shape
    with torch.no_grad():
        answer = found(torch.rand(2, *shape[1:]), torch.rand(1, *shape))
    assert answer.translation.isfinite().all()


def test_what_a_network_draws_follows_the_step_and_not_the_process() -> None:
    def drawn(network: str, step: int, *, seed: int = 0, rank: int = 0) -> float:
        torch.manual_seed(999)  # what another process would have
        seed_draws(replace(settings(network), seed=seed), rank, step)
        return float(torch.rand(()))

    assert drawn("cu-reg", 3) == drawn("cu-reg", 3)
    different = [drawn("cu-reg", 3), drawn("cu-reg", 4), drawn("cu-reg", 3, seed=1), drawn("cu-reg", 3, rank=1)]
    assert len(set(different)) == 4
    torch.manual_seed(999)
    untouched = float(torch.rand(()))
    assert drawn("eureg", 3) == untouched, "who draws nothing leaves the numbers of others alone"


def test_cu_reg_drops_the_same_features_in_the_same_step(tiny_set: Maker) -> None:
    chosen, network = settings("cu-reg"), create_network(settings("cu-reg")).train()
    step = PlainStep(Weights(network, network, chosen, torch.device("cpu")))
    batch = FrameSource(volumes(tiny_set, "cu-reg"), chosen).batch(0)
    losses = []
    for number in (5, 5, 6):
        seed_draws(chosen, 0, number)
        step.total.zero_()
        step.gradients(batch)
        losses.append(float(step.total))
    assert losses[0] == losses[1] != losses[2]


@pytest.mark.parametrize("stalls", [1, 2, 3])
def test_stalled_errors_lower_the_rate_of_a_plateau(stalls: int) -> None:
    chosen = replace(settings("eureg"), decay="plateau", plateau_factor=0.5, plateau_patience=1)
    state, error = Progress(step=10), {"honest_mean_mm": 3.0}
    state.validated(error, chosen)
    assert (state.rate_factor, state.stalled, state.best_step, state.best_mm) == (1.0, 0, 10, 3.0)
    for later in range(stalls):
        state.step = 11 + later
        state.validated(error, chosen)
    assert state.rate_factor == {1: 1.0, 2: 0.5, 3: 0.5}[stalls]
    assert state.best_step == 10
