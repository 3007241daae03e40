"""X and Z of F = Z T X in closed form: exact without noise, and what turns do not tell is said."""

from __future__ import annotations

import numpy as np
import pytest

from scopereg.geometry import Pose
from scopereg.geometry.hand_eye import hand_eye, hand_eye_of_turn, nearest_rotation

X = Pose.from_euler_deg((170, 20, 80), (30, -20, 90)).matrix
Z = Pose.from_euler_deg((-60, 35, 140), (200, 5, -130)).matrix


def pairs(turns_deg: tuple[float, float, float], shift_mm: float, count: int = 6) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    base = Pose.from_euler_deg((40, -70, 15), (90, 10, -40)).matrix
    spread = [
        Pose.from_euler_deg(random.uniform(-1, 1, 3) * turns_deg, random.uniform(-1, 1, 3) * shift_mm).matrix
        for _ in range(count)
    ]
    tracked = np.stack([base @ each for each in spread])
    return tracked, Z @ tracked @ X


def test_both_are_found_exactly() -> None:
    found = hand_eye(*pairs((20, 20, 20), 30))
    assert np.allclose(found.x, X, atol=1e-9)
    assert np.allclose(found.z, Z, atol=1e-8)
    assert found.told > 0.005


def test_three_pairs_are_enough() -> None:
    found = hand_eye(*pairs((40, 40, 40), 30, count=3))
    assert np.allclose(found.x, X, atol=1e-7)


@pytest.mark.parametrize("turns", [(0, 0, 0), (30, 0, 0)])
def test_without_turns_about_two_axes_nothing_tells_the_rotation(turns: tuple[float, float, float]) -> None:
    assert hand_eye(*pairs(turns, 30)).told < 1e-9


def test_with_the_rotation_known_shifts_fit_all_that_is_told() -> None:
    tracked, found = pairs((0, 0, 0), 30)
    told = hand_eye_of_turn(tracked, found, X[:3, :3])
    assert np.allclose(told.z @ tracked @ told.x, found, atol=1e-9)  # though which shift is whose nobody knows
    assert np.allclose(told.z[:3, :3], Z[:3, :3], atol=1e-12)
    exact = hand_eye_of_turn(*pairs((20, 20, 20), 30), X[:3, :3])
    assert np.allclose(exact.x, X, atol=1e-9)


def test_the_nearest_rotation_is_none_of_a_mirror_image() -> None:
    rotation = X[:3, :3]
    assert np.allclose(nearest_rotation(-2.5 * rotation), rotation)
    assert np.linalg.det(nearest_rotation(np.diag([1.0, 1.0, -1e-9]))) == pytest.approx(1)
