"""Pyramid: what the fine stage sees of an image, at strides of 8, 4 and 2 voxels; and lattices of such places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from scopereg.geometry import centred_axis
from scopereg.networks.lattice import Lattice, kept
from scopereg.networks.passes import interpolate_by_gathering

STRIDES = (8, 4, 2)  # voxels between features, coarse to fine
WIDTHS = (32, 64, 128)  # channels of the pyramid at strides of 2, 4 and 8 voxels
_GROUPS = 8  # of channels that are normalised together
_SEEN = 0.5  # share of the pixels around a point that must not be black
_AROUND = 5  # pixels on a side


class Features(NamedTuple):
    """Images described at one stride, S channels of unit length and a weight of each place."""

    vectors: Float[Tensor, "b s *places"]
    logits: Float[Tensor, "b 1 *places"]  # of the weights


class Told(NamedTuple):
    """What a pyramid tells of images."""

    levels: tuple[Features, ...]  # at `STRIDES`, to compare a pose with others nearby
    far: Features  # at a stride of 8, to compare it with any other


class Pyramid(nn.Module):
    """Features of images of two or three axes, with context from a stride of 8; the first lies on the first pixel."""

    def __init__(self, axes: int, channels: Sequence[int], far: int) -> None:
        super().__init__()
        fine, middle, coarse = WIDTHS
        self.down2 = nn.Sequential(_block(axes, 1, fine, 2), _block(axes, fine, fine))
        self.down4 = nn.Sequential(_block(axes, fine, middle, 2), _block(axes, middle, middle))
        self.down8 = nn.Sequential(_block(axes, middle, coarse, 2), _block(axes, coarse, coarse))
        self.join4, self.join2 = _convolution(axes, coarse, middle, 1), _convolution(axes, middle, fine, 1)
        self.smooth4, self.smooth2 = _block(axes, middle, middle), _block(axes, fine, fine)
        self.tell8 = _convolution(axes, coarse, channels[0] + 1, 1)
        self.tell4 = _convolution(axes, middle, channels[1] + 1, 1)
        self.tell2 = _convolution(axes, fine, channels[2] + 1, 1)
        self.tell_far = _convolution(axes, coarse, far + 1, 1)

    def forward(self, images: Float[Tensor, "b *places"]) -> Told:
        at2 = self.down2(images.unsqueeze(1))
        at4 = self.down4(at2)
        at8 = self.down8(at4)
        at4 = self.smooth4(at4 + _doubled(self.join4(at8), at4.shape[2:]))
        at2 = self.smooth2(at2 + _doubled(self.join2(at4), at2.shape[2:]))
        levels = _told(self.tell8(at8)), _told(self.tell4(at4)), _told(self.tell2(at2))
        return Told(levels, _told(self.tell_far(at8)))


def seen_places(frames: Float[Tensor, "b h w"], stride: int) -> Bool[Tensor, "b n"]:
    """The places of a stride around which frames are not black."""
    share = F.avg_pool2d((frames > 0).float().unsqueeze(1), _AROUND, stride, _AROUND // 2)
    return (share > _SEEN).flatten(1)


def frame_places(height: int, width: int, stride: int, device: torch.device) -> Float[Tensor, "n 3"]:
    """Where a frame has features, in voxels from its middle."""
    return kept(_frame_places, height, width, stride, device)


def every_second(height: int, width: int, stride: int, device: torch.device) -> Int64[Tensor, "n"]:
    """Which places of a frame are left where every second one is, as on the black squares of a chessboard."""
    return kept(_every_second, height, width, stride, device)


def volume_lattice(voxels: Sequence[int], cells: Sequence[int], stride: int) -> Lattice:
    """Where a volume has them, in cells from its middle: the first lies on the first voxel."""
    depth, height, width = cells
    z, y, x = ((1 - n) / 2 / stride for n in voxels)
    return Lattice((depth, height, width), (z, y, x))


def read_table(
    table: Float[Tensor, "v d h w c"], lattice: Lattice, cells: Float[Tensor, "b n 3"]
) -> tuple[Float[Tensor, "b n c"], Float[Tensor, "b n"]]:
    """A table of volumes at points in cells from their middle, B / V frames in a row for each; 1 where these lie in it.

    Trilinear. What is told of points outside is of no use.
    """
    volumes, frames = table.shape[0], cells.shape[0]  # `len` would fix the batch size of an exported model
    cells = cells.reshape(volumes, -1, 3)
    first = kept(_first_cell, lattice, cells.device)
    last = kept(_last_cell, lattice, cells.device)
    inside = ((cells >= first) & (cells <= last)).all(-1)
    read = _by_rows if torch.is_grad_enabled() or torch.compiler.is_compiling() else _by_gathering
    found = read(table, lattice, cells)
    return found.reshape(frames, -1, found.shape[-1]), inside.float().reshape(frames, -1)


def _by_gathering(table: Tensor, lattice: Lattice, cells: Tensor) -> Tensor:
    return interpolate_by_gathering(table.flatten(2, 3), lattice, cells)


def _by_rows(table: Tensor, lattice: Lattice, cells: Tensor) -> Tensor:
    """With gradients: these are added to whole rows, which a GPU does many times faster than `grid_sample` does.

    Also in exported models: every runtime can take rows of a table.
    """
    weights = torch.ones_like(cells[..., :1])
    rows = torch.arange(table.shape[0], device=table.device)[:, None, None]
    for axis, (start, size) in enumerate(zip(lattice.start, lattice.shape, strict=True)):  # z, y, x
        place = (cells[..., 2 - axis] - start).clamp(0, size - 1)
        low = place.detach().floor().clamp(max=max(size - 2, 0))
        share = (place - low).unsqueeze(-1)
        weights = (weights.unsqueeze(-1) * torch.cat([1 - share, share], -1).unsqueeze(-2)).flatten(2)
        both = torch.stack([low, (low + 1).clamp(max=size - 1)], -1).long()
        rows = (rows.unsqueeze(-1) * size + both.unsqueeze(-2)).flatten(2)
    found = table.flatten(0, 3).index_select(0, rows.flatten()).unflatten(0, rows.shape)
    return (found * weights.unsqueeze(-1)).sum(2)


def _convolution(axes: int, inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Module:
    make = nn.Conv2d if axes == 2 else nn.Conv3d
    return make(inputs, outputs, size, stride, size // 2)


def _block(axes: int, inputs: int, outputs: int, stride: int = 1) -> nn.Module:
    return nn.Sequential(_convolution(axes, inputs, outputs, 3, stride), nn.GroupNorm(_GROUPS, outputs), nn.SiLU())


def _told(found: Float[Tensor, "b c *places"]) -> Features:
    return Features(F.normalize(found[:, :-1].float(), dim=1), found[:, -1:].float())


def _doubled(coarse: Float[Tensor, "b c *places"], sizes: Sequence[int]) -> Float[Tensor, "b c *more"]:
    """Features between which others lie, so that every second one stays where it is."""
    mode = "bilinear" if coarse.ndim == 4 else "trilinear"
    between = F.interpolate(coarse, [2 * n - 1 for n in coarse.shape[2:]], mode=mode, align_corners=True)
    pads = [pad for n, own in zip(reversed(sizes), reversed(between.shape[2:]), strict=True) for pad in (0, n - own)]
    return F.pad(between, pads, mode="replicate")


def _first_cell(lattice: Lattice, device: torch.device) -> Tensor:
    return torch.tensor(lattice.start[::-1], device=device)


def _last_cell(lattice: Lattice, device: torch.device) -> Tensor:
    ends = [first + n - 1 for first, n in zip(lattice.start, lattice.shape, strict=True)]
    return torch.tensor(ends[::-1], device=device)


def _every_second(height: int, width: int, stride: int, device: torch.device) -> Tensor:
    rows, columns = (-(-n // stride) for n in (height, width))
    # Counted on the host: how many there are is not asked of a device, nor unknown to an exported model.
    chosen = [row * columns + column for row in range(rows) for column in range(row % 2, columns, 2)]
    return torch.tensor(chosen, device=device)


def _frame_places(height: int, width: int, stride: int, device: torch.device) -> Tensor:
    y, x = (centred_axis(n, device=device)[::stride] for n in (height, width))
    y, x = torch.meshgrid(y, x, indexing="ij")
    return torch.stack([x, y, torch.zeros_like(x)], -1).flatten(0, 1)
