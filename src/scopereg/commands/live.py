"""`scopereg live`: frames as they come, found in a volume, shown in the browser and sent to 3D Slicer."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.status import Status
from rich.text import Text

from scopereg.commands.live_answers import Answers
from scopereg.commands.output import tell
from scopereg.commands.reading import open_volume, print_notes, reading_of, sizes_mm
from scopereg.commands.shared import (
    INTERRUPTED,
    Device,
    MaskedReading,
    OverlayOptions,
    PageOptions,
    Positional,
    SearchingMethod,
    SliceThickness,
    VolumeFile,
    WorldFile,
)
from scopereg.cores import usable_cores
from scopereg.errors import ScopeRegError
from scopereg.interruption import interruptible, terminable
from scopereg.io.files import output_folder
from scopereg.registration.settings import DEFAULT
from scopereg.viewer.door import is_loopback

if TYPE_CHECKING:
    from scopereg.live.loop import Loop, Update
    from scopereg.live.pixel_sizes import PixelSizes
    from scopereg.live.scene import Plan, Scene
    from scopereg.live.server import Server
    from scopereg.live.sources import Reading
    from scopereg.viewer.live_show import LiveShow

_TICK_S = 0.1
_MOST_WORKERS = 8
_BETWEEN_LINES_S = 10.0
_BETWEEN_LOOKS_S = 0.25
_MOST_NOTICES = 8
_STYLES = {"green": "bold green", "amber": "bold yellow", "red": "bold red"}
_SHOWN = (
    *("registered", "failed", "waiting", "changes", "dropped"),
    *("bad_frames", "bad_header", "bad_body", "lost", "listener_errors"),
)


@dataclass(frozen=True)
class LiveOptions(MaskedReading, OverlayOptions, PageOptions):
    """Register frames as they come from a scanner or a recording, and show them in the browser and in 3D Slicer.

    SOURCE is igtl://HOST:PORT (OpenIGTLink, such as PLUS), plus:FILE.igs.mha, folder:DIR or dicom:FILE; recordings are
    replayed in their own time. The newest frame is always the next. Ctrl-C ends it; recordings are written then.
    """

    volume: Positional[VolumeFile] = None
    source: str | None = None
    """Where frames come from."""
    image: str | None = None
    """Name of the images to take of a scanner that sends several; by default the first that comes."""
    rate: float | None = None
    """Frames per second of a replay, in place of its own times."""
    loop: bool = False
    """Begin a replay anew when it ends."""
    paused: bool = False
    """Begin paused; the page goes on, or step by step."""
    exit_at_end: bool = False
    """End with the replay; by default the last frame stays on the screen until Ctrl-C."""
    method: SearchingMethod = DEFAULT
    refine: bool = False
    """Polish what the method found by the similarity of frame and volume; takes some hundred ms a frame."""
    thickness_mm: SliceThickness = None
    follow: bool = False
    """Weigh each frame against the motion so far, as scopereg track does."""
    wide: bool = False
    """With --follow: until the probe is found, and when it is lost, seek it in all of the volume, however small."""
    tracker: bool = False
    """Show the error against where the source's own tracker puts the frames."""
    world: WorldFile = None
    workers: int | None = None
    """Frames that are located at once; by default 2 where a network alone runs on two or more cores, else 1."""
    igtl: bool = True
    """Serve the results over OpenIGTLink, for 3D Slicer."""
    igtl_host: str = "127.0.0.1"
    """Address of the OpenIGTLink server; any other than this machine's own lets everybody there read the results."""
    igtl_port: int = 18945
    """Port of the OpenIGTLink server; 0: any that is free."""
    cut: bool = False
    """Send the volume cut at the pose over OpenIGTLink too."""
    viewer: bool = True
    """Serve the page."""
    record: Path | None = None
    """Record from the first frame on into this file (.igs.mha)."""
    recordings: Path = Path("out/live")
    """Folder for what is recorded from the page."""
    volumes: Path | None = None
    """Folder of volumes that may be chosen in the page."""
    uploads: bool = True
    """Let the page bring volumes of its own."""
    max_upload_mb: float = 512.0
    """Largest file that the page may bring."""
    device: Device = "auto"


def run(options: LiveOptions) -> int:
    """The verb; 0 when the stream has ended or somebody ended the process, 130 after Ctrl-C in the middle of it."""
    from scopereg.live.loop import Loop
    from scopereg.live.pixel_sizes import PixelSizes
    from scopereg.live.scene import Scene
    from scopereg.live.sources import open_source
    from scopereg.registration.reading import image_line, reader_notes
    from scopereg.registration.register import TRACKER, Start

    _check(options)
    assert options.volume is not None
    assert options.source is not None
    console = Console(soft_wrap=True, highlight=False, markup=False)
    sizes = PixelSizes(_pixel_mm(options))
    source = open_source(options.source, _source_reading(options, sizes))
    volume = open_volume(reading_of(options.volume, options))
    truth = Start.read(TRACKER, options.world) if options.tracker or options.world else None
    console.print(f"source  {options.source}\nvolume  {image_line(volume)}")
    scene = Scene(volume, options.volume.name, _plan(options), truth)
    print_notes(console, [*reader_notes(volume), *scene.locator.notes, *_world_note(options)])
    loop = Loop(
        source,
        scene.register,
        paused=options.paused,
        workers=_workers(options, scene),
        sizes=sizes,
        measure=scene.fitting_pixels,
    )
    return _stream(options, loop, scene, console)


