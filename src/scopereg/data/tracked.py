"""RealCase: a reference compounded from some frames of a tracked sweep, and the frames left out with their true poses.

A long sweep reaches farther than a network looks. So a frame is sought around a start pose: `around` cuts the
reference out at that pose, and `compose_poses(start, found)` brings what is found there back to the whole reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scopereg.data.compound import SHAPE, CompoundedVolume, compound
from scopereg.data.grids import PERCENTILES, regrid
from scopereg.errors import ScopeRegError
from scopereg.geometry import VoxelPoses, compose_poses, invert_poses, sample_poses
from scopereg.images import Frame, Volume, pose_to_voxels, seen_from
from scopereg.io.sweeps import WORLD, TrackedSweep


@dataclass(frozen=True, eq=False)
class RealCase:
    """A reference, frames that are not in it, and where the tracker saw them; grey values scaled alike to 0 .. 1."""

    name: str
    reference: CompoundedVolume
    frames: tuple[Frame, ...]  # on the reference's spacing, centred on what the transducer sees
    seen: Tensor  # (H, W), pixels of every frame that the transducer sees
    truth: VoxelPoses  # of the frames in the reference, centred voxels
    rows: tuple[int, ...]  # of the frames in the sweep
    facts: dict[str, Any]

    def __len__(self) -> int:
        return len(self.frames)

    @property
    def images(self) -> Tensor:
        """The frames' grey values (B, H, W)."""
        return torch.stack([frame.array for frame in self.frames])


def held_out_blocks(count: int, blocks: int = 5, size: int = 5) -> tuple[int, ...]:
    """Rows of `blocks` runs of `size` frames each, spread evenly over a sweep of `count` frames, its ends left in.

    Whole runs, because a frame between two neighbours of half a millimetre would be found again in the reference.
    """
    if min(blocks, size) < 1 or count < blocks * (size + 2):
        raise ScopeRegError(
            f"{blocks} blocks of {size} frames out of {count}",
            where="held_out_blocks(blocks, size)",
            fix=f"hold out fewer frames: at most {max(0, count // max(size + 2, 1))} blocks of this size",
        )
    middles = (np.arange(blocks) + 0.5) * count / blocks
    starts = np.round(middles - size / 2).astype(int)
    return tuple(int(start) + step for start in starts for step in range(size))


def real_case(
    sweep: TrackedSweep,
    rows: Sequence[int] | None = None,
    shape: tuple[int, int, int] | None = SHAPE,
    spacing_mm: float | None = None,
    frame_shape: tuple[int, int] | None = None,
) -> RealCase:
    """The reference without the frames `rows` (by default `held_out_blocks`), and these frames on its grid.

    `shape` and `spacing_mm` are those of `compound`. Frames have the reference's in-plane size unless `frame_shape`
    (H, W) says otherwise. The 1st and 99th percentile of the reference's filled voxels become 0 and 1, in the frames
    too.
    """
    rows = sweep.checked_rows(held_out_blocks(len(sweep)) if rows is None else rows, "real_case(rows)")
    left = [row for row in range(len(sweep)) if row not in set(rows)]
    reference = compound(sweep, left, shape, spacing_mm)
    volume, filled = reference.volume, reference.filled
    low, high = np.percentile(volume.array[filled].numpy(), PERCENTILES)
    if not high > low:
        raise ScopeRegError(f"98 % of the voxels are {low:g}", where="real_case(sweep)", fix="check the images")
    array = ((volume.array - low) / (high - low)).clamp(0, 1) * filled
    spacing = volume.isotropic_spacing_mm
    placed = Volume(array, spacing, volume.origin_mm, volume.direction, frame_of_reference=WORLD)
    frames, seen = frames_on_grid(sweep, rows, frame_shape or volume.shape[1:], spacing)
    frames = tuple(
        Frame(((frame.array - low) / (high - low)).clamp(0, 1) * seen, spacing, frame.origin_mm) for frame in frames
    )
    truth = [pose_to_voxels(sweep.pose(row), frame, placed) for row, frame in zip(rows, frames, strict=True)]
    return RealCase(
        name=sweep.name,
        reference=CompoundedVolume(placed, filled, reference.facts),
        frames=frames,
        seen=seen,
        truth=VoxelPoses(*(torch.stack(parts) for parts in zip(*truth, strict=True))),
        rows=tuple(rows),
        facts={**sweep.facts, **reference.facts, "black": float(low), "white": float(high)},
    )


def frames_on_grid(
    sweep: TrackedSweep, rows: Sequence[int], frame_shape: tuple[int, int], spacing_mm: float
) -> tuple[tuple[Frame, ...], Tensor]:
    """Frames averaged onto pixels of `spacing_mm`, centred on what the transducer sees, and what it sees of these.

    Black where it sees less than half of a pixel. Their origins keep every point at its place in frame mm.
    """
    rows = sweep.checked_rows(rows, "frames_on_grid(rows)")
    used = [sweep.seen.any(axis).nonzero().flatten() for axis in (1, 0)]  # rows, columns
    middles = [float(index[0] + index[-1]) / 2 for index in used]
    steps = [spacing_mm / pixel for pixel in reversed(sweep.spacing_mm)]
    starts = [middle - step * (n - 1) / 2 for middle, step, n in zip(middles, steps, frame_shape, strict=True)]
    mask = sweep.seen.numpy()
    cover = torch.from_numpy(regrid(mask, starts, steps, frame_shape))
    seen = cover >= 0.5
    for axis, (start, step, n) in enumerate(zip(starts, steps, frame_shape, strict=True)):
        place = start + step * np.arange(n)
        on_image = torch.from_numpy((place >= -0.5) & (place <= mask.shape[axis] - 0.5))
        seen &= on_image[:, None] if axis == 0 else on_image
    if not bool(seen.any()):
        raise ScopeRegError(
            f"nothing is seen on a frame of {frame_shape} pixels of {spacing_mm:g} mm",
            where="frames_on_grid(spacing_mm)",
            fix="choose a finer spacing",
        )
    images = (sweep.values(rows) * sweep.seen).numpy()
    values = [torch.from_numpy(regrid(image, starts, steps, frame_shape)) for image in images]
    origin = (starts[1] * sweep.spacing_mm[0], starts[0] * sweep.spacing_mm[1])
    return tuple(Frame(torch.where(seen, v / cover, 0).clamp(0, 1), spacing_mm, origin) for v in values), seen


def start_poses(truth: VoxelPoses, magnitude: float, seed: int, shape: tuple[int, int, int]) -> VoxelPoses:
    """Poses near the true ones: seen from each, the truth is six uniforms within +-magnitude (voxels, degrees).

    These draws keep enough of the slice inside a reference of `shape` (D, H, W) cut out around the start, as in
    every other test of this package.
    """
    draws = sample_poses(len(truth.rotation), magnitude, shape, torch.Generator().manual_seed(seed))
    return compose_poses(truth, invert_poses(draws))


def around(reference: CompoundedVolume, start: VoxelPoses, shape: tuple[int, int, int]) -> list[Volume]:
    """The reference as seen from each start pose (B, ...): volumes of `shape` (D, H, W), see `images.seen_from`."""
    return [seen_from(reference.volume, *pose, shape) for pose in zip(*start, strict=True)]
