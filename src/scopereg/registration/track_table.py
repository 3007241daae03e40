"""Track table: `track.csv`, one row per frame of a recording, written and read back."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.io.files import write_sheet
from scopereg.registration.poses_table import ANGLES, TRANSLATION, YES_NO
from scopereg.registration.track import STATES, Step

_POSE = (*TRANSLATION, *ANGLES)
_ALONE = tuple(f"alone_{name}" for name in _POSE)
_LENGTHS = ("expected_mm", "apart_mm", "error_mm", "alone_error_mm")
_TRUTH = {word: truth for truth, word in YES_NO.items()}
COLUMNS = (
    *("frame", "file", "index", "time_s", "state", *_POSE, "expected_mm", "ok", "belongs", "reason"),
    *("apart_mm", *_ALONE, "error_mm", "alone_error_mm", "similarity", "time_ms", "method"),
)


def write_track(steps: Sequence[Step], path: Path) -> Path:
    """Write the steps. Poses are ImageToVolume in LPS: translation, and angles about x, y, z with R = Rz Ry Rx."""
    return write_sheet(path, map(_cells, steps), COLUMNS)


def is_track(path: Path | str) -> bool:
    """Whether a file is such a table, by its first line."""
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            return tuple(next(csv.reader(file), [])) == COLUMNS
    except (OSError, UnicodeDecodeError, csv.Error):
        return False


def read_track(path: Path | str) -> list[Step]:
    """The steps of a table, as they were written."""
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            return [_step(row) for row in csv.DictReader(file)]
    except (OSError, UnicodeDecodeError, csv.Error, KeyError, ValueError, TypeError) as error:
        raise ScopeRegError(
            f"it is no whole table of a track: {error!r}", where=str(path), fix="pass track.csv of scopereg track"
        ) from None


def _step(row: dict[str, str]) -> Step:
    numbers: dict[str, Any] = {
        name: float(row[name]) if row[name] else math.nan for name in (*_LENGTHS, "similarity", "time_ms")
    }
    pose, alone = (_pose([row[name] for name in names]) for names in (_POSE, _ALONE))
    place = (int(row["frame"]), row["file"], int(row["index"]), float(row["time_s"]), row["state"], row["reason"])
    if row["state"] not in STATES:
        raise ValueError(f"state {row['state']!r}")
    ok, belongs = (_TRUTH[row[name]] for name in ("ok", "belongs"))
    return Step(*place, pose=pose, alone=alone, ok=ok, belongs=belongs, method=row["method"], **numbers)


def _pose(words: list[str]) -> Pose | None:
    if not words[0]:
        return None
    numbers = [float(word) for word in words]
    return Pose.from_euler_deg(numbers[3:], numbers[:3])


def _cells(step: Step) -> dict[str, str]:
    cells = {"frame": str(step.row), "file": step.file, "index": str(step.index), "time_s": f"{step.time_s:.6f}"}
    cells |= {"state": step.state, "reason": step.reason, "method": step.method}
    cells |= {"ok": YES_NO[step.ok], "belongs": YES_NO[step.belongs]}
    for names, pose in ((_POSE, step.pose), (_ALONE, step.alone)):
        cells |= dict(zip(names, _numbers(pose), strict=False))
    cells |= {name: _number(getattr(step, name), 3) for name in _LENGTHS}
    return cells | {"similarity": _number(step.similarity, 6), "time_ms": _number(step.time_ms, 1)}


def _numbers(pose: Pose | None) -> list[str]:
    return [] if pose is None else [f"{number:.9f}" for number in (*pose.translation_mm, *pose.euler_deg)]


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else ""
