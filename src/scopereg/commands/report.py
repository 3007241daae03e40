"""`scopereg report`: one HTML page about results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from scopereg.commands.flags import in_flags
from scopereg.commands.output import tell
from scopereg.commands.shared import DatasetName, File, Intersect, Positional, Reference, WithPublished
from scopereg.data.registry import check_dataset
from scopereg.errors import ScopeRegError
from scopereg.io.files import output_folder


@dataclass(frozen=True)
class ReportOptions:
    """Write one HTML page about results: tables, tests, charts, pictures of frames, failures and provenance.

    The page opens anywhere, needs no network and prints well. Pictures are made of the images that the evaluation read,
    if they are still there. Where results tell them, it shows confidence against error, frames before and after
    adaptation, and sweeps.
    """

    results: Positional[tuple[Path, ...]] = ()
    """Files that scopereg evaluate wrote, track.csv of scopereg track, or folders of them."""
    output: File = Path("report.html")
    """File to write."""
    pictures: bool = True
    """Show frames; phantoms are made again for that, everything else is read again, cut and checked."""
    dataset: DatasetName | None = None
    """What --data holds, where the results are of several datasets."""
    data: Path | None = None
    """Folder of the dataset as published, or a prepared set, if it lies elsewhere than it did."""
    reference: Reference = None
    magnitude: float | None = None
    """Magnitude that charts and pictures show; by default 10, or the nearest that the results have."""
    intersect: Intersect = False
    with_published: WithPublished = False


def run(options: ReportOptions) -> int:
    """The verb: read, check, write one file."""
    from scopereg.report.results_page import report_of

    if options.output.suffix.lower() not in (".html", ".htm"):
        raise ScopeRegError(
            "a report is one file that ends in .html", where=f"--output {options.output}", fix="name it so"
        )
    if options.dataset is not None:
        check_dataset(options.dataset, "--dataset")
    output_folder(options.output.parent)
    report = report_of(
        options.results,
        dataset=options.dataset,
        data=options.data,
        pictures=options.pictures,
        reference=options.reference,
        magnitude=options.magnitude,
        intersect=options.intersect,
        with_published=options.with_published,
        words=lambda text: in_flags(text, ReportOptions),
    )
    path = report.save(options.output)
    tell(page=path)
    Console().print(f"report: {path}", soft_wrap=True, markup=False)
    return 0
