"""Track table: `track.csv`, one row per frame of a recording."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path

from scopereg.geometry import Pose
from scopereg.io.files import write_text
from scopereg.registration.poses_table import ANGLES, TRANSLATION
from scopereg.registration.track import Step

_POSE = (*TRANSLATION, *ANGLES)
_ALONE = tuple(f"alone_{name}" for name in _POSE)
COLUMNS = (
    *("frame", "file", "index", "time_s", "state", *_POSE, "expected_mm", "ok", "reason"),
    *("apart_mm", *_ALONE, "error_mm", "alone_error_mm", "similarity", "time_ms", "method"),
)


def write_track(steps: Sequence[Step], path: Path) -> Path:
    """Write the steps. Poses are ImageToVolume in LPS: translation, and angles about x, y, z with R = Rz Ry Rx."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_cells(step) for step in steps)
    return write_text(path, text.getvalue())


def _cells(step: Step) -> dict[str, str]:
    cells = {"frame": str(step.row), "file": step.file, "index": str(step.index), "time_s": f"{step.time_s:.6f}"}
    cells |= {"state": step.state, "reason": step.reason, "method": step.method}
    cells["ok"] = "" if step.ok is None else ("yes" if step.ok else "no")
    for names, pose in ((_POSE, step.pose), (_ALONE, step.alone)):
        cells |= dict(zip(names, _numbers(pose), strict=False))
    lengths = ("expected_mm", "apart_mm", "error_mm", "alone_error_mm")
    cells |= {name: _number(getattr(step, name), 3) for name in lengths}
    return cells | {"similarity": _number(step.similarity, 6), "time_ms": _number(step.time_ms, 1)}


def _numbers(pose: Pose | None) -> list[str]:
    return [] if pose is None else [f"{number:.9f}" for number in (*pose.translation_mm, *pose.euler_deg)]


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else ""
