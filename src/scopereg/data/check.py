"""`scopereg data check`: what a folder of data holds, what is wrong with it, and how to train on it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from scopereg.data.cases import existing_folder
from scopereg.data.fingerprint import FileFacts, Problem, survey
from scopereg.data.folder import FileGrid
from scopereg.data.folds import read_folds
from scopereg.data.journal import NAME as JOURNAL
from scopereg.data.journal import finished_cases
from scopereg.data.poses import read_poses
from scopereg.data.proposal import Proposal, propose, propose_for
from scopereg.data.store import MANIFEST, VolumeSet, open_set
from scopereg.data.workers import usable_cores
from scopereg.errors import ScopeRegError
from scopereg.options.data import CheckOptions
from scopereg.progress import counting

_MOST_ROWS = 20
_TITLES = {
    "camus": "CAMUS as published",
    "muregpro": "mu-RegPro as published",
    "folder": "a folder of volumes",
    "prepared": "a prepared set",
    "unfinished": "a set whose preparation was interrupted",
    "unknown": "nothing that is known",
}


@dataclass
class Report:
    """What is printed, as tables or as JSON."""

    path: str
    layout: str
    cases: int = 0
    patients: int = 0
    summary: dict[str, Any] = field(default_factory=dict)
    files: list[FileFacts] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    proposal: Proposal | None = None
    commands: list[str] = field(default_factory=list)


def run(options: CheckOptions) -> int:
    if options.path is None:
        raise ScopeRegError("no folder is given", where="data check", fix="name one: scopereg data check FOLDER")
    path = existing_folder(options.path)
    with counting("reading", quiet=options.json) as progress:
        report = look_at(path, full=options.full, workers=options.workers or usable_cores(), progress=progress)
    if options.json:
        print(json.dumps({"ok": not report.problems, **asdict(report)}, indent=1))
    else:
        _show(report, Console())
    return 1 if report.problems else 0


def look_at(path: Path, *, full: bool = False, workers: int = 1, progress: Any = None) -> Report:
    """Everything that is told of a folder."""
    if (path / MANIFEST).is_file():
        return _of_set(path)
    if (path / JOURNAL).is_file():
        done, total = finished_cases(path)
        words = f"{done} of {total} cases are done: run the same scopereg data prepare again to go on"
        return Report(str(path), "unfinished", problems=[(path.name, words)])
    try:
        tree = survey(path, full=full, workers=workers, progress=progress)
    except ScopeRegError as error:
        return Report(str(path), "unknown", problems=[(error.where, f"{error.what}; {error.fix}")])
    report = Report(str(path), tree.layout, len(tree.cases), len({case.patient for case in tree.cases}))
    report.summary = _summary(tree.files)
    report.files, report.problems, report.remarks = list(tree.files), list(tree.problems), list(tree.remarks)
    grids = [grid for facts in tree.files if (grid := _grid(facts)) is not None]
    if grids:
        report.proposal = propose(tree.layout, grids)
        report.commands = _commands(tree.layout, path, report.proposal, bool(tree.problems))
    return report


def _grid(facts: FileFacts) -> FileGrid | None:
    """The grid of an image that is good."""
    if facts.role != "image" or facts.problem or len(facts.shape) < 3:
        return None
    (z, y, x), (z_mm, y_mm, x_mm) = facts.shape[-3:], facts.spacing_mm[-3:]
    return FileGrid((z, y, x), (z_mm, y_mm, x_mm))


def _summary(files: Sequence[FileFacts]) -> dict[str, Any]:
    """Distinct values with how many files have them, and ranges."""
    summary: dict[str, Any] = {"bytes": sum(facts.bytes for facts in files)}
    for role, title in (("image", "images"), ("labels", "labels")):
        of_role = [facts for facts in files if facts.role == role]
        read = [facts for facts in of_role if facts.lowest is not None and facts.highest is not None]
        summary[title] = {
            "files": len(of_role),
            "shape": _counted(" x ".join(map(str, facts.shape)) for facts in of_role if facts.shape),
            "spacing_mm": _counted(" x ".join(f"{s:g}" for s in facts.spacing_mm) for facts in of_role if facts.shape),
            "orientation": _counted(facts.orientation for facts in of_role if facts.orientation),
            "numbers": _counted(facts.numbers for facts in of_role if facts.numbers),
            "read": len(read),
            "lowest": min((facts.lowest for facts in read if facts.lowest is not None), default=None),
            "highest": max((facts.highest for facts in read if facts.highest is not None), default=None),
        }
    return summary


def _counted(values: Iterable[str]) -> dict[str, int]:
    return dict(Counter(values).most_common())


def _commands(layout: str, path: Path, proposal: Proposal, bad: bool) -> list[str]:
    grid = f" --shape {' '.join(map(str, proposal.shape))} --spacing-mm {proposal.spacing_mm:g}"
    own = grid if layout == "folder" else ""
    skip = " --skip-bad" if bad else ""
    return [f"scopereg data prepare {layout} {path}{own}{skip} -o PREPARED", _train_command(layout, proposal)]


def _train_command(layout: str, proposal: Proposal, data: str = "PREPARED") -> str:
    return f"scopereg train {layout} --data {data} --magnitude {proposal.magnitude:g} --batch {proposal.batch}"


def _of_set(path: Path) -> Report:
    """A prepared set: every byte is read and compared with the hashes in its manifest."""
    report = Report(str(path), "prepared")
    try:
        volumes = open_set(path)
    except ScopeRegError as error:
        report.problems.append((error.where, f"{error.what}; {error.fix}"))
        return report
    facts = volumes.facts
    report.cases, report.patients = len(volumes), len(set(volumes.patients))
    report.summary = {
        "name": volumes.name,
        "shape": list(volumes.shape),
        "margin": list(volumes.margin),
        "spacing_mm": volumes.spacing_mm,
        "labels": facts.get("classes", True) if volumes.labels is not None else None,
        "parameters": facts.get("parameters", {}),
        "splits": facts.get("splits"),
        "evaluation_poses": facts.get("evaluation_poses"),
    }
    report.remarks += [f"{word}: {len(names)} volumes" for word, names in facts.get("notes", {}).items()]
    report.remarks += [f"left out: {name} ({reason})" for name, reason in facts.get("skipped", {}).items()]
    report.problems += _companion_problems(path, volumes)
    report.proposal = propose_for(volumes.shape, volumes.spacing_mm)
    known = volumes.name if volumes.name in ("camus", "muregpro") else "folder"
    report.commands = [_train_command(known, report.proposal, str(path))]
    return report


def _companion_problems(path: Path, volumes: VolumeSet) -> list[Problem]:
    """What is wrong with the folds and the evaluation poses beside a set."""
    problems = []
    for name, check in (("splits", _check_splits), ("evaluation_poses", _check_poses)):
        facts = volumes.facts.get(name)
        if facts is not None:
            try:
                check(path / facts["file"], facts, volumes)
            except ScopeRegError as error:
                problems.append((facts["file"], error.what))
    return problems


def _check_splits(path: Path, facts: dict[str, Any], volumes: VolumeSet) -> None:
    read_folds(path, volumes.patients)
    if json.loads(path.read_text(encoding="utf-8")).get("sha256") != facts["sha256"]:
        raise ScopeRegError("it is not the file that was written", where=str(path), fix="prepare the data again")


def _check_poses(path: Path, facts: dict[str, Any], volumes: VolumeSet) -> None:
    for key in facts["sha256"]:
        read_poses(path, facts, float(key.removeprefix("pm")))


def _show(report: Report, console: Console) -> None:
    console.print(f"[bold]{escape(report.path)}: {_TITLES[report.layout]}[/]", soft_wrap=True, highlight=False)
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
        table.add_row(key.removesuffix("_mm"), value, proposal.rules[key])
    console.print(table)
    for command in report.commands:
        console.print(f"  {escape(command)}", soft_wrap=True, highlight=False)
