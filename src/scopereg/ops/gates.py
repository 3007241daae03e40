"""Gates from what a linear map gives: softplus in float32, held off zero and infinity or not.

On an NVIDIA GPU one Triton kernel does it, with gradients another: what a map gives is read where it lies and in the
type it has, and its gradient is written so.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from scopereg.ops.decode import plain
from scopereg.ops.scan.checks import compute_dtype
from scopereg.ops.scan.dispatch import fastest

_BLOCK = 1024


def softplus(x: Float[Tensor, "*size"]) -> Float[Tensor, "*size"]:
    """Softplus in float32."""
    if _fused(x):
        return _gate(x, 0.0, float("inf"))
    return F.softplus(x.to(compute_dtype(x)))


def positive(x: Float[Tensor, "*size"]) -> Float[Tensor, "*size"]:
    """Softplus in float32, held within `plain.GATE_RANGE`."""
    return _gate(x, *plain.GATE_RANGE) if _fused(x) else plain.positive(x)


def _fused(x: Tensor) -> bool:
    return x.is_cuda and fastest([x]) == "triton"


def _gate(x: Tensor, low: float, high: float) -> Tensor:
    y: Tensor = _Gate.apply(x, low, high)  # type: ignore[no-untyped-call]
    return y


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, low: float, high: float) -> Tensor:
        from scopereg.ops.decode import gradient_kernels as kernels
        from scopereg.ops.scan.triton_backend import on_device
        from scopereg.ops.scan.triton_kernels import launch

        y = torch.empty_like(x, dtype=torch.float32)
        if x.stride() != y.stride():  # not dense, whatever the order of its axes: `empty_like` keeps that
            x = torch.empty_like(y, dtype=x.dtype).copy_(x)
        with on_device(x):
            grid = (-(-x.numel() // _BLOCK),)
            launch(kernels.gate_kernel, grid, x, y, x.numel(), low, high, BLOCK=_BLOCK)
        ctx.save_for_backward(y)
        ctx.dtype, ctx.range = x.dtype, (low, high)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        from scopereg.ops.decode import gradient_kernels as kernels
        from scopereg.ops.scan.triton_backend import on_device
        from scopereg.ops.scan.triton_kernels import launch

        (y,) = ctx.saved_tensors
        if gradient.stride() != y.stride():
            gradient = torch.empty_like(y, dtype=gradient.dtype).copy_(gradient)
        found = torch.empty_like(y, dtype=ctx.dtype)
        with on_device(y):
            grid = (-(-y.numel() // _BLOCK),)
            launch(kernels.gate_gradient_kernel, grid, y, gradient, found, y.numel(), *ctx.range, BLOCK=_BLOCK)
        return found, None, None
