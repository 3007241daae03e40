"""Sources of frames: a scanner over OpenIGTLink, or a recording replayed, all alike to who takes the frames."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from scopereg.errors import ScopeRegError, did_you_mean
from scopereg.io.cine import Cine
from scopereg.io.frame_masks import read_frame_masks
from scopereg.io.plus import Matrix
from scopereg.io.stored import StoredFrame
from scopereg.live.connection import Connection
from scopereg.live.exchange import Counters, Mailbox
from scopereg.live.link import Timing
from scopereg.live.messages import Message, frame_of
from scopereg.live.pixel_sizes import PixelSizes
from scopereg.live.replay import Arrival, Replay
from scopereg.live.server import PORT

KINDS = ("igtl", "plus", "folder", "dicom")


class Source(Protocol):
    """Where frames come from, in a thread of its own. Only the newest frame is kept until it is taken."""

    @property
    def name(self) -> str: ...

    def start(self) -> None: ...

    def latest(self, timeout_s: float) -> Arrival | None:
        """The newest frame that was not taken yet; None if none comes in time."""

    @property
    def finished(self) -> bool:
        """Whether no frame will come any more."""

    @property
    def status(self) -> str:
        """In words: where it stands."""

    @property
    def last_fault(self) -> str:
        """What went wrong last."""

    def counters(self) -> dict[str, int]:
        """At least `arrived`, `taken` and `dropped`; bad frames and messages by kind where there were any."""

    def pause(self) -> None:
        """Hold a recording; a scanner goes on, and only its newest frame waits."""

    def resume(self) -> None: ...

    def step(self) -> None:
        """Let a recording show its next frame."""

    def close(self) -> None:
        """End it and its threads."""


@dataclass(frozen=True)
class Reading:
    """What a source needs to be told."""

    spacing_mm: float | tuple[float, ...] | None = None  # where files or messages state none
    calibration: Path | str | Matrix | None = None  # of PLUS sequences
    region: int | None = None  # of DICOM images
    device: str | None = None  # name of the images to take from a scanner; by default the first that comes
    rate_hz: float | None = None  # of a replay; by default the times of the file
    loop: bool = False  # a replay begins anew
    frame_mask: Path | None = None  # what counts of frames
    sizes: PixelSizes | None = None  # decide how large pixels are whose size changes or is not stated

    def open_cine(self, path: Path) -> Cine:
        from scopereg.io.frames import read_cine  # needs SimpleITK, a scanner does not

        how: dict[str, Any] = {"spacing_mm": self.spacing_mm, "region": self.region, "calibration": self.calibration}
        return read_cine(path, **how, frame_mask=self.frame_mask)

    def frame_of(self, message: Message) -> tuple[StoredFrame, ScopeRegError | None]:
        """The frame of a scanner's image, and why it can only be shown, if so."""
        sizing = None if self.sizes is None else self.sizes.of
        frame = frame_of(message, spacing_mm=self.spacing_mm, sizing=sizing)
        if self.frame_mask is None:
            return frame, None
        try:
            return read_frame_masks(self.frame_mask).over_frame(frame), None
        except ScopeRegError as error:  # such as for a picture of another size
            return frame, error


def open_source(text: str, reading: Reading | None = None, *, timing: Timing | None = None) -> Source:
    """A source that has not started: igtl://HOST:PORT, plus:FILE.igs.mha, folder:DIR or dicom:FILE."""
    reading = reading or Reading()
    kind, mark, rest = text.partition(":")
    if not mark or kind.lower() not in KINDS or not rest:
        raise ScopeRegError(
            f"unknown source {text!r}{did_you_mean(kind.lower(), KINDS)}",
            where="source=",
            fix="write igtl://HOST:PORT, plus:FILE.igs.mha, folder:DIR or dicom:FILE",
        )
    if kind.lower() == "igtl":
        host, port = _address(text)
        return IgtlSource(host, port, reading, timing=timing)
    path = Path(rest)
    cines = _folder(path, reading) if kind.lower() == "folder" else _file(path, reading)
    return Replay(path.name, cines, rate_hz=reading.rate_hz, loop=reading.loop, sizes=reading.sizes)


class IgtlSource:
    """The images that an OpenIGTLink server such as PLUS sends; a source.

    Of several images under different names one is taken. Frames are made of messages only when they are taken, so that
    those that are dropped cost little. Counters besides those of a connection: `bad_frames`, `other_images`.
    """

    def __init__(self, host: str, port: int, reading: Reading | None = None, *, timing: Timing | None = None) -> None:
        self.name = f"{host}:{port}"
        self._reading = reading or Reading()
        self._counters = Counters()
        self._mailbox: Mailbox[tuple[int, Message]] = Mailbox()
        self._device: tuple[int, str] | None = None  # which image is taken in which connection
        self._connection = Connection(host, port, self._receive, timing=timing)

    def start(self) -> None:
        self._connection.start()

    def latest(self, timeout_s: float) -> Arrival | None:
        deadline_s = time.monotonic() + timeout_s
        while (found := self._mailbox.take(max(deadline_s - time.monotonic(), 0.0))) is not None:
            number, message = found
            try:
                frame, fault = self._reading.frame_of(message)
            except Exception as error:  # one image must not end the stream
                self._counters.add("bad_frames", error)
                continue
            return Arrival(frame, number, message.arrived_s, message.header.time_s or time.time(), fault)
        return None

    @property
    def finished(self) -> bool:
        return False  # a scanner may come back

    @property
    def status(self) -> str:
        return self._connection.status

    @property
    def last_fault(self) -> str:
        return self._counters.last_fault or self._connection.counters.last_fault

    def counters(self) -> dict[str, int]:
        return {**self._mailbox.counters(), **self._connection.counters.snapshot(), **self._counters.snapshot()}

    def pause(self) -> None:
        pass  # whoever takes the frames waits; the newest one is there when it goes on

    def resume(self) -> None:
        pass

    def step(self) -> None:
        pass

    def close(self) -> None:
        self._connection.close()
        self._mailbox.close()

    def _receive(self, message: Message) -> None:
        if message.kind != "IMAGE":
            return
        connection = self._connection.counters["connected"]
        if self._device is None or self._device[0] != connection:
            self._device = connection, self._reading.device or message.header.name
        if message.header.name != self._device[1]:
            self._counters.add("other_images")
            return
        self._mailbox.put((self._mailbox.arrived + 1, message))


def _address(text: str) -> tuple[str, int]:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or port == 0:
        raise ScopeRegError(
            f"{text!r} names no host and port",
            where="source=",
            fix=f"write igtl://HOST:PORT; the usual port is {PORT}",
        )
    return host, port or PORT


def _file(path: Path, reading: Reading) -> Sequence[Callable[[], Cine]]:
    cine = reading.open_cine(path)  # now: what is wrong with it is told before anything starts
    return [lambda: cine]


def _folder(path: Path, reading: Reading) -> Sequence[Callable[[], Cine]]:
    """The files of a folder in order; they are opened one at a time, but one must be readable now."""
    from scopereg.registration.reading import find_files

    if not path.is_dir():
        raise ScopeRegError("there is no such folder", where=str(path), fix="check the name")
    files, _ = find_files(path, () if reading.frame_mask is None else (reading.frame_mask,))
    first_error: Exception | None = None
    for file in files:
        try:
            reading.open_cine(file)
            return [partial(reading.open_cine, each) for each in files]
        except Exception as error:  # a damaged file may fail anywhere in a reader
            first_error = first_error or error
    raise first_error or ScopeRegError("it holds no frames", where=str(path), fix="pass a folder of pictures or cines")
