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
    from scopereg.registration.deformable.displacement import Deformation
    from scopereg.viewer.page import Shown


Light = Literal["green", "amber", "red"]
WORDS = ("Located", "Doubtful", "Not judged", "Rejected", "Not found")
LOCATED, DOUBTFUL, SILENT, REJECTED, NOT_FOUND = WORDS
TRANSLATION = ("tx_mm", "ty_mm", "tz_mm")
ANGLES = ("rx_deg", "ry_deg", "rz_deg")
POSE = (*TRANSLATION, *ANGLES)  # ImageToVolume in LPS, R = Rz Ry Rx
VERDICT = ("ok", "belongs", "confidence", "expected_mm", "bound_mm", "reason", "hints", "calibrated_on")
_APART = "; "  # hints in a cell of a table
NOT_JUDGED = "not judged: "  # what the reason begins with where nobody can tell whether a pose is reliable
YES_NO = {None: "", True: "yes", False: "no"}  # ok and belongs, as tables hold them
TRUTH = {word: truth for truth, word in YES_NO.items()}  # and read back


class RegistrationError(ScopeRegError):
    """A frame that a method cannot locate, though the call is right and other frames may be found."""

    start: Pose | None = None  # where a classical search began: an evaluation counts the frame as left there


class WaitingError(RegistrationError):
    """A frame of which nobody can say anything yet, such as while the volume is prepared for another depth."""


