"""Settings of registration that need no torch: the model by default, and how a probe is followed."""

from __future__ import annotations

from dataclasses import dataclass

from scopereg.errors import ScopeRegError

DEFAULT = "universal"


@dataclass(frozen=True)
class MotionSettings:
    """How a hand moves a probe."""

    acceleration_mm_s2: float = 40.0
    """Usual change of velocity, of shifts and of turns at the lever."""
    first_velocity_mm_s: float = 30.0
    """Usual velocity when following begins."""
    lever_mm: float = 40.0
    """Where turns are measured: half of a usual frame."""
    gate: float = 25.0
    """Squared distance, in standard deviations, beyond which a pose does not belong to the motion (99.97 %)."""

    def __post_init__(self) -> None:
        for name in ("acceleration_mm_s2", "first_velocity_mm_s", "lever_mm", "gate"):
            _need(0 < getattr(self, name) < float("inf"), name, getattr(self, name), "pass a positive number")


@dataclass(frozen=True)
class TrackSettings(MotionSettings):
    """How frames are followed."""

    patience: int = 5
    """Frames in a row that the motion may carry without a reliable pose, before it counts as lost."""
    agreeing: int = 2
    """Poses in a row, away from the motion but along one another, that make a new motion."""
    network_error_mm: float = 3.0
    """Error of a pose that has no calibration to tell it."""
    refined_error_mm: float = 1.0
    """The same after refinement."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("patience", 0), ("agreeing", 1)):
            _need(getattr(self, name) >= least, name, getattr(self, name), f"pass at least {least}")
        for name in ("network_error_mm", "refined_error_mm"):
            _need(0 < getattr(self, name) < float("inf"), name, getattr(self, name), "pass a positive number")


def _need(good: bool, name: str, value: float, fix: str) -> None:
    if not good:
        raise ScopeRegError(f"{name} is {value:g}", where=f"{name}=", fix=fix)
