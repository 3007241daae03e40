"""`scopereg track`: the frames of a sequence followed through a volume, from files to files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from scopereg.commands.output import tell
from scopereg.commands.reading import check_places, open_volume, print_notes, reading_of
from scopereg.commands.shared import (
    INTERRUPTED,
    Device,
    Folder,
    MaskedReading,
    Positional,
    SearchingMethod,
    SliceThickness,
    VolumeFile,
    WorldFile,
)
from scopereg.errors import ScopeRegError
from scopereg.interruption import interruptible
from scopereg.io.files import output_folder
from scopereg.progress import counting, say
from scopereg.registration.settings import DEFAULT, TrackSettings

if TYPE_CHECKING:
    from scopereg.images import Volume
    from scopereg.registration.locator import Locator
    from scopereg.registration.reading import Recording
    from scopereg.registration.register import Start
    from scopereg.registration.track import Step
    from scopereg.registration.tracker import Tracker

TABLE, PAGE, SEQUENCE = "track.csv", "track.html", ".igs.mha"
_MOST_NAMED = 20  # frames that were not found, one line each


@dataclass(frozen=True)
class TrackOptions(TrackSettings, MaskedReading):
    """Follow a probe through the frames of a sequence, and write their poses.

    SEQUENCE is a PLUS sequence, a cine, a multi-frame file, or a folder of frames that are taken by name. Each frame is
    found by itself and weighed against the motion so far; what is lost is found again by itself. OUTPUT gets track.csv,
    track.html and the sequence with the poses found (.igs.mha). Frames that cannot be read are named; the status is
    then 1. Ctrl-C ends it with what is done.
    """

    sequence: Positional[Path | None] = None
    """File of the sequence, or a folder of frames."""
    volume: Positional[VolumeFile] = None
    output: Folder = Path("out/track")
    """Folder for the results."""
    method: SearchingMethod = DEFAULT
    refine: bool = False
    """Polish what the method found by the similarity of frame and volume, also from where the motion is."""
    wide: bool = False
    """Until a frame is found, and when the probe is lost, seek it in all of the volume, however small that is."""
    thickness_mm: SliceThickness = None
    rate: float | None = None
    """Frames per second; needed where the file does not tell when its frames were taken, else in place of that."""
    tracker: bool = False
    """Compare with where the sequence's own tracker puts the frames."""
    world: WorldFile = None
    device: Device = "auto"


def run(options: TrackOptions) -> int:
    """The verb; 1 if frames could not be read or none was found, 130 if it was interrupted."""
    from scopereg.registration.inputs import write_inputs
    from scopereg.registration.locator import Locator
    from scopereg.registration.method import parse
    from scopereg.registration.reading import image_line, open_recording
    from scopereg.registration.register import TRACKER, Start
    from scopereg.registration.tracker import Tracker
    from scopereg.report.track_page import make_page

    if options.sequence is None or options.volume is None:
        raise ScopeRegError(
            "a sequence and a volume are needed", where="scopereg track", fix="write scopereg track SEQUENCE VOLUME"
        )
    if not parse(options.method).searches:
        raise ScopeRegError(
            "it does not search", where=f"--method {options.method}", fix="choose a method that finds frames"
        )
    settings = TrackSettings(**{field.name: getattr(options, field.name) for field in fields(TrackSettings)})
    check_places("track", options.sequence, options.volume)
    reading = reading_of(options.volume, options)
    left_out = [options.output, options.volume, *reading.masks]
    recording = open_recording(options.sequence, reading, rate=options.rate, left_out=left_out)
    targets = _targets(options, recording)
    truth = Start.read(TRACKER, options.world) if options.tracker or options.world else None
    volume = open_volume(reading)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    how: dict[str, Any] = {"refine": options.refine, "wide": options.wide, "thickness_mm": options.thickness_mm}
    locator = Locator(volume, options.method, **how, device=options.device)
    notes = _notes(recording, volume, locator, options)
    console.print(f"volume  {image_line(volume)}\ntimes   {recording.clock}")
    print_notes(console, notes)
    for path in targets.values():
        path.unlink(missing_ok=True)  # what an earlier run left would look new
    write_inputs(options.output, reading, {recording.place(row)[0]: path for row, path in enumerate(recording.files)})
    steps = _follow(recording, Tracker(locator, settings), truth, targets["table"])
    changes = _changes(recording, steps)
    print_notes(console, changes)
    _finish(console, recording, steps, targets)
    if locator.might_look_wider and any(step.state == "lost" and step.pose is not None for step in steps):
        console.print("If the probe may be far from the middle of the volume: --wide seeks it in all of it.")
    page = make_page(
        steps,
        recording,
        volume,
        [f"times {recording.clock}", *notes, *changes],
        method=f"{options.method}{' and refined' if options.refine else ''}",
        device=options.device,
    )
    console.print(f"report  {page.save(targets['page'])}")
    tell(report=targets["page"])
    if len(steps) < len(recording):
        return INTERRUPTED
    return 1 if any(step.state == "unreadable" for step in steps) or not any(s.is_placed for s in steps) else 0


