"""Prepared: a volume made ready for one method, which then finds frames in it; and Identity, the simplest method."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame, Volume, centre_pose
from scopereg.registration.calibration import NETWORK, REFINED, Stage
from scopereg.registration.result import Result
from scopereg.registration.similarity import Similarity

IDENTITY = "identity"
Found = Result | ScopeRegError  # of one frame: the others of a batch may well be found


class Prepared(ABC):
    """What a method makes of a volume. A method of one's own needs `locate` alone; the rest tells what else it can do.

    Frames and volume have grey values in [0, 1], and more than one of them.
    """

    batch_size = 4  # frames that are best found in one call
    worth_a_process = 16  # frames that make up for the start of another process
    notes: tuple[str, ...] = ()  # what was done to the volume
    judges = False  # whether results carry a verdict
    refines = False  # whether the last step is a refinement
    precise = False  # whether poses are mostly right to a voxel: what refines them trusts them then
    stage: Stage = NETWORK  # of the poses that it gives, for calibrations
    might_look_wider = False  # whether a wide search could be asked for and was not
    alike: Similarity | None = None  # of the volume, where the method has prepared that anyway
    measures = False  # whether results tell that similarity; else a locator measures it
    may_overlap = False  # whether threads may locate several frames at once, and gain by it

    @abstractmethod
    def locate(self, frames: Sequence[Frame], starts: Sequence[Pose | None]) -> list[Found]:
        """A result for each frame, or the error that tells why there is none. A start may be None."""

    def is_ready(self, frame: Frame) -> bool:
        """Whether frames of this field of view are located without anything being prepared for them first."""
        return True

    def get_ready(self, frame: Frame) -> None:
        """Prepare what frames of this field of view need, which may take seconds; from any thread."""
        return

    def narrow(self) -> Prepared:
        """The same without a wide search."""
        return self

    def wider(self) -> Prepared | None:
        """The same with a wide search; None where it looks so already, or cannot."""
        return None

    def reaches(self, frame: Frame, pose: Pose) -> bool:
        """Whether a frame at the pose would be found without a start, as far as anybody knows."""
        return True

    def can_judge(self, stage: Stage) -> bool:
        """Whether a verdict can be given on poses of a stage, such as refined ones (`calibration.refined_by`)."""
        return False

    def judge_refined(self, frame: Frame, result: Result, stage: Stage = REFINED) -> Result:
        """A result of this method whose pose was refined, with a verdict on the refined pose."""
        return result

    def refine_from(self, frame: Frame, start: Result) -> Result | None:
        """A frame refined from another pose than the one that was found; None where that cannot be."""
        return None


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
