"""Result: what a registration gives back; pose, verdict and how they were found, also as a row and in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose, target_points
from scopereg.images import Frame

if TYPE_CHECKING:
    from torch import Tensor

    from scopereg.images import Frame, Volume
    from scopereg.io.transforms import Convention
    from scopereg.viewer.page import Shown


Light = Literal["green", "amber", "red"]
TRANSLATION = ("tx_mm", "ty_mm", "tz_mm")
ANGLES = ("rx_deg", "ry_deg", "rz_deg")
POSE = (*TRANSLATION, *ANGLES)  # ImageToVolume in LPS, R = Rz Ry Rx
VERDICT = ("ok", "belongs", "confidence", "expected_mm", "bound_mm", "reason")
YES_NO = {None: "", True: "yes", False: "no"}  # ok and belongs, as tables hold them
TRUTH = {word: truth for truth, word in YES_NO.items()}  # and read back


class RegistrationError(ScopeRegError):
    """A frame that a method cannot locate, though the call is right and other frames may be found."""

    start: Pose | None = None  # where a classical search began: an evaluation counts the frame as left there


@dataclass(frozen=True)
class Result:
    """The pose found for one frame, by which method, in what time."""

    pose: Pose  # ImageToVolume, LPS mm
    method: str
    time_ms: float
    similarity: float  # the method's own measure at the found pose, larger is better
    iterations: int = 0
    notes: tuple[str, ...] = ()  # what was done to the images that a user should know
    confidence: float = math.nan  # calibrated: probability of an error of at most 3 mm; else 0 to 1, or NaN for none
    expected_mm: float = math.nan  # error to expect; this and what follows only of calibrated networks
    bound_mm: float = math.nan  # 95 % of the errors of such frames are below
    belongs: bool | None = None  # whether the frame is one of this volume at all; None where nobody can tell
    ok: bool | None = None  # whether the pose is reliable; None likewise
    reason: str = ""  # why not
    features: dict[str, float] = field(default_factory=dict, repr=False, compare=False)  # of quality, for the verdict
    seen_from: Pose | None = None  # the middle of what a network was given, if that is not the whole volume
    evidence: Tensor | None = field(default=None, repr=False, compare=False)  # (H', W'), of cells over the frame
    timings_ms: dict[str, float] = field(default_factory=dict, repr=False, compare=False)  # of its parts
    alternatives: tuple[Result, ...] = field(default=(), repr=False, compare=False)  # other places of a wide search
    frame: Frame | None = field(default=None, repr=False, compare=False)  # what was registered, as files name it
    volume: Volume | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        verdict = f" {self.verdict}" if self.verdict else ""
        return f"{self.pose} [{self.method}, {self.time_ms:.0f} ms]{verdict}"

    def without_images(self) -> Result:
        """Pose, verdict and how it was found: what can be kept of many frames, or sent to another process."""
        return replace(self, frame=None, volume=None, evidence=None, alternatives=())

    def without_verdict(self) -> Result:
        """The same where nobody knows what its quality features mean; then its confidence is that of its similarity."""
        sure, none = confidence_of(self.similarity), math.nan
        return replace(self, confidence=sure, expected_mm=none, bound_mm=none, belongs=None, ok=None, reason="")

    @property
    def verdict(self) -> str:
        """Whether the pose is reliable, or why nobody can tell, in words; empty where nobody asked."""
        if self.ok is None:
            return self.reason
        state = "ok" if self.ok else f"not ok: {self.reason}"
        if not self.belongs:
            return state
        numbers = f"expected error {self.expected_mm:.1f} mm, 95 % below {self.bound_mm:.1f} mm"
        return f"{state} ({numbers}, confidence {self.confidence:.2f})"

    @property
    def facts(self) -> dict[str, Any]:
        """How the pose was found, ready for JSON."""
        return {
            "method": self.method,
            "similarity": self.similarity,
            "time_ms": self.time_ms,
            "iterations": self.iterations,
            "confidence": _number(self.confidence),
            "expected_mm": _number(self.expected_mm),
            "bound_mm": _number(self.bound_mm),
            "belongs": self.belongs,
            "ok": self.ok,
            "reason": self.reason,
            "signs": {name: _number(value) for name, value in self.features.items()},
            "timings_ms": self.timings_ms,
            "notes": list(self.notes),
        }

    def row(self, digits: int = 2) -> dict[str, str]:
        """Cells of a table, by the names of `POSE` and `VERDICT`, and similarity, time_ms, method; lengths in `digits`.

        Poses have nine digits: what is read back is the pose to a billionth of a degree.
        """
        lengths = {name: _cell(getattr(self, name), digits) for name in ("expected_mm", "bound_mm")}
        return {
            **pose_cells(self.pose, POSE),
            **lengths,
            "ok": YES_NO[self.ok],
            "belongs": YES_NO[self.belongs],
            "confidence": _cell(self.confidence, 3),
            "reason": self.reason,
            "similarity": _cell(self.similarity, 6),
            "time_ms": _cell(self.time_ms, 1),
            "method": self.method,
        }

    @classmethod
    def from_row(cls, row: Mapping[str, str | None]) -> Result | None:
        """What `row` wrote; None for the row of a frame without a pose. Columns that are not there tell nothing."""
        pose = pose_of_cells(row, POSE)
        if pose is None:
            return None

        def number(name: str) -> float:
            return float(row.get(name) or math.nan)

        return cls(
            pose,
            row.get("method") or "",
            number("time_ms"),
            number("similarity"),
            confidence=number("confidence"),
            expected_mm=number("expected_mm"),
            bound_mm=number("bound_mm"),
            belongs=TRUTH[row.get("belongs") or ""],
            ok=TRUTH[row.get("ok") or ""],
            reason=row.get("reason") or "",
        )

    def save(self, path: Path | str, *, convention: Convention = "slicer") -> Path:
        """Write the pose; the ending chooses the format: .tfm, .h5, .txt, .json, .dcm (see `scopereg.io.write_pose`).

        A .tfm or .h5 file puts the frame in place in 3D Slicer; JSON tells frame, volume and method as well.
        """
        from scopereg.io.transforms import write_pose

        return write_pose(
            self.pose, path, convention=convention, frame=self.frame, volume=self.volume, facts=self.facts
        )

    def show(self) -> Shown:
        """Look at it: the frame in the volume, beside its cut, and the verdict; in a notebook, or else in the browser.

        Nothing is sent anywhere: the page holds all that it needs. Frame and volume must be known, as they are in what
        `scopereg.register` gives.
        """
        from scopereg.viewer.page import show

        return show([self])


class Assessment(NamedTuple):
    """A result in the words that pages, 3D Slicer and terminals show; what a method does not tell is None, or empty.

    Made here alone, also for a frame that was not found, which has no result.
    """

    light: Light  # green: reliable. Amber: likely wrong, or nobody can tell. Red: not of this volume, or not found
    ok: bool | None  # None: nobody judged it, since the method is not calibrated
    confidence: float | None  # 0 to 1
    expected_mm: float | None
    bound_mm: float | None
    reason: str
    method: str

    @classmethod
    def of(cls, result: Result | None, error: ScopeRegError | None = None) -> Assessment:
        """That of a result, or of the error in its place; where nothing was found, nothing is ok."""
        if result is None:
            return cls("red", False, None, None, None, _line(error.what) if error is not None else "no result", "")
        light: Light = "red" if result.belongs is False else "green" if result.ok else "amber"
        confidence, expected_mm, bound_mm = map(_number, (result.confidence, result.expected_mm, result.bound_mm))
        return cls(light, result.ok, confidence, expected_mm, bound_mm, _line(result.reason), result.method)

    @property
    def text(self) -> str:
        """In one line."""
        parts = [
            "" if self.confidence is None else f"confidence {self.confidence:.2f}",
            "" if self.expected_mm is None else f"expected error {self.expected_mm:.1f} mm",
            self.reason,
        ]
        return ", ".join(part for part in parts if part)


def pose_cells(pose: Pose, names: Sequence[str]) -> dict[str, str]:
    """Translation and angles of a pose, under six names."""
    numbers = (*pose.translation_mm, *pose.euler_deg)
    return {name: f"{number:.9f}" for name, number in zip(names, numbers, strict=True)}


def pose_of_cells(row: Mapping[str, str | None], names: Sequence[str]) -> Pose | None:
    """The pose under six names; None where the cells are empty."""
    if not row[names[0]]:
        return None
    numbers = [float(row[name] or "") for name in names]
    return Pose.from_euler_deg(numbers[3:], numbers[:3])


def _cell(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else ""


def _line(text: str) -> str:
    """Words of several lines in one."""
    return " ".join(text.split())


def _number(value: float) -> float | None:
    """JSON has no NaN."""
    return value if math.isfinite(value) else None


def apart_mm(frame: Frame, one: Pose | None, other: Pose | None) -> float:
    """Mean distance of a frame's five targets (as in mTRE) under two poses; NaN where one is missing."""
    if one is None or other is None:
        return math.nan
    targets = target_points(frame.shape, dtype=torch.float64).numpy() * (*frame.spacing_mm, 0.0) + frame.centre_mm
    return float(np.linalg.norm(one.apply(targets) - other.apply(targets), axis=-1).mean())


def confidence_of(similarity: float) -> float:
    """How alike frame and volume are at the pose, 0 to 1; a frame that shares nothing with the volume has none."""
    return max(similarity, 0.0) if math.isfinite(similarity) else 0.0
