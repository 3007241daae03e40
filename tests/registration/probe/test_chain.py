"""Steps of a chain: how frames follow, and pixels that grow about the middle of the image."""

from __future__ import annotations

import numpy as np
import pytest
from probe_scene import GRID, scene

from scopereg.registration.probe.chain import (
    OF_X,
    STRETCHES,
    distances_mm,
    inverse,
    moves,
    pivots_of,
    steps_between,
)


def test_frames_follow_a_step_as_they_are_said_to() -> None:
    pairs, true = scene(worlds=2)
    pivots = pivots_of(true, pairs.tracked, pairs.worlds)
    design = moves(true, pairs.tracked, pairs.worlds, pivots)
    step = np.random.default_rng(1).uniform(-0.02, 0.02, design.shape[2])
    step[-STRETCHES:] = 0
    before, after = (chain.predicted(pairs.tracked, pairs.worlds) for chain in (true, true.moved(step, pivots)))
    assert np.allclose(steps_between(before, after, GRID), (design @ step)[:, :OF_X], atol=1e-4)


def test_the_middle_of_the_image_stays_when_pixels_grow() -> None:
    pairs, true = scene()
    step = np.zeros(2 * OF_X + STRETCHES)
    step[-STRETCHES:] = 0.02 * GRID.lever_mm, -0.01 * GRID.lever_mm
    grown = true.moved(step, pivots_of(true, pairs.tracked, pairs.worlds))
    assert grown.grid.spacing_mm == pytest.approx((0.51, 0.396))
    middles = [chain.x @ np.append(chain.grid.middle_mm, 1) for chain in (true, grown)]
    assert np.allclose(*middles)
    assert np.allclose(grown.with_pixels(GRID.spacing_mm).x, true.x)


def test_distances_are_those_of_the_five_targets() -> None:
    pairs, _ = scene()
    moved = pairs.found.copy()
    moved[:, 0, 3] += 3.0
    assert np.allclose(distances_mm(pairs.found, moved, GRID), 3.0)
    assert np.allclose(inverse(moved) @ moved, np.eye(4))
    assert steps_between(pairs.found, moved, GRID)[:, 3:] == pytest.approx(0, abs=1e-9)
