"""Losses: zero at the truth, the size they should have elsewhere, gradients that are right and finite."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from scopereg.errors import ScopeRegError
from scopereg.geometry import VoxelPoses, rotation_from_euler_deg, sample_poses
from scopereg.networks import NetworkResult
from scopereg.training.losses import (
    ROUND_VOXELS,
    coordinate_loss,
    distance_loss,
    elasticity_loss,
    flow_loss,
    pose_loss,
    reference_points,
    slice_field,
    total_loss,
    true_field,
)
from scopereg.training.presets import PAPER


def poses(count: int = 3) -> VoxelPoses:
    return sample_poses(count, 10, (32, 64, 64), torch.Generator().manual_seed(0))


def test_reference_points_are_eight_corners_and_six_face_centres() -> None:
    points = reference_points(43.0)
    assert points.shape == (14, 3)
    assert sorted(points.abs().sum(-1).tolist()) == [43.0] * 6 + [129.0] * 8
    assert len(points.unique(dim=0)) == 14


def test_pose_loss_of_a_shift_is_its_square() -> None:
    true = poses()
    shifted = true._replace(translation=true.translation + torch.tensor([1.0, -2.0, 2.0]))
    assert torch.allclose(pose_loss(true, true), torch.zeros(3))
    assert torch.allclose(pose_loss(shifted, true), torch.full((3,), 9.0), atol=1e-4)


def test_pose_loss_of_a_turn_grows_with_the_lever() -> None:
    true = VoxelPoses(torch.eye(3)[None], torch.zeros(1, 3))
    turned = true._replace(rotation=rotation_from_euler_deg(torch.tensor([[0.0, 0.0, 5.0]])))
    # The mean squared distance from the z axis over the 14 points is (8 * 2 + 4) / 14 lever^2.
    wanted = 43.0**2 * (20 / 14) * (2 * torch.sin(torch.deg2rad(torch.tensor(2.5)))) ** 2
    assert torch.allclose(pose_loss(turned, true), wanted[None], rtol=1e-4)


@pytest.mark.parametrize("length", [0.0, 0.1, 30.0])
def test_distance_loss_of_a_shift_is_its_length_rounded_off_near_zero(length: float) -> None:
    true = poses()
    shifted = true._replace(translation=true.translation + length * torch.tensor([2.0, -1.0, 2.0]) / 3)
    wanted = (length**2 + ROUND_VOXELS**2) ** 0.5 - ROUND_VOXELS
    assert torch.allclose(distance_loss(shifted, true), torch.full((3,), wanted), atol=1e-4)


def test_distance_loss_of_a_turn_grows_with_the_lever() -> None:
    true = VoxelPoses(torch.eye(3)[None], torch.zeros(1, 3))
    turned = true._replace(rotation=rotation_from_euler_deg(torch.tensor([[0.0, 0.0, 60.0]])))
    # A turn by 60 degrees moves a point by its distance from the axis: 8 corners, 4 face centres, 2 on the axis.
    moves = 1000 * torch.tensor([2**0.5] * 8 + [1.0] * 4 + [0.0] * 2)
    assert torch.allclose(distance_loss(turned, true, 1000.0), moves.mean()[None], rtol=1e-3)


def test_coordinate_loss_of_a_field_is_its_mean_distance_in_voxels() -> None:
    true = poses()
    exact = true_field(slice_field(torch.zeros(3, 3, 8, 10)), true)
    assert coordinate_loss(exact, true).abs().max() < 1e-5
    # Half of the cells are off by 3 cells of 8 voxels.
    wrong = exact.clone()
    wrong[:, 1, :4] += 3
    wanted = ((24**2 + ROUND_VOXELS**2) ** 0.5 - ROUND_VOXELS) / 2
    assert torch.allclose(coordinate_loss(wrong, true), torch.full((3,), wanted), rtol=1e-4)


def test_distances_have_a_slope_of_zero_at_the_truth() -> None:
    true = poses()
    shift = true.translation.clone().requires_grad_()
    field = true_field(slice_field(torch.zeros(3, 3, 4, 4)), true).requires_grad_()
    (distance_loss(true._replace(translation=shift), true) + coordinate_loss(field, true)).sum().backward()
    assert shift.grad is not None
    assert field.grad is not None
    assert torch.equal(shift.grad, torch.zeros(3, 3))
    assert torch.isfinite(field.grad).all()


def test_both_field_losses_vanish_on_the_true_field_and_not_off_it() -> None:
    true = poses()
    exact = true_field(slice_field(torch.zeros(3, 3, 8, 10)), true)
    assert flow_loss(exact, true).abs().max() < 1e-6
    assert elasticity_loss(exact).abs().max() < 1e-6  # a rigid field is stress-free
    bent = exact + 0.1 * torch.randn(exact.shape, generator=torch.Generator().manual_seed(1))
    assert flow_loss(bent, true).min() > 1e-3
    assert elasticity_loss(bent).min() > 1e-3


def test_flow_loss_of_a_constant_offset_is_smooth_l1_of_it() -> None:
    true = poses()
    exact = true_field(slice_field(torch.zeros(3, 3, 8, 10)), true)
    assert torch.allclose(flow_loss(exact + 0.5, true), torch.full((3,), 0.125), atol=1e-5)


def test_elasticity_equals_the_equation_on_a_known_field() -> None:
    """u = (x^2, x y, 0): Laplacian (2, 0, 0), divergence 3 x, its gradient (3, 0, 0)."""
    base = slice_field(torch.zeros(1, 3, 9, 9))
    x, y = base[:, 0], base[:, 1]
    field = torch.stack([x**2, x * y, torch.zeros_like(x)], 1)
    wanted = (2 + 3 / (1 - 2 * 0.3)) ** 2
    assert torch.allclose(elasticity_loss(base + field, 0.3), torch.tensor([wanted]), rtol=1e-4)


@pytest.mark.parametrize("loss", ["flow", "elasticity", "pose"])
def test_gradients_are_right_and_finite_at_the_start(loss: str) -> None:
    true = VoxelPoses(*(v.double() for v in poses(2)))
    start = slice_field(torch.zeros(2, 3, 5, 6, dtype=torch.float64))
    noisy = (start + 0.2 * torch.randn(start.shape, generator=torch.Generator().manual_seed(2))).requires_grad_()
    shift = torch.randn(2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).requires_grad_()
    functions = {
        "flow": (lambda q: flow_loss(q, true), noisy),
        "elasticity": (elasticity_loss, noisy),
        "pose": (lambda t: pose_loss(VoxelPoses(true.rotation, t), true, 43.0), shift),
    }
    function, argument = functions[loss]
    assert torch.autograd.gradcheck(function, argument)
    flat = start.clone().requires_grad_()
    flow_loss(flat, true).sum().backward()
    assert flat.grad is not None
    assert torch.isfinite(flat.grad).all()


def test_options_add_the_regularisers_by_their_weights() -> None:
    true = poses()
    field = slice_field(torch.zeros(3, 3, 8, 10)) + torch.randn(3, 3, 8, 10, generator=torch.Generator().manual_seed(4))
    result = NetworkResult(torch.eye(3).expand(3, 3, 3), torch.zeros(3, 3), field)
    plain = total_loss(result, true)
    assert torch.equal(plain, pose_loss(VoxelPoses(result.rotation, result.translation), true))
    mixed = total_loss(result, true, replace(PAPER, flow=2.0, elasticity=0.5))
    assert torch.allclose(mixed, plain + 2 * flow_loss(field, true) + 0.5 * elasticity_loss(field))
    near = total_loss(result, true, replace(PAPER, loss="distance", lever_voxels=20.0, coordinates=3.0))
    distance = distance_loss(VoxelPoses(result.rotation, result.translation), true, 20.0)
    assert torch.allclose(near, distance + 3 * coordinate_loss(field, true))


def test_a_network_without_a_field_cannot_be_regularised() -> None:
    result = NetworkResult(torch.eye(3)[None], torch.zeros(1, 3))
    true = poses(1)
    assert total_loss(result, true).shape == (1,)
    for options in (replace(PAPER, coordinates=1.0), replace(PAPER, flow=1.0), replace(PAPER, elasticity=1.0)):
        with pytest.raises(ScopeRegError, match="no coordinate field"):
            total_loss(result, true, options)


def test_fields_without_derivatives_are_refused() -> None:
    small = torch.zeros(1, 3, 2, 2)
    with pytest.raises(ScopeRegError, match="too few cells"):
        elasticity_loss(small)
    with pytest.raises(ScopeRegError, match="too few cells"):
        flow_loss(small[..., :1], poses(1))
    with pytest.raises(ScopeRegError, match="Poisson"):
        elasticity_loss(torch.zeros(1, 3, 4, 4), 0.5)
