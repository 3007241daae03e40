"""Gates as Triton kernels beside their twins in float64, gradients too; dense, permuted and cut-out inputs."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import pytest
import torch

COMPARED = """
import torch
import torch.nn.functional as F
from scopereg.ops import gates
from scopereg.ops.decode import plain

gates._fused = lambda x: True
generator = torch.Generator().manual_seed(0)
whole = (torch.randn(3, 5, 9, generator=generator) * 6).to(DEVICE)
for fast, slow in ((gates.softplus, F.softplus), (gates.positive, plain.positive)):
    for x in (whole, whole.transpose(0, 1), whole[..., 2:].movedim(-1, 0), whole[:1, :1, :1] + 30):
        single, double = x.detach().requires_grad_(), x.detach().double().requires_grad_()
        found, wanted = fast(single), slow(double)
        felt = torch.randn(found.shape, generator=generator).to(DEVICE)
        (have,) = torch.autograd.grad(found, [single], felt)
        (want,) = torch.autograd.grad(wanted, [double], felt.double())
        torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-9)
        torch.testing.assert_close(have.double(), want.double(), rtol=1e-5, atol=1e-9)
"""
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")


@needs_triton
@pytest.mark.skipif(torch.cuda.is_available(), reason="the GPU test covers it")
def test_kernels_in_the_interpreter(run_interpreted: Callable[[str], None]) -> None:
    run_interpreted(f"DEVICE = 'cpu'\n{COMPARED}")


@pytest.mark.gpu
@needs_triton
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_kernels_on_a_gpu() -> None:
    exec(COMPARED, {"DEVICE": "cuda"})
