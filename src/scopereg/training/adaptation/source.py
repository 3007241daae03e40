"""SceneSource: batches to learn from, drawn in one scene; seed and step alone decide the draw."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from scopereg.data.seeds import generator_for
from scopereg.geometry import VoxelPoses, mtre_mm
from scopereg.networks.scope_reg import ScopeReg
from scopereg.training.adaptation.scene import Scene
from scopereg.training.settings import TrainSettings
from scopereg.training.source import Batch, Source

_HELD_OUT_WINDOWS = 4


class SceneSource(Source):
    """Endless batches: every step has one window, encoded once, and all its frames in it."""

    def __init__(self, scene: Scene, settings: TrainSettings) -> None:
        super().__init__(scene.volume.device, settings)
        self.scene = scene

    @torch.no_grad()
    def draw(self, index: int) -> Batch:
        generator = generator_for("frames to adapt with", self.settings.seed, index, device=self.device)
        return self.scene.draw(self.steps_at_once, self.settings.batch, generator)


class HeldOut(NamedTuple):
    """Frames to choose the best weights with: of one seed, with differences that are never learned from."""

    batches: tuple[Batch, ...]
    spacing_mm: float

    @classmethod
    def of(cls, scene: Scene, count: int, seed: int, spacing_mm: float) -> HeldOut:
        """About `count` frames, in some windows where the network is given windows."""
        windows = 1 if scene.anchors is None else min(_HELD_OUT_WINDOWS, count)
        device = scene.volume.device
        batches = []
        for row in range(windows):
            generator = generator_for("held-out frames", seed, row, device=device)
            batches.append(scene.draw(1, -(-count // windows), generator, unseen=True))
        return cls(tuple(batches), spacing_mm)

    @property
    def frames(self) -> int:
        return sum(len(batch.slices) for batch in self.batches)

    @torch.no_grad()
    def errors_mm(self, network: ScopeReg) -> Tensor:
        """mTRE (N,) in mm, in evaluation mode and single precision."""
        training = network.training
        network.eval()
        found = [self._errors_mm(network, batch) for batch in self.batches]
        network.train(training)
        return torch.cat(found)

    def _errors_mm(self, network: ScopeReg, batch: Batch) -> Tensor:
        result = network(batch.slices, batch.volumes)
        height, width = batch.slices.shape[1:]
        return mtre_mm(VoxelPoses(result.rotation, result.translation), batch.poses, (height, width), self.spacing_mm)
