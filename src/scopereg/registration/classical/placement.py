"""Placement: a frame as a one-slice 3D image that a start pose lays into the volume's world.

The optimiser turns and shifts the slice about its own centre; its transform after the start pose is the pose found.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame, Volume, centre_pose, check_content, field_of_view, largest_section
from scopereg.registration.result import RegistrationError

LEAST_OVERLAP = 0.25  # of the frame's mask, that must lie in the volume: elastix has the same share


@dataclass(frozen=True, eq=False)
class Placement:
    """A frame [W, H, 1] in the world of a volume, with the pixels that count. Made by `place`."""

    frame: Frame
    volume: Volume
    start: Pose  # ImageToVolume
    mask: Tensor  # (H, W), true where the transducer sees

    @property
    def spacing_mm(self) -> tuple[float, float, float]:
        """Along x, y and the axis that has one pixel."""
        x, y = self.frame.spacing_mm
        return x, y, min(x, y)

    @property
    def origin_mm(self) -> list[float]:
        """Where pixel (0, 0) lies."""
        corner: list[float] = self.start.apply((*self.frame.origin_mm, 0.0)).tolist()
        return corner

    @property
    def direction(self) -> npt.NDArray[np.float64]:
        """Axes of the slice in its columns."""
        return self.start.rotation

    @property
    def centre_mm(self) -> list[float]:
        """The middle of the frame, about which it turns."""
        middle: list[float] = self.start.apply(self.frame.centre_mm).tolist()
        return middle

    @property
    def volume_mask(self) -> Tensor:
        """The field of view of the volume (D, H, W), plane by plane; of one with a mask what of it counts."""
        known = self.volume.known
        return field_of_view(self.volume.array) if known is None else known

    @property
    def coverable(self) -> float:
        """The share of what the transducer sees that a volume with a mask can cover at most."""
        if self.volume.mask is None:
            return 1.0
        seen_mm2 = float(self.mask.sum()) * math.prod(self.frame.spacing_mm)
        return min(largest_section(self.volume.mask, self.volume.spacing_mm) / seen_mm2, 1.0)

    def pose(self, rotation: object, translation_mm: object, centre_mm: object) -> Pose:
        """`ImageToVolume` once the slice moved: x becomes rotation (x - centre) + centre + translation."""
        turn, centre = np.asarray(rotation, np.float64).reshape(3, 3), np.asarray(centre_mm, np.float64)
        shift = np.asarray(translation_mm, np.float64) + centre - turn @ centre
        world = self.volume.frame_of_reference
        return Pose(turn, shift, world, world) @ self.start


def place(frame: Frame, volume: Volume, start: Pose | None, seen: Tensor | None, where: str) -> Placement:
    """The frame at a start pose, by default the centre pose; `seen` (H, W) is by default its field of view."""
    try:
        check_content(frame)
    except ScopeRegError as error:  # of one frame: the others of a set may well be found
        raise RegistrationError(error.what, where=error.where, fix=error.fix) from None
    check_content(volume)
    mask = frame.seen if seen is None else seen
    if mask.shape != frame.array.shape or not bool(mask.any()):
        raise ScopeRegError(
            f"a mask of shape {tuple(mask.shape)} with {int(mask.sum())} pixels for a frame of {frame.shape}",
            where=f"{where}(seen)",
            fix="pass a mask of the frame's shape that is true where the transducer sees",
        )
    return Placement(frame, volume, start or centre_pose(frame, volume), mask)


def gave_up(library: str, reason: str, method: str) -> RegistrationError:
    """The error of an optimiser that stopped without a pose; the reason loses ITK's class and address in memory."""
    plain = re.sub(r"^(ITK ERROR: )?(\w+\(0x\w+\): )?", "", reason)
    return RegistrationError(
        f"{library} gave up: {plain}",
        where=method,
        fix="start nearer to the volume: most of the frame must lie inside it at the start pose",
    )
