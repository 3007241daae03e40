"""Results: one CSV row per frame with provenance in the header; read back, and paired frame by frame across methods."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import numpy as np
from numpy.typing import NDArray

from scopereg.errors import ScopeRegError
from scopereg.evaluation.score.states import FORMAT as SCORE
from scopereg.evaluation.score.states import NOT_LOCATED, SCORED
from scopereg.geometry import Pose, VoxelPoses, euler_deg_from_rotation
from scopereg.io.files import sheet_text, write_text
from scopereg.registration.prepared import Found
from scopereg.registration.result import POSE as CELLS
from scopereg.registration.result import YES_NO, RegistrationError, Result

FORMAT = "scopereg-results-1"
_MARK = "# "


@dataclass(frozen=True)
class FrameResult:
    """One frame located by one method, and how well. NaN where a number does not exist."""

    dataset: str  # such as "camus", "CAMUS-M": as the user named the set
    protocol: str  # paper, honest or real
    magnitude: float  # voxels and degrees; 0 for tracked sweeps
    fold: int
    method: str
    case: str
    patient: str
    frame: int
    start_mm: float  # mTRE before registration
    mtre_mm: float
    translation_mm: float
    rotation_deg: float  # of the Euler angles, as published
    geodesic_deg: float
    dice: float
    hd95_mm: float
    ncc: float
    ssim: float
    confidence: float  # probability of an error of at most 3 mm, by a calibration; in old files else 0 to 1
    time_ms: float
    true_tx: float  # the true pose, voxels and degrees of R = Rz Ry Rx
    true_ty: float
    true_tz: float
    true_rx: float
    true_ry: float
    true_rz: float
    found_tx: float  # and the one found
    found_ty: float
    found_tz: float
    found_rx: float
    found_ry: float
    found_rz: float
    expected_mm: float = math.nan  # error to expect; this and what follows only of calibrated networks
    bound_mm: float = math.nan  # 95 % of the errors of such frames are below
    ok: str = ""  # yes or no: whether the pose is reliable
    failure: str = ""  # why the frame was not located; then there is no pose, and no error but NaN
    similarity: float = math.nan  # of frame and volume at the pose, -1 to 1

    @classmethod
    def of(
        cls,
        found: Found,
        *,
        judged: bool,
        shared_ms: float,
        true: VoxelPoses,
        placed: VoxelPoses | None,
        start_mm: float,
        measured: Mapping[str, float],
        **labels: Any,
    ) -> FrameResult:
        """The row of what a method gave for a frame: here alone a `Result`, or the error in its place, becomes one.

        `judged`: the method gives verdicts. `shared_ms` belongs to all frames of the case. What was not measured, and
        the pose of a frame that is not `placed`, is NaN; `labels` are the other columns.
        """
        unknown = dict.fromkeys((*_MEASURED, *_STATED), math.nan)
        told: dict[str, Any] = {**unknown, **measured, "start_mm": start_mm, "time_ms": shared_ms}
        if isinstance(found, Result):
            told |= {name: getattr(found, name) for name in (*_STATED, "similarity")}
            told |= {"time_ms": shared_ms + found.time_ms, "ok": YES_NO[found.ok]}
        else:
            told |= {"ok": "no" if judged else "", "failure": "" if placed else " ".join(found.what.split())}
        for kind, pose in (("true", true), ("found", placed)):
            told |= zip((f"{kind}_{name}" for name in POSE), _numbers(pose), strict=True)
        told = {name: _short(value) if isinstance(value, float) else value for name, value in told.items()}
        return cls(**labels, **told)

    @property
    def key(self) -> tuple[str, int]:
        """Identity of a frame within its file."""
        return self.case, self.frame

    @property
    def run(self) -> tuple[str, str, float, int, str]:
        """Identity of a run."""
        return self.dataset, self.protocol, self.magnitude, self.fold, self.method


class ResultsFile(NamedTuple):
    """A file, its rows, and how they were made."""

    path: Path
    rows: list[FrameResult]
    facts: dict[str, Any]


POSE = ("tx", "ty", "tz", "rx", "ry", "rz")  # of columns that hold a pose
_MEASURED = ("mtre_mm", "translation_mm", "rotation_deg", "geodesic_deg", "dice", "hd95_mm", "ncc", "ssim")
COLUMNS = tuple(field.name for field in fields(FrameResult))
_STATED = ("confidence", "expected_mm", "bound_mm")
_FIRST_COLUMNS = COLUMNS[: COLUMNS.index("expected_mm")]  # of files from before calibrations
_SINCE = ("similarity", "failure")  # columns that came later
_KNOWN_COLUMNS = (COLUMNS, *(COLUMNS[: COLUMNS.index(name)] for name in _SINCE), _FIRST_COLUMNS)  # of files of any age
_TYPES = get_type_hints(FrameResult)


def pose_of(found: Found) -> Pose | None:
    """Pose of a result; a frame that a classical search could not locate counts as left where that began."""
    if isinstance(found, Result):
        return found.pose
    return found.start if isinstance(found, RegistrationError) else None


def _numbers(pose: VoxelPoses | None) -> list[float]:
    """A pose as tx, ty, tz, rx, ry, rz in voxels and degrees."""
    if pose is None:
        return [math.nan] * len(POSE)
    return [*pose.translation.tolist(), *euler_deg_from_rotation(pose.rotation).tolist()]


def _short(value: float) -> float:
    """Six significant digits: more are noise, and files stay readable."""
    return float(f"{value:.6g}")


def write_results(path: Path | str, rows: Iterable[FrameResult], facts: dict[str, Any]) -> Path:
    """Write a whole file, or nothing: the facts as JSON in a comment, the columns, one row per frame."""
    told = f"{_MARK}{json.dumps({'format': FORMAT, **facts}, sort_keys=True)}\n"
    return write_text(path, told + sheet_text(map(asdict, rows), COLUMNS))


def read_results(path: Path | str) -> tuple[list[FrameResult], dict[str, Any]]:
    """Rows and facts of a file of `evaluate` or `score`; an error where it is none of ours or its columns differ."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ScopeRegError(f"it cannot be read: {error.strerror}", where=str(path), fix="check the name") from error
    except UnicodeDecodeError as error:
        raise ScopeRegError("it is no text", where=str(path), fix="pass files of scopereg evaluate") from error
    facts = _facts(lines[0], path) if lines else {}
    if facts.get("format") == SCORE:
        return _scored_rows(lines, facts, path), facts
    columns = tuple(next(csv.reader(lines[1:2]))) if len(lines) > 1 else ()
    if facts.get("format") != FORMAT or columns not in _KNOWN_COLUMNS:
        raise ScopeRegError(
            "not a results file of this version", where=str(path), fix="make it again with scopereg evaluate or score"
        )
    return [parse_row(values, number, path) for number, values in enumerate(csv.DictReader(lines[1:]), start=3)], facts


