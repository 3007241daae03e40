"""Shapes: signed distances in mm, negative inside, from coordinates in mm."""

from __future__ import annotations

import math

import torch
from torch import Tensor

Vector = tuple[float, float, float]
_EPS = 1e-4


def ellipse(u: Tensor, v: Tensor, radius_u: Tensor | float, radius_v: Tensor | float) -> Tensor:
    """Distance to a centred ellipse, exact on its border and to first order around it."""
    u, v = u / radius_u, v / radius_v
    k0 = torch.sqrt(u * u + v * v + _EPS)
    k1 = torch.sqrt((u / radius_u) ** 2 + (v / radius_v) ** 2 + _EPS / 400)
    return k0 * (k0 - 1) / k1


def ellipsoid(x: Tensor, y: Tensor, z: Tensor, centre: Vector, radii: Vector) -> Tensor:
    """Distance to an ellipsoid with axes along x, y, z, exact on its border and to first order around it."""
    scaled = [(p - c) / r for p, c, r in zip((x, y, z), centre, radii, strict=True)]
    k0 = torch.sqrt(scaled[0] ** 2 + scaled[1] ** 2 + scaled[2] ** 2 + _EPS)
    over = [s / r for s, r in zip(scaled, radii, strict=True)]
    k1 = torch.sqrt(over[0] ** 2 + over[1] ** 2 + over[2] ** 2 + _EPS / max(radii) ** 2)
    return k0 * (k0 - 1) / k1


def sphere(x: Tensor, y: Tensor, z: Tensor, centre: Vector, radius: float) -> Tensor:
    """Distance to a sphere."""
    return torch.sqrt((x - centre[0]) ** 2 + (y - centre[1]) ** 2 + (z - centre[2]) ** 2) - radius


def segment(u: Tensor, v: Tensor, start: tuple[Tensor, Tensor], end: tuple[Tensor, Tensor]) -> Tensor:
    """Distance to a line segment in the plane; the ends may vary from point to point."""
    du, dv = end[0] - start[0], end[1] - start[1]
    ru, rv = u - start[0], v - start[1]
    along = ((ru * du + rv * dv) / (du * du + dv * dv + _EPS)).clamp(0, 1)
    return torch.sqrt((ru - along * du) ** 2 + (rv - along * dv) ** 2 + _EPS)


def tubes(x: Tensor, y: Tensor, z: Tensor, starts: Tensor, ends: Tensor, radii: Tensor) -> Tensor:
    """Distance to a union of tapered tubes; starts and ends (K, 3), radii (K, 2) at both."""
    squared = x * x + y * y + z * z
    nearest = torch.full_like(squared, math.inf)
    parameters = torch.cat([starts, ends - starts, radii], -1).tolist()
    for ax, ay, az, dx, dy, dz, r0, r1 in parameters:
        length2 = max(dx * dx + dy * dy + dz * dz, _EPS)
        along = (x * dx).add_(y, alpha=dy).add_(z, alpha=dz).sub_(ax * dx + ay * dy + az * dz)
        share = (along / length2).clamp_(0, 1)
        # |p - a|² - s (2 p·d - s d²): no vector has to be formed.
        distance2 = squared.sub(x, alpha=2 * ax).sub_(y, alpha=2 * ay).sub_(z, alpha=2 * az)
        distance2 += ax * ax + ay * ay + az * az
        distance2 -= share * (2 * along - share * length2)
        distance = distance2.clamp_min_(_EPS).sqrt_().sub_(share.mul_(r1 - r0).add_(r0))
        nearest = torch.minimum(nearest, distance)
    return nearest


def union(a: Tensor, b: Tensor, blend_mm: float) -> Tensor:
    """The smaller distance, with the crease rounded over `blend_mm`."""
    h = (blend_mm - (a - b).abs()).clamp_min(0) / blend_mm
    return torch.minimum(a, b) - h * h * (blend_mm / 4)


def cover(distance_mm: Tensor, soft_mm: float = 0.3) -> Tensor:
    """Share 0..1 of a point that lies inside, soft over `soft_mm`."""
    return torch.sigmoid(distance_mm * (-1 / soft_mm))


def band(distance_mm: Tensor, width_mm: Tensor | float) -> Tensor:
    """Share 0..1 around a surface, a Gaussian of half-width `width_mm`."""
    return torch.exp(-0.5 * (distance_mm / width_mm) ** 2)
