"""Correlations at shifts: the kernel gives what plain PyTorch and NumPy do."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scopereg.ops.correlation import correlations_at, plain_correlations_at
from scopereg.ops.splat import is_fast

pytestmark = pytest.mark.skipif(not is_fast(), reason="numba is needed")


@pytest.mark.parametrize("shape", [(9, 8, 11), (2, 30, 2), (1, 5, 5)])
@pytest.mark.parametrize("empty", [0.0, 0.1, 1.0])
def test_correlations_are_those_of_plain_pytorch(shape: tuple[int, int, int], empty: float) -> None:
    generator = torch.Generator().manual_seed(1)
    volume = torch.rand(shape, generator=generator)
    volume[torch.rand(shape, generator=generator) < empty] = torch.nan
    points = torch.rand(3, 201, generator=generator) * (torch.tensor(shape[::-1])[:, None] + 2) - 1
    points[:, ::7] = points[:, ::7].round()
    values, shifts = torch.rand(201, generator=generator), torch.randn(13, 3, generator=generator)
    found, wanted = (
        correlations_at(volume, points, values, shifts),
        plain_correlations_at(volume, points, values, shifts),
    )
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one, other, atol=1e-5)
    if empty == 1.0 or min(shape) == 1:
        assert not found[1].any()


def test_where_values_come_from_they_are_alike() -> None:
    volume = torch.rand(6, 7, 8, generator=torch.Generator().manual_seed(0))
    z, y, x = torch.meshgrid(torch.arange(1, 4), torch.arange(1, 5), torch.arange(1, 6), indexing="ij")
    points = torch.stack([x, y, z]).flatten(1).float()
    values = 3 * volume[z + 1, y, x].flatten() + 0.2
    shifts = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    found, covered = correlations_at(volume, points, values, shifts)
    assert found[0] == pytest.approx(1, abs=1e-5)
    assert found[1] == pytest.approx(np.corrcoef(volume[1:4, 1:5, 1:6].flatten(), values)[0, 1], abs=1e-5)
    assert covered.tolist() == [1, 1]
    flat, _ = correlations_at(torch.ones(6, 7, 8), points, values, shifts)
    assert flat.tolist() == [0, 0]