def _targets(options: TrackOptions, recording: Recording) -> dict[str, Path]:
    """Files to write by kind, none of them an input; the folder is made."""
    if options.output.is_file():
        raise ScopeRegError("it is a file", where=f"--output {options.output}", fix="pass a folder: -o FOLDER")
    folder = options.output
    stem = recording.source.name.split(".")[0] or "sequence"
    targets = {"table": folder / TABLE, "page": folder / PAGE, "sequence": folder / f"{stem}{SEQUENCE}"}
    inputs = {path.resolve() for path in (*recording.files, recording.reading.volume)}
    for path in targets.values():
        if path.resolve() in inputs:
            raise ScopeRegError("it would overwrite an input", where=str(path), fix="pass another folder: -o FOLDER")
    output_folder(folder)
    return targets


def _notes(recording: Recording, volume: Volume, locator: Locator, options: TrackOptions) -> list[str]:
    """What is to be known of how files were read, and which world the tracker is taken to be in."""
    from scopereg.registration.reading import reader_notes

    same_world = options.tracker and options.world is None
    world = ["the tracker's world is taken for the volume's: --world tells otherwise"] if same_world else []
    return [*recording.notes, *reader_notes(volume), *locator.notes, *world]


def _follow(recording: Recording, tracker: Tracker, truth: Start | None, table: Path) -> list[Step]:
    """The steps; at Ctrl-C those up to then. The table is written however this ends."""
    from scopereg.registration.track import follow, write_track

    steps: list[Step] = []
    stopped: list[bool] = []
    try:
        with interruptible(lambda: stopped.append(True)), counting("tracking") as count:
            for step in follow(recording, tracker, truth):
                steps.append(step)
                count(len(steps), len(recording))
                if stopped:
                    say(f"interrupted: {len(steps)} of {len(recording)} frames are done and kept")
                    break
    finally:
        write_track(steps, table)
    return steps


def _changes(recording: Recording, steps: Sequence[Step]) -> list[str]:
    """Where the pictures change their size or depth."""
    found = [f"{recording.label(step.row)}: {step.changed}" for step in steps if step.changed]
    more = len(found) - _MOST_NAMED
    return found if more <= 0 else [*found[:_MOST_NAMED], f"{more} more changes of size or depth"]


def _finish(console: Console, recording: Recording, steps: Sequence[Step], targets: dict[str, Path]) -> None:
    """Write the sequence, say what was found."""
    from scopereg.registration.track import STATES, compared, in_words, motion_check

    try:
        written = _write_sequences(recording, steps, targets["sequence"])
    except ScopeRegError as error:
        written = []
        console.print(f"note    no sequence is written: {error.what}")
    counts = Counter(step.state for step in steps)
    shown = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    console.print(f"{len(steps)} of {len(recording)} frames: {shown}")
    bad = [step for step in steps if not step.is_placed]
    for step in bad[:_MOST_NAMED]:
        console.print(f"{step.state:<10} {recording.label(step.row)}: {step.reason}")
    if len(bad) > _MOST_NAMED:
        console.print(f"           {len(bad) - _MOST_NAMED} more, see {TABLE}")
    for name, errors in compared(steps).items():
        console.print(f"against the tracker, {name}: {in_words(errors)}")
    motion = motion_check(steps)
    if motion is not None:
        console.print(f"against the tracker's motion: {motion.in_words}")
    files = [targets["table"], *written]
    for path in files:
        console.print(f"wrote   {path}")
    beside = {name: {"mean_mm": sum(each) / len(each), "frames": len(each)} for name, each in compared(steps).items()}
    agrees = None if motion is None else {"agrees": motion.agrees, "words": motion.in_words}
    tell(frames=len(recording), done=len(steps), states=dict(counts), files=files)
    tell(against_tracker=beside, against_its_motion=agrees)


def _write_sequences(recording: Recording, steps: Sequence[Step], path: Path) -> list[Path]:
    """The frames with the poses found; those that no picture stands behind are INVALID. No file where nothing is.

    Frames of another size or spacing than the first ones have a file of their own: a sequence holds one kind.
    """
    from scopereg.io.plus_sequence import add_poses, part_path, write_plus_sequence

    if not any(step.is_placed for step in steps):
        return []
    poses = {step.row: step.pose if step.is_placed else None for step in steps}
    if recording.is_plus:
        assert recording.cine is not None
        every = [poses.get(row) for row in range(len(recording))]
        cine = recording.cine
        sizes: dict[str, Any] = {"spacing_mm": cine.spacing_mm, "spacings_mm": cine.spacings_mm}
        return [add_poses(cine.path, every, path, origin_mm=cine.origin_mm, **sizes)]
    kinds: dict[Any, list[int]] = {}
    for row in (step.row for step in steps if step.state != "unreadable"):
        frame = recording.frame(row)
        kinds.setdefault((frame.shape, frame.spacing_mm, frame.origin_mm), []).append(row)
    return [
        write_plus_sequence(
            (recording.frame(row) for row in rows),
            [poses[row] for row in rows],
            part_path(path, number),
            times_s=[recording.times_s[row] for row in rows],
        )
        for number, rows in enumerate(kinds.values(), 1)
    ]