def _scored_rows(lines: Sequence[str], facts: Mapping[str, Any], path: Path | str) -> list[FrameResult]:
    """Frames that `score` compared: poses in mm instead of voxels; patients are the folders that frames lie in."""
    labels = {"dataset": facts.get("against"), "method": facts.get("name"), "protocol": "real"}
    found = []
    for number, row in enumerate(csv.DictReader(lines[1:]), start=3):
        if row.get("state") not in (SCORED, NOT_LOCATED):
            continue
        case = ": ".join(filter(None, (row.get("file"), row.get("point"))))
        told = dict.fromkeys(COLUMNS, "nan") | {name: row.get(name) or "nan" for name in (*_MEASURED, *_STATED)}
        told |= {name: str(value) for name, value in labels.items()} | {"magnitude": "0", "fold": "0"}
        told |= {"case": case, "patient": case.rpartition("/")[0], "frame": row.get("index") or ""}
        told |= {"mtre_mm": row.get("error_mm") or "nan", "ok": row.get("ok") or ""}
        told["failure"] = "" if row["state"] == SCORED else row.get("reason") or NOT_LOCATED
        for kind, first in (("found", ""), ("true", "true_")):
            cells = zip(POSE, CELLS, strict=True)
            told |= {f"{kind}_{name}": row.get(f"{first}{cell}") or "nan" for name, cell in cells}
        found.append(parse_row(told, number, path))
    return found


