"""`scopereg register`: one frame, or all frames of a cine or a folder, from files to files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from scopereg.commands.flags import in_flags, renaming
from scopereg.commands.output import tell
from scopereg.commands.reading import VOLUME, check_places, holds_planes, print_notes, reading_of
from scopereg.commands.register_whole import foreign_volume, register_whole
from scopereg.commands.shared import (
    AnyMethod,
    ConventionName,
    Device,
    MaskedReading,
    MaybeFile,
    OneWay,
    PoseFormat,
    Positional,
    Seconds,
    SliceThickness,
    VolumeFile,
)
from scopereg.cores import usable_cores
from scopereg.errors import ScopeRegError
from scopereg.io.files import output_folder
from scopereg.progress import listening
from scopereg.registration.settings import DEFAULT

if TYPE_CHECKING:
    from scopereg.images import Frame, Volume
    from scopereg.io.cine import Cine
    from scopereg.registration.batch import Job, Row, Worker
    from scopereg.registration.locator import Locator
    from scopereg.registration.reading import Reading
    from scopereg.registration.result import Result

_MEANS = {
    "slicer": "VolumeToImage: 3D Slicer puts the frame in place with it",
    "itk-resample": "ImageToVolume: ITK resamples the volume onto the frame with it",
}
_DEFORMS = {
    "slicer": "in 3D Slicer the frame lies under it, and it under the pose",
    "itk-resample": "ITK applies it before the pose",
}
_SWAPPED = (
    "the frame comes first: scopereg register FRAME VOLUME; "
    "a whole volume is found in MR or CT alone (--modality mr); if it is one, "
)
_MOST_WORKERS = 8  # each holds torch, the volume and the network
NOT_OK = 3  # status of a strict run where a pose may not be relied on
_MOST_NAMED = 20  # frames that are not ok, one line each


@dataclass(frozen=True)
class RegisterOptions(MaskedReading):
    """Find where frames lie in a volume, and write the transforms.

    FRAME is a DICOM, PNG, JPEG, NIfTI, NRRD, MHA or PLUS file. A cine (without --index) or a folder is a batch: OUTPUT
    is a folder and gets a transform for each frame, poses.csv, report.html and, for PLUS sequences, the sequence with
    the poses found. Frames that fail are named; the status is then 1. What a network finds is refined and, where it is
    not ok, sought in other ways, which may take a minute. With --together frames that a tracker placed get one pose for
    all: FRAME may be several files, the volume comes last. In MR or CT, FRAME may be a whole volume of ultrasound.
    """

    frame: Positional[Path | None] = None
    """File of the frame or cine, or a folder of them."""
    volume: Positional[VolumeFile] = None
    more: Positional[tuple[Path, ...]] = ()
    """With --together: several files of frames; the last of all is the volume."""
    output: MaybeFile = None
    """File for the pose (.tfm, .h5, .txt, .json or .dcm), or folder for a batch; without it a pose is only printed."""
    method: AnyMethod = DEFAULT
    refine: bool | None = None
    """Polish what the method found by the similarity of frame and volume; networks are polished unless this says no."""
    fallback: bool | None = None
    """Try other searches for frames whose pose is not ok; by default wherever a network's poses are refined."""
    seconds: Seconds = None
    wide: bool = False
    """Seek the frame in all of the volume at once; without this in volumes much larger than the frame alone."""
    any_angle: bool = False
    """Seek it in all of the volume, turned in its plane by any angle."""
    thickness_mm: SliceThickness = None
    deformable: bool = False
    """Also find the deformation that the rigid pose leaves; written beside the pose as NAME.deformation.h5."""
    start: str | None = None
    """Where the search begins: a pose file, or tracker: where the frame's own file puts it; none is needed."""
    world: Path | None = None
    """Pose file from the tracker's world to the volume, where these are not the same."""
    reach_mm: float = 10.0
    """How far off its start a whole volume of ultrasound is sought in MR or CT; 0: at the nearest place alone."""
    together: OneWay[bool] = False
    """Take the frames for one rigid body, as their tracker, a table or a track places them: one pose for all."""
    poses: Path | None = None
    """Where frames of --together lie, if their files do not say: track.csv, poses.csv, a tracked sequence, a folder."""
    most: int = 9
    """Frames of --together at most, taken evenly from all that are placed."""
    index: int | None = None
    """Number of the frame in a cine, from 0."""
    convention: ConventionName = "slicer"
    """Direction of .tfm and .h5. slicer: 3D Slicer puts the frame in place. itk-resample: ITK cuts the volume."""
    format: PoseFormat = "tfm"
    """Transforms of a batch."""
    placed: str | None = None
    """Also write the frame as an oblique plane: a file, or for a batch an ending (.nii.gz, .nii, .nrrd, .mha)."""
    resliced: str | None = None
    """Also write the volume cut at the pose: a file, or for a batch an ending."""
    report: bool = True
    """Write report.html of a batch."""
    workers: int | None = None
    """Processes of a batch; by default one for each processor core, 8 at most, fewer for few frames, one on a GPU."""
    strict: bool = False
    """End with status 3 where a pose may not be relied on; else only what failed, status 1, counts."""
    device: Device = "auto"


