"""The network learns: a short training on a CPU, from the pose loss alone, clearly beats no registration."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from scopereg.data import phantom
from scopereg.geometry import VoxelPoses, mtre_mm, sample_poses, sample_slice
from scopereg.networks import ScopeReg
from scopereg.training.losses import pose_loss

# Ends at 0.64 to 0.67 of the identity's error, depending on the seed; untrained networks are at 1.
SHAPE, MAGNITUDE, STEPS = (16, 32, 32), 5.0, 100


def errors(network: ScopeReg, volumes: Tensor) -> tuple[float, float]:
    """Mean target error in voxels at unseen poses, and that of the identity."""
    generator = torch.Generator().manual_seed(99)
    found, none = [], []
    network.eval()
    with torch.no_grad():
        for _ in range(4):
            true = sample_poses(len(volumes), MAGNITUDE, SHAPE, generator)
            result = network(sample_slice(volumes, *true), volumes)
            still = VoxelPoses(torch.eye(3).expand_as(true.rotation), torch.zeros_like(true.translation))
            for guess, kept in ((VoxelPoses(result.rotation, result.translation), found), (still, none)):
                kept.append(mtre_mm(guess, true, SHAPE[1:], 1.0))
    return float(torch.cat(found).mean()), float(torch.cat(none).mean())


@pytest.mark.slow
def test_a_short_training_beats_the_identity() -> None:
    torch.manual_seed(0)
    volumes = torch.stack([phantom.create("echo", seed=seed, shape=SHAPE).volume.array for seed in range(8)])
    network, generator = ScopeReg(), torch.Generator().manual_seed(0)
    optimiser = torch.optim.AdamW(network.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.PolynomialLR(optimiser, STEPS, 0.9)
    before, identity = errors(network, volumes)
    network.train()
    for _ in range(STEPS):
        chosen = volumes[torch.randint(len(volumes), (4,), generator=generator)]
        true = sample_poses(4, MAGNITUDE, SHAPE, generator)
        result = network(sample_slice(chosen, *true), chosen)
        loss = pose_loss(VoxelPoses(result.rotation, result.translation), true, lever=16.0).mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 50.0)
        optimiser.step()
        schedule.step()
    after, _ = errors(network, volumes)
    assert before == pytest.approx(identity, rel=0.1)  # untrained, it answers with the identity
    assert after < 0.7 * identity, (after, identity)
