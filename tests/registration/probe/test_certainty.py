"""What the motion determines: intervals that noise and poor motions widen, and words for what nothing tells."""

from __future__ import annotations

import numpy as np
import pytest
from probe_scene import GRID, scene

from scopereg.registration.probe.certainty import Certainty, certainty_of
from scopereg.registration.probe.chain import OF_X, STRETCHES, moves, pivots_of
from scopereg.registration.probe.likeness import Equations

SEEN = np.diag([4.0] * 6 + [4.0] * 2)  # curvature of a frame, one over mm squared


def certainty(turns_deg: tuple[float, float, float], *, noise_mm: float = 0.3, known: bool = False) -> Certainty:
    """Frames whose own minima lie off by noise."""
    pairs, true = scene(turns_deg, count=40)
    design = moves(true, pairs.tracked, pairs.worlds, pivots_of(true, pairs.tracked, pairs.worlds))
    off = np.random.default_rng(4).normal(0, noise_mm, (40, OF_X + STRETCHES))
    equations = Equations(np.zeros(40), design, np.broadcast_to(SEEN, (40, 8, 8)), -off @ SEEN)
    sought = np.ones(design.shape[2], bool)
    sought[OF_X:-STRETCHES] = not known
    return certainty_of(equations, np.ones(40), np.flatnonzero(sought), GRID.lever_mm)


def test_turns_about_all_axes_determine_everything() -> None:
    told = certainty((20, 20, 20))
    assert told.determined
    assert max(told.offset_mm) < 2.5
    assert max(told.turn_deg) < 1.5
    assert max(told.offset_mm) <= told.worst_offset_mm + 1e-9


def test_noise_and_small_turns_widen_the_intervals() -> None:
    good, noisy, small = certainty((20, 20, 20)), certainty((20, 20, 20), noise_mm=2), certainty((8, 8, 8))
    assert noisy.worst_offset_mm > 1.5 * good.worst_offset_mm
    assert small.worst_offset_mm > 1.8 * good.worst_offset_mm


@pytest.mark.parametrize("turns", [(0, 0, 0), (0.3, 0.3, 0.3)])
def test_without_turns_the_offset_is_not_determined(turns: tuple[float, float, float]) -> None:
    told = certainty(turns)
    assert not told.determined
    assert sum("the offset" in words for words in told.undetermined) == 3
    assert told.worst_offset_mm > 20


def test_turns_about_one_axis_leave_the_offset_along_it_open() -> None:
    told = certainty((0, 0, 20))
    open_ones = [words for words in told.undetermined if "the offset" in words]
    assert len(open_ones) == 1
    assert told.worst_offset_mm > 100


def test_where_the_world_is_known_all_is_determined() -> None:
    told = certainty((0, 0, 0), known=True)
    assert told.determined
    assert told.worst_offset_mm < 0.5


def test_intervals_hold_what_they_promise() -> None:
    """Of noise alone, over many draws: the part that is assumed for what frames share is small beside it."""
    pairs, true = scene((25, 25, 25), count=40)
    design = moves(true, pairs.tracked, pairs.worlds, pivots_of(true, pairs.tracked, pairs.worlds))
    matrix = np.broadcast_to(SEEN, (40, 8, 8))
    whole = np.einsum("nki,nkl,nlj->ij", design, matrix, design)
    free, within = np.arange(design.shape[2]), []
    for seed in range(60):
        slope = np.random.default_rng(seed).normal(0, 1.5, (40, 8)) @ SEEN
        step = -np.linalg.solve(whole, np.einsum("nki,nk->i", design, slope))
        left = slope + np.einsum("nkl,nlj,j->nk", matrix, design, step)  # at the best for all
        told = certainty_of(Equations(np.zeros(40), design, matrix, left), np.ones(40), free, GRID.lever_mm)
        within += (np.abs(step[:3]) <= told.offset_mm).tolist()
    assert 0.88 < np.mean(within) <= 1
