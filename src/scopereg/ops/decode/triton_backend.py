"""The steps of decoding as one Triton kernel each: no gradients, one launch."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from scopereg.ops.decode import triton_kernels as kernels
from scopereg.ops.decode.plain import GATE_RANGE, MASS_RANGE, Fit, Gates, Sizes
from scopereg.ops.scan.triton_backend import on_device
from scopereg.ops.scan.triton_kernels import launch

TOKENS = 4  # of one program of `weigh_planes`: few, since a frame has some hundreds
FIT_BLOCK = 1024  # tokens that the one program of a frame takes at once


def split_gates(mapped: Tensor, sizes: Sizes) -> Gates:
    batch, length, _ = mapped.shape
    k, c, s = sizes
    mapped = mapped.contiguous()
    shapes = ((k, length, c), *(((k, length, s),) * 3))
    gates = Gates(*(torch.empty(batch, *shape, device=mapped.device, dtype=torch.float32) for shape in shapes))
    tile = {"BC": triton.next_power_of_2(c), "BS": triton.next_power_of_2(s)}
    with on_device(mapped):
        launch(kernels.split_kernel, (batch * length, k), mapped, *gates, length, *GATE_RANGE, K=k, C=c, S=s, **tile)
    return gates


def weigh_planes(logits: Tensor, log_decay: Tensor, moments: Tensor, readout: Tensor | None) -> tuple[Tensor, Tensor]:
    coordinates, evidence, _ = weigh_with_mass(logits, log_decay, moments, readout)
    return coordinates, evidence


def weigh_with_mass(
    logits: Tensor, log_decay: Tensor, moments: Tensor, readout: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Coordinates and evidence, and the planes' masses (B, D', L) that they were weighed by."""
    batch, planes, length, _ = logits.shape
    logits, moments, log_decay = (x.contiguous() for x in (logits, moments, log_decay))
    readout = None if readout is None else readout.contiguous()
    options = {"device": logits.device, "dtype": torch.float32}
    mass = torch.empty(batch, planes, length, **options)  # type: ignore[call-overload]
    coordinates = torch.empty(batch, length, 3, **options)  # type: ignore[call-overload]
    evidence = torch.empty(batch, length, **options)  # type: ignore[call-overload]
    directions, states = (1, 1) if readout is None else (readout.shape[1], readout.shape[3])
    sizes = {"N": len(log_decay), "BN": triton.next_power_of_2(len(log_decay)), "K": directions, "S": states}
    with on_device(logits):
        launch(
            kernels.weigh_kernel, (batch, triton.cdiv(length, TOKENS)),
            logits, log_decay, moments, moments if readout is None else readout, mass, coordinates, evidence,
            planes, length, moments.shape[0], *GATE_RANGE, *MASS_RANGE,
            BS=triton.next_power_of_2(states), BT=TOKENS, TABLE=readout is not None, **sizes,
        )  # fmt: skip
    return coordinates, evidence, mass


def fit_plane(points: Tensor, coordinates: Tensor, evidence: Tensor) -> Fit:
    batch, length, _ = coordinates.shape
    points, coordinates, evidence = (x.float().contiguous() for x in (points, coordinates, evidence))
    fit = Fit(*(coordinates.new_empty(batch, *shape) for shape in ((3, 3), (3,), ())))
    numbers = torch.finfo(torch.float32)
    block = min(FIT_BLOCK, triton.next_power_of_2(length))
    with on_device(coordinates):
        launch(
            kernels.fit_kernel, (batch,), points, coordinates, evidence, *fit, length,
            numbers.tiny**0.5, 4 * numbers.eps, BL=block, num_warps=max(1, min(8, block // 64)),
        )  # fmt: skip
    return fit
