"""Builder: the one way from the cases of a dataset to a set, in memory or on disk.

On disk it is made case by case in several processes, and gone on with where it was left; memory does not grow with
the cases.
"""

from __future__ import annotations

import json
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from scopereg import __version__
from scopereg.cores import usable_cores
from scopereg.data.cases import (
    CaseFiles,
    CaseRecord,
    Outcome,
    Progress,
    SetPlan,
    load_case,
    rows_of,
    settle,
    source_hashes,
)
from scopereg.data.journal import NAME as JOURNAL
from scopereg.data.journal import BusyError, Journal, check_same
from scopereg.data.poses import write_poses
from scopereg.data.rows import Job, RowFiles, Task, record_of
from scopereg.data.splits import Folds, folds_sha256, make_folds, published_folds, read_folds, write_folds
from scopereg.data.store import MANIFEST, VolumeSet, open_set, read_manifest, write_manifest
from scopereg.data.workers import in_parallel
from scopereg.errors import ScopeRegError, listed
from scopereg.io.files import output_folder

SPLITS = "splits.json"
POSES = "poses.npz"
_ARRAYS = ("images", "labels")
_FEW = 64  # cases below which starting processes takes longer than the work
_ANEW = "use another folder (output=), or start again (fresh=True; or remove it)"


def build_set(
    plan: SetPlan,
    folder: Path | str | None = None,
    *,
    workers: int | None = None,
    skip_bad: bool = False,
    fresh: bool = False,
    splits: Path | None = None,
    protocol: bool = True,
    progress: Progress | None = None,
) -> VolumeSet:
    """The set of a plan: in memory, or written into a folder and opened there.

    What an earlier call finished in that folder is kept if it was made with the same parameters from the same files,
    and an error if not, unless the set shall be made `fresh`. All bad cases are named in one error after the others are
    done; with `skip_bad` they are left out and named in the facts. `splits` is a file with folds of one's own.

    `protocol` stores folds and evaluation poses with the set. Without it, as for the set of a single run, folds are
    the publishers' or left to the seed of the run; and where another process makes the same set, it is waited for.

    In memory the first bad case ends it, unless it may be skipped: nothing would be kept.
    """
    if folder is None:
        return _in_memory(plan, skip_bad, progress)
    folder = output_folder(folder)
    workers = workers or (usable_cores() if len(plan.cases) >= _FEW else 1)
    patients = [case.patient for case in plan.cases]
    given = None if splits is None else read_folds(splits, patients, may_name_others=skip_bad)
    making = parameters(plan, given) | {"folds_and_poses": None if protocol else False}
    while True:
        if (folder / MANIFEST).is_file() and not fresh:
            _check_finished(plan, folder, making, workers)
            return open_set(folder, verify=False)
        try:
            _make(plan, folder, making, workers, skip_bad, fresh, splits, progress)
            return open_set(folder, verify=False)
        except BusyError:
            if protocol:
                raise
            time.sleep(1)
        except OSError as error:
            raise ScopeRegError(
                f"cannot write there: {error.strerror or error}",
                where=str(folder),
                fix="make room or choose another folder (output=); what is finished is kept, and the same command "
                "goes on",
            ) from error


def _make(
    plan: SetPlan,
    folder: Path,
    making: dict[str, Any],
    workers: int,
    skip_bad: bool,
    fresh: bool,
    splits: Path | None,
    progress: Progress | None,
) -> None:
    count, *shape = plan.array_shape
    rows = RowFiles(folder, _ARRAYS[: 1 + plan.labelled], count, tuple(shape))
    with Journal.open(folder, {**making, "cases": [case.name for case in plan.cases]}, fresh=fresh) as journal:
        if fresh:
            _remove_set(folder)
        elif (folder / MANIFEST).is_file():  # another process was faster
            journal.remove()
            return
        rows.open(resumed=bool(journal.entries))
        job = Job(plan.load, plan.root, rows, plan.volumes_per_case)
        records, bad = _work(plan, job, journal, workers, progress)
        if len(bad) == 1 and not skip_bad:
            (error,) = bad.values()
            raise ScopeRegError(error.what, where=error.where, fix=f"{error.fix}; or leave it out (skip_bad=True)")
        outcome = settle(plan, records, {name: error.what for name, error in bad.items()}, skip_bad)
        given = None if splits is None else read_folds(splits, outcome.patients, may_name_others=skip_bad)
        _finish(plan, outcome, rows, making, given)
        journal.remove()
        rows.remove()


def _in_memory(plan: SetPlan, skip_bad: bool, progress: Progress | None) -> VolumeSet:
    arrays = {name: np.empty(plan.array_shape, np.uint8) for name in _ARRAYS[: 1 + plan.labelled]}
    records: dict[str, CaseRecord] = {}
    bad: dict[str, str] = {}
    for done, case in enumerate(plan.cases):
        try:
            volumes, record = load_case(plan, case)
        except ScopeRegError as error:
            if not skip_bad:
                raise
            bad[case.name] = error.what
        else:
            for row, volume in enumerate(volumes, len(records) * plan.volumes_per_case):
                arrays["images"][row] = volume.image
                if volume.labels is not None:
                    arrays["labels"][row] = volume.labels
            records[case.name] = record
        if progress is not None:
            progress(done + 1, len(plan.cases))
    outcome = settle(plan, records, bad, skip_bad)
    rows = rows_of(list(records), outcome, plan.volumes_per_case)
    for array in arrays.values():
        for target, source in enumerate(rows):  # in place: no volume is held twice
            if target != source:
                array[target] = array[source]
    images, labels = (torch.from_numpy(arrays[name][: len(rows)]) if name in arrays else None for name in _ARRAYS)
    assert images is not None
    return VolumeSet(
        name=plan.name,
        images=images,
        labels=labels,
        spacing_mm=plan.spacing_mm,
        cases=outcome.volumes,
        patients=outcome.patients,
        margin=plan.margin,
        facts=outcome.facts | _folds_of_publishers(plan, outcome),
    )


