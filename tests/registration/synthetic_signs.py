"""Signs and errors that are made up, with a known relation between them."""

from __future__ import annotations

import numpy as np

from scopereg.registration.confidence import SIGNS


def synthetic(frames: int, seed: int, names: tuple[str, ...] = SIGNS) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Signs, errors that follow them with noise of heavy tails, and patients of four frames."""
    draw = np.random.default_rng(seed)
    signs = draw.normal(size=(frames, len(names)))
    errors = np.exp(0.3 + signs[:, 0] * 0.5 - signs[:, 3] * 0.6 + draw.standard_t(4, size=frames) * 0.3)
    return signs, errors, [f"patient {seed} {row // 4}" for row in range(frames)]
