"""TrainFolder: what a run leaves in its folder, and whether a later call may go on with what it finds there."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from scopereg.errors import ScopeRegError
from scopereg.io.files import write_text
from scopereg.io.lock import alone
from scopereg.io.records import Limits, read_json, read_within, seal, sealed
from scopereg.training.checkpoint import read_checkpoint, write_checkpoint
from scopereg.training.settings import TrainSettings, differences, from_plain

MODEL, CHECKPOINT, RUN = "model.safetensors", "last.ckpt", "run.json"
LOG, CURVE = "log", "metrics.csv"
_MOST = Limits(2**28)  # bytes of a curve
_OTHER_FOLDER = "to go on with it, or another folder (output=) for a new run"


class TrainFolder:
    """The files of one run: weights, checkpoint, report and curve. Each is written whole, and damage is found."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.model, self.checkpoint, self.run = (path / name for name in (MODEL, CHECKPOINT, RUN))
        self.curve = path / LOG / CURVE

    def lock(self) -> AbstractContextManager[None]:
        """Keeps other trainings out while it lasts."""
        return alone(self.path / ".lock", "training")

    def kept(self) -> str:
        """What an error leaves of a run."""
        return "the last checkpoint is whole" if self.checkpoint.exists() else "nothing was written yet"

    # the checkpoint

    def found(self, settings: TrainSettings, data_sha256: str) -> dict[str, Any] | None:
        """The checkpoint of an earlier call if it may be gone on with, None in a fresh folder."""
        if not self.checkpoint.exists():
            return None
        content = read_checkpoint(self.checkpoint)
        earlier = from_plain(content["settings"])
        changed = differences(earlier, settings)
        if changed:
            names = ", ".join(f"{name} ({getattr(earlier, name)} there)" for name in changed)
            raise ScopeRegError(
                f"the run there has other settings: {names}",
                where=str(self.path),
                fix=f"use the same settings {_OTHER_FOLDER}",
            )
        if content["data_sha256"] != data_sha256:
            raise ScopeRegError(
                "the run there was trained on other data",
                where=str(self.path),
                fix=f"use the same data {_OTHER_FOLDER}",
            )
        return content

    def keep(self, content: Mapping[str, Any], curve: str) -> None:
        """Write the checkpoint, and in it what the curve was by then."""
        write_checkpoint({**content, "curve_sha256": _sha256(curve)}, self.checkpoint)

    # the curve

    def earlier_curve(self, checkpoint: Mapping[str, Any]) -> str:
        """The curve up to a checkpoint; an error where it is not as it was then. Without the file it begins anew."""
        if not self.curve.exists():
            return ""
        last = int(checkpoint["progress"]["step"])
        try:
            text = read_within(self.curve, "remove it", _MOST).decode()
            header, *rows = text.splitlines(keepends=True)
            step = header.strip().split(",").index("step")
            kept = [row for row in rows if row.endswith("\n") and int(row.split(",")[step]) <= last]
        except (ValueError, IndexError):
            kept, header = [], ""
        found = "".join([header, *kept]) if kept else ""
        if _sha256(found) != checkpoint["curve_sha256"]:
            raise ScopeRegError(
                f"it is damaged: it does not hold the validations up to step {last}, where the checkpoint stands",
                where=str(self.curve),
                fix="put the file back, or remove it to go on without the earlier part of the curve",
            )
        return found

    def extend_curve(self, curve: str, row: Mapping[str, float]) -> str:
        """Write the curve with one more row; gives it."""
        text = io.StringIO()
        writer = csv.DictWriter(text, sorted(row), lineterminator="\n")
        if not curve:
            writer.writeheader()
        writer.writerow(row)
        curve += text.getvalue()
        write_text(self.curve, curve)
        return curve

    # the report

    def finished(self) -> bool:
        """Whether the run in the folder needs no more steps."""
        return self.checkpoint.exists() and bool((self.report() or {}).get("finished"))

    def report(self) -> dict[str, Any] | None:
        """run.json, None where there is none; an error where it does not hold what was written."""
        if not self.run.exists():
            return None
        fix = "remove it: it is written again when the run ends, or at once where it has ended"
        return seal(sealed(read_json(self.run, fix, finite=False), str(self.run), fix))

    def write_report(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Write run.json; gives what it holds."""
        written = seal(content)
        write_text(self.run, json.dumps(written, indent=2) + "\n")
        return written


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
