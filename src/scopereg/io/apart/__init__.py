"""Apart: files that only native libraries can read, read in a child process that may compute and answer, no more.

A decoder that a file can crash, fill the memory with or take over does so in the child: here arrives an answer of plain
numbers, checked before it is believed, or a ScopeRegError. One file of bytes goes in, through a private folder; arrays
and JSON come back through a pipe. The child stays for the next file, since it takes half a second to start one, and is
ended after any failure. `confinement` tells what it may do, docs/safety.md on which systems.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from scopereg.errors import ScopeRegError
from scopereg.io.limits import largest_bytes

START_S = 60.0  # to start a child and to import a library: how long that takes is up to the machine, not to a file
MOST_IDLE = 2  # children that wait for the next file
LONGEST_HEAD = 2**16  # bytes of JSON of an answer
MARK = b"apart-1\n"
KINDS = ("|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<i8", "<u8", "<f4", "<f8")
_PIPE_BYTES = 2**20  # a whole frame in most cases, so that neither side waits for the other in between
_MOST_AXES, _MOST_ARRAYS = 5, 64
_FOLDERS = "scopereg-apart-"  # in the folder for temporary files, then the number of the parent
_STALE_S = 3600  # age from which a folder may be of a process that was killed
_INHERITED = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "TEMP", "TMP")
_RUN = "from scopereg.io.apart.child import main; main()"
_DAMAGED = "it is damaged or made to do harm: copy or export it again"


class Answer(NamedTuple):
    """What a reader found."""

    arrays: list[npt.NDArray[Any]]
    facts: dict[str, Any]


class Allowance(NamedTuple):
    """What one file may take in the child."""

    memory: int  # bytes besides those of the child when it is idle
    answer: int  # bytes of all arrays
    seconds: float = 8.0  # by the clock; of the processor a second more

    @classmethod
    def for_bytes(cls, count: int) -> Allowance:
        """For a file that becomes so many bytes: room for the few copies that decoders make."""
        return cls(memory=2**28 + 4 * count, answer=count, seconds=8.0 + count / 2**22)


def read_apart(
    reader: str,
    content: bytes | Path,
    where: str,
    allowance: Allowance,
    *,
    ending: str = "",
    options: Mapping[str, Any] | None = None,
    fresh: bool = False,
) -> Answer:
    """What `reader` ("module:function") makes of a file's `content`; an error that names `where` if it cannot.

    The content is bytes or, where nobody else writes to it, a file, which the child gets under another name. With
    `fresh`, the child has seen no other file before, and sees none after it.
    """
    worker = _Worker() if fresh else _taken()
    kept = False
    try:
        answer = worker.ask(reader, content, ending, options or {}, allowance, where)
        kept = True
        return answer
    except _RefusedError as refusal:
        kept = True
        raise ScopeRegError(refusal.what, where=where, fix=refusal.fix) from None
    finally:
        if kept and not fresh:
            _given_back(worker)
        else:
            worker.end()


class _RefusedError(ScopeRegError):
    """The reader's own word that a file is bad; the child is well."""


class _Worker:
    """A child process, its pipes and its private folder. One thread at a time."""

    def __init__(self) -> None:
        if not sys.executable:
            raise ScopeRegError(
                "files of this kind are read by a Python process of their own, and this program is none",
                where="sys.executable",
                fix="run scopereg with the Python that it is installed for",
            )
        _sweep()
        self._folder = Path(tempfile.mkdtemp(prefix=f"{_FOLDERS}{os.getpid()}-"))
        self._loaded: set[str] = set()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _RUN, str(self._folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
            env=_environment(),
            pipesize=_PIPE_BYTES,
            start_new_session=True,  # Ctrl-C is for the parent, which ends its children
        )
        try:
            self.holds: list[str] = self._told({}, START_S, 0, "the process that reads files").facts["holds"]
        except BaseException:
            self.end()
            raise

    @property
    def process_id(self) -> int:
        return self._process.pid

    def ask(
        self,
        reader: str,
        content: bytes | Path,
        ending: str,
        options: Mapping[str, Any],
        allowance: Allowance,
        where: str,
    ) -> Answer:
        module = reader.partition(":")[0]
        if module not in self._loaded:
            self._told({"load": module}, START_S, 0, where)
            self._loaded.add(module)
        path = self._folder / f"file{ending}"
        try:
            _place(content, path)
            request = {
                "reader": reader,
                "file": path.name,
                "options": dict(options),
                "memory": allowance.memory,
                "seconds": allowance.seconds,
                "largest": largest_bytes(),
            }
            return self._told(request, allowance.seconds, allowance.answer, where)
        except OSError as error:
            raise ScopeRegError(
                f"it cannot be kept while it is read: {error.strerror or error}",
                where=where,
                fix="free some space in the folder for temporary files",
            ) from None
        finally:
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def end(self) -> None:
        with suppress(OSError):
            self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _told(self, request: Mapping[str, Any], seconds: float, most: int, where: str) -> Answer:
        """The answer to a request; without one, an error that says how the child ended."""
        sending, coming = self._process.stdin, self._process.stdout
        assert sending is not None
        assert coming is not None
        overdue = threading.Event()

        def stop() -> None:
            overdue.set()
            self._process.kill()

        clock = threading.Timer(seconds, stop)
        clock.daemon = True
        clock.start()
        try:
            if request:
                sending.write(json.dumps(request).encode() + b"\n")
                sending.flush()
            return _answer(coming, most)
        except (_EndedError, OSError):
            code = self._process.wait()
            raise _ended(code, seconds if overdue.is_set() else None, where) from None
        except ValueError as error:
            raise ScopeRegError(
                f"the process that read it gave an answer that is none: {error}", where=where, fix=_DAMAGED
            ) from None
        finally:
            clock.cancel()


