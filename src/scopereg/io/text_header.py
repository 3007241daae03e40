"""Text headers: lines at the beginning of a file, read strictly, so that no two readers see different ones."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import IO

from scopereg.errors import ScopeRegError
from scopereg.io.formats import GET_AGAIN

_LONGEST_LINE = 2**16


class TextFields(dict[str, str]):
    """Fields of a header by their names, each once; errors name the file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def add(self, name: str, value: str) -> None:
        if name in self:
            raise self.error(f"its header states {name!r} twice")
        self[name] = value

    def error(self, what: str, fix: str = GET_AGAIN) -> ScopeRegError:
        return ScopeRegError(what, where=str(self.path), fix=fix)

    def only(self, names: Iterable[str]) -> str | None:
        """The value of the one of these names that is there; an error where there are several."""
        found = [name for name in names if name in self]
        if len(found) > 1:
            raise self.error(f"its header states the same as {' and as '.join(map(repr, found))}")
        return self[found[0]] if found else None

    def whole(self, name: str, count: int | None = None) -> tuple[int, ...]:
        """Whole numbers of a field."""
        words = self._needed(name).split()
        try:
            numbers = tuple(_whole(word) for word in words)
        except ValueError:
            numbers = ()
        if not numbers or (count is not None and len(numbers) != count):
            raise self.error(f"{name!r} of its header reads {self[name][:60]!r}")
        return numbers

    def real(self, name: str, count: int) -> tuple[float, ...]:
        """Real numbers of a field; NaN and infinite ones are for the caller to judge."""
        return self.real_of(name, self._needed(name).split(), count)

    def real_of(self, name: str, words: Iterable[str], count: int) -> tuple[float, ...]:
        try:
            numbers = tuple(_real(word) for word in words)
        except ValueError:
            numbers = ()
        if len(numbers) != count:
            raise self.error(f"{name!r} of its header reads {self[name][:60]!r}, not {count} numbers")
        return numbers

    def truth(self, name: str, default: bool) -> bool:
        value = self.get(name, str(default)).lower()
        if value not in ("true", "false"):
            raise self.error(f"{name!r} of its header reads {value[:60]!r}", "write True or False")
        return value == "true"

    def _needed(self, name: str) -> str:
        if name not in self:
            raise self.error(f"its header lacks {name!r}")
        return self[name]


def header_line(file: IO[bytes], path: Path) -> str | None:
    """The next line, None at the end of the file. Only a line feed ends one, with or without a carriage return."""
    line = file.readline(_LONGEST_LINE)
    if not line:
        return None
    text = line.removesuffix(b"\n").removesuffix(b"\r")
    if b"\r" in text or b"\0" in text or len(line) >= _LONGEST_LINE:
        raise ScopeRegError(
            f"its header holds a line that does not end as lines do: {text[:40]!r}",
            where=str(path),
            fix="end the lines of the header with a line feed; " + GET_AGAIN,
        )
    return text.decode("latin-1")


def _whole(word: str) -> int:
    if not word.removeprefix("-").isascii() or len(word) > 20 or "_" in word:
        raise ValueError(word)
    return int(word)


def _real(word: str) -> float:
    if not word.isascii() or len(word) > 100 or "_" in word:
        raise ValueError(word)
    return float(word)