def _stream(options: LiveOptions, loop: Loop, scene: Scene, console: Console) -> int:
    """Everything that runs, from its start to its end in good order."""
    from scopereg.commands.page import open_page, print_overlay_notes

    with ExitStack() as stack:
        server = _publish(options, loop, stack, console) if options.igtl else None
        show = _show(options, loop, scene, server)
        print_overlay_notes(console, show)
        loop.listen(show)
        if options.viewer:
            web = open_page(options, show, console)
            stack.callback(web.close)
            show.wake, show.notify = web.wake, web.tell
        if options.record is not None:
            show.record_to(options.record)
        line = stack.enter_context(StatusLine(console, lambda: loop.source.status))
        loop.listen(line)
        stack.callback(show.close)
        stack.callback(_end, loop, show, console)
        loop.start()
        answers = Answers(loop.sizes, console, page=options.viewer)
        return _wait(loop, line, answers, stays=options.viewer and not options.exit_at_end)


def _wait(loop: Loop, line: StatusLine, answers: Answers, *, stays: bool) -> int:
    """Until the stream is over (and nobody may still look at it), Ctrl-C, or SIGTERM."""
    asked, interrupted = threading.Event(), False

    def interrupt() -> None:
        nonlocal interrupted
        interrupted = loop.running
        asked.set()

    with interruptible(interrupt), terminable(asked.set):
        while not asked.wait(_TICK_S) and (stays or loop.running):
            line.refresh()
            answers.look()
    return INTERRUPTED if interrupted else 0


def _end(loop: Loop, show: LiveShow, console: Console) -> None:
    """Stop the loop; what was being recorded is written."""
    try:
        if show.is_recording:
            console.print(f"wrote   {show.end_recording()}")
    finally:
        loop.stop()
    counters = loop.counters()
    shown = {name: counters.get(name, 0) for name in ("arrived", "registered", "failed", "dropped")}
    shown |= {name: counters[name] for name in ("waiting", "changes") if counters.get(name)}
    console.print("frames  " + ", ".join(f"{count} {name}" for name, count in shown.items()))
    if loop.last_fault:
        console.print(f"note    what went wrong last: {loop.last_fault}")
    tell(counters=counters, last_fault=loop.last_fault)


def _publish(options: LiveOptions, loop: Loop, stack: ExitStack, console: Console) -> Server:
    """The OpenIGTLink server and what feeds it."""
    from scopereg.live.publish import Publisher
    from scopereg.live.server import Server

    remote = not is_loopback(options.igtl_host)
    server = stack.enter_context(Server(options.igtl_host, options.igtl_port, remote=remote))
    publisher = Publisher(server, cut=options.cut)
    stack.callback(publisher.close)
    loop.listen(publisher)
    console.print(f"Slicer  OpenIGTLink server at {server.host}:{server.port}")
    if remote:
        console.print("note    OpenIGTLink has no password: everybody who reaches that address sees the frames")
    return server


def _show(options: LiveOptions, loop: Loop, scene: Scene, server: Server | None) -> LiveShow:
    from scopereg.commands.page import read_overlays
    from scopereg.live.scene import Scene
    from scopereg.viewer.live_show import LiveShow, Rooms

    plan = _plan(options)

    def igtl_counters() -> dict[str, int]:
        counted = {} if server is None else server.counters.snapshot()
        return {f"igtl_{name}": count for name, count in counted.items()}

    return LiveShow(
        loop,
        scene,
        # Of another volume nobody said that the tracker's world is its world too: no true errors there.
        lambda volume, name: Scene(volume, name, plan),
        Rooms(options.recordings, options.volumes, round(options.max_upload_mb * 2**20) if options.uploads else 0),
        source=options.source or "",
        more_counters=igtl_counters,
        overlays=read_overlays(options),
    )


