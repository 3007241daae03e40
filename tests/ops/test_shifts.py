"""Shifted sums: the numba kernel beside its twin in plain PyTorch, and both beside a sum by hand."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import pytest
import torch

from scopereg.ops.shifts import plain_shifted_sums, shifted_sums

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
# Odd sizes, one cell alone, more cells than a block; whole shifts end on the border, far ones past it.
COMPARED = """
import torch
from scopereg.ops import shifts_triton
from scopereg.ops.shifts import plain_shifted_sums

generator = torch.Generator().manual_seed(0)
for shape in [(1, 1, 1), (3, 5, 7), (6, 1, 9), (7, 8, 9)]:
    tables = torch.randn(9, *shape, generator=generator)
    shifts = 6 * (2 * torch.rand(5, 9, 3, generator=generator) - 1)
    shifts[3] = shifts[3].round()
    shifts[4, :, 0] = 0
    found = shifts_triton.shifted_sums(tables.to(DEVICE), shifts.to(DEVICE))
    torch.testing.assert_close(found.cpu(), plain_shifted_sums(tables, shifts), rtol=1e-5, atol=1e-5)
"""


@needs_triton
@pytest.mark.skipif(torch.cuda.is_available(), reason="the GPU test covers it")
def test_the_kernel_of_a_gpu_in_the_interpreter(run_interpreted: Callable[[str], None]) -> None:
    run_interpreted(f"DEVICE = 'cpu'\n{COMPARED}")


@pytest.mark.gpu
@needs_triton
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_the_kernel_on_a_gpu() -> None:
    exec(f"DEVICE = 'cuda'\n{COMPARED}", {})


def test_a_shift_of_whole_cells_is_a_shift() -> None:
    table = torch.arange(24.0).reshape(1, 2, 3, 4)
    shifts = torch.tensor([[[0.0, 0, 0]], [[1.0, 0, 0]], [[0.0, -1, 1]], [[3.0, 2, 1]], [[9.0, 0, 0]]])
    for sums in (plain_shifted_sums, shifted_sums):
        with torch.inference_mode():
            found = sums(table, shifts)
        torch.testing.assert_close(found[0], table[0])
        torch.testing.assert_close(found[1], torch.nn.functional.pad(table[0, ..., 1:], [0, 1]))
        torch.testing.assert_close(found[2, 0, 1:], table[0, 1, :2])
        assert int((found[2] != 0).sum()) == 8
        assert found[3].flatten().tolist() == pytest.approx([23.0, *[0.0] * 23])
        assert not found[4].any()


def test_halfway_is_the_mean_and_nothing_comes_from_outside() -> None:
    with torch.inference_mode():
        found = shifted_sums(torch.tensor([[[[1.0, 3.0, 7.0]]]]), torch.tensor([[[0.5, 0.0, 0.0]]]))
    assert found.flatten().tolist() == [2.0, 5.0, 0.0]


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (6, 1, 9), (4, 8, 8)])
def test_the_kernel_gives_what_its_twin_gives(shape: tuple[int, int, int]) -> None:
    generator = torch.Generator().manual_seed(0)
    tables = torch.randn(9, *shape, generator=generator)
    shifts = 6 * (2 * torch.rand(11, 9, 3, generator=generator) - 1)
    shifts[3] = shifts[3].round()  # on the border, where what is beyond must not count
    shifts[4, :, 0] = 0
    with torch.inference_mode():
        torch.testing.assert_close(shifted_sums(tables, shifts), plain_shifted_sums(tables, shifts))


def test_with_gradients_it_is_the_twin() -> None:
    tables = torch.randn(2, 3, 4, 5, requires_grad=True)
    shifted_sums(tables, torch.zeros(1, 2, 3)).sum().backward()
    assert tables.grad is not None
    torch.testing.assert_close(tables.grad, torch.ones_like(tables))
