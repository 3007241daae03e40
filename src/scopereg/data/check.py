"""Check: what a folder of data holds, what is wrong with it, and how to train on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scopereg.data.fingerprint import FileFacts, Problem, survey
from scopereg.data.folder import FileGrid
from scopereg.data.journal import NAME as JOURNAL
from scopereg.data.journal import finished_cases
from scopereg.data.poses import read_poses
from scopereg.data.proposal import Proposal, Usual, propose, propose_for
from scopereg.data.splits import folds_sha256, read_folds, read_stored_folds
from scopereg.data.store import MANIFEST, VolumeSet, open_set
from scopereg.errors import ScopeRegError


@dataclass
class Report:
    """Findings about a folder."""

    path: str
    layout: str
    cases: int = 0
    patients: int = 0
    summary: dict[str, Any] = field(default_factory=dict)
    files: list[FileFacts] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    proposal: Proposal | None = None


def look_at(path: Path, usual: Usual, *, full: bool = False, workers: int = 1, progress: Any = None) -> Report:
    """Everything that is told of a folder; what to train it with is proposed from what is `usual`."""
    if (path / MANIFEST).is_file():
        return _of_set(path, usual)
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
        report.proposal = propose(tree.layout, grids, usual)
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


def _of_set(path: Path, usual: Usual) -> Report:
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
    report.proposal = propose_for(volumes.shape, volumes.spacing_mm, usual)
    return report


def _companion_problems(path: Path, volumes: VolumeSet) -> list[Problem]:
    """Problems of the folds and the evaluation poses beside a set."""
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
    if folds_sha256(read_stored_folds(path)) != facts["sha256"]:
        raise ScopeRegError("it is not the file that was written", where=str(path), fix="prepare the data again")


def _check_poses(path: Path, facts: dict[str, Any], volumes: VolumeSet) -> None:
    for key in facts["sha256"]:
        read_poses(path, facts, float(key.removeprefix("pm")), len(volumes))