def result_files(paths: Sequence[Path | str]) -> list[Path]:
    """Files, and all .csv files in folders, each once; an error where there are none."""
    found: list[Path] = []
    for path in map(Path, paths):
        found += sorted(path.rglob("*.csv")) if path.is_dir() else [path]
    if not found:
        raise ScopeRegError(
            f"no results in {', '.join(map(str, paths)) or 'nothing'}",
            where="results",
            fix="pass files or folders that scopereg evaluate wrote",
        )
    return list(dict.fromkeys(found))


def read_files(paths: Sequence[Path | str]) -> list[ResultsFile]:
    """Files, and all .csv files in folders, each once; an error where two have the same frame of a run."""
    files = [ResultsFile(path, *read_results(path)) for path in result_files(paths)]
    _check_one_part(files)
    seen: set[tuple[Any, ...]] = set()
    for row in (row for file in files for row in file.rows):
        place = (*row.run, *row.key)
        if place in seen:
            raise ScopeRegError(
                f"{row.method} has case {row.case}, frame {row.frame} twice ({row.dataset}, {row.protocol}, "
                f"pm {row.magnitude:g}, fold {row.fold})",
                where="results",
                fix="pass each run once",
            )
        seen.add(place)
    return files


def read_many(paths: Sequence[Path | str]) -> list[FrameResult]:
    """Rows of several files and of all .csv files in folders, none twice."""
    return [row for file in read_files(paths) for row in file.rows]


def _check_one_part(files: Sequence[ResultsFile]) -> None:
    parts = {str(file.facts.get("settings", {}).get("part", "test")): file.path for file in files}
    if len(parts) > 1:
        raise ScopeRegError(
            f"results of several parts of the data: {', '.join(f'{part} ({path})' for part, path in parts.items())}",
            where="results",
            fix="pass those of one part: nobody should read validation figures as a test",
        )


def _facts(line: str, path: Path | str) -> dict[str, Any]:
    try:
        content = json.loads(line.removeprefix(_MARK)) if line.startswith(_MARK) else {}
    except json.JSONDecodeError as error:
        raise ScopeRegError(
            f"the header is damaged: {error}", where=str(path), fix="make it again with scopereg evaluate"
        ) from error
    return content if isinstance(content, dict) else {}


def parse_row(values: dict[str, str], number: int, path: Path | str) -> FrameResult:
    """A row from the words of a file; `number` is its line."""
    try:
        there = [name for name in COLUMNS if name in _FIRST_COLUMNS or values.get(name) is not None]
        return FrameResult(**{name: _TYPES[name](values[name]) for name in there})
    except (TypeError, ValueError, KeyError) as error:
        raise ScopeRegError(
            f"line {number} is damaged: {error}", where=str(path), fix="make it again with scopereg evaluate"
        ) from error


def is_failure(row: FrameResult, threshold_mm: float) -> bool:
    """True for a frame that is farther off than the threshold, or was not located at all."""
    return math.isnan(row.mtre_mm) or row.mtre_mm > threshold_mm


START = "identity"  # the method that does nothing
_SAME_FRAME = 0.01  # mm and voxels: the noise of devices and of rounding in files, far below another draw of poses

Place = tuple[int, str, int]  # fold, case, frame
Frames = dict[Place, FrameResult]


