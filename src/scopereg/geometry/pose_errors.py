"""Pose errors, frame by frame: target points and mTRE, translation and rotation errors, what counts as a success.

All functions take a batch of `VoxelPoses` in centred voxels, give one number per frame, and run on any device.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.geometry.rotations import euler_deg_from_rotation, geodesic_angle_deg, is_rotation
from scopereg.geometry.slicing import VoxelPoses

SUCCESS_MM = 3.0  # mTRE up to which a frame counts as found

Spacing = float | Float[Tensor, ""] | Float[Tensor, " b"]  # mm, one number or one per frame


def target_points(
    slice_shape: tuple[int, int], *, device: torch.device | str | None = None, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "5 3"]:
    """The five targets of mTRE in centred voxels: the centre, then the corners at +-trunc(0.9 (N-1))/2."""
    if len(slice_shape) != 2 or min(slice_shape) < 1:
        raise ScopeRegError(
            f"the slice shape is {tuple(slice_shape)}", where="target_points(slice_shape)", fix="pass (H, W) in pixels"
        )
    y, x = (9 * (size - 1) // 10 / 2 for size in slice_shape)
    points = [(0.0, 0.0, 0.0), (-x, -y, 0.0), (x, -y, 0.0), (-x, y, 0.0), (x, y, 0.0)]
    return torch.tensor(points, device=device, dtype=dtype)


def mtre_mm(
    predicted: VoxelPoses, true: VoxelPoses, slice_shape: tuple[int, int], spacing_mm: Spacing
) -> Float[Tensor, " b"]:
    """Mean target registration error in mm: mean distance of the five targets of a slice (H, W).

    `spacing_mm` is one number or one per frame. Poses that are not finite or not rigid are an error.
    """
    predicted, true = _pose_pair(predicted, true, "mtre_mm")
    spacing = spacing_per_frame(spacing_mm, predicted.translation, "mtre_mm")
    points = target_points(slice_shape, device=predicted.rotation.device, dtype=predicted.rotation.dtype)
    # R p as sums of products: a matmul would lose digits under TF32 or autocast.
    turned = ((predicted.rotation - true.rotation)[:, None] * points[:, None, :]).sum(-1)  # (B, 5, 3)
    offset = (predicted.translation - true.translation)[:, None]
    return torch.linalg.vector_norm(turned + offset, dim=-1).mean(-1) * spacing


def translation_error_mm(predicted: VoxelPoses, true: VoxelPoses, spacing_mm: Spacing) -> Float[Tensor, " b"]:
    """Distance in mm between the two translations, that is between the slice centres."""
    predicted, true = _pose_pair(predicted, true, "translation_error_mm")
    spacing = spacing_per_frame(spacing_mm, predicted.translation, "translation_error_mm")
    return torch.linalg.vector_norm(predicted.translation - true.translation, dim=-1) * spacing


def rotation_error_deg(predicted: VoxelPoses, true: VoxelPoses) -> Float[Tensor, " b"]:
    """L2 norm in degrees of the difference of the Euler angles (R = Rz Ry Rx), each taken the short way round."""
    predicted, true = _pose_pair(predicted, true, "rotation_error_deg")
    difference = euler_deg_from_rotation(predicted.rotation) - euler_deg_from_rotation(true.rotation)
    return torch.linalg.vector_norm(torch.remainder(difference + 180, 360) - 180, dim=-1)


def geodesic_error_deg(predicted: VoxelPoses, true: VoxelPoses) -> Float[Tensor, " b"]:
    """Angle in degrees of the one rotation that takes the predicted to the true orientation."""
    predicted, true = _pose_pair(predicted, true, "geodesic_error_deg")
    return geodesic_angle_deg(predicted.rotation, true.rotation)


def refuse_rows(bad: Bool[Tensor, " b"], what: str, where: str, fix: str) -> None:
    """An error that names the rows of the batch where `bad` holds."""
    rows = bad.nonzero().flatten().tolist()
    if rows:
        listed = ", ".join(map(str, rows[:8])) + (f" and {len(rows) - 8} more" if len(rows) > 8 else "")
        raise ScopeRegError(f"{what}: batch row {listed}", where=where, fix=fix)


def _pose_pair(predicted: VoxelPoses, true: VoxelPoses, where: str) -> tuple[VoxelPoses, VoxelPoses]:
    """Both poses checked, in one type of at least single precision."""
    pairs = []
    dtype = torch.promote_types(torch.promote_types(predicted.rotation.dtype, true.rotation.dtype), torch.float32)
    for name, (rotation, translation) in (("predicted", predicted), ("true", true)):
        batch = len(true.rotation)
        if not batch or rotation.shape != (batch, 3, 3) or translation.shape != (batch, 3):
            raise ScopeRegError(
                f"the rotations have shape {tuple(rotation.shape)}, the translations {tuple(translation.shape)}",
                where=f"{where}({name})",
                fix="pass rotations (B, 3, 3) and translations (B, 3), B > 0 and the same for both poses",
            )
        rotation, translation = rotation.to(dtype), translation.to(dtype)
        _check_rigid(rotation, translation, f"{where}({name})")
        pairs.append(VoxelPoses(rotation, translation))
    return pairs[0], pairs[1]


def _check_rigid(rotation: Float[Tensor, "b 3 3"], translation: Float[Tensor, "b 3"], where: str) -> None:
    finite = torch.isfinite(rotation).all(2).all(1) & torch.isfinite(translation).all(1)
    refuse_rows(
        ~finite, "the pose holds NaN or infinity", where, "find where it was computed; a failed fit gives no pose"
    )
    refuse_rows(
        ~is_rotation(rotation),
        "the matrix is not a rotation (scaled, skewed or mirrored)",
        where,
        "orthonormalise it first, for instance with rotation_from_6d",
    )


def spacing_per_frame(
    spacing_mm: Spacing, like: Float[Tensor, "b *rest"], where: str
) -> Float[Tensor, ""] | Float[Tensor, " b"]:
    """The spacing as a tensor of the type and device of `like`."""
    spacing = torch.as_tensor(spacing_mm, dtype=like.dtype, device=like.device)
    if spacing.shape not in ((), (len(like),)) or not bool((torch.isfinite(spacing) & (spacing > 0)).all()):
        raise ScopeRegError(
            f"got {spacing_mm!r} for {len(like)} frames",
            where=f"{where}(spacing_mm)",
            fix="pass the positive size of a voxel in mm, one number or one per frame",
        )
    return spacing
