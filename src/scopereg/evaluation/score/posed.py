"""PosedFrames: poses of frames from one source, from where they count millimetres of a frame, and to which world."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from scopereg.errors import ScopeRegError, listed
from scopereg.geometry import Pose
from scopereg.geometry.pose import Array
from scopereg.io.frame_grid import FrameGrid
from scopereg.registration.result import Result

Origin = Literal["first-pixel", "centre"]
Direction = Literal["ImageToVolume", "VolumeToImage"]
Space = Literal["LPS", "RAS", "RAS-volume"]
Unit = Literal["mm", "pixel"]
Place = tuple[float, float]
Size = tuple[int, int]

FIRST: Origin = "first-pixel"
TABLES = ("poses.csv", "track.csv")  # of `register` and `track`
_SAME_PLACE = 0.01  # mm between two statements of an origin
_SAME_SPACING = 0.01  # relative


@dataclass(frozen=True, kw_only=True)
class Counting:
    """How the poses of a file count, where the file does not say so itself."""

    origin: Origin | None = None
    """Where the millimetres of a frame begin: at the centre of its first pixel, or in the middle of the image."""
    direction: Direction | None = None
    """Which way a transform goes: as the kind of file has it, if this is not told."""
    space: Space = "LPS"
    """RAS: both ends of the transform, as in 3D Slicer's scene; RAS-volume: that of the volume alone."""
    unit: Unit = "mm"
    """pixel: the transform takes columns and rows, with the size of a pixel in it, as those of PLUS do."""


class Verdict(NamedTuple):
    """What was said of a pose when it was found; NaN, None and empty where nothing was."""

    ok: bool | None = None
    confidence: float = math.nan
    expected_mm: float = math.nan
    bound_mm: float = math.nan
    method: str = ""

    @classmethod
    def of(cls, result: Result) -> Verdict:
        return cls(result.ok, result.confidence, result.expected_mm, result.bound_mm, result.method)


UNJUDGED = Verdict()


@dataclass(frozen=True, eq=False)
class PosedFrame:
    """A frame by its name, with its pose, and what is known of its pixels."""

    file: str
    index: int
    pose: Pose | None  # from the frame's mm, counted from `origin`; None where there is none
    origin: Place | Origin  # where the first pixel lies, or from where on millimetres count
    size: Size | None = None  # x before y
    spacing_mm: Place | None = None
    verdict: Verdict = UNJUDGED
    reason: str = ""  # why there is no pose
    also: tuple[str, int] | None = None  # name and number that a file's name may mean besides

    @property
    def label(self) -> str:
        return f"{self.file} frame {self.index}" if self.index else self.file


@dataclass(frozen=True, eq=False)
class PosedFrames:
    """The poses of one source."""

    source: Path
    frames: tuple[PosedFrame, ...]
    world: str | None  # frame of reference that the poses lead to; None where nobody says
    notes: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.frames)

    @property
    def name(self) -> str:
        """What to call them: a table that is always called so by its folder, all others by their file."""
        source = self.source.resolve().parent if self.source.name in TABLES else self.source
        return source.name.split(".")[0] or source.name

    @property
    def placed(self) -> list[PosedFrame]:
        return [frame for frame in self.frames if frame.pose is not None]

    @classmethod
    def of(
        cls, source: Path, frames: Sequence[PosedFrame], worlds: Sequence[str | None], notes: Sequence[str] = ()
    ) -> PosedFrames:
        """Checked: at least one pose, one world, no frame twice."""
        twice = [key for key, count in Counter((frame.file, frame.index) for frame in frames).items() if count > 1]
        if twice:
            raise ScopeRegError(
                f"{len(twice)} frames stand twice, first {twice[0][0]} frame {twice[0][1]}",
                where=str(source),
                fix="keep one pose of each frame",
            )
        if not any(frame.pose is not None for frame in frames):
            why = f": {frames[0].reason}" if frames and frames[0].reason else ""
            raise ScopeRegError(
                f"it holds no pose in {len(frames)} frames{why}", where=str(source), fix="pass files with poses"
            )
        named = list(dict.fromkeys(world for world in worlds if world is not None))
        if len(named) > 1:
            raise ScopeRegError(
                f"its poses lead to several worlds: {listed(named)}",
                where=str(source),
                fix="score those of one world at a time",
            )
        return cls(source, tuple(frames), named[0] if named else None, tuple(notes))


