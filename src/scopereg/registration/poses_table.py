"""Poses table: `poses.csv` of a batch, one row per frame, also of those that failed."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.io.files import write_sheet
from scopereg.registration.batch import Row

TRANSLATION = ("tx_mm", "ty_mm", "tz_mm")
ANGLES = ("rx_deg", "ry_deg", "rz_deg")
VERDICT = ("ok", "belongs", "confidence", "expected_mm", "bound_mm", "reason")
YES_NO = {None: "", True: "yes", False: "no"}
COLUMNS = (
    *("file", "index", "output", *TRANSLATION, *ANGLES, "similarity", *VERDICT),
    *("time_ms", "method", "note", "error"),
)


def write_table(rows: Sequence[Row], path: Path, ending: str) -> Path:
    """Write the rows. A pose is ImageToVolume in LPS: translation, and angles about x, y, z with R = Rz Ry Rx."""
    return write_sheet(path, (_cells(row, ending) for row in rows), COLUMNS)


def _cells(row: Row, ending: str) -> dict[str, str]:
    cells = {"file": row.task.shown, "index": str(row.task.index), "method": ""}
    cells |= {"note": "; ".join(row.notes), "error": row.error}
    if (result := row.result) is not None:
        cells["method"] = result.method
        numbers = np.concatenate([result.pose.translation_mm, result.pose.euler_deg])
        # Nine digits: what is read back is the pose to a billionth of a degree.
        cells |= {name: f"{number:.9f}" for name, number in zip((*TRANSLATION, *ANGLES), numbers, strict=True)}
        cells["output"] = f"{row.task.name}{ending}"
        cells["similarity"] = _number(result.similarity, 6)
        cells |= {"confidence": _number(result.confidence, 3), "reason": result.reason}
        cells |= {"expected_mm": _number(result.expected_mm, 2), "bound_mm": _number(result.bound_mm, 2)}
        cells |= {"ok": YES_NO[result.ok], "belongs": YES_NO[result.belongs]}
        cells["time_ms"] = f"{result.time_ms:.1f}"
    return cells


def _number(value: float, digits: int) -> str:
    return "" if math.isnan(value) else f"{value:.{digits}f}"


def read_table(path: Path | str) -> list[tuple[str, int, Pose | None]]:
    """File, number of the frame and pose (None where it was not found) of every row of a table."""
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        return [(row["file"], int(row["index"]), _pose(row)) for row in rows]
    except (OSError, UnicodeDecodeError, csv.Error, KeyError, ValueError, TypeError) as error:
        raise ScopeRegError(
            f"it is no table of poses: {error!r}", where=str(path), fix="pass poses.csv of scopereg register"
        ) from None


def _pose(row: dict[str, str]) -> Pose | None:
    if not row[TRANSLATION[0]]:
        return None
    angles, shift = ([float(row[name]) for name in names] for names in (ANGLES, TRANSLATION))
    return Pose.from_euler_deg(angles, shift)
