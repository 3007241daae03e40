"""Recorder: frames as they came and the poses that were found, written as one PLUS sequence at the end."""

from __future__ import annotations

import threading
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


class Recorder:
    """A listener that keeps every update in memory until `finish`. Nothing is on the disk before it is whole.

    Frames on another grid than the first one and those beyond `largest_bytes` are left out and counted.
    """

    def __init__(self, path: Path | str, *, largest_bytes: int = LARGEST_RECORDING) -> None:
        self.path = Path(path)
        if self.path.suffix.lower() != ".mha":
            raise ScopeRegError(f"unknown ending {self.path.suffix!r}", where=str(path), fix="use .igs.mha")
        output_folder(self.path.parent)  # not after minutes of recording
        self.left_out = 0
        self._largest_bytes = largest_bytes
        self._lock = threading.Lock()
        self._first: Frame | None = None
        self._pixels: list[npt.NDArray[Any]] = []
        self._poses: list[Pose | None] = []
        self._times_s: list[float] = []
        self._bytes = 0
        self._ended = False

    def __len__(self) -> int:
        return len(self._pixels)

    def __call__(self, update: Update) -> None:
        """Keep the frame of an update, and its pose if one was found."""
        frame = update.frame
        pixels = as_bytes(frame.numpy())
        with self._lock:
            if self._ended:
                return
            first = self._first = frame if self._first is None else self._first
            alike = (frame.shape, frame.spacing_mm, frame.origin_mm) == (first.shape, first.spacing_mm, first.origin_mm)
            if not alike or self._bytes + pixels.nbytes > self._largest_bytes:
                self.left_out += 1
                return
            self._bytes += pixels.nbytes
            self._pixels.append(pixels)
            self._poses.append(None if update.result is None else update.result.pose)
            self._times_s.append(update.time_s)

    def finish(self) -> Path | None:
        """Write what was recorded; None if nothing was. What comes after it is not recorded any more."""
        with self._lock:
            self._ended = True
        if self._first is None or not self._pixels:
            return None
        return write_plus_images(
            _stacked(self._pixels),
            self._poses,
            self.path,
            spacing_mm=self._first.spacing_mm,
            origin_mm=self._first.origin_mm,
            times_s=self._times_s,
        )


def _stacked(images: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Images as bytes if all are, else as float32: bytes stand for 0 to 1."""
    if all(image.dtype == np.uint8 for image in images):
        return np.stack(images)
    return np.stack([image / np.float32(255) if image.dtype == np.uint8 else image for image in images])
