"""Files written without leaving halves behind: a temporary name first, then a rename. Sheets: rows as CSV."""

from __future__ import annotations

import csv
import hashlib
import io
import logging
import os
import re
import secrets
import socket
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from scopereg.errors import ScopeRegError

_MARK = "scopereg"
_LOGGER = logging.getLogger(__name__)
_MARKED = re.compile(
    rf"\..*-{_MARK}-(?P<place>[0-9a-f]{{8}})-(?P<pid>[0-9a-f]{{1,8}})-(?P<start>[0-9a-f]{{1,16}})-[0-9a-f]{{12}}(\..*)?"
)
_WEEK_S = 7 * 24 * 3600


@contextmanager
def atomic_path(path: Path | str) -> Iterator[Path]:
    """A temporary path beside `path`, renamed to it when the block ends well and removed when it does not.

    The suffix is kept (`volume.nii.gz` becomes `.volume-scopereg-12ab-....nii.gz`), since writers choose the format by
    it. The file gets the permissions of any new file there, also from writers that make theirs private. Any number of
    threads, processes and machines may write beside each other; of those that write the same file the last one stays.
    What a killed process leaves goes when a later one calls `output_folder`.
    """
    path = Path(path)
    stem, *suffixes = path.name.split(".")
    temporary = path.with_name(".".join([f".{stem[:100]}-{_own_mark()}", *suffixes]))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch()
        usual = stat.S_IMODE(temporary.stat().st_mode)
        temporary.unlink()
        yield temporary
        temporary.chmod(usual)
        temporary.replace(path)
        _LOGGER.debug("wrote %s", path)
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_bytes(path: Path | str, content: bytes) -> Path:
    """Write a whole file at once, or nothing."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)
    return Path(path)


def write_text(path: Path | str, content: str) -> Path:
    """Write a whole text file (UTF-8) at once, or nothing."""
    return write_bytes(path, content.encode())


def output_folder(path: Path | str) -> Path:
    """Make the folder if need be and make sure that files can be written there, before any long work starts.

    What killed processes left there half written is removed.
    """
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".probe-{_own_mark()}"
        probe.touch()
        probe.unlink()
        _sweep(path)
    except OSError as error:
        raise _cannot_write(path, error) from error
    return path


def _sweep(folder: Path) -> None:
    """Remove temporary files of ours whose process is gone; of other machines, and of this one before it was started
    anew, those that nobody has written to for a week."""
    for path in folder.glob(f".*-{_MARK}-*"):
        found = _MARKED.fullmatch(path.name)
        if found is None:
            continue
        with suppress(OSError):
            place, process, start = found["place"], int(found["pid"], 16), int(found["start"], 16)
            gone = not _runs(process, start) if place == _place() else time.time() - path.stat().st_mtime > _WEEK_S
            if gone:
                path.unlink()


def _own_mark() -> str:
    """Part of a file's name that no other writer has, and that tells whose it is: place, process, its start."""
    process = os.getpid()
    return f"{_MARK}-{_place()}-{process:x}-{_start_of(process):x}-{secrets.token_hex(6)}"


@cache
def _place() -> str:
    """Where numbers of processes mean what they mean here: this machine since it was started, this container."""
    facts = [socket.gethostname()]
    for source in (Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")):
        with suppress(OSError):
            facts.append(os.readlink(source) if source.is_symlink() else source.read_text())
    return hashlib.sha256("|".join(facts).encode()).hexdigest()[:8]


def _start_of(process: int) -> int:
    """When a process was started, in ticks of the system; 0 where that cannot be had."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[19])


def _runs(process: int, start: int) -> bool:
    """Whether a process still runs that was started then: numbers of processes are used again."""
    if os.name != "posix":
        return True  # to ask would end it
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return start in (0, _start_of(process))


def _cannot_write(path: Path, error: OSError) -> ScopeRegError:
    reason = error.strerror or str(error)
    return ScopeRegError(
        f"cannot write there: {reason}",
        where=str(path),
        fix="choose a folder that you may write to and that has space left (option -o), or change its permissions",
    )


def write_sheet(path: Path | str, rows: Iterable[Mapping[str, Any]], columns: Sequence[str] | None = None) -> Path:
    """Write a whole sheet, or nothing; columns are by default those of the first row."""
    return write_text(path, sheet_text(rows, columns))


def sheet_text(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] | None = None, *, header: bool = True) -> str:
    """The sheet as text; a row with other columns is an error, one that lacks some has empty cells there."""
    listed = list(rows)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(listed[0]) if columns is None else columns, lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(listed)
    return text.getvalue()


def is_here(path: str) -> bool:
    """Whether a file would be of this machine: to look for one elsewhere tells that machine of us."""
    return not path.startswith(("//", "\\\\", "\\/", "/\\")) and "\x00" not in path
