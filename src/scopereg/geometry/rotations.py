"""Rotation matrices and their maps: Euler angles in degrees, the 6D form, the geodesic angle.

All functions take any number of leading batch axes and run on any device.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Num
from torch import Tensor

from scopereg.errors import ScopeRegError

ROTATION_TOLERANCE = 1e-4  # how far R'R may be from the identity before a matrix is no rotation


def is_rotation(matrices: Float[Tensor, "*batch 3 3"], tolerance: float = ROTATION_TOLERANCE) -> Bool[Tensor, "*batch"]:
    """Whether matrices are rotations: columns of length one, orthogonal, not mirrored."""
    x, y, z = matrices.unbind(-1)
    # Sums of products: a matmul would lose digits under TF32 or autocast.
    gram = (matrices[..., :, None] * matrices[..., None, :]).sum(-3)
    identity = torch.eye(3, device=matrices.device, dtype=matrices.dtype)
    mirrored = (torch.linalg.cross(x, y) * z).sum(-1) < 0
    return ((gram - identity).abs().amax((-1, -2)) <= tolerance) & ~mirrored


def rotation_from_euler_deg(angles_deg: Num[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
    """Rotation from angles about x, y, z in degrees: R = Rz Ry Rx, on column vectors."""
    _check_shape(angles_deg, (3,), "rotation_from_euler_deg(angles_deg)")
    cx, cy, cz = torch.cos(torch.deg2rad(angles_deg)).unbind(-1)
    sx, sy, sz = torch.sin(torch.deg2rad(angles_deg)).unbind(-1)
    # Rz Ry Rx multiplied out: no in-place writes, so that gradients flow and export works.
    rows = [
        torch.stack([cz * cy, cz * sy * sx - sz * cx, cz * sy * cx + sz * sx], -1),
        torch.stack([sz * cy, sz * sy * sx + cz * cx, sz * sy * cx - cz * sx], -1),
        torch.stack([-sy, cy * sx, cy * cx], -1),
    ]
    return torch.stack(rows, -2)


def euler_deg_from_rotation(rotation: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch 3"]:
    """Angles about x, y, z in degrees of a rotation; the y angle lies within +-90.

    At the poles (y = +-90) only a difference or sum of the x and z angles is determined: x is then set to 0.
    """
    _check_shape(rotation, (3, 3), "euler_deg_from_rotation(rotation)")
    r = rotation
    cos_y = torch.hypot(r[..., 0, 0], r[..., 1, 0])
    pole = cos_y < 10 * torch.finfo(r.dtype).eps
    x = torch.atan2(r[..., 2, 1], r[..., 2, 2])
    x = torch.where(pole, torch.zeros_like(x), x)
    y = torch.atan2(-r[..., 2, 0], cos_y)
    # From R Rx' = Rz Ry, not from the first column: near the poles z then makes up for what rounding did to x.
    cx, sx = torch.cos(x), torch.sin(x)
    z = torch.atan2(sx * r[..., 0, 2] - cx * r[..., 0, 1], cx * r[..., 1, 1] - sx * r[..., 1, 2])
    return torch.rad2deg(torch.stack([x, y, z], -1))


def rotation_from_6d(six: Float[Tensor, "*batch 6"]) -> Float[Tensor, "*batch 3 3"]:
    """Rotation from six numbers, the first two columns before orthonormalisation."""
    _check_shape(six, (6,), "rotation_from_6d(six)")
    first, second = six[..., :3], six[..., 3:]
    x = torch.nn.functional.normalize(first, dim=-1)
    y = torch.nn.functional.normalize(second - (x * second).sum(-1, keepdim=True) * x, dim=-1)
    return torch.stack([x, y, torch.linalg.cross(x, y)], -1)


def six_d_from_rotation(rotation: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch 6"]:
    """The 6D form of a rotation: its first two columns."""
    _check_shape(rotation, (3, 3), "six_d_from_rotation(rotation)")
    return torch.cat([rotation[..., 0], rotation[..., 1]], -1)


def rotation_from_vector(vectors: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
    """Rotation about a vector by its length in radians: the exponential map, smooth at zero."""
    _check_shape(vectors, (3,), "rotation_from_vector(vectors)")
    x, y, z = vectors.unbind(-1)
    zero = torch.zeros_like(x)
    cross = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], -1).unflatten(-1, (3, 3))
    angle = torch.linalg.vector_norm(vectors, dim=-1)[..., None, None]
    # sin a / a and (1 - cos a) / a^2 by sinc, which knows its value at zero.
    first, second = (torch.sinc(part / torch.pi) for part in (angle, angle / 2))
    square = vectors[..., :, None] * vectors[..., None, :] - angle.square() * torch.eye(
        3, device=vectors.device, dtype=vectors.dtype
    )
    return torch.eye(3, device=vectors.device, dtype=vectors.dtype) + first * cross + second.square() / 2 * square


def vector_from_rotation(rotation: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch 3"]:
    """The vector about which, and by whose length in radians, a rotation turns: at most pi long.

    By the quaternion, whose largest part is never near zero: exact for small turns and for half turns.
    """
    _check_shape(rotation, (3, 3), "vector_from_rotation(rotation)")
    r = rotation
    x, y, z = r.diagonal(dim1=-2, dim2=-1).unbind(-1)
    # Four times the square of each part, and the products of it with all parts; rows of the largest are taken.
    squares = torch.stack([1 + x + y + z, 1 + x - y - z, 1 - x + y - z, 1 - x - y + z], -1)
    wx, wy, wz = r[..., 2, 1] - r[..., 1, 2], r[..., 0, 2] - r[..., 2, 0], r[..., 1, 0] - r[..., 0, 1]
    xy, xz, yz = r[..., 1, 0] + r[..., 0, 1], r[..., 0, 2] + r[..., 2, 0], r[..., 2, 1] + r[..., 1, 2]
    rows = torch.stack(
        [
            torch.stack([squares[..., 0], wx, wy, wz], -1),
            torch.stack([wx, squares[..., 1], xy, xz], -1),
            torch.stack([wy, xy, squares[..., 2], yz], -1),
            torch.stack([wz, xz, yz, squares[..., 3]], -1),
        ],
        -2,
    )
    largest = squares.argmax(-1)[..., None, None].expand(*squares.shape[:-1], 1, 4)
    quaternion = torch.nn.functional.normalize(rows.gather(-2, largest).squeeze(-2), dim=-1)
    quaternion = torch.where(quaternion[..., :1] < 0, -quaternion, quaternion)  # the shorter way
    sine = torch.linalg.vector_norm(quaternion[..., 1:], dim=-1, keepdim=True)
    angle = 2 * torch.atan2(sine, quaternion[..., :1])
    # Towards no turn at all angle over sine becomes two over cosine.
    scale = torch.where(sine > 1e-7, angle / sine.clamp_min(1e-30), 2 / quaternion[..., :1].clamp_min(1e-30))
    return quaternion[..., 1:] * scale


def geodesic_angle_deg(
    first: Float[Tensor, "*#batch 3 3"], second: Float[Tensor, "*#batch 3 3"]
) -> Float[Tensor, "*#batch"]:
    """Angle in degrees of the rotation between two rotations.

    atan2 of sine and cosine instead of acos of the trace: exact to rounding for small angles and near 180 degrees.
    """
    _check_shape(first, (3, 3), "geodesic_angle_deg(first)")
    _check_shape(second, (3, 3), "geodesic_angle_deg(second)")
    # First' second as sums of products: a matrix product loses digits under TF32 or autocast.
    relative = (first.unsqueeze(-1) * second.unsqueeze(-2)).sum(-3)
    skew = torch.stack(
        [
            relative[..., 2, 1] - relative[..., 1, 2],
            relative[..., 0, 2] - relative[..., 2, 0],
            relative[..., 1, 0] - relative[..., 0, 1],
        ],
        -1,
    )
    twice_sine = torch.linalg.vector_norm(skew, dim=-1)
    twice_cosine = relative.diagonal(dim1=-2, dim2=-1).sum(-1) - 1
    return torch.rad2deg(torch.atan2(twice_sine, twice_cosine))


def _check_shape(value: Tensor, ending: tuple[int, ...], where: str) -> None:
    if value.shape[-len(ending) :] != ending:
        wanted = ", ".join(map(str, ending))
        raise ScopeRegError(f"the shape is {tuple(value.shape)}", where=where, fix=f"pass shape (..., {wanted})")
