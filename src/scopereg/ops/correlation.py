"""Correlation of values with a volume at the places where they lie, and at others that are shifted from there."""

from __future__ import annotations

from itertools import product

import torch
from jaxtyping import Float
from torch import Tensor

from scopereg.ops.splat import is_fast

_EVEN = 1e-12  # spread of grey values, squared, below which nothing is like anything


def correlations_at(
    volume: Float[Tensor, "d h w"],
    points: Float[Tensor, "3 n"],
    values: Float[Tensor, "n"],
    shifts: Float[Tensor, "s 3"],
) -> tuple[Float[Tensor, "s"], Float[Tensor, "s"]]:
    """For each shift (x, y, z in voxels): Pearson's correlation, 0 where there is none, and the share that it is of.

    Trilinear; NaN in the volume is where it shows nothing. Values that lie there, or outside, do not count.
    """
    if not is_fast():
        return plain_correlations_at(volume, points, values, shifts)
    from scopereg.ops.correlation_kernels import correlation_kernel
    from scopereg.ops.scan.cpu import share

    found, covered = torch.zeros(2, len(shifts))
    arrays = [part.contiguous().numpy() for part in (volume, points, values, shifts, found, covered)]
    share(len(shifts), lambda first, last: correlation_kernel(*arrays, first, last, _EVEN))
    return found, covered


def plain_correlations_at(
    volume: Float[Tensor, "d h w"],
    points: Float[Tensor, "3 n"],
    values: Float[Tensor, "n"],
    shifts: Float[Tensor, "s 3"],
) -> tuple[Float[Tensor, "s"], Float[Tensor, "s"]]:
    """The same in plain PyTorch."""
    found, covered = torch.zeros(2, len(shifts))
    for row, shift in enumerate(shifts):
        seen = _seen(volume, points + shift[:, None]).double()
        known = ~seen.isnan()
        covered[row] = known.double().mean()
        one, other = seen[known], values[known].double()
        if one.numel():
            one, other = one - one.mean(), other - other.mean()
            spread = one.square().mean() * other.square().mean()
            found[row] = (one * other).mean() / spread.sqrt() if spread > _EVEN else 0.0
    return found, covered


def _seen(volume: Tensor, points: Tensor) -> Tensor:
    """The volume at points (3, N); NaN where it shows nothing."""
    sizes = torch.tensor(volume.shape[::-1])[:, None]
    base = points.floor()
    inside = ((base >= 0) & (base + 1 < sizes)).all(0)
    x, y, z = torch.where(inside, base, 0).long()
    total = torch.zeros(points.shape[1])
    for dz, dy, dx in product((0, 1), repeat=3):
        far = points - base
        share = torch.ones_like(total)
        for fraction, step in zip(far, (dx, dy, dz), strict=True):
            share = share * (fraction if step else 1 - fraction)
        corner = [
            (place + step).clamp_max(n - 1)
            for place, step, n in zip((z, y, x), (dz, dy, dx), volume.shape, strict=True)
        ]
        total += share * volume[corner[0], corner[1], corner[2]]
    return torch.where(inside, total, torch.nan)
