"""Instance norm with what follows it: a shortcut added, negative values cut off, in one pass over the image.

On an NVIDIA GPU Triton kernels do it where channels lie together in memory; gradients too. Sums are float32 and in a
fixed order, so that two runs agree to the bit.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from scopereg.ops.scan.dispatch import fastest

EPS = 1e-5
_ROWS, _CHANNELS = 128, 64  # of the part of an image that one program holds


def instance_norm(
    x: Float[Tensor, "b c *size"],
    weight: Float[Tensor, " c"],
    bias: Float[Tensor, " c"],
    shortcut: Float[Tensor, "b c *size"] | None = None,
    *,
    relu: bool = False,
) -> Float[Tensor, "b c *size"]:
    """Images, each channel to mean 0 and variance 1, times `weight` plus `bias`; then the rest."""
    if _fused(x):
        y: Tensor = _InstanceNorm.apply(x, weight, bias, shortcut, relu)  # type: ignore[no-untyped-call]
        return y
    return plain_norm(x, weight, bias, shortcut, relu=relu)


def plain_norm(
    x: Float[Tensor, "b c *size"],
    weight: Float[Tensor, " c"],
    bias: Float[Tensor, " c"],
    shortcut: Float[Tensor, "b c *size"] | None = None,
    *,
    relu: bool = False,
) -> Float[Tensor, "b c *size"]:
    """The same step by step, with PyTorch's own norm."""
    y = F.instance_norm(x, weight=weight.to(x.dtype), bias=bias.to(x.dtype), eps=EPS)
    y = y if shortcut is None else y + shortcut
    return F.relu(y) if relu else y


def _fused(x: Tensor) -> bool:
    return x.is_cuda and fastest([x]) == "triton" and x.shape[1] % _CHANNELS == 0


def _rows(x: Tensor) -> Tensor:
    """The image (B, C, ...) as (B, S, C) dense in memory: a view where its channels lie together."""
    return x.flatten(2).transpose(1, 2).contiguous()


def _image(rows: Tensor, like: Tensor) -> Tensor:
    return rows.transpose(1, 2).unflatten(2, like.shape[2:])


class _InstanceNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, shortcut: Tensor | None, relu: bool) -> Tensor:
        from scopereg.ops import norm_kernels as kernels
        from scopereg.ops.scan.triton_backend import on_device
        from scopereg.ops.scan.triton_kernels import launch

        rows = _rows(x)
        grid, parts, columns = _layout(rows)
        added = rows if shortcut is None else _rows(shortcut.to(x.dtype))
        y = torch.empty_like(rows)
        numbers = rows.new_empty(2, *rows.shape[::2], dtype=torch.float32)  # mean and 1 / deviation
        sums = _sums(parts, rows)
        with on_device(rows):
            launch(kernels.spread_kernel, grid, rows, sums, **columns)
            launch(kernels.mean_kernel, grid[1:], sums, numbers, EPS, **columns)
            launch(
                kernels.norm_kernel,
                grid,
                rows,
                numbers,
                weight,
                bias,
                added,
                y,
                **columns,
                ADD=shortcut is not None,
                RELU=relu,
            )
        ctx.save_for_backward(rows, y, numbers, weight)
        ctx.shortcut, ctx.relu = shortcut is not None, relu
        return _image(y, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        from scopereg.ops import norm_kernels as kernels
        from scopereg.ops.scan.triton_backend import on_device
        from scopereg.ops.scan.triton_kernels import launch

        rows, y, numbers, weight = ctx.saved_tensors
        felt = _rows(gradient.to(rows.dtype))
        grid, parts, columns = _layout(rows)
        sums = _sums(parts, rows)
        totals = torch.empty_like(numbers)  # of the gradient, and of the gradient times the normed image
        found = torch.empty_like(rows)
        passed = torch.empty_like(rows) if ctx.shortcut else found
        with on_device(rows):
            launch(kernels.felt_kernel, grid, rows, y, felt, numbers, sums, **columns, RELU=ctx.relu)
            launch(kernels.total_kernel, grid[1:], sums, totals, **columns)
            launch(
                kernels.slope_kernel,
                grid,
                rows,
                y,
                felt,
                numbers,
                totals,
                weight,
                found,
                passed,
                **columns,
                ADD=ctx.shortcut,
                RELU=ctx.relu,
            )
        by_bias, by_weight = totals.sum(1)
        into_shortcut = _image(passed, gradient) if ctx.shortcut else None
        return _image(found, gradient), by_weight.to(weight.dtype), by_bias.to(weight.dtype), into_shortcut, None


def _layout(rows: Tensor) -> tuple[tuple[int, int, int], int, dict[str, int]]:
    """Programs over parts, channels and images; the number of parts; the sizes that kernels are made for."""
    batch, size, channels = rows.shape
    parts = -(-size // _ROWS)
    sizes = {"SIZE": size, "PARTS": parts, "CHANNELS": channels, "ROWS": _ROWS, "COLUMNS": _CHANNELS}
    return (parts, channels // _CHANNELS, batch), parts, sizes


def _sums(parts: int, rows: Tensor) -> Tensor:
    """Room for two numbers of every part of every channel."""
    return rows.new_empty(2, rows.shape[0], parts, rows.shape[2], dtype=torch.float32)
