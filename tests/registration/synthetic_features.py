"""Quality features and errors that are made up, with a known relation between them."""

from __future__ import annotations

import numpy as np

from scopereg.registration.confidence import QUALITY_FEATURES


def synthetic(
    frames: int, seed: int, names: tuple[str, ...] = QUALITY_FEATURES
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Quality features, errors that follow them with noise of heavy tails, and patients of four frames."""
    draw = np.random.default_rng(seed)
    features = draw.normal(size=(frames, len(names)))
    errors = np.exp(0.3 + features[:, 0] * 0.5 - features[:, 3] * 0.6 + draw.standard_t(4, size=frames) * 0.3)
    return features, errors, [f"patient {seed} {row // 4}" for row in range(frames)]
