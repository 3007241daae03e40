"""`scopereg data check`: what a folder of data holds, what is wrong with it, and how to train on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from scopereg.commands.data_prepare import PrepareOptions
from scopereg.commands.flags import in_flags
from scopereg.commands.output import tell
from scopereg.commands.shared import Positional
from scopereg.cores import usable_cores
from scopereg.data.registry import DATASETS
from scopereg.errors import ScopeRegError
from scopereg.progress import counting
from scopereg.training.settings import TrainSettings

if TYPE_CHECKING:
    from scopereg.data.check import Report
    from scopereg.data.fingerprint import FileFacts
    from scopereg.data.proposal import Proposal

_MOST_ROWS = 20
_TITLES = {
    "folder": "a folder of volumes",
    "prepared": "a prepared set",
    "unfinished": "a set whose preparation was interrupted",
    "unknown": "nothing that is known",
}


@dataclass(frozen=True)
class CheckOptions:
    """Tell what data a folder holds, what is wrong with them and how to train on them; status 1 if anything is wrong.

    For volumes of your own, CAMUS or mu-RegPro as published, or a prepared set.
    """

    path: Positional[Path | None] = None
    """Folder to look at."""
    full: bool = False
    """Read the voxels of every file; by default headers, and voxels of 50 images at most."""
    workers: int | None = None
    """Processes that read files; by default one for each processor core."""


def run(options: CheckOptions) -> int:
    """Look at the folder, print; 1 if anything is wrong."""
    from scopereg.data.cases import existing_folder
    from scopereg.data.check import look_at
    from scopereg.data.proposal import Usual

    usual = Usual(TrainSettings.magnitude, TrainSettings.batch, TrainSettings.frames_per_volume)
    if options.path is None:
        raise ScopeRegError("no folder is given", where="data check", fix="name one: scopereg data check FOLDER")
    path = existing_folder(options.path)
    with counting("reading") as progress:
        workers = options.workers or usable_cores()
        report = look_at(path, usual, full=options.full, workers=workers, progress=progress)
    tell(ok=not report.problems, **asdict(report), commands=_commands(report))
    _show(report, Console())
    return 1 if report.problems else 0


def _show(report: Report, console: Console) -> None:
    console.print(f"[bold]{escape(report.path)}: {_title(report.layout)}[/]", soft_wrap=True, highlight=False)
    table = Table(show_header=False)
    if report.cases:
        table.add_row("cases", f"{report.cases} of {report.patients} patients")
    rows = _rows if report.files else _set_rows
    for key, value in rows(report.summary):
        table.add_row(key, escape(value))
    if table.row_count:
        console.print(table)
    if (files := _file_table(report.files)).row_count:
        console.print(files)
    for remark in report.remarks[:_MOST_ROWS]:
        console.print(f"[yellow]remark[/]  {escape(remark)}", soft_wrap=True)
    for where, what in report.problems[:_MOST_ROWS]:
        console.print(f"[red]problem[/] {escape(where)}: {escape(what)}", soft_wrap=True)
    more = max(0, len(report.problems) - _MOST_ROWS)
    count = len(report.problems)
    words = f"{count} problem{'s' if count > 1 else ''}" + (f", {more} more with --json" if more else "")
    console.print(f"[red]{words}[/]" if report.problems else "[green]no problems[/]")
    if report.proposal is not None:
        _show_proposal(report, console)


def _title(layout: str) -> str:
    return _TITLES.get(layout) or f"{DATASETS[layout].title or layout} as published"


def _rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Lines of the summary table of files."""
    rows = [("size", f"{summary['bytes'] / 1e6:.0f} MB")]
    for title in ("images", "labels"):
        part = summary[title]
        if not part["files"]:
            rows.append((title, "none"))
            continue
        rows.append((title, str(part["files"])))
        rows += [(f"  {key}", _distinct(part[key])) for key in ("shape", "spacing_mm", "orientation", "numbers")]
        if part["read"]:
            rows.append(("  values", f"{part['lowest']:g} to {part['highest']:g}, in {part['read']} files"))
    return [(key.replace("_mm", ", mm"), value) for key, value in rows]


