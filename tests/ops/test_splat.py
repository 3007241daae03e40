"""Splat and bridges: the kernels give what plain PyTorch does, whatever the number of threads."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from scopereg.ops.bridges import bridge, plain_bridge
from scopereg.ops.splat import NEAR, is_fast, plain_peaks, plain_totals, splat, splat_peaks

pytestmark = pytest.mark.skipif(not is_fast(), reason="numba is needed")


def places(shape: tuple[int, int, int], count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Some of them outside, some on voxels and on the last ones."""
    generator = torch.Generator().manual_seed(seed)
    size = torch.tensor(shape[::-1], dtype=torch.float32)[:, None]
    points = torch.rand(3, count, generator=generator) * (size + 3) - 2
    points[:, ::5] = points[:, ::5].round()
    return points, torch.rand(count, generator=generator)


@pytest.mark.parametrize("shape", [(7, 5, 9), (1, 1, 1), (2, 33, 3)])
@pytest.mark.parametrize("threads", [1, 3])
def test_sums_are_those_of_plain_pytorch(shape: tuple[int, int, int], threads: int) -> None:
    points, values = places(shape, 3001)
    found, wanted, peaks, tops = torch.zeros(*shape, 2), torch.zeros(*shape, 2), -torch.ones(shape), -torch.ones(shape)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        splat(found, points, values, 0.3)
        splat_peaks(peaks, points, values)
    finally:
        torch.set_num_threads(before)
    plain_totals(wanted, points, values, 0.3)
    plain_peaks(tops, points, values)
    assert torch.allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert torch.equal(peaks, tops)


def test_sums_do_not_depend_on_threads() -> None:
    points, values = places((9, 31, 8), 5000)
    one, many = torch.zeros(9, 31, 8, 2), torch.zeros(9, 31, 8, 2)
    splat(one, points, values)
    torch.set_num_threads(4)
    try:
        splat(many, points, values)
    finally:
        torch.set_num_threads(1)
    assert torch.equal(one, many)


def test_a_value_on_a_voxel_is_its_alone() -> None:
    totals, peaks = torch.zeros(3, 3, 3, 2), torch.zeros(3, 3, 3)
    splat(totals, torch.tensor([[1.0], [2.0], [0.0]]), torch.tensor([0.5]))
    assert totals[0, 2, 1].tolist() == [0.5, 1.0]
    assert float(totals.sum()) == 1.5
    half = torch.tensor([[1.5], [2.0], [0.0]])
    splat_peaks(peaks, half, torch.tensor([0.7]))
    assert peaks.nonzero().tolist() == [[0, 2, 1], [0, 2, 2]]
    assert NEAR < 0.5
    splat(totals, torch.empty(3, 0), torch.empty(0))  # a sweep that does not touch the volume


@pytest.mark.parametrize("shape", [(9, 8, 7), (1, 20, 1), (3, 1, 30), (40, 2, 2)])
@pytest.mark.parametrize("most", [0, 1, 4, 100])
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_holes_are_those_of_plain_pytorch(shape: tuple[int, int, int], most: int, share: float) -> None:
    generator = torch.Generator().manual_seed(most)
    solid = torch.rand(shape, generator=generator) < share
    values = torch.rand(shape, generator=generator)
    found, wanted = values.clone(), values.clone()
    gaps, others = bridge(found, solid, most), plain_bridge(wanted, solid, most)
    assert torch.equal(gaps, others)
    assert torch.allclose(found, wanted, rtol=0, atol=1e-6)
    assert torch.equal(found[solid], values[solid])
    assert torch.equal(found[gaps == 0], values[gaps == 0])
    assert int(gaps.max()) <= most + 1
    if most == 0:
        assert not gaps.any()


def test_the_shortest_gap_counts() -> None:
    solid, values = torch.zeros(5, 5, 5, dtype=torch.bool), torch.zeros(5, 5, 5)
    for z, y, x, value in ((0, 2, 2, 1.0), (4, 2, 2, 1.0), (2, 1, 2, 3.0), (2, 3, 2, 5.0)):
        solid[z, y, x], values[z, y, x] = True, value
    gaps = bridge(values, solid, 10)
    assert (float(values[2, 2, 2]), int(gaps[2, 2, 2])) == (4.0, 2)
    assert (float(values[1, 2, 2]), int(gaps[1, 2, 2])) == (1.0, 4)
