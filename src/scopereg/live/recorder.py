"""Recorder: frames as they came, what was found and noted of them, written as PLUS sequences at the end."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame, Volume
from scopereg.io.files import output_folder
from scopereg.io.notes import check_room, note_text
from scopereg.io.plus_sequence import part_path, write_plus_images
from scopereg.live.messages import as_bytes
from scopereg.registration.format import is_sized
from scopereg.registration.recorded import fields_of, volume_field

if TYPE_CHECKING:
    from scopereg.live.loop import Update

LARGEST_RECORDING = 2**30  # bytes of pixels: two minutes of 640 x 480, or forty of 128 x 128
MOST_FILES = 32  # of one recording: a stream that changes with every frame would leave thousands


@dataclass(frozen=True)
class _Part:
    """Frames of one size and spacing, which is what a PLUS sequence holds."""

    first: Frame
    path: Path
    pixels: list[npt.NDArray[Any]] = field(default_factory=list)
    poses: list[Pose | None] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)
    fields: list[dict[str, str]] = field(default_factory=list)  # what is told of each frame

    def write(self, noted: Mapping[int, Sequence[str]], volume: Mapping[str, str]) -> Path:
        """`noted` are notes by the number of their frame."""
        return write_plus_images(
            _stacked(self.pixels),
            self.poses,
            self.path,
            spacing_mm=self.first.spacing_mm if is_sized(self.first) else None,
            origin_mm=self.first.origin_mm,
            times_s=self.times_s,
            more=[told | fields_of(None, noted.get(row, ())) for row, told in enumerate(self.fields)],
            header=volume,
        )


@dataclass(frozen=True)
class Noted:
    """A note of somebody at a frame of a recording."""

    key: int  # tells notes of one recording apart
    update: int  # number of the frame among all updates
    frame_number: int  # by the source
    time_s: float
    text: str


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
        self.volume_names: Mapping[int, str] = {}  # by the id of a volume, where its file has another one by now
        self._largest_bytes = largest_bytes
        self._lock = threading.Lock()
        self._parts: dict[Any, _Part] = {}
        self._places: dict[int, tuple[_Part, int, tuple[int, float]]] = {}  # of frames, by the number of their update
        self._notes: tuple[Noted, ...] = ()
        self._note_count = 0
        self._volumes: dict[int, Volume] = {}  # that frames were found in; mostly one
        self._bytes = 0
        self._ended = False

    @property
    def notes(self) -> tuple[Noted, ...]:
        return self._notes

    def note(self, update: int, text: object) -> None:
        """Keep a note at a frame that was recorded, by the number of its update; it is written with the frames."""
        line = note_text(text)
        with self._lock:
            if self._ended or update not in self._places:
                raise ScopeRegError(
                    "that frame is not in the recording",
                    where="note",
                    fix="write notes at frames that are recorded: after it has begun, and before it ends",
                )
            check_room(len(self._notes))
            frame_number, time_s = self._places[update][2]
            self._note_count += 1
            self._notes = (*self._notes, Noted(self._note_count, update, frame_number, time_s, line))

    def drop_note(self, key: object) -> None:
        """Take a note away again."""
        with self._lock:
            kept = tuple(note for note in self._notes if note.key != key)
            if self._ended or len(kept) == len(self._notes):
                raise ScopeRegError("there is no such note", where="note", fix="choose one of this recording")
            self._notes = kept

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
            part.fields.append(fields_of(update.result))
            self._places[update.number] = part, len(part.times_s) - 1, (update.frame_number, update.time_s)
            if update.result is not None and update.result.volume is not None:
                self._volumes[id(update.result.volume)] = update.result.volume

    def finish(self) -> tuple[Path, ...]:
        """Write what was recorded; no file if nothing was. What comes after it is not recorded any more."""
        with self._lock:
            self._ended = True
        written: list[Path] = []
        faults: list[ScopeRegError] = []
        for part in self._parts.values():
            try:
                written.append(part.write(self._noted(part), self._volume_field()))
            except ScopeRegError as error:  # the other files may well be written
                faults.append(error)
        if faults:
            raise faults[0]
        return tuple(written)

    def _noted(self, part: _Part) -> Mapping[int, Sequence[str]]:
        """The notes of the frames of a file."""
        noted: dict[int, list[str]] = {}
        for note in self._notes:
            of, row, _ = self._places[note.update]
            if of is part:
                noted.setdefault(row, []).append(note.text)
        return noted

    def _volume_field(self) -> Mapping[str, str]:
        """Which volume the poses lie in; nothing where they lie in several."""
        if len(self._volumes) != 1:
            return {}
        (key, volume), *_ = self._volumes.items()
        return volume_field(volume, self.volume_names.get(key, ""))

    def _path_of(self, count: int) -> Path:
        """Of one more file of the recording. The first has the name asked for; the others overwrite nothing."""
        taken = {part.path for part in self._parts.values()}
        paths = (part_path(self.path, number) for number in itertools.count(count + 1))
        return self.path if not count else next(path for path in paths if path not in taken and not path.exists())


def _stacked(images: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Images as bytes if all are, else as float32: bytes stand for 0 to 1."""
    if all(image.dtype == np.uint8 for image in images):
        return np.stack(images)
    return np.stack([image / np.float32(255) if image.dtype == np.uint8 else image for image in images])
