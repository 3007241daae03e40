"""Sweeps are smooth, stay in bounds and repeat with their seed."""

from __future__ import annotations

import pytest
import torch

from scopereg.data.poses import sample_sweep
from scopereg.errors import ScopeRegError
from scopereg.geometry import MIN_INSIDE, euler_deg_from_rotation, geodesic_angle_deg, inside_fraction

SHAPE = (32, 128, 128)


def sweep(count: int, seed: int, magnitude: float = 10.0):  # type: ignore[no-untyped-def]
    return sample_sweep(count, magnitude, SHAPE, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("seed", range(5))
def test_steps_are_small_and_bounds_hold(seed: int) -> None:
    poses = sweep(60, seed)
    assert poses.translation.abs().max() <= 10 + 1e-4
    assert euler_deg_from_rotation(poses.rotation).abs().max() <= 10 + 1e-3
    assert (inside_fraction(*poses, SHAPE) >= MIN_INSIDE).all()
    steps = (poses.translation[1:] - poses.translation[:-1]).norm(dim=-1)
    turns = geodesic_angle_deg(poses.rotation[1:], poses.rotation[:-1])
    assert 0 < steps.max() < 2.0
    assert turns.max() < 2.0
    assert (poses.translation[0] - poses.translation[-1]).norm() > 1.0


def test_a_single_frame_and_the_seed() -> None:
    assert sweep(1, 0).rotation.shape == (1, 3, 3)
    assert torch.equal(sweep(7, 1).translation, sweep(7, 1).translation)
    assert not torch.equal(sweep(7, 1).translation, sweep(7, 2).translation)


def test_impossible_sweeps_are_refused() -> None:
    with pytest.raises(ScopeRegError, match="0 frames"):
        sweep(0, 0)
    with pytest.raises(ScopeRegError, match="magnitude"):
        sweep(5, 0, magnitude=1e5)
    with pytest.raises(ScopeRegError, match="magnitude is -5"):
        sweep(5, 0, magnitude=-5)
