"""Rotation maps against scipy, their round trips, and the poles."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from scopereg.errors import ScopeRegError
from scopereg.geometry import (
    euler_deg_from_rotation,
    geodesic_angle_deg,
    rotation_from_6d,
    rotation_from_euler_deg,
    rotation_from_vector,
    six_d_from_rotation,
    vector_from_rotation,
)

EYE = torch.eye(3, dtype=torch.float64)


def random_rotations(count: int = 2000, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(Rotation.random(count, rng=seed).as_matrix())


def angles(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high, allow_nan=False)


def test_euler_is_rz_ry_rx_as_in_scipy() -> None:
    drawn = (torch.rand(2000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) - 0.5) * 720
    expected = Rotation.from_euler("xyz", drawn.numpy(), degrees=True).as_matrix()  # lower case: about fixed axes
    torch.testing.assert_close(rotation_from_euler_deg(drawn), torch.from_numpy(expected), rtol=0, atol=1e-12)


def test_single_axes_turn_the_right_way() -> None:
    turned = rotation_from_euler_deg(90 * torch.eye(3, dtype=torch.float64))
    # About x, y goes to z; about y, z goes to x; about z, x goes to y.
    for axis in range(3):
        torch.testing.assert_close(turned[axis] @ EYE[(axis + 1) % 3], EYE[(axis + 2) % 3])


def test_angles_equal_scipy() -> None:
    rotations = random_rotations()
    expected = Rotation.from_matrix(rotations.numpy()).as_euler("xyz", degrees=True)
    torch.testing.assert_close(euler_deg_from_rotation(rotations), torch.from_numpy(expected), rtol=0, atol=1e-8)


@given(angles(-179.9, 179.9), angles(-89, 89), angles(-179.9, 179.9))
@settings(max_examples=200, deadline=None)
def test_euler_round_trip(x: float, y: float, z: float) -> None:
    given_angles = torch.tensor([x, y, z], dtype=torch.float64)
    found = euler_deg_from_rotation(rotation_from_euler_deg(given_angles))
    torch.testing.assert_close(found, given_angles, rtol=0, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("y", [90.0, -90.0])
def test_at_a_pole_x_is_zero_and_the_rotation_is_kept(y: float, dtype: torch.dtype) -> None:
    rotation = rotation_from_euler_deg(torch.tensor([30.0, y, -50.0], dtype=dtype))
    found = euler_deg_from_rotation(rotation)
    assert found[0] == 0
    assert found[1].item() == pytest.approx(y, abs=1e-3)
    again = rotation_from_euler_deg(found)
    torch.testing.assert_close(again, rotation, rtol=0, atol=20 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_near_a_pole_no_digits_are_lost(dtype: torch.dtype) -> None:
    # Degrees from the pole: below, x and z alone are noise, but together they must give the rotation.
    gaps = torch.logspace(-12, 1, 400, dtype=torch.float64)
    drawn = torch.stack([torch.full_like(gaps, 33.0), 90 - gaps, torch.full_like(gaps, -71.0)], -1)
    # As a product, so that its small entries carry the rounding of large ones, as in a pose that was composed.
    base = random_rotations(1)[0]
    rotation = base.to(dtype) @ (base.T @ rotation_from_euler_deg(drawn)).to(dtype)
    again = rotation_from_euler_deg(euler_deg_from_rotation(rotation))
    torch.testing.assert_close(again, rotation, rtol=0, atol=20 * torch.finfo(dtype).eps)


def test_six_numbers_round_trip_and_orthonormalise() -> None:
    rotations = random_rotations()
    torch.testing.assert_close(rotation_from_6d(six_d_from_rotation(rotations)), rotations, rtol=0, atol=1e-14)
    six = torch.randn(2000, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = rotation_from_6d(six)
    torch.testing.assert_close(found.mT @ found, EYE.expand_as(found), rtol=0, atol=1e-12)
    torch.testing.assert_close(torch.linalg.det(found), torch.ones(2000, dtype=torch.float64))
    # The first column keeps the direction of the first three numbers, the second that of the rest.
    torch.testing.assert_close(found[..., 0], torch.nn.functional.normalize(six[:, :3], dim=-1))
    assert ((found[..., 1] * six[:, 3:]).sum(-1) > 0).all()


def test_geodesic_angle_equals_scipy() -> None:
    first, second = random_rotations(seed=1), random_rotations(seed=2)
    between = Rotation.from_matrix(first.numpy()).inv() * Rotation.from_matrix(second.numpy())
    expected = torch.from_numpy(between.magnitude()).rad2deg()
    torch.testing.assert_close(geodesic_angle_deg(first, second), expected, rtol=0, atol=1e-6)


@given(st.floats(1e-9, 180), st.integers(0, 2))
@settings(max_examples=200, deadline=None)
def test_geodesic_angle_is_exact_for_small_and_large_turns(angle: float, axis: int) -> None:
    turn = torch.zeros(3, dtype=torch.float64)
    turn[axis] = angle
    base = random_rotations(1, seed=3)[0]
    found = geodesic_angle_deg(base, base @ rotation_from_euler_deg(turn))
    assert found.item() == pytest.approx(angle, rel=1e-6, abs=1e-12)


def test_autocast_does_not_coarsen_angles() -> None:
    first, second = (random_rotations(50, seed=s).float() for s in (4, 5))
    with torch.autocast("cpu", torch.bfloat16):
        found = geodesic_angle_deg(first, second)
    assert torch.equal(found, geodesic_angle_deg(first, second))


def test_gradients_reach_the_angles() -> None:
    drawn = torch.tensor([[3.0, -4.0, 5.0]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a: euler_deg_from_rotation(rotation_from_euler_deg(a)), drawn)
    assert torch.autograd.gradcheck(lambda a: geodesic_angle_deg(rotation_from_euler_deg(a), EYE), drawn)


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        (rotation_from_euler_deg, (4, 2)),
        (euler_deg_from_rotation, (3,)),
        (rotation_from_6d, (5,)),
        (six_d_from_rotation, (4, 4)),
        (lambda v: geodesic_angle_deg(EYE, v), (3, 2)),
        (lambda v: geodesic_angle_deg(v, EYE), (2, 3)),
    ],
)
@pytest.mark.unchecked_shapes
def test_wrong_shapes_are_errors(call, shape: tuple[int, ...]) -> None:
    with pytest.raises(ScopeRegError, match=r"the shape is .*\n.*pass shape"):
        call(torch.zeros(shape))


def test_vectors_turn_by_their_length_about_their_direction() -> None:
    drawn = torch.randn(500, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2
    drawn[0], drawn[1] = 0, 1e-12
    expected = torch.from_numpy(Rotation.from_rotvec(drawn.numpy()).as_matrix())
    torch.testing.assert_close(rotation_from_vector(drawn), expected, rtol=0, atol=1e-12)


def test_rotations_give_their_vectors_back() -> None:
    turned = random_rotations()
    torch.testing.assert_close(rotation_from_vector(vector_from_rotation(turned)), turned, rtol=0, atol=1e-12)
    small = torch.randn(
        200, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    ) * 10.0 ** -torch.arange(200).unsqueeze(1).remainder(14)
    torch.testing.assert_close(vector_from_rotation(rotation_from_vector(small)), small, rtol=1e-6, atol=1e-15)
    half = torch.tensor([[torch.pi, 0, 0], [0, torch.pi, 0], [0, 0, torch.pi]], dtype=torch.float64)
    torch.testing.assert_close(vector_from_rotation(rotation_from_vector(half)).abs(), half, rtol=0, atol=1e-7)
    assert not vector_from_rotation(EYE).any()
