"""The steps of decoding that training takes as Triton kernels with gradients: one launch each way.

As a graph of PyTorch's operations they are some hundreds of launches over a few numbers each.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from scopereg.ops.decode import gradient_kernels as kernels
from scopereg.ops.decode import triton_backend
from scopereg.ops.decode.plain import GATE_RANGE, MASS_RANGE
from scopereg.ops.scan import triton_kernels
from scopereg.ops.scan.triton_backend import on_device

TOKENS = 8  # of one program of `weigh_planes`


def weigh_planes(logits: Tensor, log_decay: Tensor, moments: Tensor) -> tuple[Tensor, Tensor]:
    coordinates, evidence = _Weigh.apply(logits, log_decay, moments)  # type: ignore[no-untyped-call]
    return coordinates, evidence


def fit_pose(points: Tensor, coordinates: Tensor, evidence: Tensor) -> tuple[Tensor, Tensor]:
    rotation, translation = _Fit.apply(points, coordinates, evidence)  # type: ignore[no-untyped-call]
    return rotation, translation


class _Weigh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, log_decay: Tensor, moments: Tensor) -> tuple[Tensor, Tensor]:
        logits, log_decay, moments = (x.contiguous() for x in (logits, log_decay, moments))
        coordinates, evidence, mass = triton_backend.weigh_with_mass(logits, log_decay, moments, None)
        ctx.save_for_backward(logits, log_decay, moments, mass)
        return coordinates, evidence

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        logits, log_decay, moments, mass = ctx.saved_tensors
        batch, planes, length, _ = logits.shape
        states, blocks = len(log_decay), triton.cdiv(length, TOKENS)
        ahead, decay_grad = mass.new_empty(batch, planes, length, states), mass.new_empty(batch * blocks, states)
        partial, logits_grad, moments_grad = (
            torch.empty_like(logits, dtype=mass.dtype),
            *map(torch.empty_like, (logits, moments)),
        )
        with on_device(logits):
            triton_kernels.launch(
                kernels.weigh_gradient_kernel, (batch, blocks),
                logits, log_decay, moments, mass, *(g.float().contiguous() for g in gradients), ahead, partial,
                logits_grad, moments_grad, decay_grad, planes, length, *GATE_RANGE, *MASS_RANGE,
                N=states, BN=triton.next_power_of_2(states), BT=TOKENS, num_warps=1,
            )  # fmt: skip
        return logits_grad, decay_grad.sum(0).to(log_decay.dtype), moments_grad


class _Fit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, points: Tensor, coordinates: Tensor, evidence: Tensor) -> tuple[Tensor, Tensor]:
        points, coordinates, evidence = (x.float().contiguous() for x in (points, coordinates, evidence))
        fit = triton_backend.fit_plane(points, coordinates, evidence)
        ctx.save_for_backward(points, coordinates, evidence, fit.rotation)
        return fit.rotation, fit.translation

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        points, coordinates, evidence, rotation = ctx.saved_tensors
        batch, length, _ = coordinates.shape
        found = torch.empty_like(coordinates), torch.empty_like(evidence)
        numbers = torch.finfo(torch.float32)
        block = min(triton_backend.FIT_BLOCK, triton.next_power_of_2(length))
        with on_device(coordinates):
            triton_kernels.launch(
                kernels.fit_gradient_kernel, (batch,), points, coordinates, evidence, rotation,
                *(g.float().contiguous() for g in gradients), *found, length, numbers.tiny**0.5, numbers.eps,
                BL=block, num_warps=max(1, min(8, block // 64)),
            )  # fmt: skip
        return None, *found
