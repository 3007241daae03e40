"""Bridges: holes of a volume filled along its axes, linear between the two voxels at the ends of the shortest gap."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from scopereg.ops.splat import is_fast

LONGEST = 30_000  # voxels of a gap


def bridge(values: Float[Tensor, "d h w"], solid: Bool[Tensor, "d h w"], most: int) -> Int[Tensor, "d h w"]:
    """Fill what is not solid, in place, where a line along an axis has solid voxels at both ends of `most` or fewer.

    Of several lines the one with the shortest gap counts, of equal ones that along z, then y. Returns from which
    distance in voxels each was filled: that of the two ends, 0 where nothing was.
    """
    most = min(most, LONGEST)
    if not is_fast():
        return plain_bridge(values, solid, most)
    from scopereg.ops.bridge_kernels import bridge_kernel
    from scopereg.ops.scan.cpu import share

    depth, height, width = values.shape
    gaps = torch.zeros(values.shape, dtype=torch.int16)

    def lines(*shape: int) -> tuple[object, ...]:
        return tuple(part.reshape(shape).numpy() for part in (values, solid, gaps))

    flat = lines(1, depth, height * width)
    share(height, lambda first, last: bridge_kernel(*flat, 0, 1, first * width, last * width, most))
    upright = lines(depth, height, width)
    share(depth, lambda first, last: bridge_kernel(*upright, first, last, 0, width, most))
    along = lines(depth * height, width, 1)
    share(depth * height, lambda first, last: bridge_kernel(*along, first, last, 0, 1, most))
    return gaps


def plain_bridge(values: Float[Tensor, "d h w"], solid: Bool[Tensor, "d h w"], most: int) -> Int[Tensor, "d h w"]:
    """The same in plain PyTorch."""
    gaps = torch.zeros(values.shape, dtype=torch.int16)
    for axis in range(3):
        turned = (part.movedim(axis, 0) for part in (values, solid, gaps))
        along, ends, before = turned
        filled, holes, gap = bridged_along_z(along, ends, most)
        better = holes & ((before == 0) | (gap < before))
        along[better], before[better] = filled[better], gap[better].to(gaps.dtype)
    return gaps


def bridged_along_z(
    values: Float[Tensor, "d h w"], solid: Bool[Tensor, "d h w"], most: int
) -> tuple[Float[Tensor, "d h w"], Bool[Tensor, "d h w"], Int[Tensor, "d h w"]]:
    """Values with holes of at most `most` voxels between two solid ones filled, which those are, how far ends are."""
    depth = len(values)
    index = torch.arange(depth)[:, None, None].expand_as(values)
    before = torch.where(solid, index, -1).cummax(0).values
    after = torch.where(solid, index, depth).flip(0).cummin(0).values.flip(0)
    gap = after - before
    holes = ~solid & (before >= 0) & (after < depth) & (gap <= most + 1)
    start, end = values.gather(0, before.clamp_min(0)), values.gather(0, after.clamp_max(depth - 1))
    share = (index - before) / gap.clamp_min(1)
    return torch.where(holes, start + share * (end - start), values), holes, gap
