"""RunFolder: where a run keeps its weights, results and marks, and what they tell of how far it is."""

from __future__ import annotations

import json
import os
import socket
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from scopereg.errors import ScopeRegError
from scopereg.grid.plan import Run, changes
from scopereg.io.files import write_text
from scopereg.io.lock import holder
from scopereg.io.records import SEAL, Record, read_json, seal, sealed

FORMAT = "scopereg-grid-run-1"
_REDO = "remove it to do the run again"
RESULTS, TABLES, DATA = "results", "tables", "data"


class State(NamedTuple):
    """How far a run is, in a word, and what else there is to say."""

    word: str  # done, changed, running, failed, interrupted or waiting
    note: str = ""


class RunFolder:
    """The places of one run in the folder of its grid. Results lie apart, where `scopereg compare` can read them."""

    def __init__(self, run: Run, output: Path) -> None:
        self.run = run
        self.work = output / "runs" / run.name
        self.results = output / RESULTS / run.name
        self.marker = self.work / "done.json"
        self.error = self.work / "error.txt"
        self.lock = self.work / "lock"
        self.attempts = self.work / "attempts.jsonl"

    def found(self) -> dict[str, Any] | None:
        """The marker of a finished run, None where there is none; an error where the run was another one."""
        content = self._marker()
        if content is None:
            return None
        changed = changes(content["definition"], self.run.definition())
        if changed:
            raise ScopeRegError(
                f"{self.run.name} was done with another definition: {', '.join(changed)}",
                where=str(self.marker),
                fix=f"put the plan back, choose another folder (output=), or remove {self.work} and {self.results}",
            )
        return content

    def missing(self) -> tuple[str, ...]:
        """Protocols that the run has still to be tested under."""
        content = self.found()
        tested = {} if content is None else content["results"]
        return tuple(protocol for protocol in self.run.tested_under if protocol not in tested)

    def finish(self, content: dict[str, Any]) -> None:
        """Write the marker, last of all and whole."""
        write_text(self.marker, json.dumps(seal({"format": FORMAT, **content}), indent=2) + "\n")
        self.error.unlink(missing_ok=True)

    def begin(self) -> int:
        """Note down that somebody starts to work here; how many have so far."""
        self.work.mkdir(parents=True, exist_ok=True)
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        with self.attempts.open("a+", encoding="utf-8") as file:
            file.write(json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "started": now}) + "\n")
            file.seek(0)
            return len(file.readlines())

    def state(self) -> State:
        """How far the run is."""
        try:
            content, missing = self.found(), self.missing()
        except ScopeRegError as error:
            return State("changed", error.what)
        if content is not None and not missing:
            return State("done", summary(content))
        who = holder(self.lock)
        if who is not None:
            return State("running", f"process {who.get('pid', '?')} on {who.get('host', '?')}")
        if self.error.exists():
            return State("failed", self.error.read_text(encoding="utf-8").partition("\n")[0])
        if content is not None:
            return State("waiting", f"done, but not tested under {' and '.join(missing)}")
        begun = any((self.work / name).exists() for name in ("last.ckpt", "model.safetensors")) or self.results.exists()
        return State("interrupted", "goes on where it was") if begun else State("waiting")

    def _marker(self) -> dict[str, Any] | None:
        if not self.marker.exists():
            return None
        content = Record.of(read_json(self.marker, _REDO, finite=False), str(self.marker), _REDO).values
        if content.get("format") != FORMAT:
            raise ScopeRegError(
                f"the format is {content.get('format')!r}", where=str(self.marker), fix=f"this version reads {FORMAT}"
            )
        if SEAL in content:  # markers of early versions have none
            return sealed(content, str(self.marker), _REDO)
        return dict(content)


def summary(content: dict[str, Any]) -> str:
    """The outcome of a finished run in a line."""
    errors = ", ".join(f"{protocol} {value:.2f} mm" for protocol, value in content["mtre_mm"].items())
    return f"{errors}, {content['minutes']:.1f} min"
