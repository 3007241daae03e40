"""The closed-form fit: against roma and scipy, the minimiser, and gradients where an SVD fails."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import roma
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.geometry import (
    geodesic_angle_deg,
    plane_points,
    polar_rotation,
    rotation_from_euler_deg,
    weighted_kabsch,
)

F64 = torch.float64


def point_sets(count: int, points: int, thin: float, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Plane points (count, points, 2) squeezed to a strip, noisy rigid images of them, and weights."""
    generator = torch.Generator().manual_seed(seed)
    turn = 2 * torch.pi * torch.rand(count, 1, generator=generator, dtype=F64)
    x, y = (10 * torch.randn(count, points, 2, generator=generator, dtype=F64)).unbind(-1)
    y = thin * y
    source = torch.stack([turn.cos() * x - turn.sin() * y, turn.sin() * x + turn.cos() * y], -1)
    rotation = torch.from_numpy(Rotation.random(count, rng=seed).as_matrix())
    noise = 0.1 * thin * torch.randn(count, points, 3, generator=generator, dtype=F64)
    shift = 5 * torch.randn(count, 1, 3, generator=generator, dtype=F64)
    target = source @ rotation[..., :2].mT + shift + noise
    return source, target, torch.rand(count, points, generator=generator, dtype=F64)


def lifted(source: Tensor) -> Tensor:
    return torch.cat([source, torch.zeros_like(source[..., :1])], -1)


