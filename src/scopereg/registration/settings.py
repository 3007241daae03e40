"""Settings of registration that need no torch: the model by default, how a volume is searched, a probe followed."""

from __future__ import annotations

from dataclasses import dataclass

from scopereg.errors import ScopeRegError

DEFAULT = "universal"


@dataclass(frozen=True)
class SearchSettings:
    """How a frame is sought in all of a volume."""

    any_angle: bool = False
    """Whether frames may be turned in their plane by any angle."""
    seconds: float | None = None
    """After so many nothing more is begun; the first look at all of the volume is always taken."""
    tilt_deg: float = 25.0
    """Largest turn about each axis: what the features know."""
    tilt_step_deg: float = 12.5
    """Between the turns that are tried."""
    turn_step_deg: float = 24.0
    """Between turns in the plane, where any may be."""
    hypotheses: int = 48
    """Poses of the first look that the fine stage goes on from, all at once."""
    kept: int = 3
    """Places that the network looks at; one alone where it stands out."""
    stands_out: float = 0.1
    """From where on the best place is looked at alone."""

    def __post_init__(self) -> None:
        for name in ("tilt_step_deg", "turn_step_deg", "hypotheses", "kept"):
            _need(0 < getattr(self, name) < float("inf"), name, getattr(self, name), "pass a positive number")
        _need(0 <= self.tilt_deg <= 90, "tilt_deg", self.tilt_deg, "pass at most 90")
        if self.seconds is not None:
            _need(self.seconds > 0, "seconds", self.seconds, "pass a number above 0, or leave it out")


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
