"""A lock on a folder's work that a killed process gives back: the system drops it, no stale file keeps others out."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from scopereg.errors import ScopeRegError
from scopereg.io.files import output_folder
from scopereg.io.records import parse_json

try:
    import fcntl
except ModuleNotFoundError:  # Windows: nothing is locked there
    fcntl = None  # type: ignore[assignment]

_SECONDS_BETWEEN_TRIES = 0.2
_SIGNATURE = 4096  # bytes


@contextmanager
def locked(path: Path, *, patience_s: float = 0.0) -> Iterator[bool]:
    """Whether the lock was had within `patience_s`; while it is held the file tells by whom."""
    path.parent.mkdir(parents=True, exist_ok=True)
    give_up = time.monotonic() + patience_s
    with path.open("a+", encoding="utf-8") as file:
        held = _take(file)
        while not held and time.monotonic() < give_up:
            time.sleep(_SECONDS_BETWEEN_TRIES)
            held = _take(file)
        if held:
            _sign(file)
        yield held


@contextmanager
def alone(path: Path, work: str) -> Iterator[None]:
    """Hold a lock whose file is gone afterwards; an error that names who does such `work` there already."""
    output_folder(path.parent)
    file = _open_alone(path)
    if file is None:
        who = holder(path) or {}
        raise ScopeRegError(
            f"another {work} is at work in this folder: process {who.get('pid', '?')} on {who.get('host', '?')}",
            where=str(path.parent),
            fix="wait until it ends or end it, or name another folder (output=)",
        )
    with file:
        try:
            yield
        finally:
            with suppress(OSError):
                path.unlink()  # while it is still held: who waits for this file finds that it is no longer there


def _open_alone(path: Path) -> IO[str] | None:
    """The file locked and signed, None where another process holds it."""
    while True:
        file = path.open("a+", encoding="utf-8")
        if not _take(file):
            file.close()
            return None
        # Between opening and locking whoever held it may have removed the file; a new one may be another's by now.
        with suppress(OSError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                _sign(file)
                return file
        file.close()


def holder(path: Path) -> dict[str, Any] | None:
    """Host and process that hold a lock now, None where nobody does."""
    if fcntl is None:
        return None
    try:
        file = path.open("r+", encoding="utf-8")
    except FileNotFoundError:  # nobody, or who held it removed it a moment ago
        return None
    with file:
        if _take(file):
            return None
        try:
            found = parse_json(file.read(_SIGNATURE), str(path), "")
        except (ScopeRegError, ValueError):  # it was taken a moment ago and is not signed yet
            return {}
        return found if isinstance(found, dict) else {}


def _sign(file: IO[str]) -> None:
    file.seek(0)
    file.truncate()
    file.write(json.dumps({"host": socket.gethostname(), "pid": os.getpid()}))
    file.flush()


def _take(file: IO[str]) -> bool:
    """Try once; closing the file gives it back. A file system without locks counts as free."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