def _folds_of_publishers(plan: SetPlan, outcome: Outcome) -> dict[str, Any]:
    folds = published_folds(outcome.patients, plan.split)
    return {} if folds is None else {"folds": folds}


def parameters(plan: SetPlan, given: Folds | None = None) -> dict[str, Any]:
    """Parameters that decide a prepared set besides its files."""
    values = {
        **plan.facts,
        "scopereg": __version__,
        "name": plan.name,
        "spacing_mm": plan.spacing_mm,
        "shape": plan.shape,
        "margin": plan.margin,
        "labels": plan.labelled,
        "any_orientation": plan.orientation is None,
        "folds": None if given is None else folds_sha256(given),
    }
    return dict(json.loads(json.dumps(values)))


def _work(
    plan: SetPlan, job: Job, journal: Journal, workers: int, progress: Progress | None
) -> tuple[dict[str, CaseRecord], dict[str, ScopeRegError]]:
    """Outcome of every case, good or bad."""
    records = {entry["name"]: record_of(entry) for entry in _still_good(plan, job, journal, workers)}
    left = [Task(place, case) for place, case in enumerate(plan.cases) if case.name not in records]
    bad = {}
    with closing(in_parallel(job.write_case, left, workers)) as results:  # no worker goes on after an error here
        for done, (task, result) in enumerate(results, len(records) + 1):
            if result.error is not None:
                bad[task.case.name] = result.error
            elif result.entry is not None:
                journal.add(result.entry)
                records[task.case.name] = record_of(result.entry)
            if progress is not None:
                progress(done, len(plan.cases))
    return records, {case.name: bad[case.name] for case in plan.cases if case.name in bad}


def _still_good(plan: SetPlan, job: Job, journal: Journal, workers: int) -> list[dict[str, Any]]:
    """Entries of the journal whose rows can stay; an error if their files have changed since."""
    tasks = [Task(place, case) for place, case in enumerate(plan.cases) if case.name in journal.entries]
    entries = {task: journal.entries[task.case.name] for task in tasks}
    states = {task.case.name: state for (task, _), state in in_parallel(job.state, list(entries.items()), workers)}
    changed = [case.name for case in plan.cases if states.get(case.name) == "changed"]
    if changed:
        raise ScopeRegError(
            f"the files of {len(changed)} of {len(entries)} finished cases have changed since: {listed(changed)}",
            where=str(plan.root),
            fix=_ANEW,
        )
    return [entry for task, entry in entries.items() if states[task.case.name] == "good"]


def _finish(plan: SetPlan, outcome: Outcome, rows: RowFiles, making: dict[str, Any], given: Folds | None) -> None:
    """Folds, poses, arrays, and last the manifest, which makes the folder a set."""
    folder, patients = rows.folder, outcome.patients
    facts = {**outcome.facts, "parameters": making}
    if making["folds_and_poses"] is False:
        facts |= _folds_of_publishers(plan, outcome)
    else:
        folds = make_folds(plan.name, patients, given, plan.split)
        stored_folds = write_folds(folder / SPLITS, folds, patients)
        facts |= {
            "folds": stored_folds,
            "splits": {"file": SPLITS, "sha256": folds_sha256(stored_folds), "rules": [fold.rule for fold in folds]},
            "evaluation_poses": write_poses(folder / POSES, outcome.volumes, plan.shape),
        }
    stored = rows.finish(rows_of([case.name for case in plan.cases], outcome, plan.volumes_per_case))
    write_manifest(
        folder,
        name=plan.name,
        spacing_mm=plan.spacing_mm,
        margin=plan.margin,
        cases=outcome.volumes,
        patients=patients,
        arrays=stored,
        facts=facts,
    )


def _check_finished(plan: SetPlan, folder: Path, making: dict[str, Any], workers: int) -> None:
    """An error unless the set in a folder is just what would be made."""
    facts = read_manifest(folder)["facts"]
    if "parameters" not in facts:
        raise ScopeRegError("there is a set there that was stored otherwise", where=str(folder), fix=_ANEW)
    check_same(facts["parameters"], making, folder)
    cases = [case for case in plan.cases if case.name not in facts["skipped"]]
    now: dict[str, str] = {}
    for _, hashes in in_parallel(partial(_hashes, root=plan.root), cases, workers):
        now |= hashes
    before = facts["sources_sha256"]
    differing = sorted(name for name in now.keys() | before.keys() if now.get(name) != before.get(name))
    if differing:
        raise ScopeRegError(
            f"{len(differing)} files have changed since this set was prepared: {listed(differing)}",
            where=str(folder),
            fix=_ANEW,
        )
    _remove_parts(folder)


def _hashes(case: CaseFiles, root: Path) -> dict[str, str]:
    try:
        return source_hashes(case, root)
    except ScopeRegError:
        return {}


def _remove_set(folder: Path) -> None:
    for name in (MANIFEST, SPLITS, POSES, "images.npy", "labels.npy", "images.npy.part", "labels.npy.part"):
        (folder / name).unlink(missing_ok=True)


def _remove_parts(folder: Path) -> None:
    """Remove what is left if the very end was interrupted."""
    for name in (JOURNAL, "images.npy.part", "labels.npy.part"):
        (folder / name).unlink(missing_ok=True)
