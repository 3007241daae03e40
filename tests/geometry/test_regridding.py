"""Regridding: what a coarser grid cannot hold is smoothed away, slab by slab as at once, as a convolution does it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from scopereg.geometry import regridding
from scopereg.geometry.regridding import smoothed


def convolved(array: Tensor, axis: int, factor: float) -> Tensor:
    """The same by a convolution of lines whose ends go on."""
    sigma = 0.5 * (factor**2 - 1) ** 0.5
    radius = int(-(-3 * sigma // 1))
    taps = torch.exp(-0.5 * (torch.arange(-radius, radius + 1) / sigma) ** 2)
    lines = array.movedim(axis, -1)
    padded = F.pad(lines.reshape(-1, 1, lines.shape[-1]), (radius, radius), mode="replicate")
    return F.conv1d(padded, (taps / taps.sum())[None, None]).reshape(lines.shape).movedim(-1, axis)


@pytest.mark.parametrize("shape", [(9, 14, 11), (17, 12), (2, 30, 5)])
@pytest.mark.parametrize("factor", [1.3, 2.0, 5.0])
def test_smoothing_is_a_convolution_in_whatever_slabs(
    shape: tuple[int, ...], factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = torch.rand(shape, generator=torch.Generator().manual_seed(1))
    for axis in range(array.ndim):
        scale = [1.0] * array.ndim
        scale[array.ndim - 1 - axis] = factor
        found = smoothed(array, scale)
        torch.testing.assert_close(found, convolved(array, axis, factor), atol=1e-6, rtol=0)
        monkeypatch.setattr(regridding, "_SLAB", 37)
        torch.testing.assert_close(smoothed(array, scale), found, atol=0, rtol=0)
        monkeypatch.undo()


def test_what_does_not_get_coarser_stays() -> None:
    array = torch.rand(4, 5, 6)
    assert smoothed(array, [1.0, 0.5, 1.0]) is array
    one = torch.rand(1, 5, 6)  # one plane has nothing across it
    assert smoothed(one, [1.0, 1.0, 3.0]) is one