def _place(content: bytes | Path, path: Path) -> None:
    """Put a file where the child may read it: another name for it if the disk has one, else a copy."""
    if isinstance(content, bytes):
        path.write_bytes(content)
        return
    try:
        os.link(content, path)
    except OSError:
        shutil.copyfile(content, path)


class _EndedError(Exception):
    pass


def _answer(coming: IO[bytes], most: int) -> Answer:
    """The arrays and facts of an answer; ValueError for anything else. Nothing in it is believed."""
    if _whole(coming, len(MARK)) != MARK:
        raise ValueError("it does not begin as one")
    length = int.from_bytes(_whole(coming, 4), "little")
    if length > LONGEST_HEAD:
        raise ValueError(f"{length} bytes of words")
    try:
        head = json.loads(_whole(coming, length))
        refused, facts, shapes = head.get("refused"), head.get("facts", {}), head.get("arrays", [])
    except (ValueError, RecursionError, AttributeError):
        raise ValueError("no JSON") from None
    if refused is not None:
        what, fix = (_words(refused.get(key)) if isinstance(refused, dict) else "" for key in ("what", "fix"))
        raise _RefusedError(what or "it cannot be read", where="", fix=fix or _DAMAGED)
    if not isinstance(facts, dict) or not isinstance(shapes, list) or len(shapes) > _MOST_ARRAYS:
        raise ValueError("no facts and arrays")
    promised = [_checked_shape(entry) for entry in shapes]
    if sum(math.prod(shape) * kind.itemsize for kind, shape in promised) > most:
        raise ValueError(f"more than {most} bytes")
    return Answer([_filled(coming, kind, shape) for kind, shape in promised], facts)


def _checked_shape(entry: Any) -> tuple[np.dtype[Any], tuple[int, ...]]:
    if not (isinstance(entry, list) and len(entry) == 2 and entry[0] in KINDS and isinstance(entry[1], list)):
        raise ValueError("no array")
    shape = entry[1]
    if len(shape) > _MOST_AXES or not all(type(n) is int and 0 <= n < 2**40 for n in shape):
        raise ValueError("no shape")
    return np.dtype(entry[0]), tuple(shape)


def _filled(coming: IO[bytes], kind: np.dtype[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    array = np.empty(math.prod(shape), kind)
    left = memoryview(array.view(np.uint8))  # type: ignore[arg-type]
    while left:
        count = coming.readinto(left)  # type: ignore[attr-defined]
        if not count:
            raise _EndedError
        left = left[count:]
    return array.reshape(shape)


def _whole(coming: IO[bytes], count: int) -> bytes:
    read = coming.read(count)
    if len(read) < count:
        raise _EndedError
    return read


def _words(text: Any) -> str:
    """Words of the child for people: one line, printable."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text[:600]) if isinstance(text, str) else ""
    return " ".join(plain.split())


def _ended(code: int, overdue_s: float | None, where: str) -> ScopeRegError:
    if overdue_s is not None:
        what = f"reading it took more than {overdue_s:.0f} s"
    elif code < 0:
        what = f"the process that read it was ended by signal {-code}"
    else:
        what = f"the process that read it ended with status {code}"
    return ScopeRegError(what, where=where, fix=_DAMAGED)


def _environment() -> dict[str, str]:
    """Little of ours, and the modules that are found here."""
    found = [os.path.abspath(entry) for entry in sys.path if entry]
    few = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS"), "1")
    own = {"PYTHONPATH": os.pathsep.join(found), "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return {name: os.environ[name] for name in _INHERITED if name in os.environ} | few | own


def _sweep() -> None:
    """Remove folders of processes that were killed, and their children with them in the middle of a file."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDERS}*-*") if os.name == "posix" else ():
        owner = folder.name.removeprefix(_FOLDERS).partition("-")[0]
        with suppress(OSError, ValueError):
            if time.time() - folder.stat().st_mtime > _STALE_S:
                try:
                    os.kill(int(owner), 0)
                except ProcessLookupError:
                    shutil.rmtree(folder, ignore_errors=True)


_idle: list[_Worker] = []
_owner = 0  # process that the idle children belong to
_lock = threading.Lock()


def _taken() -> _Worker:
    global _owner
    with _lock:
        if _owner != os.getpid():  # a fork of the process that started them: they are not ours
            _idle.clear()
            _owner = os.getpid()
        while _idle:
            worker = _idle.pop()
            if worker._process.poll() is None:
                return worker
            worker.end()
    return _Worker()


def _given_back(worker: _Worker) -> None:
    with _lock:
        if len(_idle) < MOST_IDLE:
            _idle.append(worker)
            return
    worker.end()


@atexit.register
def end_children() -> None:
    """End the children that wait; the next file starts another."""
    with _lock:
        workers = list(_idle) if _owner == os.getpid() else []
        _idle.clear()
    for worker in workers:
        worker.end()


if hasattr(os, "register_at_fork"):
    # A fork must neither wait for a lock that another thread held, nor end children that are not its own.
    def _after_fork() -> None:
        global _lock
        _lock = threading.Lock()

    os.register_at_fork(after_in_child=_after_fork)
