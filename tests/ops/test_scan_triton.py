"""The Triton kernels: on a GPU where there is one, else a few tiny shapes in Triton's interpreter."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from scopereg.ops import directional_scan
from scopereg.ops.scan.selftest import CASES, Case, compare_case, coordinate_inputs, feature_inputs

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")

# Compares a few shapes with the float64 loop: alone, padded, in several segments, with more planes or channels than a
# tile takes, with strong decays.
INTERPRETED = """
from scopereg.ops.scan import triton_backend
from scopereg.ops.scan.selftest import Case, compare_case, coordinate_inputs, feature_inputs

triton_backend.FORWARD_TILE, triton_backend.RECALL_TILE, triton_backend.ADJOINT_TILE = 64, 16, 32
runs = [
    (1, Case(1, 1, 1, 1, 1, 1), feature_inputs),
    (1, Case(1, 2, 3, 7, 3, 3), feature_inputs),
    (64, Case(1, 2, 2, 17, 2, 5, skip=False), feature_inputs),
    (64, Case(1, 1, 1, 17, 1, 3), coordinate_inputs),
    (1, Case(1, 2, 2, 5, 3, 3), coordinate_inputs),
    (1, Case(1, 1, 6, 3, 9, 3), feature_inputs),
    (1, Case(1, 1, 2, 30, 2, 4, stiffness=80.0), feature_inputs),
]
for warps, case, inputs in runs:
    triton_backend.WARPS_PER_PROCESSOR = warps
    for found in compare_case(case, "triton", inputs=inputs):
        assert found.ok, found
"""


@needs_triton
@pytest.mark.skipif(torch.cuda.is_available(), reason="the GPU tests cover it")
def test_kernels_in_the_interpreter(run_interpreted):
    run_interpreted(INTERPRETED)


@pytest.mark.gpu
@needs_triton
@needs_gpu
@pytest.mark.parametrize("inputs", [feature_inputs, coordinate_inputs])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_kernels_agree_with_the_float64_loop(case, inputs):
    for found in compare_case(case, "triton", "cuda", inputs=inputs):
        assert found.ok, found


@pytest.mark.gpu
@needs_triton
@needs_gpu
def test_kernels_are_deterministic():
    x = {k: v.cuda() for k, v in feature_inputs(Case(2, 4, 4, 256, 64, 32)).items()}
    free = [v.requires_grad_() for v in x.values() if v.is_floating_point()]

    def run() -> list[torch.Tensor]:
        y = directional_scan(**x, backend="triton")
        return [y, *torch.autograd.grad(y.square().sum(), free)]

    assert all(torch.equal(a, b) for a, b in zip(run(), run(), strict=True))
