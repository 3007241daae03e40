"""CompoundedVolume: the frames of a tracked sweep averaged into voxels, on a grid that follows the sweep.

Frames are averaged over blocks of about half a voxel, so that speckle is averaged and not aliased, and each block is
shared out among the eight voxels around it (trilinear). A voxel is the mean of what fell on it. Holes are bridged along
z, the direction of the sweep: linear between the two nearest voxels with an image, up to a stated distance. What is
still empty is 0 and not `filled`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Volume
from scopereg.io.sweeps import WORLD, TrackedSweep
from scopereg.ops.bridges import bridged_along_z
from scopereg.ops.splat import plain_splat

SHAPE = (64, 128, 128)
BRIDGE_MM = 12.0
_BLOCK = 0.5  # voxels: side of the blocks that frames are averaged over
_SOLID = 0.5  # frames' worth of image in a voxel that needs no bridge
THIN = 0.05  # and the least that still counts as an image
MAX_VOXELS = 2**28
_BATCH = 16  # frames averaged at once


@dataclass(frozen=True, eq=False)
class CompoundedVolume:
    """A volume placed in the tracker's world; `filled` (D, H, W) tells the voxels that hold an image."""

    volume: Volume
    filled: Tensor
    facts: dict[str, Any]

    @property
    def volume_to_world(self) -> Pose:
        """From mm along the volume's own axes, counted from its centre, to world mm."""
        return Pose(self.volume.direction, self.volume.centre_mm, "Volume", self.volume.frame_of_reference)


