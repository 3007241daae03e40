"""Files written without leaving halves behind: a temporary name first, then a rename. Sheets: rows as CSV."""

from __future__ import annotations

import csv
import io
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from scopereg.errors import ScopeRegError


@contextmanager
def atomic_path(path: Path | str) -> Iterator[Path]:
    """A temporary path beside `path`, renamed to it when the block ends well and removed when it does not.

    The suffix is kept (`volume.nii.gz` becomes `.volume-12ab34cd.nii.gz`), since writers choose the format by it. The
    file gets the permissions of any new file there, also from writers that make theirs private. Any number of threads,
    processes and machines may write beside each other; of those that write the same file the last one stays.
    """
    path = Path(path)
    stem, *suffixes = path.name.split(".")
    temporary = path.with_name(".".join([f".{stem}-{_own_mark()}", *suffixes]))
    output_folder(path.parent)
    try:
        temporary.touch()
        usual = stat.S_IMODE(temporary.stat().st_mode)
        temporary.unlink()
        yield temporary
        temporary.chmod(usual)
        temporary.replace(path)
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
    """Make the folder if need be and make sure that files can be written there, before any long work starts."""
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".scopereg-{_own_mark()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise _cannot_write(path, error) from error
    return path


def _own_mark() -> str:
    """Part of a file's name that no other writer has: processes of two machines may have one number, threads do."""
    return secrets.token_hex(8)


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
