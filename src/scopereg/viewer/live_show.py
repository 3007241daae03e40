"""Live show: a running loop as the viewer shows and steers it."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from scopereg.errors import ScopeRegError, did_you_mean
from scopereg.images import Volume
from scopereg.io.limits import largest_bytes, limit_of
from scopereg.io.read_image import ending_of
from scopereg.io.stored import StoredFrame
from scopereg.io.volumes import read_foreign
from scopereg.live.exchange import Counters
from scopereg.live.loop import Loop, Update
from scopereg.live.pixel_sizes import read_pixel_mm
from scopereg.live.recorder import Noted, Recorder
from scopereg.live.scene import Scene
from scopereg.registration.format import Format, resized
from scopereg.registration.result import WaitingError
from scopereg.viewer.overlays import NOTHING_OVER, Overlays
from scopereg.viewer.packets import base_state, live_facts, packet_of
from scopereg.viewer.voxels import Voxels, voxels_of

SEQUENCE = ".igs.mha"
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9 ._-]{0,79}")
_LISTED_S = 2.0  # how long a list of files is kept
_FOREIGN_GB = 1.0  # of the voxels of a volume that a page brings or names, as float32


def read_brought(path: Path) -> Volume:
    """A volume that a page brought or named, read in a child process and within a limit of its own."""
    with limit_of(min(_FOREIGN_GB, largest_bytes() / 2**30)):
        return read_foreign(path)


@dataclass(frozen=True)
class Rooms:
    """What a page may reach: folders, and how much it may bring."""

    recordings: Path
    volumes: Path | None = None
    largest_upload: int = 0


class _Shown(NamedTuple):
    scene: Scene
    voxels: Voxels


class LiveShow:
    """A loop, the scene that it works in, and how to get another one; a `Show` and a listener of the loop.

    `more_counters` are those of other listeners, to be shown beside the loop's own; `overlays` lie over the
    first volume.
    """

    def __init__(
        self,
        loop: Loop,
        scene: Scene,
        make_scene: Callable[[Volume, str], Scene],
        rooms: Rooms,
        *,
        source: str = "",
        more_counters: Callable[[], Mapping[str, int]] = dict,
        overlays: Overlays = NOTHING_OVER,
    ) -> None:
        self.counters = Counters()
        self.wake: Callable[[], None] = lambda: None  # called when there is something new
        self.notify: Callable[[str], None] = lambda _: None  # called with what every page is to be told
        self._loop, self._rooms, self._source = loop, rooms, source
        self._make_scene, self._more_counters = make_scene, more_counters
        # Of another volume nobody said that they lie in its space too.
        first = _Shown(scene, overlays.over(scene.volume, voxels_of(scene.volume, scene.name, 1)))
        self._shown: tuple[_Shown, ...] = (first,)  # the present one, then the one before
        self._latest: tuple[int, Update] | None = None  # its number counts what was shown
        self._packed: tuple[int, bytes] | None = None
        self._preparing = threading.Lock()
        self._recording: Recorder | None = None
        self._noted: tuple[Noted, ...] = ()  # of the last recording that has ended
        self._recorded: tuple[str, ...] = ()
        self._listed: tuple[float, tuple[str, ...]] = (-_LISTED_S, ())
        self._await(scene)

    def __call__(self, update: Update) -> None:
        """Keep the newest update; what is made of it is made when a page wants it."""
        self._latest = (1 if self._latest is None else self._latest[0] + 1), update
        self.wake()
        if update.notice:
            self.notify(update.notice)

    @property
    def largest_upload(self) -> int:
        return self._rooms.largest_upload

    def voxels(self) -> Voxels:
        return self._shown[0].voxels

    def state(self) -> dict[str, Any]:
        shown, recording = self._shown[0], self._recording
        can = ["pause", "step", "record", "pixel_size"]
        question = self._loop.sizes.question
        can += ["note"] if recording is not None else []
        can += ["upload"] if self.largest_upload else []
        can += ["choose"] if self._rooms.volumes is not None else []
        return base_state(
            "live",
            volume=shown.voxels.state(),
            volumes=list(self._volume_names()),
            source=self._source,
            method=shown.scene.method,
            can=can,
            paused=self._loop.paused,
            recording=None if recording is None else {"name": recording.path.name, "frames": len(recording)},
            recorded=list(self._recorded),
            finished=self._loop.finished,
            notes=[asdict(note) for note in (self._noted if recording is None else recording.notes)],
            counters=self._all_counters(self._loop.counters()),
            last_fault=self._loop.last_fault or self.counters.last_fault,
            asks=None if question is None else question.facts,
        )

    def packet(self) -> tuple[int, bytes] | None:
        if self._latest is None:
            return None
        number, update = self._latest
        if self._packed is None or self._packed[0] != number:
            shown = self._shown_of(update)
            facts = live_facts(update, shown.scene.error_mm(update.frame, update.result))
            facts |= {"number": number, "counters": self._all_counters(update.counters)}
            generation = shown.voxels.generation
            packed = packet_of(update.frame, update.result, update.error, generation=generation, more=facts)
            self._packed = number, packed
        return self._packed

    def path(self) -> None:
        """Frames that come are not played."""

    def do(self, request: Mapping[str, Any]) -> str:
        actions: dict[str, Callable[[Mapping[str, Any]], str]] = {
            "pause": lambda _: self._quietly(self._loop.pause),
            "resume": lambda _: self._quietly(self._loop.resume),
            "step": lambda _: self._quietly(self._loop.step),
            "record": self._record,
            "end_recording": lambda _: self.end_recording(),
            "note": self._note,
            "drop_note": self._drop_note,
            "choose": self._choose,
            "pixel_size": self._pixel_size,
            "keep_pixel_size": self._keep_pixel_size,
        }
        action = actions.get(str(request.get("do")))
        if action is None:
            raise ScopeRegError(
                f"unknown request {str(request.get('do'))[:40]!r}{did_you_mean(str(request.get('do'))[:40], actions)}",
                where="web socket",
                fix=f"use one of {', '.join(actions)}",
            )
        return action(request)

    @property
    def is_recording(self) -> bool:
        return self._recording is not None

    def record_to(self, path: Path) -> None:
        """Record into a file from the next frame on."""
        self._recording = self._loop.record(path)

    def end_recording(self) -> str:
        """Write the recording that runs."""
        recording, self._recording = self._recording, None
        if recording is None:
            raise ScopeRegError("nothing is being recorded", where="record", fix="start a recording first")
        recording.volume_names = {id(shown.scene.volume): shown.scene.name for shown in self._shown}
        paths = self._loop.end_recording()
        self._noted = recording.notes
        if not paths:
            return "no frame came: nothing was written"
        names = [path.name for path in paths]
        self._recorded = (*self._recorded, *names)
        left_out = f", {recording.left_out} left out" if recording.left_out else ""
        return f"{', '.join(names)}: {len(recording)} frames{left_out}"

    def load(self, path: Path, name: str) -> None:
        """Prepare another volume beside the loop, then let the loop work in it. One at a time."""
        if not self._preparing.acquire(blocking=False):
            raise ScopeRegError(
                "another volume is being prepared", where=name, fix="wait until it is shown, then try again"
            )
        try:
            scene = self._make_scene(read_brought(path), name)
            if self._latest is not None:  # no frame shall have to wait for it
                scene.locator.get_ready(self._latest[1].frame)
            voxels = voxels_of(scene.volume, name, self._shown[0].voxels.generation + 1)
        except ScopeRegError as error:
            # Temporary names mean nothing to the person who chose the file.
            where = error.where.replace(str(path), name).replace(path.name, name)
            raise ScopeRegError(error.what, where=where, fix=error.fix) from None
        except Exception as error:  # a damaged file may fail anywhere in a reader
            raise ScopeRegError(
                f"it cannot be used: {type(error).__name__}: {error}", where=name, fix="try it with scopereg register"
            ) from None
        finally:
            self._preparing.release()
        self._shown = (_Shown(scene, voxels), self._shown[0])
        self._loop.use(scene.register, scene.fitting_pixels)
        self._await(scene)
        self._look_again(scene)
        self.wake()

    def close(self) -> None:
        """End what is prepared beside the loop."""
        for shown in self._shown:
            shown.scene.preparation.close()

    def _await(self, scene: Scene) -> None:
        """Look again at the frame on the screen once the volume is prepared for it, where no other frame comes."""

        def look_again() -> None:
            latest = self._latest
            waits = latest is not None and isinstance(latest[1].error, WaitingError)
            if waits and self._shown[0].scene is scene:
                self._look_again(scene)

        scene.preparation.done = look_again

    def _look_again(self, scene: Scene) -> None:
        """Find the frame on the screen in another volume too, where no other frame comes by itself."""
        if self._latest is None or not (self._loop.paused or self._loop.finished):
            return
        update = replace(self._latest[1], notice="", asks="")
        try:
            self(replace(update, result=scene.register(update.frame), error=None))
        except ScopeRegError as error:
            self(replace(update, result=None, error=error))

    def _shown_of(self, update: Update) -> _Shown:
        """The scene that an update comes from."""
        if update.result is not None:
            for shown in self._shown:
                if update.result.volume is shown.scene.volume:
                    return shown
        return self._shown[0]

    def _all_counters(self, own: Mapping[str, int]) -> dict[str, int]:
        pages = {f"viewer_{name}": count for name, count in self.counters.snapshot().items()}
        return {**own, **self._more_counters(), **pages}

    def _quietly(self, action: Callable[[], None]) -> str:
        action()
        return ""

    def _record(self, request: Mapping[str, Any]) -> str:
        name = recording_name(request.get("name"))
        path = self._rooms.recordings / name
        if path.exists():
            raise ScopeRegError(f"there is a {name} already", where="record", fix="choose another name")
        self.record_to(path)
        return f"recording {name}"

    def _pixel_size(self, request: Mapping[str, Any]) -> str:
        told = self._loop.sizes.tell(read_pixel_mm(request.get("mm")), _number_of(request))
        self._settle(told)
        width, height = told.size
        return f"pixels of pictures of {width} x {height} measure {told.pixel_words}"

    def _keep_pixel_size(self, request: Mapping[str, Any]) -> str:
        kept = self._loop.sizes.keep(_number_of(request))
        return f"pixels still measure {kept.pixel_words}"

    def _settle(self, told: Format) -> None:
        """Find the frame on the screen again with the pixels that it has now, where no other frame comes."""
        if self._latest is None or told.pixel_mm is None:
            return
        number, update = self._latest
        if update.frame.size == told.size and isinstance(update.frame, StoredFrame):
            self._latest = number, replace(update, frame=resized(update.frame, told.pixel_mm))
            self._look_again(self._shown[0].scene)

    def _note(self, request: Mapping[str, Any]) -> str:
        frame = request.get("frame")
        self._recorder().note(frame if type(frame) is int else -1, request.get("text"))  # True is no number
        return ""

    def _drop_note(self, request: Mapping[str, Any]) -> str:
        self._recorder().drop_note(request.get("key"))
        return ""

    def _recorder(self) -> Recorder:
        if self._recording is None:
            raise ScopeRegError(
                "nothing is being recorded", where="note", fix="start a recording: notes are kept with it"
            )
        return self._recording

    def _choose(self, request: Mapping[str, Any]) -> str:
        wanted = request.get("name")
        self._listed = (-_LISTED_S, ())
        for name in self._volume_names():
            if name == wanted:
                assert self._rooms.volumes is not None
                self.load(self._rooms.volumes / name, name)
                return f"{name} is loaded"
        raise ScopeRegError(f"there is no volume {str(wanted)[:80]!r}", where="choose", fix="choose one of the list")

    def _volume_names(self) -> tuple[str, ...]:
        folder = self._rooms.volumes
        if folder is None:
            return ()
        listed_s, names = self._listed
        now_s = time.monotonic()
        if now_s > listed_s + _LISTED_S:
            names = volumes_in(folder)
            self._listed = now_s, names
        return names


def _number_of(request: Mapping[str, Any]) -> int | None:
    """Of the question that a page answers; None where it answers none."""
    number = request.get("number")
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def recording_name(given: object) -> str:
    """One plain file name; without one, the time."""
    if given is None or given == "":
        return time.strftime(f"%Y-%m-%d_%H-%M-%S{SEQUENCE}")
    name = given.strip() if isinstance(given, str) else str(given)
    if not isinstance(given, str) or not _PLAIN.fullmatch(name):
        raise ScopeRegError(
            f"{name[:80]!r} is no plain name",
            where="record",
            fix="use letters, digits, '-', '_', '.' and blanks, and no folder",
        )
    return name if name.lower().endswith(SEQUENCE) else f"{name.removesuffix('.mha')}{SEQUENCE}"


def volumes_in(folder: Path) -> tuple[str, ...]:
    """Names of the volumes right in a folder; links that lead out of it are none."""
    try:
        home = folder.resolve()
        found = [
            path for path in folder.iterdir() if ending_of(path.name, written=True) and not path.name.startswith(".")
        ]
        return tuple(sorted(path.name for path in found if path.is_file() and path.resolve().parent == home))
    except OSError:
        return ()
