"""Splat: values at places between the voxels of a volume, shared out among the eight around each (trilinear).

On a CPU a numba kernel does it, each thread for rows of its own, so that the sums do not depend on how many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise, product
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from scopereg.ops.scan import available_backends

NEAR = 0.2  # share of a voxel in a value from which on it may be the largest there
_SAMPLE = 4096  # places by which rows are dealt out


def splat(
    totals: Float[Tensor, "d h w 2"], points: Float[Tensor, "3 n"], values: Float[Tensor, "n"], weight: float = 1.0
) -> None:
    """Add values at places (x, y, z in voxels) to the sums and weights of the eight voxels around each, in place.

    What lies outside of the volume is left out.
    """
    if not is_fast():
        plain_totals(totals, points, values, weight)
        return
    from scopereg.ops.splat_kernels import splat_kernel

    _by_rows(splat_kernel, totals, points, values, weight)


def splat_peaks(peaks: Float[Tensor, "d h w"], points: Float[Tensor, "3 n"], values: Float[Tensor, "n"]) -> None:
    """Raise voxels to the largest of the values of which they have a share of at least `NEAR`, in place."""
    if not is_fast():
        plain_peaks(peaks, points, values)
        return
    from scopereg.ops.splat_kernels import peak_kernel

    _by_rows(peak_kernel, peaks, points, values, NEAR)


def make_ready() -> None:
    """Load the kernels, or compile them the first time, which takes seconds that no forecast should count."""
    splat(torch.zeros(1, 1, 1, 2), torch.zeros(3, 1), torch.zeros(1))
    splat_peaks(torch.zeros(1, 1, 1), torch.zeros(3, 1), torch.zeros(1))


def is_fast() -> bool:
    """Whether the kernels can be used here."""
    return available_backends("cpu")["cpu"] is None


def _by_rows(kernel: Any, totals: Tensor, points: Tensor, values: Tensor, *more: float) -> None:
    """The kernel on rows of about as many places for each thread."""
    from scopereg.ops.scan.cpu import share

    threads, height = torch.get_num_threads(), int(totals.shape[1])
    every = max(points.shape[1] // _SAMPLE, 1)
    inner = torch.quantile(points[1, ::every], torch.linspace(0, 1, threads + 1)[1:-1]) if points.numel() else points[0]
    bounds = [0, *inner.round().long().clamp(0, height).tolist(), height]
    pieces = list(pairwise(bounds))
    known = (totals.numpy(), points.contiguous().numpy(), values.contiguous().numpy())

    def run(first: int, last: int) -> None:
        for low, high in pieces[first:last]:
            kernel(*known, low, high, *more)

    share(len(pieces), run)


def plain_totals(
    totals: Float[Tensor, "d h w 2"], points: Float[Tensor, "3 n"], values: Float[Tensor, "n"], weight: float = 1.0
) -> None:
    """What `splat` does, in plain PyTorch."""
    padded = [int(n) + 2 for n in totals.shape[:3]]  # a border that takes what falls beside the volume
    sums, weights = torch.zeros(2, padded[0] * padded[1] * padded[2])
    plain_splat(sums, weights, points, values, padded)
    for place, total in enumerate((sums, weights)):
        totals[..., place] += weight * total.reshape(padded)[1:-1, 1:-1, 1:-1]


def plain_peaks(peaks: Float[Tensor, "d h w"], points: Float[Tensor, "3 n"], values: Float[Tensor, "n"]) -> None:
    """What `splat_peaks` does, in plain PyTorch."""
    padded = [int(n) + 2 for n in peaks.shape]
    raised = torch.full((padded[0] * padded[1] * padded[2],), float("-inf"))

    def raise_to(index: Tensor, share: Tensor, values: Tensor) -> None:
        near = share >= NEAR
        raised.scatter_reduce_(0, index[near], values[near], "amax")

    _deal(raise_to, points, values, padded)
    torch.maximum(peaks, raised.reshape(padded)[1:-1, 1:-1, 1:-1], out=peaks)


def plain_splat(sums: Tensor, weights: Tensor, points: Tensor, values: Tensor, padded: Sequence[int]) -> None:
    """Share values (N,) at places (3, N) out, in place, into sums and weights with a border around them, flattened."""

    def add(index: Tensor, share: Tensor, values: Tensor) -> None:
        sums.index_add_(0, index, share * values)
        weights.index_add_(0, index, share)

    _deal(add, points, values, padded)


def _deal(
    take: Callable[[Tensor, Tensor, Tensor], None], points: Tensor, values: Tensor, padded: Sequence[int]
) -> None:
    """Each of the eight voxels around places: its index with a border, its share, and the values."""
    base = points.floor()
    sizes = torch.tensor(padded[::-1], dtype=torch.float32)[:, None] - 2
    inside = ((base >= -1) & (base < sizes)).all(0)
    if not bool(inside.all()):
        base, points, values = base[:, inside], points[:, inside], values[inside]
    shares = points - base
    x, y, z = base.long() + 1
    first = (z * padded[1] + y) * padded[2] + x
    for dz, dy, dx in product((0, 1), repeat=3):
        share = _near(shares[0], dx) * _near(shares[1], dy) * _near(shares[2], dz)
        take(first + ((dz * padded[1] + dy) * padded[2] + dx), share, values)


def _near(fraction: Tensor, step: int) -> Tensor:
    return fraction if step else 1 - fraction