def cost(rotation: Tensor, source: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """Weighted squared distance under the best translation for `rotation`."""
    residual = target - source @ rotation[..., :2].mT
    share = (weights / weights.sum(-1, keepdim=True)).unsqueeze(-1)
    residual = residual - (share * residual).sum(-2, keepdim=True)
    return (share * residual.square()).sum((-1, -2))


def assert_rotations(rotation: Tensor, atol: float) -> None:
    rotation = rotation.double()
    torch.testing.assert_close(rotation.mT @ rotation, torch.eye(3, dtype=F64).expand_as(rotation), rtol=0, atol=atol)
    assert (torch.linalg.det(rotation) > 0).all()


@pytest.mark.parametrize(("thin", "tolerance_deg"), [(1.0, 1e-8), (0.1, 1e-8), (0.01, 1e-7), (1e-3, 1e-5)])
def test_equals_roma_on_random_point_sets(thin: float, tolerance_deg: float) -> None:
    source, target, weights = point_sets(2000, 16, thin, seed=int(1 / thin))
    fit = weighted_kabsch(source, target, weights)
    rotation, translation = roma.rigid_points_registration(lifted(source), target, weights)
    assert geodesic_angle_deg(fit.rotation, rotation).max() < tolerance_deg
    torch.testing.assert_close(fit.translation, translation, rtol=0, atol=tolerance_deg)


@pytest.mark.parametrize(("thin", "tolerance_deg"), [(1.0, 1e-7), (1e-2, 1e-6), (1e-4, 1e-4)])
def test_equals_scipy_on_random_point_sets(thin: float, tolerance_deg: float) -> None:
    # At 1e-4 roma no longer finds the minimum; scipy does.
    source, target, weights = point_sets(1000, 12, thin, seed=7)
    fit = weighted_kabsch(source, target, weights)
    share = (weights / weights.sum(-1, keepdim=True)).unsqueeze(-1)
    a = target - (share * target).sum(-2, keepdim=True)
    b = lifted(source) - (share * lifted(source)).sum(-2, keepdim=True)
    expected = np.stack(
        [
            Rotation.align_vectors(a[i].numpy(), b[i].numpy(), weights=weights[i].numpy())[0].as_matrix()
            for i in range(len(source))
        ]
    )
    assert geodesic_angle_deg(fit.rotation, torch.from_numpy(expected)).max() < tolerance_deg


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("thin", [1.0, 1e-2, 1e-3, 1e-5, 1e-8, 0.0])
def test_is_a_rotation_however_thin_the_points_lie(thin: float, dtype: torch.dtype) -> None:
    source, target, weights = (v.to(dtype) for v in point_sets(2000, 9, thin, seed=3))
    fit = weighted_kabsch(source, target, weights)
    assert_rotations(fit.rotation, atol=10 * torch.finfo(dtype).eps)
    # What the points determine is met. The covariance sees their width squared: once that drowns in rounding, only
    # the line is found, and the points may end on its wrong side.
    eps = torch.finfo(dtype).eps
    wrong_side = 0 if thin**2 > 1e3 * eps else 60 * thin
    left = cost(fit.rotation.double(), source.double(), target.double(), weights.double()).sqrt()
    assert left.max() < 0.3 * thin + wrong_side + 1e3 * eps


def test_no_other_rotation_is_better() -> None:
    source, target, weights = point_sets(200, 8, 1.0, seed=11)
    target = target + 5 * torch.randn(target.shape, dtype=F64, generator=torch.Generator().manual_seed(1))
    best = weighted_kabsch(source, target, weights)
    least = cost(best.rotation, source, target, weights)
    for angle in (0.01, 1.0, 30.0, 180.0):
        for seed in range(20):
            axes = torch.randn(200, 3, dtype=F64, generator=torch.Generator().manual_seed(seed))
            turn = roma.rotvec_to_rotmat(torch.nn.functional.normalize(axes, dim=-1) * np.deg2rad(angle))
            assert (cost(turn @ best.rotation, source, target, weights) > least).all()
    for shift in torch.randn(50, 3, dtype=F64, generator=torch.Generator().manual_seed(2)):
        moved = source @ best.rotation[..., :2].mT + (best.translation + 0.01 * shift)[:, None]
        assert (
            ((weights / weights.sum(-1, keepdim=True))[..., None] * (moved - target).square())
            .sum((1, 2))
            .gt(least)
            .all()
        )


def test_a_weight_of_zero_takes_a_point_out() -> None:
    source, target, weights = point_sets(50, 10, 1.0, seed=4)
    weights[:, 6:] = 0
    whole, part = (
        weighted_kabsch(source, target, weights),
        weighted_kabsch(source[:, :6], target[:, :6], weights[:, :6]),
    )
    torch.testing.assert_close(whole.rotation, part.rotation)
    torch.testing.assert_close(whole.translation, part.translation)


@given(
    st.tuples(*[st.floats(-170, 170)] * 3),
    st.tuples(*[st.floats(-100, 100)] * 3),
    st.floats(1e-3, 1e3),
)
@settings(max_examples=100, deadline=None)
def test_finds_the_pose_of_a_rigid_field(angles: tuple, shift: tuple, mass: float) -> None:
    rotation = rotation_from_euler_deg(torch.tensor(angles, dtype=F64))
    translation = torch.tensor(shift, dtype=F64)
    source = plane_points((5, 7), dtype=F64).flatten(0, 1)
    fit = weighted_kabsch(source, source @ rotation[:, :2].T + translation, torch.full((35,), mass, dtype=F64))
    torch.testing.assert_close(fit.rotation, rotation, rtol=0, atol=1e-12)
    torch.testing.assert_close(fit.translation, translation, rtol=0, atol=1e-10)


# Gradients


def square_grid_case(dtype: torch.dtype = F64) -> tuple[Tensor, Tensor, Tensor]:
    """Uniform weights, a rigid field (a quarter turn, so that no rounding parts the singular values), a square grid."""
    source = plane_points((8, 8), dtype=dtype).flatten(0, 1)
    quarter = torch.tensor([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]], dtype=dtype)
    target = source @ quarter[:, :2].T + torch.tensor([1.0, 2, 3], dtype=dtype)
    return source, target.requires_grad_(), torch.ones(64, dtype=dtype, requires_grad=True)