class Grid(NamedTuple):
    """Isotropic voxels in the world."""

    shape: tuple[int, int, int]  # D, H, W
    spacing_mm: float
    axes: npt.NDArray[np.float64]  # columns are x, y, z in the world
    centre_mm: npt.NDArray[np.float64]  # in the world

    @property
    def first_mm(self) -> npt.NDArray[np.float64]:
        """World place of voxel (0, 0, 0)."""
        place: npt.NDArray[np.float64] = (
            self.centre_mm - self.axes @ (np.array(self.shape[::-1]) - 1) * self.spacing_mm / 2
        )
        return place

    def part(self, low: tuple[int, int, int], high: tuple[int, int, int]) -> Grid:
        """The voxels from `low` to before `high`, both as z, y, x."""
        depth, height, width = (b - a for a, b in zip(low, high, strict=True))
        middle = (np.array(low) + np.array(high) - 1)[::-1] / 2 - (np.array(self.shape[::-1]) - 1) / 2
        return Grid(
            (depth, height, width), self.spacing_mm, self.axes, self.centre_mm + self.axes @ middle * self.spacing_mm
        )

    def pooled(self, factor: int) -> Grid:
        """Voxels so many times as large along each axis, from the same corner on."""
        depth, height, width = (n // factor for n in self.shape)
        size = np.array([width, height, depth])
        shift = (size * factor - np.array(self.shape[::-1])) / 2  # voxels that are cut off at the far ends
        centre_mm = self.centre_mm + self.axes @ shift * self.spacing_mm
        return Grid((depth, height, width), factor * self.spacing_mm, self.axes, centre_mm)

    def place_in(self, whole: Grid) -> tuple[int, int, int]:
        """Voxel (z, y, x) of the whole in which this part of it begins."""
        x, y, z = np.rint((self.first_mm - whole.first_mm) @ whole.axes / whole.spacing_mm).astype(int)
        return int(z), int(y), int(x)


def compound(
    sweep: TrackedSweep,
    rows: Sequence[int] | None = None,
    shape: tuple[int, int, int] | None = SHAPE,
    spacing_mm: float | None = None,
    *,
    bridge_mm: float = BRIDGE_MM,
) -> CompoundedVolume:
    """Average frames (by default all) into an isotropic volume.

    The grid belongs to the whole sweep, whatever `rows` are: x along the mean image row, y down the mean column, z
    along their normal, centred on what the transducer saw. Without `spacing_mm` it is as fine as lets the sweep fit
    into `shape` (D, H, W); with `shape=None` it is as large as the sweep at `spacing_mm`; with both, what does not fit
    is left out. Holes of at most `bridge_mm` along z are bridged.
    """
    rows = sweep.checked_rows(range(len(sweep)) if rows is None else rows, "compound(rows)")
    if not 0 <= bridge_mm < float("inf"):
        raise ScopeRegError(f"bridge_mm is {bridge_mm}", where="compound(bridge_mm)", fix="pass mm, 0 for no bridges")
    grid = grid_of([sweep], shape, spacing_mm)
    sums, weights = _splat(sweep, rows, grid)
    values = sums / weights.clamp_min(1e-6)
    values, bridged, _ = bridged_along_z(values, weights >= _SOLID, int(bridge_mm / grid.spacing_mm))
    filled = bridged | (weights >= THIN)
    volume = Volume(
        (values * filled).clamp(0, 1),
        spacing_mm=grid.spacing_mm,
        origin_mm=grid.first_mm.tolist(),
        direction=grid.axes,
        frame_of_reference=WORLD,
    )
    shares = {"filled_share": filled, "bridged_share": bridged}
    facts = {"sweep": sweep.name, "frames": len(rows), "bridge_mm": bridge_mm} | {
        name: round(float(mask.float().mean()), 4) for name, mask in shares.items()
    }
    return CompoundedVolume(volume, filled, facts)


def grid_of(sweeps: Sequence[TrackedSweep], shape: tuple[int, int, int] | None, spacing_mm: float | None) -> Grid:
    """The grid along the mean frame, around all that was seen."""
    axes, low, high = box_of(sweeps)
    if shape is not None and (len(shape) != 3 or min(shape) < 2):
        raise ScopeRegError(f"the shape is {shape}", where="compound(shape)", fix="pass (D, H, W), each at least 2")
    if spacing_mm is None:
        if shape is None:
            raise ScopeRegError(
                "neither shape nor spacing", where="compound(shape, spacing_mm)", fix="pass one of them"
            )
        spacing_mm = float(((high - low) / (np.array(shape[::-1]) - 1)).max())
    if not 0 < spacing_mm < float("inf"):
        raise ScopeRegError(
            f"the spacing is {spacing_mm}", where="compound(spacing_mm)", fix="pass a positive number of mm"
        )
    width, height, depth = shape[::-1] if shape else (int(n) + 2 for n in (high - low) / spacing_mm)
    if width * height * depth > MAX_VOXELS:
        raise ScopeRegError(
            f"{spacing_mm:g} mm gives {depth} x {height} x {width} voxels",
            where="compound(spacing_mm)",
            fix="choose a coarser spacing",
        )
    return Grid((depth, height, width), spacing_mm, axes, axes @ (low + high) / 2)


def box_of(
    sweeps: Sequence[TrackedSweep],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Axes of the mean frame (columns), and the least and the greatest place along them that was seen, in mm."""
    axes = _mean_axes(np.concatenate([sweep.image_to_world[:, :3, :3] for sweep in sweeps]))
    along = np.concatenate([corners_mm(sweep) for sweep in sweeps]).reshape(-1, 3) @ axes
    return axes, along.min(0), along.max(0)


def corners_mm(sweep: TrackedSweep) -> npt.NDArray[np.float64]:
    """World places (F, N, 3) of the outline of what each frame saw."""
    edge = _outline_mm(sweep.seen, sweep.spacing_mm)  # (N, 2)
    corners: npt.NDArray[np.float64] = (
        np.einsum("fij,nj->fni", sweep.image_to_world[:, :3, :2], edge) + sweep.image_to_world[:, None, :3, 3]
    )
    return corners


def _mean_axes(rotations: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The rotation nearest to all of them."""
    left, _, right = np.linalg.svd(rotations.mean(0))
    left[:, 2] *= np.linalg.det(left @ right)  # of a sweep all around, the nearest matrix may be a mirror
    axes: npt.NDArray[np.float64] = left @ right
    return axes


def _outline_mm(seen: Tensor, spacing_mm: tuple[float, float]) -> npt.NDArray[np.float64]:
    """First and last seen pixel of every row, as x, y in frame mm."""
    mask = seen.numpy()
    rows = np.flatnonzero(mask.any(1))
    first = mask[rows].argmax(1)
    last = mask.shape[1] - 1 - mask[rows, ::-1].argmax(1)
    points = np.concatenate([np.stack([columns, rows], 1) for columns in (first, last)])
    outline: npt.NDArray[np.float64] = points * np.asarray(spacing_mm)
    return outline


def _splat(sweep: TrackedSweep, rows: Sequence[int], grid: Grid) -> tuple[Tensor, Tensor]:
    """Sums of grey values and of weights (D, H, W); a plane of image through a voxel's centre weighs 1."""
    padded = tuple(n + 2 for n in grid.shape)  # a border that takes what falls beside the grid
    sums, weights = torch.zeros(2, int(np.prod(padded)))
    for points, values, _ in blocks_of(sweep, rows, grid):
        plain_splat(sums, weights, points, values, padded)
    weight = block_weight(sweep, grid)
    sums, weights = ((total * weight).reshape(padded)[1:-1, 1:-1, 1:-1].contiguous() for total in (sums, weights))
    return sums, weights


def blocks_of(sweep: TrackedSweep, rows: Sequence[int], grid: Grid) -> Iterator[tuple[Tensor, Tensor, int]]:
    """Frames averaged over blocks, some at a time: places (3, N) in voxels as x, y, z, values (N,), and of how many."""
    width_mm, height_mm = sweep.spacing_mm
    size = (_block_size(height_mm, grid), _block_size(width_mm, grid))
    cover, keep, x_mm, y_mm = _blocks(sweep.seen, size, sweep.spacing_mm)
    world_to_voxel = grid.axes.T / grid.spacing_mm
    # Several frames at a time: on a busy machine threads wait for each other after every step.
    for part in (list(rows[start : start + _BATCH]) for start in range(0, len(rows), _BATCH)):
        matrices = sweep.image_to_world[part]
        starts = torch.from_numpy((matrices[:, :3, 3] - grid.first_mm) @ world_to_voxel.T).float()
        along = torch.from_numpy(world_to_voxel @ matrices[:, :3, :2]).float()  # (B, 3, 2)
        start, right, down = (each.T[..., None] for each in (starts, along[..., 0], along[..., 1]))  # (3, B, 1)
        points = x_mm * right + (y_mm * down + start)  # (3, B, N)
        yield points.flatten(1), _block_values(sweep, part, size, cover, keep), len(part)


def _block_values(
    sweep: TrackedSweep, rows: Sequence[int], size: tuple[int, int], cover: Tensor, keep: Tensor
) -> Tensor:
    """Means of the blocks that count, frame after frame."""
    if size == (1, 1):
        return sweep.values(rows, keep).flatten()
    return (F.avg_pool2d(sweep.values(rows) * sweep.seen, size) / cover)[:, keep].flatten()


def block_weight(sweep: TrackedSweep, grid: Grid) -> float:
    """What a block counts: a plane of image through a voxel's centre weighs 1."""
    width_mm, height_mm = sweep.spacing_mm
    size = _block_size(height_mm, grid) * _block_size(width_mm, grid)
    return size * width_mm * height_mm / grid.spacing_mm**2


def _block_size(pixel_mm: float, grid: Grid) -> int:
    return max(1, round(_BLOCK * grid.spacing_mm / pixel_mm))


def _blocks(
    seen: Tensor, size: tuple[int, int], spacing_mm: tuple[float, float]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Share of seen pixels of each block, which blocks count (half of them seen), and their centres in frame mm."""
    cover = F.avg_pool2d(seen.float()[None], size)[0]
    keep = cover >= 0.5
    if not bool(keep.any()):
        raise ScopeRegError(
            f"no block of {size[0]} x {size[1]} pixels is seen", where="compound", fix="choose a finer spacing"
        )
    y, x = (index.float() * n + (n - 1) / 2 for index, n in zip(keep.nonzero().T, size, strict=True))
    return cover.clamp_min(1e-6), keep, x * spacing_mm[0], y * spacing_mm[1]
