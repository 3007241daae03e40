"""Parts that hang together, as SciPy finds them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from scopereg.io.components import components


@pytest.mark.parametrize(("shape", "share"), [((40, 61), 0.3), ((30, 30), 0.5), ((200, 150), 0.42), ((1, 9), 0.6)])
@pytest.mark.parametrize("seed", range(3))
def test_parts_are_those_of_scipy(shape: tuple[int, int], share: float, seed: int) -> None:
    bits = np.random.default_rng(seed).random(shape) < share
    labels, parts = components(bits)
    known, count = ndimage.label(bits, np.ones((3, 3)))
    assert len(parts) == count
    assert not labels[~bits].any()
    assert len(set(zip(labels[bits].tolist(), known[bits].tolist(), strict=True))) == count
    for number, part in enumerate(parts, 1):
        rows, columns = np.nonzero(labels == number)
        assert part == (len(rows), columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)


def test_nothing_and_everything() -> None:
    assert components(np.zeros((4, 5), bool))[1] == []
    labels, (part,) = components(np.ones((4, 5), bool))
    assert (labels == 1).all()
    assert (part.area, part.width, part.height, part.filled, part.elongation) == (20, 5, 4, 1.0, 1.25)
