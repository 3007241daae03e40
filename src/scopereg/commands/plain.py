"""Options from words by argparse alone, for machines that have torch and little else: no tyro, no rich."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

Value = TypeVar("Value")
_PLACE = "positional"
Positional = Annotated[Value, _PLACE]  # as tyro.conf.Positional
OneWay = Annotated[Value, "one way"]  # as tyro.conf.FlagCreatePairsOff; no option here is so


@dataclass(frozen=True)
class Arg:
    """Other names of an option, the sentence that tells what it means, and how help shows its value."""

    aliases: tuple[str, ...]
    help: str | None
    metavar: str | None


def arg(*, aliases: Sequence[str] = (), help: str | None = None, metavar: str | None = None) -> Arg:
    """Stand-in for `tyro.conf.arg`, as far as options here use it."""
    return Arg(tuple(aliases), help, metavar)


def parse_plainly(options: type[Value], words: Sequence[str], default: Value, prog: str, description: str) -> Value:
    """The options that the words fill."""
    parser = argparse.ArgumentParser(
        prog=prog, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    hints = get_type_hints(options, include_extras=True)
    for field in fields(options):  # type: ignore[arg-type]
        _add(parser, field.name, hints[field.name], getattr(default, field.name))
    found = vars(parser.parse_args(words))
    return options(**{name: tuple(value) if isinstance(value, list) else value for name, value in found.items()})


def _add(parser: argparse.ArgumentParser, name: str, hint: Any, default: Any) -> None:
    """One option: by its place, or by its flag and other names."""
    kind, marks = hint, []
    while get_origin(kind) is Annotated:
        kind, *more = get_args(kind)
        marks += more
    how = {**_values(kind), "default": default}
    if _PLACE in marks:
        parser.add_argument(name, **{"nargs": "?", **how})
        return
    aliases = [alias for mark in marks if isinstance(mark, Arg) for alias in mark.aliases]
    parser.add_argument(f"--{name.replace('_', '-')}", *aliases, dest=name, **how)


def _values(kind: Any) -> dict[str, Any]:
    """Arguments of `add_argument` for the values of a type."""
    if kind is bool:
        return {"action": argparse.BooleanOptionalAction}
    if get_origin(kind) in (Union, UnionType):
        (kind,) = (part for part in get_args(kind) if part is not type(None))
        return _values(kind)
    if get_origin(kind) is Literal:
        return {"choices": get_args(kind)}
    if get_origin(kind) is tuple:
        first, *rest = get_args(kind)
        return {"nargs": "*" if rest == [Ellipsis] else 1 + len(rest), **_values(first)}
    assert kind in (str, int, float, Path), kind
    return {"type": kind}
