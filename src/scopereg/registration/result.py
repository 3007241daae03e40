"""What a registration gives back."""

from __future__ import annotations

from dataclasses import dataclass

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose


class RegistrationError(ScopeRegError):
    """A frame that a method cannot locate, though the call is right and other frames may be found."""


@dataclass(frozen=True)
class Result:
    """The pose found for one frame, by which method, in what time."""

    pose: Pose  # ImageToVolume, LPS mm
    method: str
    time_ms: float
    similarity: float  # the method's own measure at the found pose, larger is better
    iterations: int = 0

    def __str__(self) -> str:
        return f"{self.pose} [{self.method}, {self.time_ms:.0f} ms]"
