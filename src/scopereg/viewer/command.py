"""`scopereg view`: finished registrations in the browser, or as one page."""

from __future__ import annotations

import threading
from pathlib import Path

from rich.console import Console

from scopereg.errors import ScopeRegError
from scopereg.interruption import interruptible, terminable
from scopereg.options.live import ViewOptions
from scopereg.registration.command import left_open
from scopereg.viewer.finished import Finished, Images, read_results
from scopereg.viewer.finished_show import FinishedShow


def run(options: ViewOptions) -> int:
    """The verb; it ends with Ctrl-C or SIGTERM, or when the page is written."""
    if not options.results:
        raise ScopeRegError("results are needed", where="scopereg view", fix="write scopereg view pose.json")
    for path in (*options.results, *options.data):
        if not path.exists():
            raise ScopeRegError("there is no such file or folder", where=str(path), fix="check the name")
    console = Console(soft_wrap=True, highlight=False, markup=False)
    results = read_results(options.results)
    images = Images(options.data, options.volume, **left_open(options))
    if options.save is not None:
        console.print(f"wrote   {_save(options.save, results, images)}")
        return 0
    show = FinishedShow(results, images)
    from scopereg.viewer.opening import open_page  # needs the web libraries

    asked = threading.Event()
    with open_page(options, show, console), interruptible(asked.set), terminable(asked.set):
        console.print(f"{len(results)} result{'s' * (len(results) > 1)}; Ctrl-C ends it")
        while not asked.wait(0.2):
            pass
    return 0


def _save(path: Path, results: list[Finished], images: Images) -> Path:
    from scopereg.viewer.page import write_page

    if path.suffix.lower() not in (".html", ".htm"):
        raise ScopeRegError(f"unknown ending {path.suffix!r}", where=f"--save {path}", fix="use .html")
    opened = [result.open(images) for result in results]
    return write_page(path, opened, names=[result.name for result in results])