def run(options: RegisterOptions) -> int:
    """The verb: one frame or a batch; 1 if frames of a batch failed, 3 if `strict` and any pose is not ok."""
    if options.together and options.deformable:
        raise ScopeRegError(
            "the frames of a body have one rigid pose", where="--deformable", fix="leave out --together, or this"
        )
    if options.together:
        return register_together(options)
    _check_alone(options)
    if options.frame is None or options.volume is None:
        raise ScopeRegError(
            "a frame and a volume are needed", where="scopereg register", fix="write scopereg register FRAME VOLUME"
        )
    if not options.frame.exists():
        raise ScopeRegError("there is no such file or folder", where=str(options.frame), fix="check the name")
    check_places("register", options.frame, options.volume)
    reading = reading_of(options.volume, options)
    cine = None
    if options.frame.is_file():
        cine = reading.open_cine(options.frame)
        if (volume := foreign_volume(cine, options, reading)) is not None:
            result = register_whole(options.frame, volume, options, _targets(options))
            return NOT_OK if options.strict and not result.ok else 0
    if cine is not None and is_single(cine, options):
        return register_one(cine, options, reading)
    return run_batch(options, batch_job(options, reading))


def register_together(options: RegisterOptions) -> int:
    """One pose for all frames; 1 if frames cannot be read, 3 if `strict` and the pose is not ok."""
    from scopereg.commands.register_together import run_together, sources_of

    sources, volume = sources_of([options.frame, options.volume, *options.more])
    for source in sources:
        check_places("register", source, volume)
    options = replace(options, frame=sources[0], volume=volume, more=(), fallback=False)
    job = batch_job(options, reading_of(volume, options))
    locator = open_worker(replace(job, start=None, world=None)).locator
    notes = volume_notes(locator.volume, locator.notes, options)
    together, rows = run_together(sources, options, job, locator, notes)
    if any(row.error for row in rows):
        return 1
    return NOT_OK if options.strict and not together.ok else 0


def _check_alone(options: RegisterOptions) -> None:
    """An error for what belongs to --together alone."""
    if options.more:
        names = ", ".join(repr(str(path)) for path in options.more)
        named = f"; what is written is named by -o {options.more[0]}" if options.output is None else ""
        raise ScopeRegError(
            f"got {names} too; several files of frames go with --together",
            where="scopereg register",
            fix=f"write scopereg register FRAME VOLUME{named}",
        )
    if options.poses is not None:
        raise ScopeRegError("places are for frames of one body", where="--poses", fix="add --together")


def is_single(cine: Cine, options: RegisterOptions) -> bool:
    """Whether one frame is asked for: by its number, or as the only one, and not for a folder of results."""
    from scopereg.io.transforms import ENDINGS

    to_file = options.output is None or options.output.suffix != ""
    if options.index is not None or (len(cine) == 1 and to_file):
        return True
    if options.output is None or options.output.suffix.lower() in ENDINGS:
        chosen = f"choose one with --index, from 0 to {len(cine) - 1}, or pass a folder for all of them: -o FOLDER"
        planes = holds_planes(cine.path)
        raise ScopeRegError(
            f"it holds {len(cine)} frames" + ", as a volume does" * planes,
            where=str(options.frame),
            fix=_SWAPPED * planes + chosen,
        )
    return False


def register_one(cine: Cine, options: RegisterOptions, reading: Reading) -> int:
    """Register one frame, say what was found, write it. Places are checked before any work."""
    from scopereg.registration.batch import write_result
    from scopereg.registration.diagnosis import with_hints
    from scopereg.registration.reading import image_line, reader_notes

    targets = _targets(options)
    for path in targets.values():
        output_folder(path.parent)
    frame = cine.only(options.index)
    ready = open_worker(_job(options, reading, Path()))
    console = Console(soft_wrap=True, highlight=False, markup=False)
    volume = ready.locator.volume
    console.print(f"frame   {image_line(frame)}\nvolume  {image_line(volume)}")
    start = ready.start.of(frame, volume)
    notes = [*volume_notes(volume, ready.locator.notes, options), *_thickness_note(frame, ready.locator, options)]
    print_notes(console, [*reader_notes(frame), *notes])
    with listening(lambda line: console.print(f"        {line}")):
        result = with_hints(ready.locator, frame, ready.locator.locate(frame, start), start)
    print_notes(console, result.notes)
    print_result(console, result)
    if result.deformation is not None:
        doubt = "; it is of a pose that may not be relied on" if result.ok is False else ""
        console.print(f"deformation: {result.deformation.words}{doubt}")
    told = replace(result, notes=(*reader_notes(frame), *notes, *result.notes))
    written = write_result(told, targets, options.convention)
    for path in written:
        console.print(f"{path}{_meaning(path, options)}")
    tell(image_to_volume=result.pose.matrix, volume_modality=volume.modality, **told.facts, files=written)
    return NOT_OK if options.strict and not result.ok else 0


