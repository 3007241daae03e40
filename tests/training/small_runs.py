"""A run that takes a second, what it leaves, and how to compare and interrupt it; no tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from scopereg.data.store import VolumeSet
from scopereg.networks.recipe import Batch
from scopereg.networks.weights import read_facts
from scopereg.training.checkpoint import read_checkpoint
from scopereg.training.fitting import CHECKPOINT, MODEL, Machine, train
from scopereg.training.settings import TrainSettings
from scopereg.training.source import FrameSource

Maker = Callable[..., VolumeSet]

# 10 volumes, 7 of which train: 4 epochs of batches of 4 are 7 steps, validated after 3, 6 and 7.
SETTINGS = TrainSettings(
    epochs=4, batch=4, frames_per_volume=2, magnitude=3.0, warmup=2, validate_every=3, learning_rate=1e-3, average=0.5
)
MACHINE = Machine(device="cpu")
SECONDS = 180  # after which another process counts as hung


@dataclass(frozen=True)
class Ended:
    """A run that has ended: what it returned and what its folder holds."""

    result: dict[str, Any]
    checkpoint: dict[str, Any]
    model: dict[str, Tensor]
    facts: dict[str, Any]


def run(volumes: VolumeSet, folder: Path, settings: TrainSettings = SETTINGS) -> dict[str, Any]:
    return train(volumes, settings, folder, MACHINE, quiet=True)


def ended(result: dict[str, Any], folder: Path) -> Ended:
    model = folder / MODEL
    return Ended(result, read_checkpoint(folder / CHECKPOINT), load_file(model), read_facts(model))


def assert_same_state(one: Any, other: Any, path: str = "") -> None:
    """Two checkpoints bit by bit, but for the seconds that they took."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), path
        for key in one.keys() - {"seconds", "loss"}:
            assert_same_state(one[key], other[key], f"{path}/{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), path
        for k, pair in enumerate(zip(one, other, strict=True)):
            assert_same_state(*pair, f"{path}/{k}")
    elif isinstance(one, Tensor):
        assert torch.equal(one, other), path
    else:
        assert one == other, path


def assert_same_run(one: Ended, other: Ended) -> None:
    for part in ("network", "average", "optimizer", "progress", "settings", "data_sha256"):
        assert_same_state(one.checkpoint[part], other.checkpoint[part], part)
    assert_same_state(one.model, other.model, "model")
    assert one.facts["step"] == other.facts["step"]


def at_step(monkeypatch: pytest.MonkeyPatch, number: int, action: Callable[[], None]) -> None:
    """Something happens once, while the frames of a step are drawn."""
    original, done = FrameSource.batch, []

    def batch(self: FrameSource, step: int) -> Batch:
        if step == number and not done:
            done.append(step)
            action()
        return original(self, step)

    monkeypatch.setattr(FrameSource, "batch", batch)


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
