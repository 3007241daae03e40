"""A lock on a folder's work that a killed process gives back: the system drops it, no stale file keeps others out."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ModuleNotFoundError:  # Windows: nothing is locked there
    fcntl = None  # type: ignore[assignment]

_SECONDS_BETWEEN_TRIES = 0.2


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
            file.seek(0)
            file.truncate()
            file.write(json.dumps({"host": socket.gethostname(), "pid": os.getpid()}))
            file.flush()
        yield held


def holder(path: Path) -> dict[str, Any] | None:
    """Host and process that hold a lock now, None where nobody does."""
    if fcntl is None or not path.exists():
        return None
    with path.open("r+", encoding="utf-8") as file:
        if _take(file):
            return None
        try:
            found: dict[str, Any] = json.loads(file.read())
        except ValueError:  # it was taken a moment ago and is not signed yet
            return {}
        return found


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
