"""Sweeps are smooth and stay in bounds; evaluation poses belong to their case and are those that were stored."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from scopereg.data.poses import evaluation_poses, read_poses, sample_sweep, write_poses
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


CASES = ("patient0001_2CH", "patient0001_4CH", "patient0002_4CH")


def test_evaluation_poses_obey_the_rule() -> None:
    for magnitude in (10.0, 25.0):
        rotation, translation = poses = evaluation_poses(CASES, SHAPE, magnitude)
        assert (rotation.shape, translation.shape) == ((12, 3, 3), (12, 3))
        assert translation.abs().max() <= magnitude
        assert euler_deg_from_rotation(rotation).abs().max() <= magnitude + 1e-3
        assert (inside_fraction(*poses, SHAPE) >= MIN_INSIDE).all()
        assert len(torch.unique(translation, dim=0)) == 12


def test_a_case_has_the_same_poses_in_any_company() -> None:
    poses = evaluation_poses(CASES, SHAPE, 10)
    alone = evaluation_poses(CASES[1:2], SHAPE, 10)
    assert torch.equal(alone.rotation, poses.rotation[4:8])
    assert torch.equal(alone.translation, poses.translation[4:8])
    fewer = evaluation_poses(CASES[1:2], SHAPE, 10, frames=2)
    assert torch.equal(fewer.translation, alone.translation[:2])
    for changed in (evaluation_poses(CASES[1:2], SHAPE, 10, seed=1), evaluation_poses(CASES[1:2], SHAPE, 15)):
        assert not torch.equal(changed.translation, alone.translation)


def test_these_evaluation_poses_stay_as_they_are() -> None:
    """Stored results were measured at them."""
    translation = evaluation_poses(CASES[:1], SHAPE, 10).translation
    expected = torch.tensor([-7.7299, 8.1175, -3.8598])
    assert torch.allclose(translation[0], expected, atol=1e-4)


def test_the_identity_is_as_far_off_as_in_the_paper() -> None:
    """TransErr of no registration at all, 5.93 mm at 0.616 mm; 800 poses."""
    poses = evaluation_poses([f"case{k}" for k in range(200)], SHAPE, 10)
    assert poses.translation.norm(dim=-1).mean() * 0.616 == pytest.approx(5.93, abs=0.15)


def test_evaluation_poses_are_stored_and_read_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "poses.npz"
    facts = write_poses(path, CASES, SHAPE)
    for magnitude in (10, 15, 20, 25):
        stored, drawn = read_poses(path, facts, magnitude, len(CASES)), evaluation_poses(CASES, SHAPE, magnitude)
        assert torch.equal(stored.rotation, drawn.rotation)
        assert torch.equal(stored.translation, drawn.translation)
    with pytest.raises(ScopeRegError, match="magnitude 12"):
        read_poses(path, facts, 12, len(CASES))
    write_poses(path, CASES[::-1], SHAPE)
    with pytest.raises(ScopeRegError, match="not those"):
        read_poses(path, facts, 10, len(CASES))
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ScopeRegError, match="cannot be read"):
        read_poses(path, facts, 10, len(CASES))


def test_magnitudes_that_a_volume_is_too_small_for_are_left_out(tmp_path: Path) -> None:
    facts = write_poses(tmp_path / "poses.npz", CASES[:1], (2, 200, 200))
    assert facts["left_out"]
    with pytest.raises(ScopeRegError, match="no poses of magnitude 25 are stored: only"):
        read_poses(tmp_path / "poses.npz", facts, 25, 1)
    with pytest.raises(ScopeRegError, match="no cases"):
        evaluation_poses((), SHAPE, 10)
