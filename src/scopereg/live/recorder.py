"""Recorder: frames as they came and the poses that were found, written as PLUS sequences at the end."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame
from scopereg.io.files import output_folder
from scopereg.io.plus_sequence import write_plus_images
from scopereg.live.messages import as_bytes

if TYPE_CHECKING:
    from scopereg.live.loop import Update

LARGEST_RECORDING = 2**30  # bytes of pixels: two minutes of 640 x 480, or forty of 128 x 128
MOST_FILES = 32  # of one recording: a stream that changes with every frame would leave thousands
_SEQUENCE = ".igs.mha"


@dataclass(frozen=True)
class _Part:
    """Frames of one size and spacing, which is what a PLUS sequence holds."""

    first: Frame
    path: Path
    pixels: list[npt.NDArray[Any]] = field(default_factory=list)
    poses: list[Pose | None] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)

    def write(self) -> Path:
        return write_plus_images(
            _stacked(self.pixels),
            self.poses,
            self.path,
            spacing_mm=self.first.spacing_mm,
            origin_mm=self.first.origin_mm,
            times_s=self.times_s,
        )


class Recorder:
    """A listener that keeps every update in memory until `finish`. Nothing is on the disk before it is whole.

    Frames of another size or spacing than those before go into a file of their own: `a.igs.mha`, `a-2.igs.mha` and so
    on; those that come back to a size go on in its file. Frames beyond `largest_bytes` are left out and counted.
    """

    def __init__(self, path: Path | str, *, largest_bytes: int = LARGEST_RECORDING) -> None:
        self.path = Path(path)
        if self.path.suffix.lower() != ".mha":
            raise ScopeRegError(f"unknown ending {self.path.suffix!r}", where=str(path), fix="use .igs.mha")
        output_folder(self.path.parent)  # not after minutes of recording
        self.left_out = 0
        self._largest_bytes = largest_bytes
        self._lock = threading.Lock()
        self._parts: dict[Any, _Part] = {}
        self._bytes = 0
        self._ended = False

    def __len__(self) -> int:
        return sum(len(part.pixels) for part in tuple(self._parts.values()))

    def __call__(self, update: Update) -> None:
        """Keep the frame of an update, and its pose if one was found."""
        frame = update.frame
        pixels = as_bytes(frame.numpy())
        with self._lock:
            if self._ended:
                return
            grid = (frame.shape, frame.spacing_mm, frame.origin_mm)
            full = len(self._parts) == MOST_FILES and grid not in self._parts
            if full or self._bytes + pixels.nbytes > self._largest_bytes:
                self.left_out += 1
                return
            part = self._parts.setdefault(grid, _Part(frame, self._path_of(len(self._parts))))
            self._bytes += pixels.nbytes
            part.pixels.append(pixels)
            part.poses.append(None if update.result is None else update.result.pose)
            part.times_s.append(update.time_s)

    def finish(self) -> tuple[Path, ...]:
        """Write what was recorded; no file if nothing was. What comes after it is not recorded any more."""
        with self._lock:
            self._ended = True
        written: list[Path] = []
        faults: list[ScopeRegError] = []
        for part in self._parts.values():
            try:
                written.append(part.write())
            except ScopeRegError as error:  # the other files may well be written
                faults.append(error)
        if faults:
            raise faults[0]
        return tuple(written)

    def _path_of(self, number: int) -> Path:
        """Of a file of the recording, the first has the name that was asked for; nothing that is there is lost."""
        if not number:
            return self.path
        name = self.path.name
        ending = _SEQUENCE if name.lower().endswith(_SEQUENCE) else self.path.suffix
        taken = {part.path for part in self._parts.values()}
        while True:
            number += 1
            path = self.path.with_name(f"{name[: -len(ending)]}-{number}{ending}")
            if path not in taken and not path.exists():
                return path


def _stacked(images: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Images as bytes if all are, else as float32: bytes stand for 0 to 1."""
    if all(image.dtype == np.uint8 for image in images):
        return np.stack(images)
    return np.stack([image / np.float32(255) if image.dtype == np.uint8 else image for image in images])
