"""`scopereg view`: finished registrations in the browser, or as one page."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from scopereg.commands.output import tell
from scopereg.commands.page import open_page, print_overlay_notes, read_overlays
from scopereg.commands.reading import left_open
from scopereg.commands.shared import ImageReading, OverlayOptions, PageOptions, Positional
from scopereg.errors import ScopeRegError
from scopereg.interruption import interruptible, terminable

if TYPE_CHECKING:
    from scopereg.viewer.finished import Finished, Images
    from scopereg.viewer.overlays import Overlays


@dataclass(frozen=True)
class ViewOptions(ImageReading, OverlayOptions, PageOptions):
    """Show finished registrations in the browser, or write them as one page.

    RESULTS are files that scopereg register wrote (pose.json; poses.csv of a batch), track.csv of scopereg track,
    recordings of scopereg live (.igs.mha), or folders of them. They name frame and volume, which are looked for in
    --data, beside them, here, and where they were: there they count only if they still hold the same.
    """

    results: Positional[tuple[Path, ...]] = ()
    """Files or folders."""
    data: tuple[Path, ...] = ()
    """Folders, or the files themselves, to look for frames and volumes in."""
    volume: Path | None = None
    """Volume of all results, in place of what they name; tables name none."""
    notes: bool = False
    """Let the page write notes at frames: notes.json beside the results. It shows those that are there in any case."""
    save: Path | None = None
    """Write one page (.html) with all in it, to send or to keep, instead of serving it."""


def run(options: ViewOptions) -> int:
    """The verb; it ends with Ctrl-C or SIGTERM, or when the page is written."""
    from scopereg.viewer.finished import Images, read_results
    from scopereg.viewer.finished_show import FinishedShow

    if not options.results:
        raise ScopeRegError("results are needed", where="scopereg view", fix="write scopereg view pose.json")
    for path in (*options.results, *options.data):
        if not path.exists():
            raise ScopeRegError("there is no such file or folder", where=str(path), fix="check the name")
    console = Console(soft_wrap=True, highlight=False, markup=False)
    results = read_results(options.results)
    images = Images(options.data, options.volume, **left_open(options))
    overlays = read_overlays(options)
    if options.save is not None:
        console.print(f"wrote   {_save(options.save, results, images, overlays)}")
        tell(results=len(results), page=options.save)
        return 0
    show = FinishedShow(results, images, overlays, keeps_notes=options.notes)
    print_overlay_notes(console, show)
    asked = threading.Event()
    with interruptible(asked.set), terminable(asked.set), open_page(options, show, console):
        console.print(f"{len(results)} result{'s' * (len(results) > 1)}; Ctrl-C ends it")
        while not asked.wait(0.2):
            pass
    return 0


def _save(path: Path, results: list[Finished], images: Images, overlays: Overlays) -> Path:
    from scopereg.viewer.notebook import Notebook
    from scopereg.viewer.page import write_page

    if path.suffix.lower() not in (".html", ".htm"):
        raise ScopeRegError(f"unknown ending {path.suffix!r}", where=f"--save {path}", fix="use .html")
    opened = [result.open(images) for result in results]
    names, steps = [result.name for result in results], [result.step for result in results]
    notes = Notebook(results).listed()
    return write_page(path, opened, names=names, overlays=overlays, steps=steps, notes=notes)
