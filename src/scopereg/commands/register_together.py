"""`scopereg register --together`: frames with known places beside one another, from files to one pose for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from scopereg.commands.output import tell
from scopereg.commands.reading import print_notes
from scopereg.errors import ScopeRegError
from scopereg.io.files import output_folder

if TYPE_CHECKING:
    from scopereg.commands.register import RegisterOptions
    from scopereg.registration.batch import Job, Row, Task
    from scopereg.registration.locator import Locator
    from scopereg.registration.together import Together
    from scopereg.registration.together_files import FindPlaces, PlacedFrames, Placing


def run_together(
    sources: Sequence[Path], options: RegisterOptions, job: Job, locator: Locator, notes: Sequence[str]
) -> tuple[Together, list[Row]]:
    """Locate, write everything, say what was found; the table is written whole or not at all."""
    from scopereg.registration.batch import PAGE, TABLE, forget, write_table
    from scopereg.registration.body_diagnosis import with_hints
    from scopereg.registration.inputs import write_inputs
    from scopereg.registration.reading import image_line
    from scopereg.registration.together_files import placed_frames, start_of, write_together
    from scopereg.report.batch_page import make_page

    output_folder(job.folder)
    placed = placed_frames(sources, job, options.most, _places_by(options.poses, job))
    start = start_of(job.start, job.world)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(f"volume  {image_line(locator.volume)}")
    print_notes(console, [*notes, *placed.notes])
    together = locator.locate_together(placed.frames, placed.image_to_world, start)
    together = with_hints(locator, together, start)
    forget(placed.tasks, job)
    write_inputs(job.folder, job.reading, {task.shown: task.path for task in placed.tasks})
    rows, body = write_together(placed, together, job)
    write_table(rows, job.folder / TABLE, job.ending)
    _tell(console, placed, together)
    console.print(f"wrote   {body}\nwrote   {job.folder / TABLE}")
    told = [*notes, *placed.notes, *together.whole.notes]
    if options.report:
        page = make_page(rows, locator.volume, job, told, together=together).save(job.folder / PAGE)
        console.print(f"report  {page}")
    tell(body_to_volume=together.pose.matrix, **together.whole.facts, folder=job.folder, files=[body])
    tell(frames=[_told(row, each) for row, each in zip(rows, _parts(together), strict=False)])
    return together, rows


def _places_by(source: Path | None, job: Job) -> FindPlaces | None:
    """Places by --poses: a table, a tracked sequence, a folder of transforms."""
    if source is None:
        return None
    from scopereg.evaluation.score.placing import placings

    def find(tasks: Sequence[Task]) -> tuple[Mapping[Task, Placing], Sequence[str]]:
        found = placings(source, tasks, calibration=job.reading.calibration)
        return found.of, found.notes

    return find


def _tell(console: Console, placed: PlacedFrames, together: Together) -> None:
    print_notes(console, together.whole.notes)
    console.print(f"{len(together.frames)} frames together, {together.whole.time_ms / 1e3:.1f} s")
    for task, result, part in zip(placed.tasks, together.frames, _parts(together), strict=True):
        goes = (
            "nothing of it is compared" if part["freed_mm"] is None else f"by itself it goes {part['freed_mm']:.1f} mm"
        )
        left = "" if part["counts"] else ", left out"
        console.print(f"frame   {task.label}: {goes}{left}; {result.verdict}")
    console.print(f"{together.pose}\n{together.whole.verdict}")


def _parts(together: Together) -> list[dict[str, Any]]:
    rows = zip(together.apart_mm, together.freed_mm, together.counts, strict=True)
    return [{"apart_mm": _number(apart), "freed_mm": _number(freed), "counts": counts} for apart, freed, counts in rows]


def _number(value: float) -> float | None:
    return value if value == value else None  # NaN is not itself


def _told(row: Row, part: dict[str, Any]) -> dict[str, Any]:
    assert row.result is not None
    place = {"file": row.task.shown, "index": row.task.index}
    return {**place, "image_to_volume": row.result.pose.matrix, **part, **row.result.facts}


def sources_of(given: Sequence[Path | None]) -> tuple[list[Path], Path]:
    """Frames and volume from the words behind the verb: the volume is the last."""
    paths = [path for path in given if path is not None]
    if len(paths) < 2:
        raise ScopeRegError(
            "frames and a volume are needed",
            where="scopereg register --together",
            fix="write scopereg register --together FRAMES... VOLUME",
        )
    *frames, volume = paths
    for path in frames:
        if not path.exists():
            raise ScopeRegError("there is no such file or folder", where=str(path), fix="check the name")
    return frames, volume
