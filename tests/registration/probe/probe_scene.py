"""Tracked poses of a made-up probe, and where its frames lie in a volume; no images."""

from __future__ import annotations

import numpy as np

from scopereg.geometry import Pose
from scopereg.registration.probe.agreement import Pairs
from scopereg.registration.probe.chain import Chain, Grid, chain_of, shifted

GRID = Grid((120, 160), (0.5, 0.4))
PROBE = Pose.from_euler_deg((170, 20, 80), (30, -20, 90)).matrix
WORLDS = [
    Pose.from_euler_deg((-40, 10, 60), (100, -50, 20)).matrix,
    Pose.from_euler_deg((5, 80, -30), (0, 9, 2)).matrix,
]


def scene(
    turns_deg: tuple[float, float, float] = (15, 15, 15),
    *,
    count: int = 16,
    worlds: int = 1,
    noise_mm: float = 0.0,
    noise_deg: float = 0.0,
    wrong: int = 0,
    seed: int = 0,
) -> tuple[Pairs, Chain]:
    """Poses, some of them anywhere, and the true chain."""
    random = np.random.default_rng(seed)
    base = Pose.from_euler_deg((40, -70, 15), (90, 10, -40)).matrix
    spread = [
        Pose.from_euler_deg(random.uniform(-1, 1, 3) * turns_deg, random.uniform(-20, 20, 3)).matrix
        for _ in range(count)
    ]
    tracked, of = np.stack([base @ each for each in spread]), np.arange(count) % worlds
    true = chain_of(PROBE, WORLDS[:worlds], GRID)
    found, middle = true.predicted(tracked, of), shifted(GRID.middle_mm)
    for row in range(count):
        noise = Pose.from_euler_deg(random.normal(0, 1, 3) * noise_deg, random.normal(0, 1, 3) * noise_mm).matrix
        found[row] = found[row] @ middle @ noise @ np.linalg.inv(middle)
    for row in random.choice(count, wrong, replace=False):
        found[row] = Pose.from_euler_deg(random.uniform(-180, 180, 3), random.uniform(-100, 100, 3)).matrix
    return Pairs(tracked, found, of, GRID), true


def error_of(chain: Chain, true: Chain) -> tuple[float, float]:
    """Of X: mm at the middle of the image, and degrees."""
    middle = np.append(chain.grid.middle_mm, 1.0), np.append(true.grid.middle_mm, 1.0)
    turn = Pose.from_matrix(chain.x).angle_to_deg(Pose.from_matrix(true.x))
    return float(np.linalg.norm(chain.x @ middle[0] - true.x @ middle[1])), turn
