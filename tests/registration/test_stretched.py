"""Likenesses that also tell how large pixels should be: their equations are those of the merit."""

from __future__ import annotations

import pytest
import torch

from scopereg.geometry import VoxelPoses, sample_slice
from scopereg.geometry.steps import moved
from scopereg.registration.grey import Grey, blur
from scopereg.registration.learned import make_learned
from scopereg.registration.likeness import Comparison, Stretchable

THERE = VoxelPoses(torch.eye(3)[None], torch.tensor([[0.4, -0.3, 0.2]]))


def comparisons(kind: str) -> list[Comparison]:
    volume = blur(torch.rand(1, 24, 48, 56, generator=torch.Generator().manual_seed(3)), 2.0)[0]
    volume = (volume - volume.min()) / (volume.max() - volume.min())
    frame = sample_slice(volume, *THERE)
    likeness = Grey() if kind == "grey" else make_learned(torch.device("cpu"), False)
    return list(likeness.prepare(volume, None).compare(frame, torch.ones_like(frame)))


@pytest.mark.parametrize(("kind", "nearly"), [("grey", 0.3), ("learned", 0.5)])  # its slopes are those of features
@torch.no_grad()
def test_stretches_are_those_of_the_merit(kind: str, nearly: float) -> None:
    for level in comparisons(kind)[1:2]:
        assert isinstance(level, Stretchable)
        off = torch.tensor([[1.03, 0.98, 1.0]])
        sized = VoxelPoses(THERE.rotation * off, THERE.translation)
        at = level.stretched(sized)
        assert at.matrix.shape == (1, 8, 8)
        assert torch.linalg.eigvalsh(at.matrix).min() > -1e-5 * at.matrix.abs().max()
        for axis in (0, 1):
            change = torch.zeros(1, 3)
            change[0, axis] = 0.02 / level.lever
            up, down = (
                float(level.stretched(VoxelPoses(sized.rotation * (1 + sign * change), sized.translation)).merit)
                for sign in (1, -1)
            )
            slope = -(up - down) / 0.04
            assert float(at.slope[0, 6 + axis]) == pytest.approx(slope, rel=nearly, abs=0.1 * float(at.slope.norm()))


@pytest.mark.parametrize("kind", ["grey", "learned"])
@torch.no_grad()
def test_the_other_equations_are_those_without_stretches(kind: str) -> None:
    level = comparisons(kind)[-1]
    assert isinstance(level, Stretchable)
    poses = moved(THERE, torch.full((1, 6), 0.3), level.lever)
    with_sizes, without = level.stretched(poses), level.normal(poses)
    assert torch.allclose(
        with_sizes.matrix[:, :6, :6], without.matrix, rtol=1e-3, atol=1e-4 * float(without.matrix.max())
    )
    assert torch.allclose(
        with_sizes.slope[:, :6], without.slope, rtol=1e-3, atol=1e-4 * float(without.slope.abs().max())
    )
    assert torch.allclose(with_sizes.merit, without.merit, rtol=1e-4)
