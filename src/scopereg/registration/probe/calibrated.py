"""ProbeCalibration: ImageToProbe with the size of pixels, how well it is known, and what each frame says of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from scopereg.geometry import SUCCESS_MM, Pose
from scopereg.io.plus import IMAGE, Matrix
from scopereg.io.plus_configuration import write_calibration
from scopereg.io.plus_sequence import pixel_to_image
from scopereg.registration.probe.certainty import Certainty
from scopereg.registration.probe.chain import Grid
from scopereg.registration.result import Result

USED, LEFT_OUT, KEPT_ASIDE, NOT_FOUND = "used", "left out", "kept aside", "not found"
STATES = (USED, KEPT_ASIDE, LEFT_OUT, NOT_FOUND)
LEAST_USED = 5  # frames that a calibration rests on, at least
LEAST_KNOWN = 3  # where the world's pose is known
_LEAST_ASIDE = 2  # found frames that were kept aside, from which on their residual counts


@dataclass(frozen=True)
class FrameResidual:
    """What became of a frame."""

    label: str
    sweep: int
    row: int  # in its file
    state: str  # one of `STATES`
    apart_mm: float = math.nan  # from where the calibration puts it to where it was found by itself
    without_mm: float = math.nan  # the same by a calibration without it
    similarity: float = math.nan  # to the volume, where the calibration puts it
    ok: bool | None = None  # whether the pose found was reliable
    reason: str = ""  # why it is not, or was left out

    @property
    def facts(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True, eq=False)
class ProbeCalibration:
    """What `calibrate_probe` found."""

    image_to_probe: Pose  # without the size of pixels: from mm that count from the first pixel
    spacing_mm: tuple[float, float]  # of a pixel, x and y
    shape: tuple[int, int]  # rows and columns of the images
    world_to_volume: tuple[Pose, ...]  # of each world
    certainty: Certainty
    frames: tuple[FrameResidual, ...]
    world_known: bool
    doubts: tuple[str, ...] = ()  # why it may not be relied on, besides what the motion does not determine
    notes: tuple[str, ...] = ()
    before: tuple[Pose, tuple[float, float]] | None = None  # a calibration from before, and its pixels
    facts: dict[str, Any] = field(default_factory=dict)
    located: tuple[Result | None, ...] = field(default=(), repr=False)  # frames by themselves
    places: tuple[Pose, ...] = field(default=(), repr=False)  # `ImageToVolume` of frames as the calibration has them

    @property
    def ok(self) -> bool:
        """Whether it may be relied on."""
        return not self.reasons

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why not."""
        missing = tuple(f"the motion does not determine {words}" for words in self.certainty.undetermined)
        return (*missing, *self.doubts)

    @property
    def matrix(self) -> Matrix:
        """ImageToProbe as PLUS has it: pixels (column, row, 0, 1) to mm of the probe."""
        matrix: Matrix = self.image_to_probe.matrix @ pixel_to_image(self.spacing_mm, (0.0, 0.0))
        return matrix

    @property
    def error_mm(self) -> float:
        """Median distance between where it puts frames that it does not rest on, and where they were found."""
        aside = self.of_state(KEPT_ASIDE)
        told = [row.apart_mm for row in aside if math.isfinite(row.apart_mm)]
        if len(told) < _LEAST_ASIDE:
            told = [row.without_mm for row in self.of_state(USED) if math.isfinite(row.without_mm)]
        return float(np.median(told)) if told else math.nan

    def of_state(self, state: str) -> list[FrameResidual]:
        return [row for row in self.frames if row.state == state]

    def save(self, path: Path | str, configuration: Path | str | None = None) -> Path:
        """As PLUS's configuration; of one that is given nothing but this transform changes."""
        link = (IMAGE, self.image_to_probe.target)
        error = self.error_mm if math.isfinite(self.error_mm) else None
        return write_calibration(path, link, self.matrix, configuration=configuration, error_mm=error)

    @property
    def moved(self) -> dict[str, float] | None:
        """How far it is from the one before: at the middle of the image, as a turn, in pixels, and at its points."""
        if self.before is None:
            return None
        return difference(self.image_to_probe, self.spacing_mm, *self.before, self.shape)

    def told(self) -> dict[str, Any]:
        """All of it for JSON."""
        known = self.certainty
        return {
            "ok": self.ok,
            "reasons": list(self.reasons),
            "image_to_probe": self.matrix.tolist(),
            "image_to_probe_rigid": self.image_to_probe.matrix.tolist(),
            "pixel_mm": list(self.spacing_mm),
            "image_size": [self.shape[1], self.shape[0]],
            "world_to_volume": [pose.matrix.tolist() for pose in self.world_to_volume],
            "world_known": self.world_known,
            "interval_95": {
                "offset_mm": list(known.offset_mm),
                "turn_deg": list(known.turn_deg),
                "pixels_percent": list(known.pixels_percent),
                "worst_offset_mm": known.worst_offset_mm,
                "worst_turn_deg": known.worst_turn_deg,
            },
            "undetermined": list(known.undetermined),
            "error_mm": self.error_mm,
            "counts": {state.replace(" ", "_"): len(self.of_state(state)) for state in STATES},
            "moved": self.moved,
            "frames": [row.facts for row in self.frames],
            "notes": list(self.notes),
        }


def difference(
    image_to_probe: Pose,
    spacing_mm: Sequence[float],
    other: Pose,
    other_spacing_mm: Sequence[float],
    shape: tuple[int, int],
) -> dict[str, float]:
    """How far two calibrations of images (H, W) are apart: offset of their middles, turn, pixels, and at their points.

    The points are the five of mTRE: the middle of the image and four towards its corners.
    """
    grid, second = (Grid(shape, (float(x), float(y))) for x, y in (spacing_mm, other_spacing_mm))
    points = image_to_probe.apply(grid.targets_mm) - other.apply(second.targets_mm)
    distances = np.linalg.norm(points, axis=1)
    return {
        "offset_mm": float(distances[0]),
        "turn_deg": image_to_probe.angle_to_deg(other),
        "pixels_percent": float(100 * np.abs(np.array(spacing_mm) / other_spacing_mm - 1).max()),
        "points_mm": float(distances.mean()),
    }


def doubts_of(frames: Sequence[FrameResidual], *, least: int) -> list[str]:
    """What speaks against a calibration, by its frames."""
    used = [row for row in frames if row.state == USED]
    aside = [row.apart_mm for row in frames if row.state == KEPT_ASIDE and math.isfinite(row.apart_mm)]
    judged = [row for row in used if row.ok is not None]
    said = []
    if len(used) < least:
        said.append(f"only {len(used)} frames agree, and {least} are needed")
    elif 2 * len(used) < sum(row.state != KEPT_ASIDE for row in frames):
        said.append(f"only {len(used)} of {len(frames)} frames were found where it puts them")
    if judged and 2 * sum(bool(row.ok) for row in judged) < len(judged):
        said.append(f"only {sum(bool(row.ok) for row in judged)} of the {len(judged)} frames that it rests on are ok")
    if len(aside) >= _LEAST_ASIDE and float(np.median(aside)) > SUCCESS_MM:
        said.append(f"frames that were kept aside are {np.median(aside):.1f} mm from where it puts them")
    return said
