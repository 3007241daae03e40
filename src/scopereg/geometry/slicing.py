"""Planes through volumes, in centred voxel coordinates, and the poses that perturb them.

One rule for all of the package (method.md, section 1): a volume is an array (D, H, W) with axes x = W, y = H, z = D;
coordinates are voxels counted from the centre, linspace(-(n-1)/2, (n-1)/2, n) on each axis; a pose takes the slice
point (x, y, 0) to q = R p + t; sampling is trilinear with align_corners=True.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Num, Shaped
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.geometry.rotations import rotation_from_euler_deg

Padding = Literal["zeros", "border", "reflection"]
Mode = Literal["bilinear", "nearest"]

MIN_INSIDE = 0.35  # a pose counts only when this share of the slice lies inside the volume
_MAX_ROUNDS = 200  # rounds of rejection before a magnitude is called impossible
_MAX_ROWS = 2**20  # rows of slices held at once while testing poses
_BORDER = 1e-3  # voxels beyond the last voxel centre that still count as inside: more than rounding, less than matters


class VoxelPoses(NamedTuple):
    """Poses of slices in a volume, in centred voxel coordinates."""

    rotation: Float[Tensor, "b 3 3"]
    translation: Num[Tensor, "b 3"]  # voxels

    @classmethod
    def identity(cls, count: int, device: torch.device | str | None = None) -> VoxelPoses:
        """Slices in the middle of the volume, along its planes."""
        return cls(torch.eye(3, device=device).expand(count, 3, 3), torch.zeros(count, 3, device=device))


def centred_axis(
    size: int, *, device: torch.device | str | None = None, dtype: torch.dtype = torch.float32
) -> Float[Tensor, " {size}"]:
    """Voxel coordinates of one axis, counted from its centre."""
    return torch.arange(size, device=device, dtype=dtype) - (size - 1) / 2


def plane_points(
    slice_shape: tuple[int, int], *, device: torch.device | str | None = None, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "{slice_shape[0]} {slice_shape[1]} 2"]:
    """Points of the slice plane as (x, y) in centred voxels."""
    y, x = torch.meshgrid(*(centred_axis(size, device=device, dtype=dtype) for size in slice_shape), indexing="ij")
    return torch.stack([x, y], -1)


def place_plane(
    rotation: Float[Tensor, "*batch 3 3"], translation: Num[Tensor, "*batch 3"], slice_shape: tuple[int, int]
) -> Float[Tensor, "*batch {slice_shape[0]} {slice_shape[1]} 3"]:
    """Volume points of a slice under poses."""
    x, y = plane_points(slice_shape, device=rotation.device, dtype=rotation.dtype).split(1, -1)
    first, second, start = (v[..., None, None, :] for v in (rotation[..., 0], rotation[..., 1], translation))
    # Products and sums, not a matrix product: under autocast or TF32 that misplaces the corners by a third of a voxel.
    return x * first + (y * second + start)


def sample_points(
    volume: Shaped[Tensor, "b d h w"],
    points: Float[Tensor, "b *places 3"],
    *,
    padding: Padding = "zeros",
    mode: Mode = "bilinear",
) -> Float[Tensor, "b *places"]:
    """Values of volumes at points, centred voxels in x, y, z order.

    Trilinear, or the nearest voxel; `padding` tells what lies outside.
    """
    if volume.ndim != 4 or points.ndim < 2 or points.shape[-1] != 3 or len(points) != len(volume):
        raise ScopeRegError(
            f"shapes {tuple(volume.shape)} and {tuple(points.shape)} do not fit together",
            where="sample_points(volume, points)",
            fix="pass volumes (B, D, H, W) and points (B, ..., 3)",
        )
    # A single plane has no extent: its normalised coordinate is 0 wherever the point lies. Axis by axis: a tensor of
    # the sizes would be copied from the host, which a recorded graph does not allow.
    sizes = reversed(volume.shape[-3:])  # x, y, z
    axes = zip(points.unbind(-1), sizes, strict=True)
    grid = torch.stack([places * 2 / max(size - 1, 1) for places, size in axes], -1)
    batch = points.shape[0]
    values = F.grid_sample(
        volume[:, None].to(points.dtype),
        grid.reshape(batch, 1, 1, -1, 3),
        mode=mode,
        padding_mode=padding,
        align_corners=True,
    )
    return values.reshape(points.shape[:-1])


def sample_slice(
    volume: Shaped[Tensor, "*volumes d h w"],
    rotation: Float[Tensor, "*frames 3 3"],
    translation: Num[Tensor, "*frames 3"],
    *,
    slice_shape: tuple[int, int] | None = None,
    padding: Padding = "zeros",
    mode: Mode = "bilinear",
) -> Float[Tensor, "*frames h2 w2"]:
    """Slices of volumes at poses in centred voxels.

    One volume (D, H, W) or (1, D, H, W) may serve many poses; a single pose without a batch axis gives (H, W).
    The slice has the volume's in-plane size unless `slice_shape` says otherwise. A pose with NaN gives NaN.
    """
    single = rotation.ndim == 2
    if single:
        rotation, translation = rotation[None], translation[None]
    if volume.ndim == 3:
        volume = volume[None]
    _check_slicing(volume, rotation, translation)
    height, width = slice_shape = slice_shape or (volume.shape[-2], volume.shape[-1])
    _check_slice_shape(slice_shape, "sample_slice")
    points = place_plane(rotation, translation, (height, width))
    if len(volume) == 1 and len(rotation) > 1:
        # One volume, many planes: sampled as one long plane, the volume is not copied.
        values = sample_points(volume, points.flatten(0, 1)[None], padding=padding, mode=mode)
        values = values.reshape(len(rotation), height, width)
    else:
        values = sample_points(volume, points, padding=padding, mode=mode)
    # Outside lies zero, but a pose that is not finite lies nowhere: its slice is NaN, never a black picture.
    finite = torch.isfinite(rotation).all((-1, -2)) & torch.isfinite(translation).all(-1)
    values = torch.where(finite[:, None, None], values, torch.nan)
    return values[0] if single else values


def resample_volume(
    volume: Shaped[Tensor, "b d h w"],
    rotation: Float[Tensor, "b 3 3"],
    translation: Num[Tensor, "b 3"],
    *,
    shape: tuple[int, int, int] | None = None,
    padding: Padding = "zeros",
) -> Float[Tensor, "b d2 h2 w2"]:
    """Volumes seen from poses: a slice at such a pose is their middle plane.

    They have the shape of the volume unless `shape` (D, H, W) says otherwise.
    """
    _check_slicing(volume, rotation, translation)
    depth, height, width = shape or volume.shape[1:]
    plane = place_plane(rotation, translation, (height, width))[:, None]  # (B, 1, H, W, 3)
    z = centred_axis(depth, device=rotation.device, dtype=rotation.dtype)[:, None, None, None]
    return sample_points(volume, plane + z * rotation[:, None, None, None, :, 2], padding=padding)


def compose_poses(first: VoxelPoses, second: VoxelPoses) -> VoxelPoses:
    """Poses (B, ...) that apply `second`, then `first`: those of slices found in volumes resampled at `first`."""
    # Sums of products: a matmul would lose digits under TF32 or autocast.
    rotation = (first.rotation[..., :, :, None] * second.rotation[..., None, :, :]).sum(-2)
    moved = (first.rotation * second.translation[..., None, :]).sum(-1)
    return VoxelPoses(rotation, moved + first.translation)


def invert_poses(poses: VoxelPoses) -> VoxelPoses:
    """The way back: `compose_poses(invert_poses(p), p)` is the identity."""
    turned = poses.rotation.transpose(-1, -2)
    return VoxelPoses(turned, -(turned * poses.translation[..., None, :]).sum(-1))


def inside_fraction(
    rotation: Float[Tensor, "b 3 3"],
    translation: Num[Tensor, "b 3"],
    shape: tuple[int, int, int],
    slice_shape: tuple[int, int] | None = None,
) -> Float[Tensor, " b"]:
    """Share of the slice's pixels that fall inside a volume of `shape` (D, H, W) under poses."""
    slice_shape = slice_shape or (shape[1], shape[2])
    _check_slice_shape(slice_shape, "inside_fraction")
    batch = len(rotation)
    if rotation.shape != (batch, 3, 3) or translation.shape != (batch, 3):
        raise ScopeRegError(
            f"the poses have shapes {tuple(rotation.shape)} and {tuple(translation.shape)}",
            where="inside_fraction(rotation, translation)",
            fix="pass rotations (B, 3, 3) and translations (B, 3)",
        )
    chunk = max(1, _MAX_ROWS // slice_shape[0])
    parts = zip(rotation.split(chunk), translation.split(chunk), strict=True)
    return torch.cat([_pixels_inside(r, t, shape, slice_shape).sum(1) for r, t in parts]) / math.prod(slice_shape)


def _pixels_inside(
    rotation: Float[Tensor, "b 3 3"],
    translation: Num[Tensor, "b 3"],
    shape: tuple[int, int, int],
    slice_shape: tuple[int, int],
) -> Float[Tensor, "b {slice_shape[0]}"]:
    """Number of pixels of each row that lie inside, from where the row enters and leaves the volume."""
    # Made there: a copy from the host would wait for the device, and could not be recorded in a graph.
    half = torch.stack([rotation.new_full((), (n - 1) / 2 + _BORDER) for n in shape[::-1]])
    y = centred_axis(slice_shape[0], device=rotation.device, dtype=rotation.dtype)
    slope, start = rotation[:, None, :, 0], rotation[:, None, :, 1] * y[:, None] + translation[:, None]  # x, y, z last
    # Along a row, start + x slope meets the two faces of an axis at two values of x.
    parallel = slope.abs() < 1e-9
    faces = torch.stack([-half - start, half - start]) / slope.masked_fill(parallel, 1)
    enters, leaves = faces.aminmax(dim=0)
    # A row that runs along the faces lies between them as a whole or not at all.
    enters = torch.where(parallel, torch.where(start.abs() <= half, -torch.inf, torch.inf), enters).amax(-1)
    leaves = leaves.masked_fill(parallel, torch.inf).amin(-1)
    edge = (slice_shape[1] - 1) / 2
    count = torch.floor(leaves.clamp_max(edge) + edge) - torch.ceil(enters.clamp_min(-edge) + edge) + 1
    return count.clamp_min(0)


def sample_poses(
    count: int,
    magnitude: float,
    shape: tuple[int, int, int],
    generator: torch.Generator | None = None,
    *,
    slice_shape: tuple[int, int] | None = None,
    min_inside: float = MIN_INSIDE,
) -> VoxelPoses:
    """Random poses: six independent uniforms in +-magnitude (voxels and degrees), those with enough slice inside.

    `shape` is the volume's (D, H, W). Drawn on the generator's device; the same generator state gives the same poses.
    """
    _check_sampling(count, magnitude, shape, min_inside)
    device = generator.device if generator is not None else torch.device("cpu")
    rotations, translations, found = [], [], 0
    for _ in range(_MAX_ROUNDS):
        draw = (2 * torch.rand(max(count, 16), 6, generator=generator, device=device) - 1) * magnitude
        translation, rotation = draw[:, :3], rotation_from_euler_deg(draw[:, 3:])
        keep = inside_fraction(rotation, translation, shape, slice_shape) >= min_inside
        rotations.append(rotation[keep])
        translations.append(translation[keep])
        found += len(rotations[-1])
        if found >= count:
            return VoxelPoses(torch.cat(rotations)[:count], torch.cat(translations)[:count])
    raise ScopeRegError(
        f"only {found} of {_MAX_ROUNDS * max(count, 16)} drawn poses keep {min_inside:.0%} of the slice "
        f"inside a volume of shape {tuple(shape)} at magnitude {magnitude:g}",
        where="sample_poses(magnitude)",
        fix=f"use a smaller magnitude (10 is usual; the smallest axis here has {min(shape)} voxels) or a larger volume",
    )


def _check_slice_shape(slice_shape: tuple[int, int], where: str) -> None:
    if len(slice_shape) != 2 or min(slice_shape) < 1:
        raise ScopeRegError(
            f"the slice has shape {tuple(slice_shape)}",
            where=f"{where}(slice_shape)",
            fix="pass (H, W), each at least 1",
        )


def check_magnitude(magnitude: float, where: str) -> None:
    """An error unless it is a finite number, 0 or more."""
    if not 0 <= magnitude < float("inf"):
        raise ScopeRegError(
            f"the magnitude is {magnitude}",
            where=f"{where}(magnitude)",
            fix="pass a finite number of voxels and degrees, 0 or more",
        )


def _check_sampling(count: int, magnitude: float, shape: tuple[int, int, int], min_inside: float) -> None:
    if count < 1:
        raise ScopeRegError(f"{count} poses were asked for", where="sample_poses(count)", fix="ask for at least one")
    check_magnitude(magnitude, "sample_poses")
    if len(shape) != 3 or min(shape) < 1:
        raise ScopeRegError(
            f"the shape is {tuple(shape)}", where="sample_poses(shape)", fix="pass the volume's shape as (D, H, W)"
        )
    if not 0 <= min_inside <= 1:
        raise ScopeRegError(
            f"the share is {min_inside}", where="sample_poses(min_inside)", fix="pass a share between 0 and 1"
        )


def _check_slicing(volume: Tensor, rotation: Tensor, translation: Tensor) -> None:
    batch = rotation.shape[0]
    if (
        volume.ndim != 4
        or volume.shape[0] not in (1, batch)
        or rotation.shape != (batch, 3, 3)
        or translation.shape != (batch, 3)
    ):
        raise ScopeRegError(
            f"shapes {tuple(volume.shape)}, {tuple(rotation.shape)} and {tuple(translation.shape)} do not fit together",
            where="sample_slice(volume, rotation, translation)",
            fix="pass a volume (D, H, W) or (B, D, H, W), rotations (B, 3, 3) and translations (B, 3)",
        )
    if min(volume.shape) < 1:
        raise ScopeRegError(
            f"the volume is empty, shape {tuple(volume.shape)}",
            where="sample_slice(volume)",
            fix="pass a volume with at least one voxel on each axis",
        )
