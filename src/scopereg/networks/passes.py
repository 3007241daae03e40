"""Decoding passes: the encoded volume as seen from a pose, so that one forward pass can decode it again from there.

Each is a look at the volume, hence the option `looks`: the first from its middle, the next from the pose found.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from scopereg.networks.lattice import Lattice
from scopereg.ops.scan import forward_kernels

DENSE_CELLS = 8192  # volumes of at most this many cells are looked at by one product per frame while training


def seen_from(
    tokens: Float[Tensor, "b d l c"],
    lattice: Lattice,
    rotation: Float[Tensor, "b 3 3"],
    shift: Float[Tensor, "b 3"],
    planes: int = 0,
) -> Float[Tensor, "b d2 l c"]:
    """Volume tokens at its cells turned and shifted, in cells.

    With `planes`, only at the cells of `lattice.middle_planes(planes)`. Trilinear, zeros outside. Training asks for the
    same gradient every time, which a product gives and `grid_sample` on a GPU does not; nor does every runtime of
    exported models know it in 3D.
    """
    wanted = lattice.middle_planes(planes)
    if forward_kernels(tokens):
        from scopereg.ops.turned import Cells, turned

        return turned(tokens, Cells(*lattice[:3]), Cells(*wanted[:3]), rotation, shift)
    points = place(wanted.volume_points(tokens.device)[..., :3].flatten(0, 1), rotation, shift)  # (B, D' L, 3)
    return _interpolation(tokens)(tokens, lattice, points).unflatten(1, (wanted.shape[0], -1))


def _interpolation(tokens: Tensor) -> Callable[[Tensor, Lattice, Tensor], Tensor]:
    if not (torch.is_grad_enabled() or torch.compiler.is_compiling()):
        return interpolate_by_gathering
    return interpolate_by_product if tokens.shape[1] * tokens.shape[2] <= DENSE_CELLS else interpolate_by_sampling


def place(
    points: Float[Tensor, "*#b n 3"], rotation: Float[Tensor, "b 3 3"], shift: Float[Tensor, "b 3"]
) -> Float[Tensor, "b n 3"]:
    """Points, the same for all or of each, turned and shifted. Sums of products: autocast must not round them."""
    turned = (rotation[:, None] * points[..., None, :]).sum(-1)
    return turned + shift[:, None]


def interpolate_by_product(
    tokens: Float[Tensor, "b d l c"], lattice: Lattice, points: Float[Tensor, "b n 3"]
) -> Float[Tensor, "b n c"]:
    """Tokens at points: hat functions of all cells times their tokens."""
    weights = None
    for axis, places in zip((2, 1, 0), lattice.axes(tokens.device), strict=True):  # points are x, y, z
        step = lattice.depth_step if axis == 2 else 1.0
        hat = (1 - (points[..., axis, None] - places).abs() / step).clamp_min(0)  # (B, N, cells of the axis)
        weights = hat if weights is None else (weights.unsqueeze(-1) * hat.unsqueeze(-2)).flatten(2)
    assert weights is not None
    return weights.to(tokens.dtype) @ tokens.flatten(1, 2)


def interpolate_by_sampling(
    tokens: Float[Tensor, "b d l c"], lattice: Lattice, points: Float[Tensor, "b n 3"]
) -> Float[Tensor, "b n c"]:
    """The same by `grid_sample`, which needs no square of the number of cells."""
    grid = []
    for axis, (first, count) in enumerate(zip(lattice.start[::-1], lattice.shape[::-1], strict=True)):
        step = lattice.depth_step if axis == 2 else 1.0
        # align_corners=False: cell n of `count` lies at (2 n + 1) / count - 1, also where there is one cell alone
        grid.append((2 * (points[..., axis] - first) / step + 1) / count - 1)
    where = torch.stack(grid, -1)[:, :, None, None].to(tokens.dtype)
    volume = tokens.unflatten(2, lattice.shape[1:]).movedim(-1, 1)  # (B, C', D', H', W')
    return F.grid_sample(volume, where, align_corners=False)[..., 0, 0].transpose(1, 2)


def interpolate_by_gathering(
    tokens: Float[Tensor, "b d l c"], lattice: Lattice, points: Float[Tensor, "b n 3"]
) -> Float[Tensor, "b n c"]:
    """The same without gradients: for each point the tokens of the eight cells around it, weighed and summed.

    Channels lie together in memory, which `grid_sample` walks across: it takes many times as long. A point that is
    not a number gives tokens that are none.
    """
    batch, count, _ = points.shape
    shared = tokens.shape[0] == 1 or tokens.stride(0) == 0  # one volume for all
    table = (tokens[:1] if shared else tokens).flatten(0, 2)  # (cells, C')
    cells = torch.zeros(batch, count, 1, dtype=torch.int64, device=tokens.device)
    weights = torch.ones(batch, count, 1, device=points.device, dtype=points.dtype)
    for axis, (first, size) in enumerate(zip(lattice.start, lattice.shape, strict=True)):  # z, y, x
        step = lattice.depth_step if axis == 0 else 1.0
        place = (points[..., 2 - axis] - first) / step  # in cells of this axis
        low = place.floor()
        both = torch.stack([low, low + 1], -1)  # (B, N, 2)
        hat = (1 - (place.unsqueeze(-1) - both).abs()) * ((both >= 0) & (both < size))
        weights = (weights.unsqueeze(-1) * hat.unsqueeze(-2)).flatten(2)
        cells = (cells.unsqueeze(-1) * size + both.nan_to_num(0).clamp(0, size - 1).long().unsqueeze(-2)).flatten(2)
    if not shared:
        cells = cells + torch.arange(batch, device=tokens.device)[:, None, None] * (len(table) // batch)
    weights = weights.flatten(0, 1).to(table.dtype)
    return F.embedding_bag(cells.flatten(0, 1), table, mode="sum", per_sample_weights=weights).unflatten(
        0, (batch, count)
    )
