"""Weighted rigid fits: of plane points to space points in closed form without an SVD, and of points in space."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from scopereg.devices import full_precision
from scopereg.errors import ScopeRegError


class RigidFit(NamedTuple):
    """q = rotation p + translation, the best in the weighted least-squares sense."""

    rotation: Float[Tensor, "*batch 3 3"]
    translation: Float[Tensor, "*batch 3"]


def weighted_kabsch(
    source_xy: Float[Tensor, "*#batch n 2"],
    target_xyz: Float[Tensor, "*#batch n 3"],
    weights: Float[Tensor, "*#batch n"],
) -> RigidFit:
    """Rotation and translation that minimise sum_i w_i |R (x_i, y_i, 0) + t - q_i|^2.

    `source_xy` lies in the plane z = 0, `weights` are not negative.

    The source is coplanar, so only the first two columns of R meet the data, through the 3x2 weighted
    cross-covariance M. Its polar factor M (M'M)^(-1/2) is the minimiser (method.md 3.4), see `polar_rotation`. The
    gradient is finite when both singular values agree (a square grid with uniform weights and a rigid field), where
    the backward of an SVD gives NaN. Collinear points leave a turn about their line undetermined: a proper rotation
    that fits them as well as any is returned, and no gradient flows through the undetermined part.
    Values are not looked at, which would stall a GPU: NaN gives NaN, weights that are all zero give the identity.
    """
    _check_shapes(source_xy, target_xyz, weights)
    dtype = torch.float64 if target_xyz.dtype == torch.float64 else torch.float32
    with full_precision(target_xyz.device):
        source, target, mass = source_xy.to(dtype), target_xyz.to(dtype), weights.to(dtype)
        tiny = torch.finfo(dtype).tiny
        share = (mass / mass.sum(-1, keepdim=True).clamp_min(tiny)).unsqueeze(-1)  # (..., N, 1)
        source_mean = (share * source).sum(-2)  # (..., 2)
        target_mean = (share * target).sum(-2)  # (..., 3)
        # Sums of products instead of matrix products, which lose digits where TF32 is allowed.
        arrows, offsets = target - target_mean.unsqueeze(-2), source - source_mean.unsqueeze(-2)
        covariance = ((share * arrows).unsqueeze(-1) * offsets.unsqueeze(-2)).sum(-3)  # (..., 3, 2)
        rotation = polar_rotation(covariance)
        translation = target_mean - (rotation[..., :2] * source_mean.unsqueeze(-2)).sum(-1)
    return RigidFit(rotation, translation)


def weighted_kabsch_in_space(
    source_xyz: Float[Tensor, "n 3"], target_xyz: Float[Tensor, "n 3"], weights: Float[Tensor, "n"]
) -> RigidFit:
    """Rotation and translation that minimise sum_i w_i |R p_i + t - q_i|^2, of points that need not lie in a plane.

    By an SVD, in double precision; for fits that no gradient goes through.
    """
    source, target, mass = source_xyz.double(), target_xyz.double(), weights.double()
    share = (mass / mass.sum().clamp_min(torch.finfo(torch.float64).tiny)).unsqueeze(1)
    source_mean, target_mean = (share * source).sum(0), (share * target).sum(0)
    left, _, right = torch.linalg.svd((share * (target - target_mean)).T @ (source - source_mean))
    proper = torch.ones(3, dtype=torch.float64, device=source.device)
    proper[2] = torch.linalg.det(left @ right).sign()  # of all turns the best: no reflection
    rotation = (left * proper) @ right
    return RigidFit(rotation, target_mean - rotation @ source_mean)


def polar_rotation(covariance: Float[Tensor, "*batch 3 2"]) -> Float[Tensor, "*batch 3 3"]:
    """The rotation whose first two columns are the polar factor of a matrix.

    An orthonormal basis E = [e1 e2] of the plane of M = [m1 m2], turned so that det(E'M) > 0, leaves a 2x2 problem with
    a closed answer: E Q, where Q is the turn by atan2(e2.m1 - e1.m2, e1.m1 + e2.m2). Sine and cosine are divided by
    s1 + s2, the sum of the singular values, never zero. M is not squared, and the result is a rotation to rounding
    however thin M is.
    """
    # The factor does not depend on the scale: dividing by a constant keeps the products in range.
    scale = torch.linalg.matrix_norm(covariance.detach(), keepdim=True)
    nothing = scale <= torch.finfo(covariance.dtype).tiny ** 0.5  # where squares underflow: the identity stands in
    axes = torch.eye(3, 2, dtype=covariance.dtype, device=covariance.device)
    m1, m2 = torch.where(nothing, axes, covariance / scale.masked_fill(nothing, 1)).unbind(-1)
    e1, e2 = _plane_basis(m1, m2)
    cosine, sine = _dot(e1, m1) + _dot(e2, m2), _dot(e2, m1) - _dot(e1, m2)
    root_sum = torch.sqrt(cosine.square() + sine.square())  # s1 + s2
    cosine, sine = cosine / root_sum, sine / root_sum
    return torch.stack([e1 * cosine + e2 * sine, e2 * cosine - e1 * sine, torch.linalg.cross(e1, e2)], -1)


def _plane_basis(
    m1: Float[Tensor, "*batch 3"], m2: Float[Tensor, "*batch 3"]
) -> tuple[Float[Tensor, "*batch 3"], Float[Tensor, "*batch 3"]]:
    """Orthonormal e1, e2 in the plane of two vectors of joint length about 1, e1 x e2 along m1 x m2."""
    first_longer = (_dot(m1, m1) >= _dot(m2, m2)).detach()
    longer, shorter = torch.where(first_longer, m1, m2), torch.where(first_longer, m2, m1)
    axis = torch.nn.functional.normalize(longer, dim=-1)
    rest = shorter - _dot(axis, shorter) * axis
    # Parallel to rounding: any direction fits, so take the one of the identity, or a quarter turn from it.
    x, y = torch.eye(3, dtype=m1.dtype, device=m1.device)[:2]
    wanted, other = torch.where(first_longer, y, x), torch.where(first_longer, -x, -y)
    wanted = torch.where(_dot(axis, wanted).abs() < 0.9, wanted, other)
    parallel = _dot(rest, rest).detach() <= (4 * torch.finfo(m1.dtype).eps) ** 2
    across = torch.nn.functional.normalize(torch.where(parallel, wanted.detach(), rest), dim=-1)
    # Again: what rounding left along the axis is large beside a short rest.
    across = torch.nn.functional.normalize(across - _dot(axis, across) * axis, dim=-1)
    return torch.where(first_longer, axis, across), torch.where(first_longer, across, axis)


def _dot(first: Float[Tensor, "*#batch n"], second: Float[Tensor, "*#batch n"]) -> Float[Tensor, "*#batch 1"]:
    """Dot products."""
    return (first * second).sum(-1, keepdim=True)


def _broadcast(*shapes: Sequence[int]) -> bool:
    """Whether shapes fit each other; torch.broadcast_shapes imports SymPy to tell, which takes a second."""
    for sizes in zip_longest(*map(reversed, shapes), fillvalue=1):
        several = [size for size in sizes if size != 1]
        if any(size != several[0] for size in several):
            return False
    return True


def _check_shapes(source_xy: Tensor, target_xyz: Tensor, weights: Tensor) -> None:
    fits = (
        _broadcast(source_xy.shape[:-2], target_xyz.shape[:-2], weights.shape[:-1])
        and source_xy.shape[-1:] == (2,)
        and target_xyz.shape[-1:] == (3,)
        and source_xy.shape[-2:-1] == target_xyz.shape[-2:-1] == weights.shape[-1:]
        and weights.shape[-1:] != (0,)
    )
    if not fits:
        raise ScopeRegError(
            f"shapes {tuple(source_xy.shape)}, {tuple(target_xyz.shape)} and {tuple(weights.shape)} do not fit",
            where="weighted_kabsch(source_xy, target_xyz, weights)",
            fix="pass source_xy (..., N, 2), target_xyz (..., N, 3) and weights (..., N) with the same N > 0",
        )
