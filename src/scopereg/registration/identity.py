"""Identity: no registration. The frame stays at its start, by default on the middle plane of the volume."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from scopereg.geometry import Pose
from scopereg.images import Frame, Volume, centre_pose
from scopereg.registration.prepared import Found, Prepared
from scopereg.registration.result import Result

IDENTITY = "identity"


class Identity:
    """The method that every other one is compared with."""

    def __init__(self) -> None:
        self.name = IDENTITY
        self.facts: dict[str, Any] = {}

    def prepare(self, volume: Volume) -> PreparedIdentity:
        return PreparedIdentity(volume)


class PreparedIdentity(Prepared):
    """Only the similarity at the start is computed."""

    batch_size, worth_a_process = 4, 32

    def __init__(self, volume: Volume) -> None:
        self.volume = volume

    def locate(self, frames: Sequence[Frame], starts: Sequence[Pose | None]) -> list[Found]:
        return [self._place(frame, start) for frame, start in zip(frames, starts, strict=True)]

    def _place(self, frame: Frame, start: Pose | None) -> Found:
        begin = time.perf_counter()
        pose = start or centre_pose(frame, self.volume)
        similarity = _similarity(frame, self.volume, pose)
        return Result(pose, IDENTITY, (time.perf_counter() - begin) * 1e3, similarity)


def _similarity(frame: Frame, volume: Volume, pose: Pose) -> float:
    """Correlation at the pose; NaN on clusters without SimpleITK, where grids evaluate too."""
    try:
        import SimpleITK as sitk

        from scopereg.registration.classical.placement import place
        from scopereg.registration.classical.simple_itk import correlation_at
    except ModuleNotFoundError:
        return math.nan
    return correlation_at(place(frame, volume, pose, None, IDENTITY), sitk.Transform(3, sitk.sitkIdentity))
