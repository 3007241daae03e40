"""Journal: what a set in the making is made of and which of its cases are done, kept on disk line by line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from scopereg.errors import ScopeRegError, listed
from scopereg.io.records import Limits, parse_json

NAME = "journal.part"
FORMAT = "scopereg-journal-1"
_ENTRY = ("name", "patient", "volumes", "notes", "orientation", "sources", "voxels_sha256")
_LONGEST = 64 * 2**20  # bytes of a line: the first one names every case
_LIMITS = Limits(_LONGEST, 10, 4_000_000)


class Journal:
    """One line of JSON with what is made, then one for each finished case; a line cut short counts for nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: dict[str, dict[str, Any]] = {}  # finished cases
        self._file: IO[str] | None = None

    @classmethod
    def open(cls, folder: Path, making: Mapping[str, Any], *, fresh: bool = False) -> Journal:
        """The journal in a folder, a new one if there is none or it shall be `fresh`; an error if it is of another set.

        As long as it is open no other process can open it.
        """
        journal = cls(folder / NAME)
        wanted = json.loads(json.dumps({"format": FORMAT, **making}))
        journal._file = journal.path.open("a", encoding="utf-8")
        try:
            _lock(journal._file, folder)
            if fresh:
                journal._file.truncate(0)
            found = journal._lines()
            if found:
                check_same(found[0], wanted, folder)
            elif journal.path.stat().st_size:
                raise ScopeRegError(
                    "it cannot be told what was prepared there: the journal is damaged",
                    where=str(journal.path),
                    fix="start again (fresh=True), or use another folder (output=)",
                )
        except BaseException:
            journal.close()
            raise
        journal.entries = {entry["name"]: entry for entry in found[1:]}
        # After a line cut short the next one needs a line of its own.
        journal._file.write("\n" if found else json.dumps(wanted) + "\n")
        journal._file.flush()
        return journal

    def add(self, entry: Mapping[str, Any]) -> None:
        """Keep that a case is done."""
        assert self._file is not None
        self._file.write(json.dumps(entry) + "\n")
        self._file.flush()

    def remove(self) -> None:
        """The end: the set is whole."""
        self.close()
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _lines(self) -> list[dict[str, Any]]:
        """The line that tells what is made, if it can be read, and then the entries that are whole."""
        found: list[dict[str, Any]] = []
        with self.path.open("rb") as file:
            while line := file.readline(_LONGEST + 1):
                with suppress(ScopeRegError):
                    content = parse_json(line, str(self.path), "start again (fresh=True)", limits=_LIMITS)
                    if isinstance(content, dict) and (_is_entry(content) if found else "format" in content):
                        found.append(content)
        return found


def _is_entry(content: dict[str, Any]) -> bool:
    """True for what `Job.write_case` gave: a record of a case and the hash of its voxels."""
    texts = content.get("name"), content.get("patient"), content.get("voxels_sha256")
    lists = content.get("volumes"), content.get("orientation"), *_lists(content.get("notes"))
    sources = content.get("sources")
    return (
        content.keys() == {*_ENTRY}
        and all(isinstance(text, str) for text in texts)
        and all(isinstance(items, list) and all(isinstance(item, str) for item in items) for items in lists)
        and isinstance(sources, dict)
        and all(isinstance(value, str) for value in sources.values())
    )


def _lists(notes: Any) -> list[Any]:
    return list(notes.values()) if isinstance(notes, dict) else [None]


def finished_cases(folder: Path) -> tuple[int, int]:
    """Number of cases that are done of the set in the making in a folder, and of all its cases."""
    first, *entries = Journal(folder / NAME)._lines() or [{}]
    return len({entry["name"] for entry in entries}), len(_cases(first))


def check_same(found: Mapping[str, Any], wanted: Mapping[str, Any], folder: Path) -> None:
    """An error that tells what differs between what a folder holds and what is wanted."""
    differing = [
        f"{key} ({_short(found.get(key))} there, {_short(value)} now)"
        for key, value in wanted.items()
        if key != "cases" and found.get(key) != value
    ]
    there, now = _cases(found), _cases(wanted)
    differing += [
        f"{len(names)} cases {words}: {listed(names, 3)}"
        for names, words in (
            ([name for name in now if name not in set(there)], "are new"),
            ([name for name in there if name not in set(now)], "are gone"),
        )
        if names
    ]
    if differing:
        raise ScopeRegError(
            f"what was prepared there differs: {'; '.join(differing)}",
            where=str(folder),
            fix="use the same options and files, another folder (output=), or start again (fresh=True; or remove it)",
        )


def _cases(content: Mapping[str, Any]) -> list[str]:
    cases = content.get("cases", ())
    return [str(name) for name in cases] if isinstance(cases, list | tuple) else []


def _short(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


class BusyError(ScopeRegError):
    """Another process makes a set there."""


def _lock(file: IO[str], folder: Path) -> None:
    """Keep a second process out; the lock goes with the process."""
    try:
        import fcntl
    except ImportError:  # Windows: nothing keeps it out
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BusyError(
            "another process is preparing data there",
            where=str(folder),
            fix="wait for it, or use another folder (output=)",
        ) from None
    except OSError:  # a file system without locks
        return
