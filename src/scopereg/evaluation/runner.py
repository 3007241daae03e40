"""Runner: a method over the cases of a fold, one CSV row per frame; interrupted runs go on where they stopped."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from scopereg.data.examples import CaseExamples, case_examples
from scopereg.data.frames import Protocol
from scopereg.data.poses import FRAMES_PER_CASE
from scopereg.data.splits import Split
from scopereg.data.store import VolumeSet
from scopereg.errors import ScopeRegError
from scopereg.evaluation.methods import Located, Method
from scopereg.evaluation.metrics import frame_metrics
from scopereg.evaluation.results import COLUMNS, FrameResult, parse_row, read_results, write_results
from scopereg.geometry import VoxelPoses, euler_deg_from_rotation, mtre_mm
from scopereg.io.files import output_folder
from scopereg.io.sheets import sheet_text
from scopereg.provenance import provenance

Part = Literal["test", "validation", "train"]
Progress = Callable[[int, int], None]  # called with what is done and what there is in all
_POSE = ("tx", "ty", "tz", "rx", "ry", "rz")


@dataclass(frozen=True)
class EvaluateSettings:
    """What is evaluated, besides the data and the method."""

    protocol: Protocol | Literal["real"] = "honest"  # real: frames of a tracked sweep
    magnitude: float = 10.0
    fold: int = 0
    part: Part = "test"
    frames: int = FRAMES_PER_CASE
    seed: int = 0
    cases: int | None = None  # the first so many; None is all


def evaluate(
    volumes: VolumeSet,
    split: Split,
    method: Method,
    settings: EvaluateSettings,
    folder: Path | str,
    *,
    progress: Progress | None = None,
) -> Path:
    """The file with one row per frame of the part; a whole file there that was made alike is left as it is.

    Rows are kept case by case in a journal beside it, so that nothing is lost when the run is killed.
    """
    facts = run_facts(volumes.sha256(), method, settings, split.sha256(volumes.patients))
    facts["data"] = _data_facts(volumes)

    def case(row: int) -> list[FrameResult]:
        assert settings.protocol != "real"  # such frames come from a sweep, see `sweeps`
        examples = case_examples(
            volumes, row, settings.protocol, settings.magnitude, seed=settings.seed, frames=settings.frames
        )
        found = method.locate(examples.frames, examples.volume, volumes.spacing_mm)
        origin = Origin(volumes.name, volumes.cases[row], volumes.patients[row], volumes.spacing_mm)
        return case_rows(origin, method.name, settings, examples, found)

    rows = getattr(split, settings.part)[: settings.cases]
    work = {volumes.cases[row]: partial(case, row) for row in rows}
    return collect(output_folder(folder) / file_name(volumes.name, method.name, settings), facts, work, progress)


def collect(
    path: Path, facts: dict[str, Any], work: Mapping[str, Callable[[], list[FrameResult]]], progress: Progress | None
) -> Path:
    """The rows of all cases in one file; `work` makes those of a case by its name."""
    if path.exists():
        _check_same(read_results(path)[1], facts, path)
        return path
    journal = Journal(path.with_suffix(".journal"), facts)
    for done, (case, make) in enumerate(work.items(), start=1):
        if case not in journal.cases:
            journal.add(make())
        if progress is not None:
            progress(done, len(work))
    made = provenance(seed=facts["settings"]["seed"], data_sha256=facts["data_sha256"])
    write_results(path, journal.rows, {**made, **facts})
    journal.path.unlink()
    return path


def file_name(dataset: str, method: str, settings: EvaluateSettings) -> str:
    """Name of a results file, unlike that of any other run."""
    part = "" if settings.part == "test" else f"-{settings.part}"
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in method)
    return f"{dataset}-fold{settings.fold}-pm{settings.magnitude:g}-{settings.protocol}{part}-{safe}.csv"


class Origin(NamedTuple):
    """Where the frames of a case come from."""

    dataset: str
    case: str
    patient: str
    spacing_mm: float


class Journal:
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


def case_rows(
    origin: Origin, method: str, settings: EvaluateSettings, examples: CaseExamples, found: Located
) -> list[FrameResult]:
    """Rows of the frames of a case, numbered from 0; nothing is measured of those that were not located."""
    columns = frame_metrics(
        found.anywhere(),
        examples.poses,
        volume=examples.volume,
        frames=examples.frames,
        spacing_mm=origin.spacing_mm,
        labels=examples.labels,
    )
    columns = {name: column.masked_fill(found.lost.to(column.device), torch.nan) for name, column in columns.items()}
    nothing = VoxelPoses(torch.eye(3).expand_as(found.poses.rotation), torch.zeros_like(found.poses.translation))
    height, width = examples.frames.shape[1:]
    start_mm = mtre_mm(nothing, examples.poses, (height, width), origin.spacing_mm)
    missing = torch.full_like(start_mm, torch.nan)
    true, guess = _numbers(examples.poses), _numbers(found.poses)
    return [
        FrameResult(
            dataset=origin.dataset,
            protocol=settings.protocol,
            magnitude=settings.magnitude,
            fold=settings.fold,
            method=method,
            case=origin.case,
            patient=origin.patient,
            frame=index,
            start_mm=_short(start_mm[index]),
            mtre_mm=_short(columns["mtre_mm"][index]),
            translation_mm=_short(columns["trans_err_mm"][index]),
            rotation_deg=_short(columns["rot_err_deg"][index]),
            geodesic_deg=_short(columns["geodesic_deg"][index]),
            dice=_short(columns.get("dice", missing)[index]),
            hd95_mm=_short(columns.get("hd95_mm", missing)[index]),
            ncc=_short(columns["ncc"][index]),
            ssim=_short(columns["ssim"][index]),
            confidence=_short(found.confidence[index]),
            time_ms=_short(found.time_ms[index]),
            **_pose_columns("true", true[index]),
            **_pose_columns("found", guess[index]),
            **_verdict(found, index),
            failure=" ".join(found.failures.get(index, "").split()),
        )
        for index in range(len(examples.frames))
    ]


def _pose_columns(kind: str, numbers: Tensor) -> dict[str, Any]:
    return {f"{kind}_{name}": _short(value) for name, value in zip(_POSE, numbers, strict=True)}


def _verdict(found: Located, index: int) -> dict[str, Any]:
    """What a calibrated network thinks of a frame's pose."""
    if found.verdicts is None:
        return {}
    verdict = found.verdicts[index]
    if verdict is None:
        return {"ok": "no"}
    numbers = {"expected_mm": _short(verdict.expected_mm), "bound_mm": _short(verdict.bound_mm)}
    return {**numbers, "ok": "yes" if verdict.ok else "no"}


def _numbers(poses: VoxelPoses) -> Tensor:
    """Poses as tx, ty, tz, rx, ry, rz (F, 6) in voxels and degrees."""
    return torch.cat([poses.translation, euler_deg_from_rotation(poses.rotation)], -1)


def _short(value: Tensor | float) -> float:
    """Six significant digits: more are noise, and files stay readable."""
    return float(f"{float(value):.6g}")


def run_facts(data_sha256: str, method: Method, settings: EvaluateSettings, split: str) -> dict[str, Any]:
    """What must be alike for rows to belong together."""
    facts = {
        "settings": asdict(settings),
        "method": method.name,
        "method_facts": method.facts,
        "split": split,
        "data_sha256": data_sha256,
    }
    content: dict[str, Any] = json.loads(json.dumps(facts))  # as a file gives it back
    return content


def _data_facts(volumes: VolumeSet) -> dict[str, Any]:
    """What the frames lie in; enough to make phantoms again for a report."""
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