@dataclass(frozen=True)
class Result:
    """The pose found for one frame, by which method, in what time."""

    pose: Pose  # ImageToVolume, LPS mm
    method: str
    time_ms: float
    similarity: float  # how alike frame and volume are at the pose, -1 to 1
    iterations: int = 0
    notes: tuple[str, ...] = ()  # what was done to the images that a user should know
    confidence: float = math.nan  # probability, by a calibration, of an error of at most 3 mm; this and the next two
    expected_mm: float = math.nan  # error to expect; are NaN unless the frame was judged, and is one of this volume
    bound_mm: float = math.nan  # 95 % of the errors of such frames are below
    belongs: bool | None = None  # whether the frame is one of this volume at all; None where nobody can tell
    ok: bool | None = None  # whether the pose is reliable; None where it was not judged
    reason: str = ""  # why it is not, or was not judged
    hints: tuple[str, ...] = ()  # what is wrong with a frame that is not ok, such as "fits better mirrored"
    calibrated_on: str = ""  # what the verdict rests on, in words
    features: dict[str, float] = field(default_factory=dict, repr=False, compare=False)  # of quality, for the verdict
    seen_from: Pose | None = None  # the middle of what a network was given, if that is not the whole volume
    stands_out: float = math.nan  # of a search: by how much it fits better than the next best place, 0 to 1
    evidence: Tensor | None = field(default=None, repr=False, compare=False)  # (H', W'), of cells over the frame
    timings_ms: dict[str, float] = field(default_factory=dict, repr=False, compare=False)  # of its parts
    alternatives: tuple[Result, ...] = field(default=(), repr=False, compare=False)  # other places of a wide search
    deformation: Deformation | None = field(default=None, repr=False, compare=False)  # what the pose leaves, if sought
    frame: Frame | None = field(default=None, repr=False, compare=False)  # what was registered, as files name it
    volume: Volume | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        """A number means one thing, whoever made the result: none of an error that nobody can know is kept."""
        changed: dict[str, Any] = {}
        if self.ok and self.belongs is None:
            changed["belongs"] = True
        silent = self.reason.startswith(NOT_JUDGED)
        if self.ok is None or not changed.get("belongs", self.belongs):
            changed |= {"confidence": math.nan, "expected_mm": math.nan, "bound_mm": math.nan}
        if self.ok is None:
            why = self.reason or f"{self.method or 'the method'} is not calibrated"
            changed["reason"] = why if silent else NOT_JUDGED + why
        elif silent:
            changed["reason"] = ""
        for name, value in changed.items():
            object.__setattr__(self, name, value)  # it is still being made

    def __str__(self) -> str:
        return f"{self.pose} [{self.method}, {self.time_ms:.0f} ms] {self.verdict}"

    def without_images(self) -> Result:
        """Pose, verdict and how it was found: what can be kept of many frames, or sent to another process."""
        return replace(self, frame=None, volume=None, evidence=None, alternatives=())

    def without_verdict(self, why: str = "") -> Result:
        """The same where nobody knows what its quality features mean; `why` in words."""
        none = math.nan
        unknown = replace(self, confidence=none, expected_mm=none, bound_mm=none, belongs=None, ok=None, reason=why)
        return replace(unknown, calibrated_on="")

    @property
    def verdict(self) -> str:
        """Whether the pose is reliable, in words, and what that rests on."""
        return Assessment.of(self).text

    @property
    def facts(self) -> dict[str, Any]:
        """How the pose was found, ready for JSON."""
        return {
            "method": self.method,
            "similarity": self.similarity,
            "time_ms": self.time_ms,
            "iterations": self.iterations,
            "stands_out": _number(self.stands_out),
            "confidence": _number(self.confidence),
            "expected_mm": _number(self.expected_mm),
            "bound_mm": _number(self.bound_mm),
            "belongs": self.belongs,
            "ok": self.ok,
            "reason": self.reason,
            "hints": list(self.hints),
            "calibrated_on": self.calibrated_on,
            "signs": {name: _number(value) for name, value in self.features.items()},
            "timings_ms": self.timings_ms,
            "notes": list(self.notes),
            **({} if self.deformation is None else {"deformation": self.deformation.facts}),
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
            "hints": _APART.join(self.hints),
            "calibrated_on": self.calibrated_on,
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
            hints=hints_of(row.get("hints")),
            calibrated_on=row.get("calibrated_on") or "",
        )

    def save(self, path: Path | str, *, convention: Convention = "slicer") -> Path:
        """Write the pose; the ending chooses the format: .tfm, .h5, .txt, .json, .dcm (see `scopereg.io.write_pose`).

        A .tfm or .h5 file puts the frame in place in 3D Slicer; JSON tells frame, volume and method as well.
        """
        from scopereg.io.transforms import write_pose

        return write_pose(
            self.pose, path, convention=convention, frame=self.frame, volume=self.volume, facts=self.facts
        )

    def _repr_html_(self) -> str:
        """The card that a notebook shows of it."""
        from scopereg.report.card import card_html

        return card_html(self)

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

    light: Light  # green: reliable. Amber: likely wrong, or not judged. Red: not of this volume, or not found
    word: str  # what the light means, one of `WORDS`
    ok: bool | None  # None: not judged
    confidence: float | None  # 0 to 1
    expected_mm: float | None
    bound_mm: float | None
    reason: str
    hints: tuple[str, ...]
    calibrated_on: str
    method: str
    similarity: float | None

    @classmethod
    def of(cls, result: Result | None, error: ScopeRegError | None = None) -> Assessment:
        """That of a result, or of the error in its place; where nothing was found, nothing is ok."""
        if isinstance(error, WaitingError):
            return cls("amber", SILENT, None, None, None, None, NOT_JUDGED + _line(error.what), (), "", "", None)
        if result is None:
            reason = _line(error.what) if error is not None else "no result"
            return cls("red", NOT_FOUND, False, None, None, None, reason, (), "", "", None)
        light, word = _light(result)
        return cls(
            light,
            word,
            result.ok,
            _number(result.confidence),
            _number(result.expected_mm),
            _number(result.bound_mm),
            _line(result.reason),
            tuple(map(_line, result.hints)),
            _line(result.calibrated_on),
            result.method,
            _number(result.similarity),
        )

    @property
    def state(self) -> str:
        """In a word or two, for tables and terminals."""
        return "not found" if self.word == NOT_FOUND else {True: "ok", False: "not ok", None: "not judged"}[self.ok]

    @property
    def numbers(self) -> str:
        """What is known of the error, and from what; empty where nothing is."""
        parts = [
            "" if self.expected_mm is None else f"expected error {self.expected_mm:.1f} mm",
            "" if self.bound_mm is None else f"95 % below {self.bound_mm:.1f} mm",
            "" if self.confidence is None else f"confidence {self.confidence:.2f}",
            f"calibrated on {self.calibrated_on}" if self.calibrated_on else "",
        ]
        return ", ".join(part for part in parts if part)

    @property
    def text(self) -> str:
        """All of it in one line."""
        why = self.reason if self.ok is None else f"{self.state}: {self.reason}" if self.reason else self.state
        said = "; ".join((why, *self.hints))
        return f"{said} ({self.numbers})" if self.numbers else said

    @property
    def facts(self) -> dict[str, Any]:
        """Everything by name, the line of text too, ready for JSON."""
        return {**self._asdict(), "hints": list(self.hints), "text": self.text}


def _light(result: Result) -> tuple[Light, str]:
    if result.belongs is False:
        return "red", REJECTED
    if result.ok is None:
        return "amber", SILENT
    return ("green", LOCATED) if result.ok else ("amber", DOUBTFUL)


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


def hints_of(told: object) -> tuple[str, ...]:
    """Hints as JSON or a cell of a table has them."""
    return tuple(map(str, told)) if isinstance(told, list) else tuple(str(told).split(_APART) if told else ())


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
