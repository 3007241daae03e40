# mypy: disable-error-code="no-untyped-def"
# Kernel arguments are pointers and integers of the device language, which Python types do not describe.
"""Triton kernels of the gates; imported by `gates` alone."""

from __future__ import annotations

import triton
import triton.language as tl

from scopereg.ops.decode.gradient_kernels import _slope
from scopereg.ops.decode.triton_kernels import _positive


@triton.jit
def gate_kernel(x, y, count, low, high, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(y + at, _positive(tl.load(x + at, mask=inside, other=0.0).to(tl.float32), low, high), mask=inside)


@triton.jit
def slope_kernel(y, gradient, found, count, low, high, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    felt = tl.load(gradient + at, mask=inside, other=0.0).to(tl.float32)
    felt *= _slope(tl.load(y + at, mask=inside, other=1.0), low, high)
    tl.store(found + at, felt.to(found.dtype.element_ty), mask=inside)
