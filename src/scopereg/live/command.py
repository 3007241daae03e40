"""`scopereg live`: frames as they come, found in a volume, shown in the browser and sent to 3D Slicer."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path

import torch
from rich.console import Console

from scopereg.data.workers import usable_cores
from scopereg.errors import ScopeRegError
from scopereg.interruption import interruptible, terminable
from scopereg.io.files import output_folder
from scopereg.live.loop import Loop
from scopereg.live.publish import Publisher
from scopereg.live.scene import Plan, Scene
from scopereg.live.server import Server
from scopereg.live.sources import Reading, open_source
from scopereg.live.status import StatusLine
from scopereg.options.live import LiveOptions
from scopereg.registration.command import open_volume, print_notes, reading_of, sizes_mm
from scopereg.registration.notes import image_line, reader_notes
from scopereg.registration.start import TRACKER, Start
from scopereg.viewer.door import is_loopback
from scopereg.viewer.live_show import LiveShow, Rooms

INTERRUPTED = 130  # what a shell reports after Ctrl-C
_TICK_S = 0.1
_MOST_WORKERS = 8


def run(options: LiveOptions) -> int:
    """The verb; 0 when the stream has ended or somebody ended the process, 130 after Ctrl-C in the middle of it."""
    _check(options)
    assert options.volume is not None
    assert options.source is not None
    console = Console(soft_wrap=True, highlight=False, markup=False)
    source = open_source(options.source, _source_reading(options))
    volume = open_volume(reading_of(options))
    truth = Start.read(TRACKER, options.world) if options.tracker or options.world else None
    console.print(f"source  {options.source}\nvolume  {image_line(volume)}")
    scene = Scene(volume, options.volume.name, _plan(options), truth)
    print_notes(console, [*reader_notes(volume), *scene.locator.notes, *_world_note(options)])
    loop = Loop(source, scene.register, paused=options.paused, workers=_workers(options, scene))
    return _stream(options, loop, scene, console)


def _stream(options: LiveOptions, loop: Loop, scene: Scene, console: Console) -> int:
    """Everything that runs, from its start to its end in good order."""
    with ExitStack() as stack:
        server = _publish(options, loop, stack, console) if options.igtl else None
        show = _show(options, loop, scene, server)
        loop.listen(show)
        if options.viewer:
            from scopereg.viewer.opening import open_page  # needs the web libraries

            web = open_page(options, show, console)
            stack.callback(web.close)
            show.wake = web.wake
        if options.record is not None:
            show.record_to(options.record)
        line = stack.enter_context(StatusLine(console, lambda: loop.source.status))
        loop.listen(line)
        stack.callback(_end, loop, show, console)
        loop.start()
        return _wait(loop, line, stays=options.viewer and not options.exit_at_end)


def _wait(loop: Loop, line: StatusLine, *, stays: bool) -> int:
    """Until the stream is over (and nobody may still look at it), Ctrl-C, or SIGTERM."""
    asked, interrupted = threading.Event(), False

    def interrupt() -> None:
        nonlocal interrupted
        interrupted = loop.running
        asked.set()

    with interruptible(interrupt), terminable(asked.set):
        while not asked.wait(_TICK_S) and (stays or loop.running):
            line.refresh()
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
    console.print("frames  " + ", ".join(f"{count} {name}" for name, count in shown.items()))
    if loop.last_fault:
        console.print(f"note    what went wrong last: {loop.last_fault}")


def _publish(options: LiveOptions, loop: Loop, stack: ExitStack, console: Console) -> Server:
    """The OpenIGTLink server and what feeds it."""
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
    )


def _workers(options: LiveOptions, scene: Scene) -> int:
    """Frames at once. A frame hardly uses two cores, and threads of one frame wait for each other at every step."""
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
    if options.wide and not options.follow:
        raise ScopeRegError("every frame would take seconds", where="--wide", fix="add --follow, or leave --wide out")
    return Plan(options.method, options.refine, options.agreement, options.follow, options.wide, options.device)


def _source_reading(options: LiveOptions) -> Reading:
    return Reading(
        spacing_mm=sizes_mm(options.spacing, 2, "--spacing"),
        calibration=options.calibration,
        region=options.region,
        device=options.image,
        rate_hz=options.rate,
        loop=options.loop,
    )


def _check(options: LiveOptions) -> None:
    if options.volume is None or options.source is None:
        raise ScopeRegError(
            "a volume and a source are needed",
            where="scopereg live",
            fix="write scopereg live VOLUME --source igtl://HOST:18944, plus:FILE.igs.mha, folder:DIR or dicom:FILE",
        )
    if options.method == "start":
        raise ScopeRegError("it does not search", where="--method start", fix="choose a method that finds frames")
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
