"""Agreement: X and Z from poses that frames were found at, though some of these are wrong.

Closed forms of many small samples, and least squares from the best of them, in which poses count less the farther they
lie from where the others put them. Where turns are about one axis, or none, closed forms tell nothing: then rotations
all over are begun from as well, and what nothing tells stays where it began.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from scopereg.geometry import rotation_from_euler_deg
from scopereg.geometry.hand_eye import LEAST_PAIRS, hand_eye, hand_eye_of_turn
from scopereg.registration.probe.chain import (
    OF_X,
    STRETCHES,
    Array,
    Chain,
    Grid,
    Rows,
    chain_of,
    distances_mm,
    inverse,
    moves,
    pivots_of,
    steps_between,
)

AGREES_MM = 5.0  # mean distance of a frame's targets from where the others put it: no farther, it agrees
_SAMPLES, _SAMPLE = 40, 4  # random samples, and pairs in each
_REFINED = 8  # starts that least squares begin from
_SCALES_MM = (40.0, 20.0, 10.0, 5.0, 3.0, 2.0)  # from which on poses count less, one after the other
_ROUNDS = 4  # at each
_DAMPING = 1e-6  # share of the curvature of a step: what nothing tells stays as it is


@dataclass(frozen=True, eq=False)
class Pairs:
    """Where the tracker saw the probe, where the frame was found in the volume, and which world the tracker had."""

    tracked: Array  # (N, 4, 4) ProbeToWorld
    found: Array  # (N, 4, 4) ImageToVolume
    worlds: Rows  # (N,) whole numbers from 0
    grid: Grid

    def __len__(self) -> int:
        return len(self.tracked)

    @property
    def count_of_worlds(self) -> int:
        return int(self.worlds.max()) + 1

    def subset(self, rows: Rows) -> Pairs:
        return Pairs(self.tracked[rows], self.found[rows], self.worlds[rows], self.grid)

    def apart_mm(self, chain: Chain) -> Array:
        """How far (N,) each frame was found from where a chain puts it."""
        return distances_mm(chain.predicted(self.tracked, self.worlds), self.found, self.grid)


def agree(pairs: Pairs, known_z: Array | None = None, begin: Chain | None = None, *, seed: int = 0) -> Chain:
    """The chain that most of the poses agree with; `known_z` (worlds, 4, 4) where somebody knows Z.

    `begin` is another start, such as a calibration from before; what the motion does not determine stays as there.
    """
    starts = list(_of_known(pairs, known_z) if known_z is not None else _sought(pairs, seed))
    if begin is not None:
        starts += _from_before(pairs, begin, known_z)
    starts.sort(key=lambda chain: _cost(pairs, chain))
    kept = starts[:_REFINED]
    if begin is not None:  # nearer to it where nothing tells
        kept += _from_before(pairs, begin, known_z)
    fitted = [fit(pairs, chain, known=known_z is not None) for chain in kept]
    costs = [_cost(pairs, chain) for chain in fitted]
    nearly = [chain for chain, cost in zip(fitted, costs, strict=True) if cost <= 1.02 * min(costs) + 1e-9]
    return nearly[-1] if begin is not None else fitted[int(np.argmin(costs))]


def fit(
    pairs: Pairs,
    chain: Chain,
    *,
    known: bool = False,
    information: Array | None = None,
    scales_mm: tuple[float, ...] = _SCALES_MM,
) -> Chain:
    """Least squares from a chain; with `known` Z stays.

    `information` (N, 6, 6) says how well each pose is known along steps of its frame; by default all alike.
    """
    for scale in scales_mm:
        for _ in range(_ROUNDS):
            pivots = pivots_of(chain, pairs.tracked, pairs.worlds)
            design = moves(chain, pairs.tracked, pairs.worlds, pivots)[:, :OF_X, :-STRETCHES]
            design = design[..., :OF_X] if known else design
            apart = steps_between(chain.predicted(pairs.tracked, pairs.worlds), pairs.found, pairs.grid)
            weights = (scale**2 / (scale**2 + np.square(apart).sum(1))) ** 2  # Geman and McClure's
            each = weights[:, None, None] * (np.eye(OF_X) if information is None else information)
            matrix = np.einsum("nki,nkl,nlj->ij", design, each, design)
            slope = np.einsum("nki,nkl,nl->i", design, each, apart)
            damped = matrix + np.diag(_DAMPING * matrix.diagonal() + 1e-12)
            step = np.zeros(OF_X * (1 + len(chain.z)) + STRETCHES)
            step[: len(slope)] = np.linalg.solve(damped, slope)
            chain = chain.moved(step, pivots)
    return chain


def _cost(pairs: Pairs, chain: Chain) -> float:
    return float(_cut(pairs.apart_mm(chain)))


def _cut(apart_mm: Array) -> Array:
    """Mean of distances (..., N), squared and cut."""
    mean: Array = np.square(np.minimum(apart_mm, 2 * AGREES_MM)).mean(-1)
    return mean


def _of_known(pairs: Pairs, known_z: Array) -> Iterator[Chain]:
    """As each frame tells X where Z is known."""
    for tracked, found, world in zip(pairs.tracked, pairs.found, pairs.worlds, strict=True):
        yield chain_of(inverse(tracked) @ inverse(known_z[world]) @ found, list(known_z), pairs.grid)


def _sought(pairs: Pairs, seed: int) -> Iterator[Chain]:
    """Closed forms of the world with most pairs: of all, of samples, and from rotations all over."""
    counts = np.bincount(pairs.worlds)
    rows = np.flatnonzero(pairs.worlds == counts.argmax())
    random, few = np.random.default_rng(seed), min(_SAMPLE, len(rows))
    samples = [rows, *(random.choice(rows, few, replace=False) for _ in range(_SAMPLES))]
    for sample in samples:
        if len(sample) >= LEAST_PAIRS:
            yield _with_all_worlds(pairs, hand_eye(pairs.tracked[sample], pairs.found[sample]).x)
    for turn in _turns_all_over():
        for sample in samples[:3]:
            yield _with_all_worlds(pairs, hand_eye_of_turn(pairs.tracked[sample], pairs.found[sample], turn).x)


def _with_all_worlds(pairs: Pairs, x: Array) -> Chain:
    """Z of each world as that frame of it tells with which most others agree."""
    chosen = []
    for world in range(pairs.count_of_worlds):
        own = pairs.subset(np.flatnonzero(pairs.worlds == world))
        placed = own.tracked @ x
        told = own.found @ inverse(placed)
        apart = distances_mm(told[:, None] @ placed, own.found, own.grid)
        chosen.append(told[int(_cut(apart).argmin())])
    return chain_of(x, chosen, pairs.grid)


def _from_before(pairs: Pairs, begin: Chain, known_z: Array | None) -> list[Chain]:
    if known_z is not None:
        return [chain_of(begin.x, list(known_z), pairs.grid)]
    return [_with_all_worlds(pairs, begin.x)]


def _turns_all_over() -> list[Array]:
    """The 24 rotations that take axes to axes."""
    angles = itertools.product((0.0, 90.0, 180.0, 270.0), repeat=3)
    every = rotation_from_euler_deg(torch.tensor(list(angles), dtype=torch.float64)).numpy().round()
    return list(np.unique(every, axis=0) + 0.0)