@dataclass(frozen=True)
class Target:
    """The image that two poses of a frame place: its pixels, and where its first one lies if a side says so."""

    size: Size
    spacing_mm: Place
    stated_mm: Place

    @property
    def half_mm(self) -> Array:
        """From the first pixel's centre to the middle of the image, z = 0."""
        return np.array([*((n - 1) / 2 * step for n, step in zip(self.size, self.spacing_mm, strict=True)), 0.0])

    def origin_mm(self, origin: Place | Origin) -> Array:
        """Where the first pixel lies in mm that are counted so.

        Of an image that was cropped they count from the first pixel that is stored, to the left of it and above.
        """
        if not isinstance(origin, str):
            return np.array([*origin, 0.0])
        if origin == "centre":
            return -self.half_mm
        return np.array([*(self.stated_mm if min(self.stated_mm) >= 0 else (0.0, 0.0)), 0.0])


def numbered(name: str) -> tuple[str, int] | None:
    """File and number of a frame in it that a name such as scan_003 may mean, as a batch of `register` has them."""
    stem, _, number = name.rpartition("_")
    return (stem, int(number)) if stem and len(number) >= 3 and number.isdecimal() and number.isascii() else None


def target_of(pose: PosedFrame, truth: PosedFrame | None, size: Size | None, spacing_mm: Place | None) -> Target:
    """The pixels of a frame that is placed twice, by whichever side knows them, or as told."""
    frames = [pose] if truth is None else [pose, truth]
    width, height = _agreed([*(frame.size for frame in frames), size], pose.label, "size=", 0.0)
    x, y = _agreed([*(frame.spacing_mm for frame in frames), spacing_mm], pose.label, "spacing_mm=", _SAME_SPACING)
    stated = (frame.origin for frame in frames if not isinstance(frame.origin, str))
    return Target((int(width), int(height)), (x, y), next(stated, (0.0, 0.0)))


def _agreed(told: Sequence[Place | None], label: str, name: str, tolerance: float) -> Place:
    """What both sides and the user say, as far as they do: one and the same."""
    known = [each for each in told if each is not None]
    if not known:
        raise ScopeRegError(
            "nobody says how many pixels its image has, or how large they are",
            where=label,
            fix="give both: size=, spacing_mm=",
        )
    if not all(np.allclose(known[0], each, rtol=tolerance, atol=0) for each in known):
        shown = " and ".join(dict.fromkeys(" x ".join(f"{number:g}" for number in each) for each in known))
        raise ScopeRegError(
            f"it has pixels of {shown} mm" if tolerance else f"it has {shown} pixels",
            where=label,
            fix=f"pass poses and truth of the same images, cropped alike; leave {name} out where files tell",
        )
    return known[0]


def stated_origin(grid: FrameGrid, counting: Counting, where: str) -> Place:
    """The origin that a file states; an error where another one is told."""
    if counting.origin is not None:
        target = Target(grid.size, grid.spacing_mm, grid.origin_mm)
        if not np.allclose(target.origin_mm(counting.origin)[:2], grid.origin_mm, rtol=0, atol=_SAME_PLACE):
            x, y = grid.origin_mm
            raise ScopeRegError(
                f"it says itself that the first pixel lies at {x:g} {y:g} mm, which is not origin={counting.origin}",
                where=where,
                fix="leave origin= out",
            )
    return grid.origin_mm
