"""Pose sets for training and tests: independent draws live in geometry, here are probe sweeps."""

from __future__ import annotations

import torch

from scopereg.errors import ScopeRegError
from scopereg.geometry import (
    MIN_INSIDE,
    VoxelPoses,
    check_magnitude,
    euler_deg_from_rotation,
    inside_fraction,
    rotation_from_euler_deg,
    sample_poses,
)


def sample_sweep(
    count: int, magnitude: float, shape: tuple[int, int, int], generator: torch.Generator | None = None
) -> VoxelPoses:
    """Poses (count, ...) along a smooth hand-held sweep within +-magnitude (voxels, degrees) of the volume's middle.

    A Catmull-Rom curve through random poses, on each of the six numbers; like every pose of this package, those of
    a sweep keep 35 % of the slice inside the volume of `shape` (D, H, W).
    """
    if count < 1:
        raise ScopeRegError(f"{count} frames were asked for", where="sample_sweep(count)", fix="ask for at least one")
    check_magnitude(magnitude, "sample_sweep")
    for _ in range(100):
        # Four knots with margins: the curve may overshoot its knots by an eighth of their distance.
        rotation, translation = sample_poses(4, 0.8 * magnitude, shape, generator)
        knots = torch.cat([translation, euler_deg_from_rotation(rotation)], -1)  # (4, 6)
        curve = _catmull_rom(knots, count).clamp(-magnitude, magnitude)
        poses = VoxelPoses(rotation_from_euler_deg(curve[:, 3:]), curve[:, :3])
        if bool((inside_fraction(*poses, shape) >= MIN_INSIDE).all()):
            return poses
    raise ScopeRegError(
        f"no sweep at magnitude {magnitude:g} stays inside a volume of shape {tuple(shape)}",
        where="sample_sweep(magnitude)",
        fix="use a smaller magnitude or a larger volume",
    )


def _catmull_rom(knots: torch.Tensor, count: int) -> torch.Tensor:
    """Points (count, N) on a curve through all knots (K, N), evenly spaced in the curve's parameter."""
    last = len(knots) - 1
    padded = torch.cat([2 * knots[:1] - knots[1:2], knots, 2 * knots[-1:] - knots[-2:-1]])
    position = torch.linspace(0, last, count, device=knots.device)
    segment = position.floor().clamp(max=last - 1).long()
    s = (position - segment)[:, None]
    p0, p1, p2, p3 = (padded[segment + k] for k in range(4))
    return 0.5 * (2 * p1 + (p2 - p0) * s + (2 * p0 - 5 * p1 + 4 * p2 - p3) * s**2 + (3 * p1 - p0 - 3 * p2 + p3) * s**3)
