"""Descent: steps of Levenberg-Marquardt that bring features of frames and volumes together, in kernels.

On a CPU one call of numba's, on an NVIDIA GPU one launch of Triton's for each step. The equations are those of
`networks.fine.FineStage.normal`, which is the twin in plain PyTorch and serves wherever these cannot: with gradients,
in exported models, without numba or Triton.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from scopereg.ops.scan import forward_kernels


class Rule(NamedTuple):
    """How steps are taken at one stride."""

    steps: int
    damping: Float[Tensor, "k"]  # as a share of the curvature; of 6 numbers, or 8 with the size of the pixels
    floor: Float[Tensor, "k"]  # curvature that is added
    tolerance: Float[Tensor, ""]  # distance of features that counts half
    lever: float  # voxels
    longest: float  # step in voxels
    largest: float = 0.0  # step in the size of the pixels


class Table(NamedTuple):
    """Features of volumes, the logit of their weight, and how features change along x, y, z in a voxel."""

    values: Float[Tensor, "v d h w c"]
    start: tuple[float, float, float]  # coordinate of the first cell along z, y, x, in cells from the middle
    stride: int  # voxels


class Descended(NamedTuple):
    """Where the steps led."""

    rotation: Float[Tensor, "b 3 3"]
    translation: Float[Tensor, "b 3"]
    sizes: Float[Tensor, "b 2"]


def serves(values: Float[Tensor, "v d h w c"]) -> bool:
    """Whether `descend` can be used with such a table."""
    if torch.compiler.is_compiling() or torch.is_grad_enabled() or values.dtype != torch.float32:
        return False
    if values.is_cuda:
        return forward_kernels(values)
    return values.device.type == "cpu" and _has_numba()


def descend(
    table: Table,
    vectors: Float[Tensor, "b n s"],
    weights: Float[Tensor, "b n"],
    points: Float[Tensor, "n 3"],
    rotation: Float[Tensor, "b 3 3"],
    translation: Float[Tensor, "b 3"],
    rule: Rule,
    sizes: Float[Tensor, "b 2"] | None = None,
) -> Descended:
    """Poses of frames after the steps, B / V in a row for each volume; points in voxels from the middle of a frame.

    `sizes` is how many times as wide and as high their pixels are as they are told to be; by default they are not.
    """
    if table.values.is_cuda:
        from scopereg.ops import descent_triton

        found = descent_triton.descend(table, vectors, weights, points, rotation, translation, rule, sizes)
        return Descended(*(part.to(rotation.dtype) for part in found))
    return _on_cpu(table, vectors, weights, points, rotation, translation, rule, sizes)


def _on_cpu(
    table: Table,
    vectors: Tensor,
    weights: Tensor,
    points: Tensor,
    rotation: Tensor,
    translation: Tensor,
    rule: Rule,
    sizes: Tensor | None,
) -> Descended:
    from scopereg.ops import descent_kernels
    from scopereg.ops.scan.cpu import share

    turned, shifted = rotation.double().clone(), translation.double().clone()
    stretched = torch.ones(len(turned), 2, dtype=torch.float64) if sizes is None else sizes.double().clone()
    count, volumes = len(turned), len(table.values)
    shape = tuple(int(n) for n in table.values.shape[1:4])
    each = (
        *(table.values.flatten(1, 3).contiguous().numpy(), shape, table.start, float(table.stride)),
        *(part.contiguous().numpy() for part in (vectors, weights, points)),
        *(rule.steps, rule.damping.double().numpy(), rule.floor.double().numpy()),
        *(1 / float(rule.tolerance) ** 2, rule.lever, rule.longest, rule.largest),
        *(turned.numpy(), shifted.numpy(), stretched.numpy()),
    )
    share(count, lambda first, last: descent_kernels.descend(first, last, count // volumes, *each))
    kind = rotation.dtype
    return Descended(turned.to(kind), shifted.to(kind), stretched.to(kind))


@cache
def _has_numba() -> bool:
    return find_spec("numba") is not None