def _thickness_note(frame: Frame, locator: Locator, options: RegisterOptions) -> list[str]:
    """What the depth lets expect, where grey values are compared and nothing else was told."""
    from scopereg.registration.thickness import note_of

    return [note_of(None, frame)] if locator.refines and options.thickness_mm is None else []


def print_result(console: Console, result: Result) -> None:
    """The pose, how it was found, and what to think of it."""
    console.print(str(result.pose))
    console.print(f"similarity {result.similarity:.3f} [{result.method}, {result.time_ms:.0f} ms]")
    console.print(result.verdict)


def open_worker(job: Job) -> Worker:
    """The volume, prepared; errors speak of the options of this verb."""
    from scopereg.registration.batch import worker

    with renaming(VOLUME):
        return worker(job)


def volume_notes(volume: Volume, notes: Iterable[str], options: RegisterOptions) -> list[str]:
    """What is to be known of the volume: how it was read, what was done to it, which world it is taken to be in."""
    from scopereg.registration.reading import reader_notes
    from scopereg.registration.register import TRACKER

    same_world = options.start == TRACKER and options.world is None
    world = ["the tracker's world is taken for the volume's: --world tells otherwise"] if same_world else []
    return [*reader_notes(volume), *notes, *world]


def _targets(options: RegisterOptions) -> dict[str, Path]:
    """Files to write by kind, their endings checked, none of them an input."""
    from scopereg.registration.batch import deformation_beside

    given = {"pose": options.output, "placed": options.placed, "resliced": options.resliced}
    targets = {kind: Path(value) for kind, value in given.items() if value is not None}
    if options.deformable and "pose" in targets:
        targets["deformation"] = deformation_beside(targets["pose"])
    inputs = {path.resolve() for path in (options.frame, options.volume) if path is not None}
    for kind, path in targets.items():
        if kind != "deformation":
            _check_ending(kind, path.name)
        if path.resolve() in inputs:
            raise ScopeRegError("it would overwrite an input", where=str(path), fix="choose another name")
    if len({path.resolve() for path in targets.values()}) < len(targets):
        raise ScopeRegError("two outputs have one name", where="--output", fix="name each differently")
    return targets


def _check_ending(kind: str, name: str) -> None:
    from scopereg.io.read_image import endings as image_endings
    from scopereg.io.transforms import ENDINGS

    option = "--output" if kind == "pose" else f"--{kind}"
    endings = ENDINGS if kind == "pose" else image_endings(written=True)
    if not name.lower().endswith(endings) or name.lower() in endings:
        raise ScopeRegError(
            f"unknown ending of {name!r}",
            where=f"{option} {name}",
            fix=f"end it in one of {', '.join(endings)}",
        )


def _job(options: RegisterOptions, reading: Reading, folder: Path) -> Job:
    from scopereg.registration.batch import Job
    from scopereg.registration.method import parse

    return Job(
        reading,
        str(parse(options.method).persistent(refine=options.refine, fallback=options.fallback)),
        options.start,
        options.world,
        options.device,
        folder,
        f".{options.format}",
        options.convention,
        options.placed,
        options.resliced,
        options.wide,
        options.seconds,
        options.any_angle,
        options.thickness_mm,
        options.deformable,
    )


def batch_job(options: RegisterOptions, reading: Reading) -> Job:
    """The job of a batch; its output is a folder, its images are named by endings."""
    from scopereg.io.read_image import endings
    from scopereg.io.transforms import ENDINGS

    images = endings(written=True)
    if options.output is None or options.output.suffix.lower() in ENDINGS or options.output.is_file():
        raise ScopeRegError(
            "a batch needs a folder for its results", where="--output", fix="pass one: -o FOLDER (and --format)"
        )
    if options.index is not None:
        raise ScopeRegError("it is for one file", where="--index", fix="leave it out for a folder")
    for kind in ("placed", "resliced"):
        value = getattr(options, kind)
        if value is not None and value.lower() not in images:
            raise ScopeRegError(
                f"got {value!r} for many frames", where=f"--{kind}", fix=f"pass an ending: {', '.join(images)}"
            )
    return _job(options, reading, options.output)


