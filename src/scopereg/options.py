"""Options: what the fields of a verb's dataclass are on the command line, in files and in help. Needs no torch."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

Value = TypeVar("Value")
_PLACE, _ONE_WAY = "positional", "one way"
Positional = Annotated[Value, _PLACE]  # typed without a flag
OneWay = Annotated[Value, _ONE_WAY]  # a switch without its --no-
_METAVARS: dict[type, str] = {int: "N", float: "X", str: "TEXT", Path: "PATH"}


_KNOWN: dict[type[Any], tuple[Option, ...]] = {}  # read once each


@dataclass(frozen=True)
class Arg:
    """What the type of an option says besides the values that it takes."""

    help: str | None
    name: str | None
    aliases: tuple[str, ...]
    formerly: tuple[str, ...]
    metavar: str | None


def arg(
    *,
    help: str | None = None,
    name: str | None = None,
    aliases: Sequence[str] = (),
    formerly: Sequence[str] = (),
    metavar: str | None = None,
) -> Arg:
    """A mark for `Annotated`: the option's sentence, its name where the field has another, other names that are as
    good (with their dashes), names that it had before (without), and how help shows its value."""
    return Arg(help, name, tuple(aliases), tuple(formerly), metavar)


@dataclass(frozen=True)
class Option:
    """One option of a verb."""

    field: str
    name: str  # with dashes, as typed behind --
    kind: type[Any]  # of one value: str, int, float, Path or bool
    count: int | None  # values; None: any number
    choices: tuple[Any, ...]
    default: Any
    help: str
    positional: bool
    one_way: bool  # a switch without its --no-
    may_be_none: bool
    aliases: tuple[str, ...]
    formerly: tuple[str, ...]  # names that it had before, with dashes
    metavar: str  # of one value

    @property
    def flag(self) -> str:
        return f"--{self.name}"

    @property
    def shown(self) -> str:
        """How messages call it."""
        return self.name.upper().replace("-", "_") if self.positional else self.flag

    @property
    def flags(self) -> tuple[str, ...]:
        """All that may be typed for it, the negative of a switch aside; the short ones first."""
        return tuple(sorted((self.flag, *self.aliases), key=lambda flag: flag.startswith("--")))

    @property
    def placeholder(self) -> str:
        """How help shows its values."""
        if self.kind is bool:
            return ""
        return f"{self.metavar} ..." if self.count is None else " ".join([self.metavar] * self.count)


def options_of(cls: type[Any]) -> tuple[Option, ...]:
    """The options of a dataclass, in the order of its fields."""
    if cls not in _KNOWN:
        hints, helps = get_type_hints(cls, include_extras=True), field_help(cls)
        _KNOWN[cls] = tuple(
            _option(each.name, hints[each.name], each.default, helps.get(each.name, "")) for each in fields(cls)
        )
    return _KNOWN[cls]


def named(cls: type[Any], word: str) -> Option | None:
    """The option that a field, a name of now or a name of before belongs to, with dashes or underscores."""
    wanted = word.replace("_", "-")
    every = options_of(cls)
    now = (each for each in every if wanted in (each.name, each.field.replace("_", "-")))
    return next(now, None) or next((each for each in every if wanted in each.formerly), None)


def _option(field: str, hint: Any, default: Any, sentence: str) -> Option:
    marks, kind = _marks(hint), _bare(hint)
    args = [mark for mark in marks if isinstance(mark, Arg)]
    may_be_none = get_origin(kind) in (Union, UnionType)
    if may_be_none:
        (kind,) = (part for part in get_args(kind) if part is not type(None))
    kind, count = _counted(_bare(kind))
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    kind = type(choices[0]) if choices else kind
    name = next((each.name for each in args if each.name), field).replace("_", "-")
    positional = _PLACE in marks
    usual = "{" + ",".join(map(str, choices)) + "}" if choices else _METAVARS.get(kind, "")
    usual = name.upper().replace("-", "_") if positional else usual
    return Option(
        field,
        name,
        kind,
        count,
        choices,
        default,
        sentence,
        positional,
        _ONE_WAY in marks,
        may_be_none,
        tuple(alias for each in args for alias in each.aliases),
        tuple(old.replace("_", "-") for each in args for old in each.formerly),
        next((each.metavar for each in args if each.metavar), usual),
    )


def _bare(hint: Any) -> Any:
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return hint


def _counted(kind: Any) -> tuple[Any, int | None]:
    """The type of one value, and how many there are."""
    if get_origin(kind) is not tuple:
        return kind, 1
    first, *rest = get_args(kind)
    return _bare(first), None if rest == [Ellipsis] else 1 + len(rest)


def field_help(cls: type[Any]) -> dict[str, str]:
    """The sentence of each option by its field: that of its type where verbs share it, else the one below the field."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if is_dataclass(base):
            found |= _own_help(base)
    for name, hint in get_type_hints(cls, include_extras=True).items():
        shared = next((mark.help for mark in _marks(hint) if isinstance(mark, Arg) and mark.help), None)
        if shared is not None:
            found[name] = shared
    return found


def _marks(hint: Any) -> list[Any]:
    """What `Annotated` says of a type, also within another one, and within those of a tuple or a union."""
    if get_origin(hint) is Annotated:
        kind, *marks = get_args(hint)
        return [*marks, *_marks(kind)]
    if get_origin(hint) in (tuple, Union, UnionType):
        return [mark for part in get_args(hint) for mark in _marks(part)]
    return []


def _own_help(cls: type[Any]) -> dict[str, str]:
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for item, following in pairwise(body.body):
        if not (isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)):
            continue
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            found[item.target.id] = " ".join(str(following.value.value).split())  # on one line, however written
    return found
