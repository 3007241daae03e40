"""`scopereg register`: one frame, or all frames of a cine or a folder, from files to files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from scopereg.errors import ScopeRegError
from scopereg.images import Volume
from scopereg.io.cine import Cine
from scopereg.io.files import output_folder
from scopereg.io.transforms import ENDINGS
from scopereg.io.volumes import FORMATS
from scopereg.options.live import LiveOptions, ViewOptions
from scopereg.options.registration import RegisterOptions, TrackOptions
from scopereg.registration.batch import Job, Reading, Workshop, workshop, write_result
from scopereg.registration.notes import image_line, reader_notes
from scopereg.registration.start import TRACKER

_MEANS = {
    "slicer": "VolumeToImage: 3D Slicer puts the frame in place with it",
    "itk-resample": "ImageToVolume: ITK resamples the volume onto the frame with it",
}
_VOLUME_WORDS = {"spacing_mm= (--spacing)": "--volume-spacing", "index=": "--volume-index"}


def run(options: RegisterOptions) -> int:
    """The verb: one frame or a batch; 1 if frames of a batch failed."""
    if options.frame is None or options.volume is None:
        raise ScopeRegError(
            "a frame and a volume are needed", where="scopereg register", fix="write scopereg register FRAME VOLUME"
        )
    if not options.frame.exists():
        raise ScopeRegError("there is no such file or folder", where=str(options.frame), fix="check the name")
    reading = reading_of(options)
    cine = None
    if options.frame.is_file():
        with _words_of_options({"index=": "--index"}):
            cine = reading.open_cine(options.frame)
    if cine is not None and is_single(cine, options):
        return register_one(cine, options, reading)
    from scopereg.registration.batch_command import run_batch  # a single frame needs neither pages nor processes

    return run_batch(options, batch_job(options, reading))


def reading_of(options: RegisterOptions | TrackOptions | LiveOptions) -> Reading:
    """How the files are read."""
    assert options.volume is not None
    return Reading(options.volume, **left_open(options))


def left_open(options: RegisterOptions | TrackOptions | LiveOptions | ViewOptions) -> dict[str, Any]:
    """The fields of `LeftOpen`."""
    return {
        "volume_spacing_mm": sizes_mm(options.volume_spacing, 3, "--volume-spacing"),
        "volume_index": options.volume_index,
        "series": options.series,
        "spacing_mm": sizes_mm(options.spacing, 2, "--spacing"),
        "region": options.region,
        "calibration": options.calibration,
    }


def sizes_mm(numbers: tuple[float, ...], axes: int, where: str) -> tuple[float, ...] | None:
    """Sizes in mm; None where none are given."""
    good = len(numbers) in (1, axes) and all(math.isfinite(n) and n > 0 for n in numbers)
    if numbers and not good:
        raise ScopeRegError(f"got {' '.join(map(str, numbers))}", where=where, fix=f"pass one or {axes} sizes in mm")
    return numbers or None


def is_single(cine: Cine, options: RegisterOptions) -> bool:
    """Whether one frame is asked for: by its number, or as the only one, and not for a folder of results."""
    to_file = options.output is None or options.output.suffix != ""
    if options.index is not None or (len(cine) == 1 and to_file):
        return True
    if options.output is None or options.output.suffix.lower() in ENDINGS:
        raise ScopeRegError(
            f"it holds {len(cine)} frames",
            where=str(options.frame),
            fix=f"choose one with --index, from 0 to {len(cine) - 1}, or pass a folder for all of them: -o FOLDER",
        )
    return False


def register_one(cine: Cine, options: RegisterOptions, reading: Reading) -> int:
    """Register one frame, say what was found, write it. Places are checked before any work."""
    targets = _targets(options)
    for path in targets.values():
        output_folder(path.parent)
    with _words_of_options({"index=": "--index"}):
        frame = cine.only(options.index)
    ready = open_workshop(_job(options, reading, Path()))
    console = Console(soft_wrap=True, highlight=False, markup=False)
    volume = ready.locator.volume
    console.print(f"frame   {image_line(frame)}\nvolume  {image_line(volume)}")
    start = ready.start.of(frame, volume)
    notes = volume_notes(volume, ready.locator.notes, options)
    print_notes(console, [*reader_notes(frame), *notes])
    result = ready.locator.locate(frame, start)
    print_notes(console, result.notes)
    console.print(str(result.pose))
    console.print(f"similarity {result.similarity:.3f} [{result.method}, {result.time_ms:.0f} ms]")
    if result.verdict:
        console.print(result.verdict)
    if result.ok is False and start is None and ready.locator.might_look_wider:
        console.print("If the frame may lie far from the middle of the volume: --wide --refine looks from more starts.")
    told = replace(result, notes=(*reader_notes(frame), *notes, *result.notes))
    for path in write_result(told, targets, options.convention):
        console.print(f"{path}{_meaning(path, options)}")
    return 0


def open_workshop(job: Job) -> Workshop:
    """The volume, prepared; errors speak of the options of this verb."""
    with _words_of_options(_VOLUME_WORDS):
        return workshop(job)


def open_volume(reading: Reading) -> Volume:
    """The volume alone, likewise."""
    with _words_of_options(_VOLUME_WORDS):
        return reading.open_volume()


def volume_notes(volume: Volume, notes: Iterable[str], options: RegisterOptions) -> list[str]:
    """What is to be known of the volume: how it was read, what was done to it, which world it is taken to be in."""
    same_world = options.start == TRACKER and options.world is None
    world = ["the tracker's world is taken for the volume's: --world tells otherwise"] if same_world else []
    return [*reader_notes(volume), *notes, *world]


def print_notes(console: Console, notes: Iterable[str]) -> None:
    for note in notes:
        console.print(f"note    {note}")


_OPTIONS = {"pose": ("--output", ENDINGS), "placed": ("--placed", FORMATS), "resliced": ("--resliced", FORMATS)}


def _targets(options: RegisterOptions) -> dict[str, Path]:
    """Files to write by kind, their endings checked, none of them an input."""
    given = {"pose": options.output, "placed": options.placed, "resliced": options.resliced}
    targets = {kind: Path(value) for kind, value in given.items() if value is not None}
    inputs = {path.resolve() for path in (options.frame, options.volume) if path is not None}
    for kind, path in targets.items():
        _check_ending(kind, path.name)
        if path.resolve() in inputs:
            raise ScopeRegError("it would overwrite an input", where=str(path), fix="choose another name")
    if len({path.resolve() for path in targets.values()}) < len(targets):
        raise ScopeRegError("two outputs have one name", where="--output", fix="name each differently")
    return targets


def _check_ending(kind: str, name: str) -> None:
    option, endings = _OPTIONS[kind]
    if not name.lower().endswith(endings) or name.lower() in endings:
        raise ScopeRegError(
            f"unknown ending of {name!r}",
            where=f"{option} {name}",
            fix=f"end it in one of {', '.join(endings)}",
        )


def _job(options: RegisterOptions, reading: Reading, folder: Path) -> Job:
    return Job(
        reading,
        options.method,
        options.refine,
        options.start,
        options.world,
        options.device,
        folder,
        f".{options.format}",
        options.convention,
        options.placed,
        options.resliced,
        options.agreement,
        options.wide,
    )


def batch_job(options: RegisterOptions, reading: Reading) -> Job:
    """The job of a batch; its output is a folder, its images are named by endings."""
    if options.output is None or options.output.suffix.lower() in ENDINGS or options.output.is_file():
        raise ScopeRegError(
            "a batch needs a folder for its results", where="--output", fix="pass one: -o FOLDER (and --format)"
        )
    if options.index is not None:
        raise ScopeRegError("it is for one file", where="--index", fix="leave it out for a folder")
    for kind in ("placed", "resliced"):
        value = getattr(options, kind)
        if value is not None and value.lower() not in FORMATS:
            raise ScopeRegError(
                f"got {value!r} for many frames", where=f"--{kind}", fix=f"pass an ending: {', '.join(FORMATS)}"
            )
    return _job(options, reading, options.output)


def _meaning(path: Path, options: RegisterOptions) -> str:
    return f"  ({_MEANS[options.convention]})" if path.suffix.lower() in (".tfm", ".h5") else ""


@contextmanager
def _words_of_options(words: dict[str, str]) -> Iterator[None]:
    """Errors of the readers, in the words of the command line."""
    try:
        yield
    except ScopeRegError as error:
        fix = error.fix
        for word, option in words.items():
            fix = fix.replace(word, option)
        raise type(error)(error.what, where=error.where, fix=fix) from error.__cause__