def svd_kabsch(source: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """The usual textbook solver."""
    share = (weights / weights.sum()).unsqueeze(-1)
    p, q = lifted(source), target
    covariance = (share * (q - (share * q).sum(0))).T @ (p - (share * p).sum(0))
    u, _, vh = torch.linalg.svd(covariance)
    sign = torch.det(u @ vh).sign()
    return u @ torch.diag(torch.stack([torch.ones_like(sign), torch.ones_like(sign), sign])) @ vh


def weighted_sum(rotation: Tensor) -> Tensor:
    return (rotation * torch.arange(9, dtype=rotation.dtype).reshape(3, 3)).sum()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradient_is_finite_where_an_svd_gives_nan(dtype: torch.dtype) -> None:
    source, target, weights = square_grid_case(dtype)
    by_svd = torch.autograd.grad(weighted_sum(svd_kabsch(source, target, weights)), target)[0]
    assert by_svd.isnan().any()  # the reason for the closed form
    fit = weighted_kabsch(source, target, weights)
    torch.testing.assert_close(fit.rotation, svd_kabsch(source, target, weights))
    for gradient in torch.autograd.grad(weighted_sum(fit.rotation) + fit.translation.sum(), (target, weights)):
        assert gradient.isfinite().all()
    assert (
        torch.autograd.grad(weighted_sum(weighted_kabsch(source, target, weights).rotation), target)[0].abs().sum() > 0
    )


def test_gradcheck_on_the_square_grid() -> None:
    source, target, weights = square_grid_case()
    assert torch.autograd.gradcheck(lambda t, w: weighted_kabsch(source, t, w), (target, weights))


@pytest.mark.parametrize("thin", [1.0, 0.1])
def test_gradcheck_on_random_points(thin: float) -> None:
    inputs = tuple(v.requires_grad_() for v in point_sets(3, 6, thin, seed=5))
    assert torch.autograd.gradcheck(weighted_kabsch, inputs, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", ["line", "point", "one point"])
def test_undetermined_sets_give_a_rotation_and_finite_gradients(case: str, dtype: torch.dtype) -> None:
    source = plane_points((4, 4), dtype=dtype).flatten(0, 1)
    target = torch.randn(16, 3, dtype=dtype, generator=torch.Generator().manual_seed(0))
    weights = torch.ones(16, dtype=dtype)
    if case == "line":
        target = source[:, :1] * torch.tensor([1.0, 2, 2], dtype=dtype)
    elif case == "point":
        target = torch.zeros(16, 3, dtype=dtype) + 3
    else:
        weights = torch.eye(16, dtype=dtype)[5]
    target.requires_grad_()
    fit = weighted_kabsch(source, target, weights)
    assert_rotations(fit.rotation.detach(), atol=10 * torch.finfo(dtype).eps)
    assert torch.autograd.grad(weighted_sum(fit.rotation) + fit.translation.sum(), target)[0].isfinite().all()


@pytest.mark.parametrize("direction", [(1.0, 0, 0), (0, 1.0, 0), (0, 0, 1.0), (0, -1.0, 0), (-1.0, 0, 0)])
@pytest.mark.parametrize("along", [0, 1])
def test_collinear_points_along_the_axes(direction: tuple, along: int) -> None:
    source = torch.zeros(5, 2)
    source[:, along] = torch.arange(5.0) - 2
    fit = weighted_kabsch(source, source.sum(1, keepdim=True) * torch.tensor(direction), torch.ones(5))
    assert_rotations(fit.rotation, atol=1e-6)
    torch.testing.assert_close(fit.rotation[:, along], torch.tensor(direction))
    if direction == ((1.0, 0, 0), (0, 1.0, 0))[along]:
        torch.testing.assert_close(fit.rotation, torch.eye(3))  # of all that fit, the one that turns nothing


def test_no_shape_takes_a_second_to_check() -> None:
    """torch.broadcast_shapes imports SymPy: a quarter of the time to the first pose."""
    code = (
        "import sys, torch\nfrom scopereg.geometry.kabsch import weighted_kabsch\n"
        "weighted_kabsch(torch.rand(4, 2), torch.rand(3, 4, 3), torch.rand(1, 4))\nprint('sympy' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"


def test_a_matrix_of_zeros_gives_the_identity() -> None:
    assert torch.equal(polar_rotation(torch.zeros(4, 3, 2)), torch.eye(3).expand(4, 3, 3))


@pytest.mark.parametrize("scale", [1e-15, 1e-6, 1e6, 1e15])
def test_scale_does_not_matter(scale: float) -> None:
    matrix = torch.randn(100, 3, 2, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(polar_rotation(matrix * scale), polar_rotation(matrix), rtol=0, atol=1e-5)


def test_half_precision_and_autocast_are_solved_in_single() -> None:
    source, target, weights = (v.float() for v in point_sets(20, 30, 1.0, seed=6))
    single = weighted_kabsch(source, target, weights)
    with torch.autocast("cpu", torch.bfloat16):
        inside = weighted_kabsch(source, target, weights)
    assert torch.equal(inside.rotation, single.rotation)
    assert weighted_kabsch(source.bfloat16(), target.bfloat16(), weights.bfloat16()).rotation.dtype == torch.float32


@pytest.mark.parametrize(
    ("source", "target", "weights"),
    [
        ((5, 3), (5, 3), (5,)),
        ((5, 2), (5, 2), (5,)),
        ((5, 2), (4, 3), (5,)),
        ((5, 2), (5, 3), (4,)),
        ((0, 2), (0, 3), (0,)),
        ((2, 5, 2), (3, 5, 3), (5,)),
    ],
)
@pytest.mark.unchecked_shapes
def test_wrong_shapes_are_errors(source: tuple, target: tuple, weights: tuple) -> None:
    with pytest.raises(ScopeRegError, match=r"do not fit[^\0]*pass source_xy"):
        weighted_kabsch(torch.zeros(source), torch.zeros(target), torch.zeros(weights))
