"""Instance norms as Triton kernels beside their twin in float64, gradients too."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import pytest
import torch

from scopereg.ops import norms

COMPARED = """
import torch
from scopereg.ops import norms

norms._fused = lambda x: True
generator = torch.Generator().manual_seed(0)

def compare(shape, dtype, shortcut, relu, rtol):
    layout = {4: torch.channels_last, 5: torch.channels_last_3d}[len(shape)]
    draw = lambda *size: torch.randn(*size, generator=generator).to(DEVICE)
    image = (3 * draw(*shape) + 40 * draw(1, shape[1], *(1,) * (len(shape) - 2))).contiguous(memory_format=layout)
    inputs = [image.to(dtype), draw(shape[1]), draw(shape[1])] + ([draw(*shape).to(dtype)] if shortcut else [])
    single = [x.detach().requires_grad_() for x in inputs]
    double = [x.detach().double().requires_grad_() for x in inputs]
    found, wanted = norms.instance_norm(*single, relu=relu), norms.plain_norm(*double, relu=relu)
    felt = draw(*shape).to(dtype)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), wanted, rtol=rtol, atol=rtol)
    if relu:  # values at the cut itself may fall to either side
        felt = torch.where(wanted.abs() < 20 * rtol, 0, felt).to(dtype)
    have = torch.autograd.grad(found, single, felt)
    want = torch.autograd.grad(wanted, double, felt.double())
    for a, b in zip(have, want, strict=True):
        assert a.dtype in (dtype, torch.float32)
        torch.testing.assert_close(a.double(), b, rtol=rtol, atol=rtol * float(b.abs().max()))

for shape in CASES:
    for shortcut, relu in ((False, False), (False, True), (True, True)):
        compare(shape, torch.float32, shortcut, relu, 2e-5)
compare(CASES[0], torch.bfloat16, True, True, 2e-2)
"""
SMALL, LARGE = [(2, 64, 9, 17), (1, 128, 3, 5, 7)], [(3, 64, 150, 131), (2, 256, 16, 16), (4, 64, 16, 64, 64)]
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")


@needs_triton
@pytest.mark.skipif(torch.cuda.is_available(), reason="the GPU test covers it")
def test_kernels_in_the_interpreter(run_interpreted: Callable[[str], None]) -> None:
    run_interpreted(f"DEVICE, CASES = 'cpu', {SMALL}\n{COMPARED}")


@pytest.mark.gpu
@needs_triton
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_kernels_on_a_gpu() -> None:
    exec(COMPARED, {"DEVICE": "cuda", "CASES": SMALL + LARGE})


def test_a_channel_far_from_zero_is_normed() -> None:
    image = 1000 + torch.randn(2, 3, 40, 30, generator=torch.Generator().manual_seed(1))
    normed = norms.instance_norm(image, torch.full((3,), 2.0), torch.tensor([0.0, 1.0, -1.0]))
    torch.testing.assert_close(normed.mean((2, 3)), torch.tensor([[0.0, 1.0, -1.0]] * 2), atol=1e-3, rtol=0)
    torch.testing.assert_close(normed.std((2, 3)), torch.full((2, 3), 2.0), atol=1e-2, rtol=0)


def test_the_shortcut_is_added_before_the_cut() -> None:
    image = torch.randn(1, 2, 8, 8, generator=torch.Generator().manual_seed(2))
    weight, bias = torch.ones(2), torch.zeros(2)
    plain = norms.instance_norm(image, weight, bias)
    together = norms.instance_norm(image, weight, bias, -plain + 0.5, relu=True)
    torch.testing.assert_close(together, torch.full_like(image, 0.5))
    assert float(norms.instance_norm(image, weight, bias, relu=True).min()) == 0
