"""Output: how much a verb says, and where; what it found goes out as JSON. The same options for every verb."""

from __future__ import annotations

import json
import logging
import math
import os
import platform
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any, TextIO

from scopereg import __version__, progress
from scopereg.errors import ScopeRegError

LOGGER = logging.getLogger("scopereg")
_SAID = logging.getLogger("scopereg.said")  # what goes to the terminal anyway
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_DRAWING = ("\r", "\x1b[1A", "\x1b[2K", "\x1b[?25")  # of bars, which come many times a second
_told: dict[str, Any] = {}


@dataclass(frozen=True)
class Manner:
    """How a verb shall speak."""

    json: bool = False
    verbose: bool = False
    quiet: bool = False
    log: Path | None = None


def manner_of(words: Sequence[str]) -> tuple[Manner, list[str]]:
    """How the words ask to be spoken to, and the other words; what stands behind `--` is nothing of it."""
    end = list(words).index("--") if "--" in words else len(words)
    waiting, rest = list(words[:end]), list[str]()
    asked: dict[str, Any] = {}
    while waiting:
        word = waiting.pop(0)
        if word in _SWITCHES:
            asked[_SWITCHES[word]] = True
        elif word == "--log" or word.startswith("--log="):
            value = word.partition("=")[2] or (waiting.pop(0) if waiting else "")
            if not value or value.startswith("-"):
                raise ScopeRegError("no file follows", where="--log", fix="write --log FILE")
            asked["log"] = Path(value)
        else:
            rest.append(word)
    if asked.get("verbose") and asked.get("quiet"):
        raise ScopeRegError("more and less at once", where="-v and -q", fix="leave one of them out")
    return Manner(**asked), [*rest, *words[end:]]


_SWITCHES = {"--json": "json", "-v": "verbose", "--verbose": "verbose", "-q": "quiet", "--quiet": "quiet"}


def tell(**facts: Any) -> None:
    """What a verb found, for `--json`; later calls add to it."""
    _told.update(facts)


def carried_out(manner: Manner, words: Sequence[str], work: Callable[[], int]) -> int:
    """The status of some work that speaks in this manner; with `--json` what it told is printed in the end."""
    _told.clear()
    begin, out = time.perf_counter(), sys.stdout
    with ExitStack() as stack:
        stack.enter_context(progress.hushed(manner.quiet))
        if manner.verbose:  # before lines are copied to the log, which has them anyway
            stack.enter_context(_handled(logging.StreamHandler(sys.stderr), "        %(message)s", logging.INFO))
        if manner.log is not None:
            stack.enter_context(_logged(manner.log, words))
        if manner.json:  # the words for people go beside it, to the standard error; quiet ones nowhere
            beside = stack.enter_context(Path(os.devnull).open("w")) if manner.quiet else sys.stderr
            stack.enter_context(redirect_stdout(beside))
        status = work()
        LOGGER.info("status %d after %.1f s", status, time.perf_counter() - begin)
    if manner.json:
        verb = " ".join(words[:2] if words[:1] == ["data"] else words[:1])
        print(json.dumps(plain({"verb": verb, "status": status, **_told}), indent=1, allow_nan=False), file=out)
    return status


@contextmanager
def _logged(path: Path, words: Sequence[str]) -> Iterator[None]:
    """Everything that is said also goes to a file, with times."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise ScopeRegError(f"it cannot be written: {reason}", where=f"--log {path}", fix="choose another") from None
    with ExitStack() as stack:
        stack.enter_context(_handled(handler, "%(asctime)s.%(msecs)03d %(message)s", logging.DEBUG))
        LOGGER.info("%s", shlex.join(["scopereg", *words]))
        LOGGER.info("in %s; scopereg %s, Python %s, %s", Path.cwd(), __version__, *_system())
        stack.enter_context(redirect_stdout(_Copied(sys.stdout)))
        stack.enter_context(redirect_stderr(_Copied(sys.stderr)))
        try:
            yield
        except BaseException:
            LOGGER.exception("ended by an error")
            raise


def _system() -> tuple[str, str]:
    return platform.python_version(), f"{platform.system()} {platform.machine()}"


@contextmanager
def _handled(handler: logging.Handler, form: str, level: int) -> Iterator[None]:
    """A handler of the package's own log lines while this lasts."""
    handler.setFormatter(logging.Formatter(form, "%Y-%m-%d %H:%M:%S"))
    handler.setLevel(level)
    if isinstance(handler, logging.FileHandler):
        _SAID.setLevel(logging.INFO)
    else:
        handler.addFilter(lambda record: record.name != _SAID.name)
    before = LOGGER.level
    LOGGER.setLevel(logging.DEBUG)
    LOGGER.addHandler(handler)
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(before)
        handler.close()


class _Copied:
    """A stream of text whose lines are logged as well."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._line = stream, ""

    def write(self, text: str) -> int:
        if not any(sign in text for sign in _DRAWING):
            *lines, self._line = (self._line + _CONTROL.sub("", text)).split("\n")
            for line in lines:
                if line.strip():
                    _SAID.info("%s", line.rstrip())
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def plain(value: Any) -> Any:
    """As JSON knows it: no paths, no arrays, no NaN."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if hasattr(value, "_asdict"):  # a NamedTuple
        return plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if hasattr(value, "tolist"):  # of torch or NumPy
        return plain(value.tolist())
    return str(value)
