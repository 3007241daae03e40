"""Runner: a method over the cases of a fold, one CSV row per frame; interrupted runs go on where they stopped."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from scopereg.data.examples import CaseExamples, case_examples
from scopereg.data.frames import Protocol
from scopereg.data.poses import FRAMES_PER_CASE
from scopereg.data.splits import Split
from scopereg.data.store import VolumeSet
from scopereg.errors import ScopeRegError
from scopereg.evaluation.metrics import frame_metrics
from scopereg.evaluation.results import COLUMNS, FrameResult, parse_row, pose_of, read_results, write_results
from scopereg.evaluation.source import KEY, Source
from scopereg.geometry import VoxelPoses, mtre_mm
from scopereg.images import Frame, Volume, pose_to_voxels
from scopereg.io.files import output_folder, sheet_text
from scopereg.provenance import provenance
from scopereg.registration.locator import Locator
from scopereg.registration.method import Method
from scopereg.registration.prepared import Found
from scopereg.registration.result import Result
from scopereg.threads import watched

Part = Literal["test", "validation", "train"]
Progress = Callable[[int, int], None]  # called with what is done and what there is in all
_METRICS = {  # columns of a row, and what `frame_metrics` calls them
    "mtre_mm": "mtre_mm",
    "translation_mm": "trans_err_mm",
    "rotation_deg": "rot_err_deg",
    "geodesic_deg": "geodesic_deg",
    "dice": "dice",
    "hd95_mm": "hd95_mm",
    "ncc": "ncc",
    "ssim": "ssim",
}
LOCATED_AS = "shipped"  # by `Locator`, as `register` does; rows of the time before that do not say so


@dataclass(frozen=True)
class EvaluateSettings:
    """Settings of an evaluation, besides the data and the method."""

    protocol: Protocol | Literal["real"] = "honest"  # real: frames of a tracked sweep
    magnitude: float = 10.0
    fold: int = 0
    part: Part = "test"
    frames: int = FRAMES_PER_CASE
    seed: int = 0
    cases: int | None = None  # the first so many; None is all


@watched()
def evaluate(
    volumes: VolumeSet,
    split: Split,
    method: Method,
    settings: EvaluateSettings,
    folder: Path | str,
    *,
    source: Source | None = None,
    progress: Progress | None = None,
) -> Path:
    """The file with one row per frame of the part; a whole file there that was made alike is left as it is.

    Rows are kept case by case in a journal beside it, so that nothing is lost when the run is killed. `source` tells
    reports where the images are.
    """
    facts = run_facts(volumes.sha256(), method, settings, split.sha256(volumes.patients))
    facts["data"] = _data_facts(volumes)

    def case(row: int) -> list[FrameResult]:
        assert settings.protocol != "real"  # such frames come from a sweep, see `sweeps`
        examples = case_examples(
            volumes, row, settings.protocol, settings.magnitude, seed=settings.seed, frames=settings.frames
        )
        origin = Origin(volumes.name, volumes.cases[row], volumes.patients[row], volumes.spacing_mm)
        answers = locate_case(method, examples, volumes.spacing_mm)
        return case_rows(origin, method.name, settings, examples, answers)

    rows = getattr(split, settings.part)[: settings.cases]
    work = {volumes.cases[row]: partial(case, row) for row in rows}
    return collect(
        output_folder(folder) / file_name(volumes.name, method.name, settings), facts, work, progress, source
    )


def collect(
    path: Path,
    facts: dict[str, Any],
    work: Mapping[str, Callable[[], list[FrameResult]]],
    progress: Progress | None,
    source: Source | None = None,
) -> Path:
    """The rows of all cases in one file; `work` makes those of a case by its name."""
    if path.exists():
        _check_same(read_results(path)[1], facts, path)
        return path
    journal = RowJournal(path.with_suffix(".journal"), facts)
    for done, (case, make) in enumerate(work.items(), start=1):
        if case not in journal.cases:
            journal.add(make())
        if progress is not None:
            progress(done, len(work))
    made = provenance(seed=facts["settings"]["seed"], data_sha256=facts["data_sha256"])
    told = {} if source is None else {KEY: source.facts()}
    write_results(path, journal.rows, {**made, **facts, **told})
    journal.path.unlink()
    return path


def file_name(dataset: str, method: str, settings: EvaluateSettings) -> str:
    """Name of a results file, unlike that of any other run."""
    part = "" if settings.part == "test" else f"-{settings.part}"
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in method)
    return f"{dataset}-fold{settings.fold}-pm{settings.magnitude:g}-{settings.protocol}{part}-{safe}.csv"


class Origin(NamedTuple):
    """Origin of the frames of a case."""

    dataset: str
    case: str
    patient: str
    spacing_mm: float


class RowJournal:
    """Rows of an unfinished run, appended case by case; half a line at the end is forgotten."""

    def __init__(self, path: Path, facts: dict[str, Any]) -> None:
        self.path, self.rows = path, list[FrameResult]()
        if not path.exists():
            path.write_text(json.dumps(facts, sort_keys=True) + "\n", encoding="utf-8")
            return
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        whole = [line for line in lines if line.endswith("\n")]
        _check_same(json.loads(whole[0]) if whole else {}, facts, path)
        cases = [list(csv.DictReader(json.loads(line), COLUMNS)) for line in whole[1:]]
        self.rows = [parse_row(values, number, path) for number, rows in enumerate(cases, 2) for values in rows]
        if len(whole) < len(lines):
            path.write_text("".join(whole), encoding="utf-8")

    @property
    def cases(self) -> set[str]:
        """Cases that are done."""
        return {row.case for row in self.rows}

    def add(self, rows: Sequence[FrameResult]) -> None:
        """Keep the rows of one case: one line in the file, whole or forgotten."""
        text = sheet_text(map(asdict, rows), COLUMNS, header=False)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(text.splitlines()) + "\n")
        self.rows += rows


class Answers(NamedTuple):
    """Answers of a method for the frames of a case."""

    found: list[Found]
    judged: bool  # whether the method gives verdicts
    shared_ms: float = 0.0  # each frame's share in what was done for all of them, such as preparing the volume


def locate_case(method: Method, examples: CaseExamples, spacing_mm: float) -> Answers:
    """The frames of a case, all in one go, by what `scopereg.register` uses."""
    volume, frames = images_of(examples, spacing_mm)
    begin = time.perf_counter()
    locator = Locator(volume, method)
    found = locator.locate_all(frames)
    elapsed_ms = (time.perf_counter() - begin) * 1e3
    own_ms = sum(one.time_ms for one in found if isinstance(one, Result))
    return Answers(found, locator.prepared.judges, max(elapsed_ms - own_ms, 0.0) / len(frames))


def images_of(examples: CaseExamples, spacing_mm: float) -> tuple[Volume, list[Frame]]:
    """The volume and the frames of a case; both are centred."""
    frames = [Frame(image, spacing_mm=spacing_mm) for image in examples.frames.cpu()]
    return Volume(examples.volume.cpu(), spacing_mm), frames


def case_rows(
    origin: Origin, method: str, settings: EvaluateSettings, examples: CaseExamples, answers: Answers
) -> list[FrameResult]:
    """Rows of the frames of a case, numbered from 0; nothing is measured of those that were not located."""
    volume, frames = images_of(examples, origin.spacing_mm)
    middle = VoxelPoses.identity(len(frames))
    start_mm = mtre_mm(middle, examples.poses, frames[0].shape, origin.spacing_mm)
    placed = {
        row: pose_to_voxels(pose, frames[row], volume)
        for row, one in enumerate(answers.found)
        if (pose := pose_of(one)) is not None
    }
    measured = _measured(placed, examples, origin.spacing_mm)
    return [
        FrameResult.of(
            one,
            judged=answers.judged,
            shared_ms=answers.shared_ms,
            true=VoxelPoses(*(part[row] for part in examples.poses)),
            placed=placed.get(row),
            measured=measured.get(row, {}),
            dataset=origin.dataset,
            protocol=settings.protocol,
            magnitude=settings.magnitude,
            fold=settings.fold,
            method=method,
            case=origin.case,
            patient=origin.patient,
            frame=row,
            start_mm=float(start_mm[row]),
        )
        for row, one in enumerate(answers.found)
    ]


def _measured(placed: dict[int, VoxelPoses], examples: CaseExamples, spacing_mm: float) -> dict[int, dict[str, float]]:
    """The metrics of the frames that have a pose."""
    if not placed:
        return {}
    rows = list(placed)
    columns = frame_metrics(
        VoxelPoses(*(torch.stack(parts) for parts in zip(*placed.values(), strict=True))),
        VoxelPoses(*(part[rows] for part in examples.poses)),
        volume=examples.volume,
        frames=examples.frames[rows],
        spacing_mm=spacing_mm,
        labels=examples.labels,
    )
    known = {name: columns[metric] for name, metric in _METRICS.items() if metric in columns}
    return {row: {name: float(column[place]) for name, column in known.items()} for place, row in enumerate(rows)}


def run_facts(data_sha256: str, method: Method, settings: EvaluateSettings, split: str) -> dict[str, Any]:
    """Facts that must be equal for rows to belong together."""
    facts = {
        "located_as": LOCATED_AS,
        "settings": asdict(settings),
        "method": method.name,
        "method_facts": method.facts,
        "split": split,
        "data_sha256": data_sha256,
    }
    content: dict[str, Any] = json.loads(json.dumps(facts))  # as a file gives it back
    return content


def _data_facts(volumes: VolumeSet) -> dict[str, Any]:
    """Facts of the volumes; enough to make phantoms again for a report."""
    made = volumes.facts if volumes.facts.get("dataset") == "phantom" else None
    facts = {"name": volumes.name, "shape": volumes.shape, "spacing_mm": volumes.spacing_mm, "phantoms": made}
    content: dict[str, Any] = json.loads(json.dumps(facts))
    return content


def _check_same(found: dict[str, Any], wanted: dict[str, Any], path: Path) -> None:
    changed = [key for key, value in wanted.items() if found.get(key) != value]
    if changed:
        raise ScopeRegError(
            f"the results there were made with another {' and '.join(changed)}",
            where=str(path),
            fix="choose another folder (output=), or remove the file to make it again",
        )