def _workers(options: LiveOptions, scene: Scene) -> int:
    """Frames at once. A frame hardly uses two cores, and threads of one frame wait for each other at every step."""
    import torch

    cores = usable_cores()
    if options.workers is not None and not 1 <= options.workers <= _MOST_WORKERS:
        raise ScopeRegError(f"{options.workers} at once", where="--workers", fix=f"choose 1 to {_MOST_WORKERS}")
    workers = options.workers or (2 if scene.may_overlap and cores > 1 else 1)
    if workers > 1 and not scene.may_overlap:
        raise ScopeRegError(
            f"{workers} frames at once", where="--workers", fix="leave it out: this method takes one after the other"
        )
    if workers > 1:
        torch.set_num_threads(max(cores // workers, 1))
    return workers


def _world_note(options: LiveOptions) -> list[str]:
    same = options.tracker and options.world is None
    return ["the tracker's world is taken for the volume's: --world tells otherwise"] if same else []


def _plan(options: LiveOptions) -> Plan:
    from scopereg.live.scene import Plan
    from scopereg.registration.method import parse

    if (options.wide or parse(options.method).wide) and not options.follow:
        raise ScopeRegError("every frame would take seconds", where="--wide", fix="add --follow, or leave --wide out")
    return Plan(options.method, options.refine, options.follow, options.wide, options.device, options.thickness_mm)


def _pixel_mm(options: LiveOptions) -> tuple[float, float] | None:
    told = sizes_mm(options.pixel_mm, 2, "--pixel-mm")
    return None if told is None else (told[0], told[-1])


def _source_reading(options: LiveOptions, sizes: PixelSizes) -> Reading:
    from scopereg.live.sources import Reading

    return Reading(
        spacing_mm=_pixel_mm(options),
        sizes=sizes,
        calibration=options.calibration,
        region=options.region,
        device=options.image,
        rate_hz=options.rate,
        loop=options.loop,
        frame_mask=options.frame_mask,
    )


def _check(options: LiveOptions) -> None:
    from scopereg.registration.method import parse

    if options.volume is None or options.source is None:
        raise ScopeRegError(
            "a volume and a source are needed",
            where="scopereg live",
            fix="write scopereg live VOLUME --source igtl://HOST:18944, plus:FILE.igs.mha, folder:DIR or dicom:FILE",
        )
    if not parse(options.method).searches:
        raise ScopeRegError(
            "it does not search", where=f"--method {options.method}", fix="choose a method that finds frames"
        )
    if options.volumes is not None and not options.volumes.is_dir():
        raise ScopeRegError("there is no such folder", where=f"--volumes {options.volumes}", fix="check the name")
    if not 0 < options.max_upload_mb <= 2**20:
        raise ScopeRegError(f"{options.max_upload_mb:g} MB", where="--max-upload-mb", fix="pass a positive number")
    read = [options.volume, Path(options.source.partition(":")[2])]
    if options.record is not None and options.record.resolve() in [path.resolve() for path in read]:
        raise ScopeRegError(
            "it would overwrite an input", where=f"--record {options.record}", fix="choose another name"
        )
    if options.viewer:
        output_folder(options.recordings)  # not when somebody wants to record


class StatusLine:
    """How a stream is doing, kept up to date on a terminal, a line now and then elsewhere; a listener of the loop.

    What changes in the stream gets a line of its own. `waiting` says in words where the source stands, for while no
    frame comes.
    """

    def __init__(self, console: Console, waiting: Callable[[], str]) -> None:
        self._console, self._waiting = console, waiting
        self._status: Status | None = None
        self._update: Update | None = None
        self._said_s = -_BETWEEN_LINES_S
        self._said = ""
        self._notices: deque[str] = deque(maxlen=_MOST_NOTICES)

    def __enter__(self) -> StatusLine:
        if self._console.is_terminal:
            self._status = self._console.status(self._waiting())
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
        self._tell_notices()
        line = self._line()
        if self._update is not None and line.plain != self._said:
            self._console.print(line)  # how it was in the end

    def __call__(self, update: Update) -> None:
        """Keep the newest update; nothing is written in the loop's thread."""
        self._update = update
        if update.notice:
            self._notices.append(update.notice)

    def refresh(self) -> None:
        """Say how it is, if it is time to."""
        self._tell_notices()
        now_s = time.monotonic()
        between_s = _BETWEEN_LINES_S if self._status is None else _BETWEEN_LOOKS_S
        if now_s < self._said_s + between_s:
            return
        line = self._line()
        if self._status is not None:
            self._status.update(line)
        elif line.plain != self._said:
            self._console.print(line)
        self._said_s, self._said = now_s, line.plain

    def _tell_notices(self) -> None:
        while self._notices:
            self._console.print(f"note    {self._notices.popleft()}")

    def _line(self) -> Text:
        update = self._update
        if update is None:
            return Text(self._waiting())
        light, text = update.assessment.light, update.assessment.text
        rates = update.rates
        counters = {name: count for name, count in update.counters.items() if name in _SHOWN and count}
        counted = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counters.items())
        return Text.assemble(
            (light, _STYLES[light]),
            f" {text}",
            "  " if math.isnan(rates.frames_per_s) else f"  {rates.frames_per_s:.1f} frames/s, ",
            f"latency {rates.p50_ms:.0f} ms (95 % below {rates.p95_ms:.0f} ms)",
            f"  {counted}" if counted else "",
        )
