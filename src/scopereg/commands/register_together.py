"""`scopereg register --together`: frames with known places beside one another, from files to one pose for all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from scopereg.commands.output import tell
from scopereg.commands.reading import print_notes
from scopereg.errors import ScopeRegError
from scopereg.io.files import output_folder

if TYPE_CHECKING:
    from scopereg.commands.register import RegisterOptions
    from scopereg.registration.batch import Job, Row
    from scopereg.registration.locator import Locator
    from scopereg.registration.together import Together
    from scopereg.registration.together_files import PlacedFrames


def run_together(
    sources: Sequence[Path], options: RegisterOptions, job: Job, locator: Locator, notes: Sequence[str]
) -> tuple[Together, list[Row]]:
    """Locate, write everything, say what was found; the table is written whole or not at all."""
    from scopereg.registration.batch import PAGE, TABLE, forget, write_table
    from scopereg.registration.inputs import write_inputs
    from scopereg.registration.reading import image_line
    from scopereg.registration.together_files import placed_frames, start_of, write_together
    from scopereg.report.batch_page import make_page

    output_folder(job.folder)
    placed = placed_frames(sources, job, options.poses, options.most)
    start = start_of(job.start, job.world)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(f"volume  {image_line(locator.volume)}")
    print_notes(console, [*notes, *placed.notes])
    together = locator.locate_together(placed.frames, placed.image_to_world, start)
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


def _tell(console: Console, placed: PlacedFrames, together: Together) -> None:
    print_notes(console, together.whole.notes)
    console.print(f"{len(together.frames)} frames together, {together.whole.time_ms / 1e3:.1f} s")
    for task, result, part in zip(placed.tasks, together.frames, _parts(together), strict=True):
        alone = (
            "not found by itself"
            if part["apart_mm"] is None
            else f"{part['apart_mm']:.1f} mm from where it was found by itself"
        )
        left = "" if part["counts"] else ", left out"
        console.print(f"frame   {task.label}: {alone}{left}; {result.verdict}")
    console.print(f"{together.pose}\n{together.whole.verdict}")


def _parts(together: Together) -> list[dict[str, Any]]:
    return [
        {"apart_mm": apart if apart == apart else None, "counts": counts}  # NaN is not itself
        for apart, counts in zip(together.apart_mm, together.counts, strict=True)
    ]


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