def _set_rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Lines of the summary table of a prepared set."""
    if not summary:
        return []
    grid = f"{' x '.join(map(str, summary['shape']))} at {summary['spacing_mm']:g} mm"
    rows = [("name", summary["name"]), ("volumes", grid), ("margin", " x ".join(map(str, summary["margin"])))]
    labels = summary["labels"]
    rows.append(("labels", "none" if labels is None else "yes" if labels is True else ", ".join(labels)))
    shown = {"name", "shape", "spacing_mm", "margin", "labels", "classes"}
    own = {key: value for key, value in summary["parameters"].items() if key not in shown and value is not None}
    words = [f"{key} {' '.join(map(str, value)) if isinstance(value, list) else value}" for key, value in own.items()]
    rows.append(("prepared with", ", ".join(words)))
    if summary["splits"]:
        rows.append(("folds", "\n".join(summary["splits"]["rules"])))
    if poses := summary["evaluation_poses"]:
        sizes = ", ".join(key.removeprefix("pm") for key in poses["sha256"])
        rows.append(("evaluation poses", f"{poses['frames']} of each volume at +-{sizes}"))
    return rows


def _distinct(counts: dict[str, int], most: int = 4) -> str:
    """Values with how many files have them, the most common of many."""
    shown = [f"{value} ({count})" for value, count in list(counts.items())[:most]]
    return "\n".join([*shown, *([f"{len(counts) - most} others"] if len(counts) > most else [])])


def _file_table(files: Sequence[FileFacts]) -> Table:
    """Every file if they are few, else those with a problem."""
    shown = list(files) if len(files) <= _MOST_ROWS else [facts for facts in files if facts.problem][:_MOST_ROWS]
    left = len(files) - len(shown)
    table = Table(caption=f"{left} files more with --json" if left else None)
    table.add_column("file", overflow="fold")
    for title in ("shape", "mm", "axes", "values"):
        table.add_column(title)
    for facts in shown:
        values = "" if facts.lowest is None else f"{facts.lowest:g} to {facts.highest:g}"
        spacing = " x ".join(f"{s:.3g}" for s in facts.spacing_mm)
        table.add_row(escape(facts.file), " x ".join(map(str, facts.shape)), spacing, facts.orientation, values)
    return table


def _show_proposal(report: Report, console: Console) -> None:
    proposal = report.proposal
    assert proposal is not None
    table = Table("to train with", "", "by which rule")
    values = {
        "shape": " x ".join(map(str, proposal.shape)),
        "spacing_mm": f"{proposal.spacing_mm:g} mm",
        "magnitude": f"{proposal.magnitude:g} voxels, degrees",
        "batch": f"{proposal.batch} frames",
    }
    for key, value in values.items():
        table.add_row(key.removesuffix("_mm"), value, in_flags(proposal.rules[key], PrepareOptions))
    console.print(table)
    for command in _commands(report):
        console.print(f"  {escape(command)}", soft_wrap=True, highlight=False)


def _commands(report: Report) -> list[str]:
    """Commands to type next."""
    proposal = report.proposal
    if proposal is None:
        return []
    if report.layout == "prepared":
        name = report.summary["name"]
        return [_train_command(name if name in DATASETS else "folder", proposal, report.path)]
    grid = f" --shape {' '.join(map(str, proposal.shape))} --voxel-mm {proposal.spacing_mm:g}"
    own = grid if report.layout == "folder" else ""
    skip = " --skip-bad" if report.problems else ""
    prepare = f"scopereg data prepare {report.layout} {report.path}{own}{skip} -o PREPARED"
    return [prepare, _train_command(report.layout, proposal, "PREPARED")]


def _train_command(layout: str, proposal: Proposal, data: str) -> str:
    return f"scopereg train {layout} --data {data} --magnitude {proposal.magnitude:g} --batch {proposal.batch}"
