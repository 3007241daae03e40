"""A rigid transform that knows which frames it joins, in LPS millimetres."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from scopereg.errors import ScopeRegError
from scopereg.geometry.rotations import (
    ROTATION_TOLERANCE,
    euler_deg_from_rotation,
    geodesic_angle_deg,
    rotation_from_euler_deg,
)

if TYPE_CHECKING:
    from scopereg.io.transforms import Convention

Array = npt.NDArray[np.float64]
_LPS_TO_RAS = np.diag([-1.0, -1.0, 1.0, 1.0])


@dataclass(frozen=True, eq=False)
class Pose:
    """Takes a point in mm of the frame `source` to mm of the frame `target`: q = rotation p + translation_mm.

    Millimetres in LPS (x to the patient's left, y to the back, z to the head). Frames are named as in PLUS: the pose
    of a slice in a volume is `ImageToVolume`. Arrays are copied and read-only.
    """

    rotation: Array
    translation_mm: Array
    source: str = "Image"
    target: str = "Volume"

    def __post_init__(self) -> None:
        rotation = _as_array(self.rotation, (3, 3), "Pose(rotation)")
        translation = _as_array(self.translation_mm, (3,), "Pose(translation_mm)")
        _check_rigid(rotation)
        if not np.allclose(rotation.T @ rotation, np.eye(3), rtol=0, atol=1e-12):
            # Rounded in a file or in float32: the nearest rotation, or composing and inverting would add the error up.
            u, _, vt = np.linalg.svd(rotation)
            rotation = u @ vt
        for name, value in (("rotation", rotation), ("translation_mm", translation)):
            value.setflags(write=False)
            object.__setattr__(self, name, value)
        if not self.source or not self.target:
            raise ScopeRegError(
                "a frame has no name", where="Pose(source, target)", fix="name both frames, such as Image and Volume"
            )

    @classmethod
    def identity(cls, source: str = "Image", target: str = "Volume") -> Pose:
        return cls(np.eye(3), np.zeros(3), source, target)

    @classmethod
    def from_matrix(cls, matrix: Any, source: str = "Image", target: str = "Volume") -> Pose:
        """From a 4x4 matrix, which must be rigid: scale (pixel size) belongs to the image, not to the pose."""
        matrix = _as_array(matrix, (4, 4), "Pose.from_matrix(matrix)")
        if not np.allclose(matrix[3], (0, 0, 0, 1), atol=1e-6):
            raise ScopeRegError(
                f"the last row is {matrix[3].tolist()}",
                where="Pose.from_matrix(matrix)",
                fix="pass a 4x4 matrix for column vectors, last row 0 0 0 1 (transpose a row-vector matrix)",
            )
        return cls(matrix[:3, :3], matrix[:3, 3], source, target)

    @classmethod
    def from_euler_deg(
        cls, angles_deg: Any, translation_mm: Any, source: str = "Image", target: str = "Volume"
    ) -> Pose:
        """From angles about x, y, z in degrees (R = Rz Ry Rx) and a translation in mm."""
        angles = _as_array(angles_deg, (3,), "Pose.from_euler_deg(angles_deg)")
        return cls(rotation_from_euler_deg(torch.from_numpy(angles)).numpy(), translation_mm, source, target)

    @classmethod
    def load(cls, path: Path | str, *, convention: Convention = "slicer") -> Pose:
        """From a file (.tfm, .h5, .txt, .json, .dcm): `scopereg.io.read_pose`, which tells about directions."""
        from scopereg.io.transforms import read_pose  # files need SimpleITK, geometry does not

        return read_pose(path, convention=convention)

    def save(self, path: Path | str, *, convention: Convention = "slicer") -> Path:
        """To a file (.tfm, .h5, .txt, .json): `scopereg.io.write_pose`. A .tfm puts the frame in place in 3D Slicer."""
        from scopereg.io.transforms import write_pose

        return write_pose(self, path, convention=convention)

    @property
    def name(self) -> str:
        """The PLUS name of the transform, such as ImageToVolume."""
        return f"{self.source}To{self.target}"

    @property
    def matrix(self) -> Array:
        """The 4x4 matrix, for column vectors."""
        matrix = np.eye(4)
        matrix[:3, :3], matrix[:3, 3] = self.rotation, self.translation_mm
        return matrix

    @property
    def euler_deg(self) -> Array:
        """Angles about x, y, z in degrees, R = Rz Ry Rx."""
        angles: Array = euler_deg_from_rotation(torch.from_numpy(self.rotation.copy())).numpy()
        return angles

    def inverse(self) -> Pose:
        """From `target` back to `source`."""
        return Pose(self.rotation.T, -self.rotation.T @ self.translation_mm, self.target, self.source)

    def __matmul__(self, other: Pose) -> Pose:
        """self after other: `volume_to_world @ image_to_volume` is ImageToWorld."""
        if not isinstance(other, Pose):
            return NotImplemented
        if other.target != self.source:
            raise ScopeRegError(
                f"{self.name} cannot follow {other.name}: {other.target} is not {self.source}",
                where="Pose @ Pose",
                fix=f"put a pose that starts from {other.target} on the left, or invert one of the two",
            )
        rotation = self.rotation @ other.rotation
        return Pose(rotation, self.rotation @ other.translation_mm + self.translation_mm, other.source, self.target)

    def compose(self, other: Pose) -> Pose:
        """The same as `self @ other`: first `other`, then `self`."""
        return self @ other

    def apply(self, points_mm: Any) -> Array:
        """Points (..., 3) in mm of `source`, in mm of `target`."""
        points = np.asarray(points_mm, np.float64)
        if points.shape[-1:] != (3,):
            raise ScopeRegError(
                f"points have shape {points.shape}", where="Pose.apply(points_mm)", fix="pass points (..., 3) in mm"
            )
        moved: Array = points @ self.rotation.T + self.translation_mm
        return moved

    def angle_to_deg(self, other: Pose) -> float:
        """Geodesic angle between the two rotations, in degrees."""
        pair = (torch.from_numpy(p.rotation.copy()) for p in (self, other))
        return float(geodesic_angle_deg(*pair))

    def is_close(self, other: Pose, *, mm: float = 1e-6, deg: float = 1e-6) -> bool:
        """Same frames, and equal within a distance and an angle."""
        return (
            self.name == other.name
            and float(np.linalg.norm(self.translation_mm - other.translation_mm)) <= mm
            and self.angle_to_deg(other) <= deg
        )

    def __str__(self) -> str:
        x, y, z = self.translation_mm
        rx, ry, rz = self.euler_deg
        return (
            f"{self.name} (LPS): translation {x:.2f} {y:.2f} {z:.2f} mm, "
            f"rotation about x, y, z {rx:.2f} {ry:.2f} {rz:.2f} deg"
        )

    __repr__ = __str__


def ras_from_lps(matrix: Array) -> Array:
    """A transform between LPS spaces as one between RAS spaces, or back: both ends are turned."""
    turned: Array = _LPS_TO_RAS @ matrix @ _LPS_TO_RAS
    return turned


def _as_array(value: Any, shape: tuple[int, ...], where: str) -> Array:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().double().numpy()
    try:
        array = np.array(value, np.float64)
    except (TypeError, ValueError) as error:
        raise ScopeRegError(f"not numbers: {error}", where=where, fix=f"pass numbers of shape {shape}") from None
    if array.shape != shape:
        raise ScopeRegError(f"the shape is {array.shape}", where=where, fix=f"pass shape {shape}")
    if not np.isfinite(array).all():
        raise ScopeRegError(
            "it holds NaN or infinity", where=where, fix="find where the pose was computed; a failed fit gives no pose"
        )
    return array


def _check_rigid(rotation: Array) -> None:
    gram = rotation.T @ rotation
    if not np.allclose(gram, np.eye(3), atol=ROTATION_TOLERANCE):
        scale = np.sqrt(np.diag(gram))
        cosines = [gram[i, j] / max(scale[i] * scale[j], 1e-300) for i, j in ((0, 1), (0, 2), (1, 2))]
        raise ScopeRegError(
            f"not a rotation: column lengths {np.round(scale, 4).tolist()}, "
            f"cosines between columns {(np.round(cosines, 4) + 0.0).tolist()}",
            where="Pose(rotation)",
            fix="take the pixel size out (it belongs to the image's spacing), orthogonalise a skewed calibration first",
        )
    if np.linalg.det(rotation) < 0:
        raise ScopeRegError(
            "a reflection, determinant -1",
            where="Pose(rotation)",
            fix="flip one axis: a left-handed frame (often RAS against LPS, or an image flip) is mixed in",
        )