@dataclass(frozen=True, eq=False)
class Group:
    """Methods over the same frames in the same order."""

    dataset: str
    protocol: str
    magnitude: float
    methods: dict[str, list[FrameResult]]
    notes: list[str] = field(default_factory=list)

    @property
    def label(self) -> str:
        return _label(self.dataset, self.protocol, self.magnitude)

    @property
    def facts(self) -> dict[str, str]:
        return {"dataset": self.dataset, "protocol": self.protocol, "magnitude": f"{self.magnitude:g}"}

    def column(self, method: str, name: str) -> NDArray[np.float64]:
        """A number of each frame."""
        return np.array([getattr(row, name) for row in self.methods[method]], np.float64)

    @property
    def patients(self) -> list[str]:
        return [row.patient for row in self._any]

    @property
    def folds(self) -> list[int]:
        return [row.fold for row in self._any]

    @property
    def start_mm(self) -> NDArray[np.float64]:
        return self.column(next(iter(self.methods)), "start_mm")

    @property
    def _any(self) -> list[FrameResult]:
        return next(iter(self.methods.values()))


def group_results(rows: Iterable[FrameResult], *, intersect: bool = False) -> list[Group]:
    """Groups by dataset, protocol and magnitude, in this order; their methods in the order of the rows.

    Methods that did not see the same frames are an error that names the counts, or with `intersect` are cut down to the
    frames that all of them have, with a note. Frames of one name that are not the same frame are always an error.
    """
    found: dict[tuple[str, str, float], dict[str, Frames]] = {}
    for row in rows:
        methods = found.setdefault((row.dataset, row.protocol, row.magnitude), {})
        methods.setdefault(row.method, {})[(row.fold, row.case, row.frame)] = row
    return [_pair(*key, found[key], intersect) for key in sorted(found)]


def _pair(dataset: str, protocol: str, magnitude: float, methods: dict[str, Frames], intersect: bool) -> Group:
    where = _label(dataset, protocol, magnitude)
    common = set.intersection(*(set(frames) for frames in methods.values()))
    counts = {method: len(frames) for method, frames in methods.items()}
    notes = []
    if any(count != len(common) for count in counts.values()):
        said = ", ".join(f"{method} {count}" for method, count in counts.items())
        if not intersect or not common:
            raise ScopeRegError(
                f"the methods do not have the same frames: {said}; {len(common)} are common to all",
                where=where,
                fix="evaluate them on the same frames" + (", or pass intersect=True" if common else ""),
            )
        notes.append(f"Only the {len(common)} frames that all methods have are compared; there were: {said}.")
    places = sorted(common)
    paired = {method: [frames[place] for place in places] for method, frames in methods.items()}
    _check_same_frames(paired, where)
    return Group(dataset, protocol, magnitude, paired, notes)


def _label(dataset: str, protocol: str, magnitude: float) -> str:
    """Name a group; tracked sweeps have no magnitude."""
    return f"{dataset}, {protocol} protocol" + (f", pm {magnitude:g}" if magnitude else "")


def _check_same_frames(methods: dict[str, list[FrameResult]], where: str) -> None:
    first, *others = methods
    for other in others:
        pairs = list(zip(methods[first], methods[other], strict=True))
        a, b = (np.array([_pose_marks(row) for row in methods[method]]) for method in (first, other))
        close = np.isclose(a, b, 0, _SAME_FRAME, equal_nan=True).all(1)
        wrong = [row for (row, twin), same in zip(pairs, close, strict=True) if not same or row.patient != twin.patient]
        if wrong:
            raise ScopeRegError(
                f"{len(wrong)} of {len(pairs)} frames are not the same for {first} and {other}: the true pose or the "
                f"patient differs, first in case {wrong[0].case}, frame {wrong[0].frame}, fold {wrong[0].fold}",
                where=where,
                fix="evaluate both on the same data, with the same seed",
            )


def _pose_marks(row: FrameResult) -> tuple[float, ...]:
    return row.start_mm, row.true_tx, row.true_ty, row.true_tz
