"""Prepared: a volume made ready for one method, which then finds frames in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame
from scopereg.registration.result import Result

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
    might_look_wider = False  # whether a wide search could be asked for and was not
    may_overlap = False  # whether threads may locate several frames at once, and gain by it

    @abstractmethod
    def locate(self, frames: Sequence[Frame], starts: Sequence[Pose | None]) -> list[Found]:
        """A result for each frame, or the error that tells why there is none. A start may be None."""

    def narrow(self) -> Prepared:
        """The same without a wide search."""
        return self

    def reaches(self, frame: Frame, pose: Pose) -> bool:
        """Whether a frame at the pose would be found without a start, as far as anybody knows."""
        return True

    def judge_refined(self, frame: Frame, result: Result) -> Result:
        """A result of this method whose pose was refined, with a verdict on the refined pose."""
        return result

    def refine_from(self, frame: Frame, start: Result) -> Result | None:
        """A frame refined from another pose than the one that was found; None where that cannot be."""
        return None
