"""Records: JSON and YAML from files that nobody vouches for, read within limits, and their values taken by kind.

Size, depth, number of values and digits are bounded before and while a text is read: no file makes a reader hang, fill
the memory or recurse without end. What does not fit is named with its file and key.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from scopereg.errors import ScopeRegError, did_you_mean

MIB = 2**20
DIGITS = 40  # of a whole number
SEAL = "sha256"  # key of the hash that a sealed record holds of itself


class Limits(NamedTuple):
    """The most that a record may hold."""

    size: int = 16 * MIB  # bytes
    depth: int = 40  # mappings and lists within one another
    values: int = 1_000_000  # values, lists and mappings; of YAML with every alias written out


USUAL = Limits()
SMALL = Limits(MIB, 20, 10_000)  # what people write by hand


class UnfitError(ValueError):
    """A text that is not the record it should be; `read_json` and the others tell where."""


# reading


def read_json(path: Path | str, fix: str, *, limits: Limits = USUAL, finite: bool = True) -> Any:
    """The content of a JSON file; `finite` refuses NaN and Infinity, which JSON itself does not know."""
    return parse_json(read_within(path, fix, limits), str(path), fix, limits=limits, finite=finite)


def parse_json(text: str | bytes, where: str, fix: str, *, limits: Limits = USUAL, finite: bool = True) -> Any:
    """The content of a JSON text."""
    try:
        _check_size(len(text), limits)
        content = json.loads(
            text,
            object_pairs_hook=_mapping,
            parse_int=_whole,
            parse_float=_finite if finite else None,
            parse_constant=_no_number if finite else None,
        )
        _check_content(content, limits)
    except RecursionError:
        raise _unfit(f"it is nested deeper than {limits.depth}", where, fix) from None
    except ValueError as error:  # not JSON, not UTF-8, or beyond a limit
        raise _unfit(f"it is not the JSON it should be: {error}", where, fix) from None
    return content


def read_yaml(path: Path | str, fix: str, *, limits: Limits = SMALL) -> Any:
    """The content of a YAML file: plain values alone, and no key twice."""
    return parse_yaml(read_within(path, fix, limits), str(path), fix, limits=limits)


def parse_yaml(text: str | bytes, where: str, fix: str, *, limits: Limits = SMALL) -> Any:
    """The content of a YAML text."""
    import yaml

    try:
        _check_size(len(text), limits)
        return yaml.load(text.decode() if isinstance(text, bytes) else text, _yaml_loader(limits))
    except RecursionError:
        raise _unfit(f"it is nested deeper than {limits.depth}", where, fix) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise _unfit(f"not valid YAML: {error}", where, fix) from None
    except (LookupError, TypeError, AttributeError) as error:  # a tag and a value that do not go together
        raise _unfit(f"not valid YAML: {error!r}", where, fix) from None


def read_within(path: Path | str, fix: str, limits: Limits = USUAL) -> bytes:
    """The bytes of a file, one more than allowed at most: a file may grow, or be a device."""
    try:
        if not Path(path).is_file():
            raise FileNotFoundError(2, "there is no such file")
        with Path(path).open("rb") as file:
            return file.read(limits.size + 1)
    except OSError as error:
        raise _unfit(f"cannot be read: {error.strerror or error}", str(path), fix) from error


def _check_size(size: int, limits: Limits) -> None:
    if size > limits.size:
        raise UnfitError(f"it has more than {limits.size // 1024} kB")


def _check_content(content: Any, limits: Limits) -> None:
    """An error where there is too much of it; without recursion, whatever its depth."""
    count, level, depth = 1, [content], 0
    while level:
        if depth > limits.depth:
            raise UnfitError(f"it is nested deeper than {limits.depth}")
        level = [item for value in level for item in _parts(value)]
        count, depth = count + len(level), depth + 1
        if count > limits.values:
            raise UnfitError(f"it holds more than {limits.values} values")


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise UnfitError(f"{key[:DIGITS]!r} stands twice")
        found[key] = value
    return found


def _whole(digits: str) -> int:
    if len(digits) > DIGITS:
        raise UnfitError(f"a number of {len(digits)} digits")
    return int(digits)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise UnfitError(f"{text[:DIGITS]} is no finite number")
    return value


def _no_number(text: str) -> float:
    raise UnfitError(f"{text} is no number")


@cache
def _yaml_loader(limits: Limits) -> Any:
    """PyYAML's safe loader with limits: nodes are counted when composed, aliases with all that they stand for."""
    import yaml

    class Loader(yaml.SafeLoader):
        def __init__(self, stream: Any) -> None:
            super().__init__(stream)
            self.count = self.depth = 0
            self.sizes: dict[int, int] = {}  # of composed nodes, by id: the composer keeps all that have an anchor

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                node = super().compose_node(parent, index)
                if id(node) not in self.sizes:
                    raise UnfitError("an alias stands within what it stands for")
                self._add(self.sizes[id(node)])
                return node
            before = self.count
            self._add(1)
            self.depth += 1
            if self.depth > limits.depth:
                raise UnfitError(f"it is nested deeper than {limits.depth}")
            node = super().compose_node(parent, index)
            self.depth -= 1
            self.sizes[id(node)] = self.count - before
            return node

        def _add(self, nodes: int) -> None:
            self.count += nodes
            if self.count > limits.values:
                raise UnfitError(f"it holds more than {limits.values} values")

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            known: set[Any] = set()
            for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
                name = (key.tag, key.value) if isinstance(key, yaml.ScalarNode) else id(key)
                if name in known:
                    raise yaml.MarkedYAMLError(problem=f"{key.value!r} stands twice", problem_mark=key.start_mark)
                known.add(name)
            return dict(super().construct_mapping(node, deep))

        def construct_yaml_int(self, node: Any) -> int:
            if len(node.value) > DIGITS:
                raise UnfitError(f"a number of {len(node.value)} digits")
            return int(super().construct_yaml_int(node))

    Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_yaml_int)
    return Loader