def _meaning(path: Path, options: RegisterOptions) -> str:
    if path.suffixes[-2:] == [".deformation", ".h5"]:
        return f"  ({_DEFORMS[options.convention]})"
    return f"  ({_MEANS[options.convention]})" if path.suffix.lower() in (".tfm", ".h5") else ""


def run_batch(options: RegisterOptions, job: Job) -> int:
    """Locate all frames, write everything, name what failed; 1 if anything did."""
    from scopereg.registration.batch import (
        PAGE,
        TABLE,
        Tally,
        forget,
        gather,
        in_chunks,
        locate_tasks,
        size_notes,
        write_sequences,
    )
    from scopereg.registration.inputs import write_inputs
    from scopereg.registration.reading import image_line
    from scopereg.report.batch_page import make_page

    assert options.frame is not None
    _check_workers(options)
    output_folder(job.folder)
    tasks, bad = gather(options.frame, job)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    ready = open_worker(job)
    notes = volume_notes(ready.locator.volume, ready.locator.notes, options)
    console.print(f"volume  {image_line(ready.locator.volume)}")
    print_notes(console, notes)
    forget([*tasks, *(row.task for row in bad)], job)
    write_inputs(job.folder, job.reading, {task.shown: task.path for task in tasks})
    chunks = in_chunks(tasks, ready.locator.prepared.batch_size)
    rows = locate_tasks(job, chunks, bad, _workers(options, len(tasks), ready.locator.prepared.worth_a_process))
    sequences, sizes = write_sequences(rows, job), size_notes(rows)
    print_notes(console, sizes)
    _summarise(console, rows, [job.folder / TABLE, *sequences])
    if options.report:
        page = make_page(rows, ready.locator.volume, job, [*notes, *sizes]).save(job.folder / PAGE)
        console.print(f"report  {page}")
    tally = Tally.of(rows)
    tell(folder=job.folder, tally=tally._asdict(), frames=[_told(row) for row in rows])
    if tally.failed:
        return 1
    return NOT_OK if options.strict and tally.ok < tally.frames else 0


def _told(row: Row) -> dict[str, Any]:
    """A frame of a batch, for JSON."""
    place = {"file": row.task.shown, "index": row.task.index}
    if row.result is None:
        return {**place, "error": in_flags(row.error, RegisterOptions)}
    return {**place, "image_to_volume": row.result.pose.matrix, **row.result.facts}


def _check_workers(options: RegisterOptions) -> None:
    if options.workers is not None and options.workers < 1:
        raise ScopeRegError(f"{options.workers} processes", where="--workers", fix="use at least one")


def _workers(options: RegisterOptions, frames: int, worth: int) -> int:
    """As many as asked for; else as many as there are cores, and frames that make up for starting them."""
    from scopereg.devices import resolve_device

    if options.workers is not None:
        return options.workers
    if resolve_device(options.device).type != "cpu":
        return 1
    return max(min(usable_cores(), _MOST_WORKERS, frames // worth), 1)


def _name_some(console: Console, rows: Sequence[Row]) -> None:
    """Frames that may not be relied on: why, one line each up to some; one line where all have the same reason."""
    from scopereg.registration.batch import TABLE
    from scopereg.registration.result import NOT_JUDGED, Assessment

    told = [Assessment.of(row.result) for row in rows]
    why = ["; ".join((each.reason.removeprefix(NOT_JUDGED), *each.hints)) for each in told]
    if len(rows) > 1 and len(set(why)) == 1:
        console.print(f"{told[0].state}  all {len(rows)}: {why[0]}")
        return
    for row, each, reason in list(zip(rows, told, why, strict=True))[:_MOST_NAMED]:
        console.print(f"{each.state}  {row.task.label}: {reason}")
    if len(rows) > _MOST_NAMED:
        console.print(f"{told[0].state}  {len(rows) - _MOST_NAMED} more, see {TABLE}")


def _summarise(console: Console, rows: Sequence[Row], written: Sequence[Path]) -> None:
    from scopereg.registration.batch import Tally

    failed = [row for row in rows if row.error]
    console.print(str(Tally.of(rows)))
    for row in failed:
        console.print(f"failed  {row.task.label}: {in_flags(row.error, RegisterOptions)}")
    _name_some(console, [row for row in rows if row.result is not None and row.result.ok is False])
    _name_some(console, [row for row in rows if row.result is not None and row.result.ok is None])
    for path in written:
        console.print(f"wrote   {path}")
