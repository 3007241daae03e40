"""Cine: the frames of one file, each decoded when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.io.overlays import Picture
from scopereg.io.stored import StoredFrame


class Stored(NamedTuple):
    """The pictures of a file before frames are cut out of them and turned; what was drawn on them goes the same way."""

    shape: tuple[int, int]  # rows, columns
    change: Callable[[npt.NDArray[np.bool_]], npt.NDArray[np.bool_]]  # from there to the frame


@dataclass(frozen=True, eq=False, repr=False)
class Cine:
    """Frames counted from 0. A single picture is a cine of one frame."""

    path: Path
    count: int
    spacing_mm: tuple[float, float]  # x, y
    decode: Callable[[int], npt.NDArray[np.float32] | Picture]  # grey values (H, W) of one frame, and what counts
    origin_mm: tuple[float, float] = (0.0, 0.0)  # of the first pixel; not 0 where the image was cropped
    times_s: tuple[float, ...] | None = None  # of the frames, if the file tells
    poses: tuple[Pose | None, ...] | None = None  # where the file itself puts the frames, if it does
    faults: Mapping[int, str] = field(default_factory=dict)  # frames that cannot be used, and why
    pose_faults: Mapping[int, str] = field(default_factory=dict)  # frames that the file does not place, and why
    spacings_mm: tuple[tuple[float, float], ...] | None = None  # of each frame, where the depth changes within the file
    facts: dict[str, Any] = field(default_factory=dict)
    stored: Stored | None = None  # where frames are not the pictures as the file holds them

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        x, y = self.spacing_mm
        return f"Cine({self.path.name}, {self.count} frame{'s' * (self.count != 1)}, {x:g} x {y:g} mm)"

    def __getitem__(self, index: int) -> StoredFrame:
        if not 0 <= index < self.count:
            # Not a ScopeRegError alone: iteration by index ends with an IndexError.
            raise _NoSuchFrameError(f"frame {index} is asked for", where=str(self.path), fix=_choice(self.count))
        if index in self.faults:
            raise ScopeRegError(
                f"frame {index} cannot be used: {self.faults[index]}", where=str(self.path), fix="choose another frame"
            )
        facts = {"index": index, "frames_in_file": self.count, **self.facts}
        if self.times_s is not None:
            facts["time_s"] = self.times_s[index]
        if index in self.pose_faults:
            facts["pose_fault"] = self.pose_faults[index]
        pose = self.poses[index] if self.poses is not None else None
        picture = picture_at(self, index)
        if picture.notes:
            facts["notes"] = [*facts.get("notes", ()), *picture.notes]
        spacing = self.spacing_mm if self.spacings_mm is None else self.spacings_mm[index]
        return StoredFrame(
            picture.grey, spacing, self.origin_mm, path=self.path, facts=facts, pose=pose, mask=picture.mask
        )

    def __iter__(self) -> Iterator[StoredFrame]:
        return (self[index] for index in range(self.count))

    def only(self, index: int | None) -> StoredFrame:
        """The frame of this number; without a number, the single frame that there is, or an error that asks."""
        if index is None and self.count != 1:
            raise ScopeRegError(f"it holds {self.count} frames", where=str(self.path), fix=_choice(self.count))
        return self[index or 0]


def picture_at(cine: Cine, index: int) -> Picture:
    """A frame's grey values and what of them counts."""
    decoded = cine.decode(index)
    return decoded if isinstance(decoded, Picture) else Picture(decoded)


class _NoSuchFrameError(ScopeRegError, IndexError):
    pass


def _choice(count: int) -> str:
    return f"choose one by its number: index=, from 0 to {count - 1}"
