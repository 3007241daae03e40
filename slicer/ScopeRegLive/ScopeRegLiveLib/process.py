"""Process: scopereg with the words of a verb, beside 3D Slicer; looked at now and then, never waited for.

No shell and no Python of 3D Slicer: the program is started in the environment that 3D Slicer itself was started in.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

PROGRAM = "scopereg"
OLDEST = (0, 2)  # of scopereg that has the verbs
GRACE_S = 10.0  # for a process that was asked to end
CANCELLED = "Cancelled."
_VERSION = re.compile(r"scopereg (\d+)\.(\d+)\S*")
_TAIL = 4096  # bytes of what was said last


class Outcome(NamedTuple):
    """What came of it: facts, or the reason in words why there are none."""

    facts: Mapping[str, Any]
    failure: str = ""


def program_of(typed: str, environment: Mapping[str, str]) -> str:
    """The file of the program; a ValueError in words if there is none."""
    found = shutil.which(typed.strip() or PROGRAM, path=environment.get("PATH"))
    if found is None:
        what = f"There is no program {typed.strip()}" if typed.strip() else "scopereg is not found on this machine"
        raise ValueError(
            f"{what}: install it in a Python of its own (pip install scopereg) and choose its file here, such as"
            " .venv/bin/scopereg, on Windows .venv\\Scripts\\scopereg.exe."
        )
    return found


class Process:
    """First `scopereg --version`, then the verb; `look` goes on from the one to the other."""

    def __init__(self, program: str, words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self.outcome: Outcome | None = None
        self.words, self.version = list(words), ""
        self._program, self._folder = program, folder
        self._environment = {**environment, "PYTHONIOENCODING": "utf-8"}
        self._begin_s = time.monotonic()
        self._asked_to_end_s: float | None = None
        self._start(["--version"])

    def look(self) -> Outcome | None:
        """What came of it, once it has ended."""
        status, asked_s = self._running.poll(), self._asked_to_end_s
        if status is None:
            if asked_s is not None and time.monotonic() - asked_s > GRACE_S:
                self._running.kill()
        elif asked_s is not None:
            self.outcome = Outcome({}, CANCELLED)
        elif not self.version:
            self._judge_version()
        elif self.outcome is None:
            self.outcome = _outcome(status, self._told("out"), self._told("err"))
        return self.outcome

    def said(self) -> str:
        """How it stands: the time, and its own last word."""
        lines = [line.strip() for line in self._told("err").splitlines() if line.strip()]
        words = [f"{time.monotonic() - self._begin_s:.0f} s", *lines[-1:]]
        return "being cancelled" if self._asked_to_end_s is not None else ", ".join(words)

    def cancel(self) -> None:
        """Ask it to end; it then leaves nothing half-written."""
        if self._asked_to_end_s is None:
            self._running.terminate()
            self._asked_to_end_s = time.monotonic()

    def close(self) -> None:
        """End it now."""
        self.cancel()
        try:
            self._running.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._running.kill()
            self._running.wait()

    def _judge_version(self) -> None:
        told = self._told("out").strip()
        match = _VERSION.fullmatch(told)
        oldest = ".".join(map(str, OLDEST))
        if match is None:
            self.outcome = Outcome({}, f"{self._program} is not scopereg: it does not tell its version.")
        elif (int(match[1]), int(match[2])) < OLDEST:
            self.outcome = Outcome({}, f"This is {told}, and {oldest} is needed: pip install --upgrade scopereg.")
        else:
            self.version = told
            try:
                self._start([*self.words, "--json"])
            except ValueError as error:
                self.outcome = Outcome({}, str(error))

    def _start(self, words: Sequence[str]) -> None:
        with (self._folder / "out").open("wb") as out, (self._folder / "err").open("wb") as err:
            try:
                self._running = subprocess.Popen(
                    [self._program, *words],
                    cwd=str(self._folder),
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),  # of Windows
                )
            except OSError as error:
                raise ValueError(f"{self._program} cannot be started: {error.strerror or error}") from None

    def _told(self, name: str) -> str:
        with (self._folder / name).open("rb") as file:
            if name == "err":
                file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            return file.read().decode(errors="replace")


def _outcome(status: int, told: str, said: str) -> Outcome:
    """Of a process that ended by itself; 1 means that some frames could not be read."""
    try:
        facts = json.loads(told)
    except ValueError:
        facts = None
    if isinstance(facts, dict) and status in (0, 1):
        return Outcome(facts)
    error = facts.get("error") if isinstance(facts, dict) else None
    if isinstance(error, dict):
        where, what, fix = (str(error.get(name, "")) for name in ("where", "what", "fix"))
        return Outcome({}, f"{where}: {what}\n{fix}")
    last = "\n".join(line for line in said.splitlines() if line.strip())[-600:]
    return Outcome({}, f"scopereg ended with status {status}." + (f"\n{last}" if last else ""))
