"""The encoded lattice: token orders, centred coordinates, and padding of odd sizes to the encoder's stride."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from scopereg.networks.encoders import STRIDE


class Lattice(NamedTuple):
    """Sizes of an encoded volume and where its cells lie, in cells from the centre of the unpadded image."""

    shape: tuple[int, int, int]  # D', H', W'
    start: tuple[float, float, float]  # coordinate of the first cell along z, y, x
    depth_step: float = 1.0  # from plane to plane, in the cells of 8 voxels that count everywhere
    reach: float = 1.0  # how far beyond their place the volume's points speak for; 1 is published

    def slice_points(self, device: torch.device) -> Float[Tensor, "l 2"]:
        """Centres of the slice's cells as (x, y): G_s of the paper."""
        return kept(_slice_points, self, device)

    def volume_points(self, device: torch.device) -> Float[Tensor, "d l 4"]:
        """Centres and a constant as (x, y, z, 1): the augmented G_v of the paper."""
        return kept(_volume_points, self, device)

    def orders(self, device: torch.device) -> Int64[Tensor, "4 l"]:
        """Token visited at each step of the four directions."""
        return scan_orders(self.shape[1], self.shape[2], device)

    def middle_planes(self, count: int) -> Lattice:
        """So many planes about the middle, one more where that keeps them centred; all where count is 0 or more."""
        left_out = (self.shape[0] - count) // 2 if count else 0
        if left_out <= 0:
            return self
        first = self.start[0] + left_out * self.depth_step
        return self._replace(shape=(self.shape[0] - 2 * left_out, *self.shape[1:]), start=(first, *self.start[1:]))

    def axes(self, device: torch.device) -> list[Tensor]:
        """Coordinates of the cells along z, y, x."""
        steps = (self.depth_step, 1.0, 1.0)
        return [
            torch.arange(n, device=device) * step + first
            for n, step, first in zip(self.shape, steps, self.start, strict=True)
        ]


def pad_to_stride(
    slices: Float[Tensor, "b h w"], volumes: Float[Tensor, "v d h w"], depth_stride: int = STRIDE
) -> tuple[Float[Tensor, "b h2 w2"], Float[Tensor, "v d2 h2 w2"], Lattice]:
    """Slices and volumes padded with zeros to multiples of 8, and their lattice."""
    return pad_slices(slices), *pad_volumes(volumes, depth_stride)


def pad_slices(slices: Float[Tensor, "b h w"]) -> Float[Tensor, "b h2 w2"]:
    """Slices padded as the planes of a volume."""
    return F.pad(slices, [p for n in reversed(slices.shape[1:]) for p in _pads(n)])


def pad_volumes(
    volumes: Float[Tensor, "v d h w"], depth_stride: int = STRIDE
) -> tuple[Float[Tensor, "v d2 h2 w2"], Lattice]:
    """Volumes padded with zeros to multiples of 8, and their lattice.

    The lattice counts from the centre of the images as given, so that padding does not move a pose.
    """
    pads = [_pads(n) for n in volumes.shape[1:]]  # per axis D, H, W
    volumes = F.pad(volumes, [p for pair in reversed(pads) for p in pair])
    strides = (depth_stride, STRIDE, STRIDE)
    shape = tuple(int(n) // stride for n, stride in zip(volumes.shape[1:], strides, strict=True))
    # The first cell covers voxels 0 .. stride - 1 of the padded image: its middle, from the unpadded image's centre.
    start = tuple(
        ((stride - 1) / 2 - before - (stride * n - before - after - 1) / 2) / STRIDE
        for n, stride, (before, after) in zip(shape, strides, pads, strict=True)
    )
    return volumes, Lattice(shape, start, depth_stride / STRIDE)  # type: ignore[arg-type]


def _pads(n: int) -> tuple[int, int]:
    """Voxels before and behind an axis of n, to a multiple of 8."""
    return (-n % STRIDE) // 2, -n % STRIDE - (-n % STRIDE) // 2


def scan_orders(height: int, width: int, device: torch.device) -> Int64[Tensor, "4 l"]:
    """Token visited at each step of the four directions: row-major, its reverse, column-major, its reverse."""
    return kept(_orders, height, width, device)


def kept(make: Callable[..., Tensor], *settings: Any) -> Tensor:
    """A constant of these settings, made once: hardly any call has other ones than the call before."""
    # What is traced or exported must not meet tensors of earlier calls, nor leave its own behind.
    if torch.compiler.is_compiling():
        return make(*settings)
    # A tensor made in inference mode may never meet autograd: what is kept must serve training too.
    with torch.inference_mode(False):
        return _kept(make, *settings)


@lru_cache(maxsize=256)
def _kept(make: Callable[..., Tensor], *settings: Any) -> Tensor:
    return make(*settings)


def _slice_points(lattice: Lattice, device: torch.device) -> Tensor:
    y, x = torch.meshgrid(*lattice.axes(device)[1:], indexing="ij")
    return torch.stack([x, y], -1).flatten(0, 1)


def _volume_points(lattice: Lattice, device: torch.device) -> Tensor:
    z, y, x = torch.meshgrid(*(axis * lattice.reach for axis in lattice.axes(device)), indexing="ij")
    return torch.stack([x, y, z, torch.ones_like(x)], -1).flatten(1, 2)


def _orders(height: int, width: int, device: torch.device) -> Tensor:
    rows = torch.arange(height * width, device=device)
    columns = rows.reshape(height, width).T.reshape(-1)
    return torch.stack([rows, rows.flip(0), columns, columns.flip(0)])