def _unfit(what: str, where: str, fix: str) -> ScopeRegError:
    return ScopeRegError(what, where=where, fix=fix)


# values by kind


@dataclass(frozen=True)
class Record:
    """A mapping that was read; values are taken by kind and range, and what does not fit is named with its key."""

    values: Mapping[str, Any]
    where: str  # file, or file and key
    fix: str

    @classmethod
    def of(cls, content: Any, where: str, fix: str) -> Record:
        """A record of what was read, which must be a mapping."""
        if not isinstance(content, dict):
            raise _unfit(f"it holds {_kind(content)}, not a mapping", where, fix)
        return cls(content, where, fix)

    def only(self, *keys: str) -> Record:
        """The record itself, an error where it has other keys."""
        for key in self.values:
            if key not in keys:
                near = did_you_mean(str(key), keys)
                raise _unfit(f"it holds {str(key)[:100]!r}, which nobody knows{near}", self.where, self.fix)
        return self

    def has(self, key: str) -> bool:
        """Whether there is a value, and not null."""
        return self.values.get(key) is not None

    def text(self, key: str, *, choices: Sequence[str] = (), most: int = 10_000) -> str:
        """A text; one of the choices where there are some."""
        value = self._get(key)
        if not isinstance(value, str) or len(value) > most:
            raise self.wrong(key, "a text")
        if choices and value not in choices:
            raise self.wrong(key, f"one of {', '.join(choices)}")
        return value

    def truth(self, key: str) -> bool:
        """True or false."""
        value = self._get(key)
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def whole(self, key: str, low: int = 0, high: int = 2**53) -> int:
        """A whole number from `low` to `high`."""
        value = self._get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.wrong(key, f"a whole number from {low} to {high}")
        return value

    def number(self, key: str, low: float = -1e300, high: float = 1e300) -> float:
        """A finite number from `low` to `high`."""
        value = self._get(key)
        if not _is_number(value) or not low <= value <= high:
            raise self.wrong(key, "a finite number" if low == -high == -1e300 else f"a number from {low:g} to {high:g}")
        return float(value)

    def numbers(self, key: str, count: int | None = None, *, most: int = 1_000_000) -> tuple[float, ...]:
        """A list of finite numbers, `count` of them where that is told."""
        value = self._get(key)
        good = isinstance(value, list | tuple) and len(value) <= most and count in (None, len(value))
        if not good or not all(_is_number(item) for item in value):
            raise self.wrong(key, f"a list of {'' if count is None else f'{count} '}finite numbers")
        return tuple(float(item) for item in value)

    def record(self, key: str) -> Record:
        """A mapping within this one."""
        return Record.of(self._get(key), f"{self.where}: {key}", self.fix)

    def list(self, key: str, *, most: int = 1_000_000) -> list[Any]:
        """A list of whatever."""
        value = self._get(key)
        if not isinstance(value, list) or len(value) > most:
            raise self.wrong(key, f"a list of at most {most}")
        return value

    def wrong(self, key: str, wanted: str) -> ScopeRegError:
        """The error that a value is not what it should be, to be raised."""
        shown = repr(self.values.get(key))
        return _unfit(
            f"{key} is {shown if len(shown) < 60 else shown[:60] + ' ...'}, not {wanted}", self.where, self.fix
        )

    def _get(self, key: str) -> Any:
        if key not in self.values:
            raise _unfit(f"it has no {key}", self.where, self.fix)
        return self.values[key]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e300


def _kind(value: Any) -> str:
    names = {type(None): "nothing", list: "a list", str: "a text", bool: "true or false"}
    return names.get(type(value), f"a {type(value).__name__}")


# records with a hash of themselves


def seal(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content with a hash of itself: `sealed` finds every change that was not meant."""
    bare = {key: value for key, value in content.items() if key != SEAL}
    return {**bare, SEAL: _hash(bare)}


def sealed(content: Any, where: str, fix: str) -> dict[str, Any]:
    """What was sealed, without the hash; an error where it is not what was written, or was never sealed."""
    values = dict(Record.of(content, where, fix).values)
    if values.pop(SEAL, None) != _hash(values):
        raise _unfit("it is damaged: it does not hold what was written", where, fix)
    return values


def _hash(content: Mapping[str, Any]) -> str:
    # Through JSON and back first: keys become text, tuples become lists, as a file gives them back.
    plain = json.loads(json.dumps(content))
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
