"""Options from YAML and from the command line: one dataclass in, one filled dataclass out."""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from scopereg.errors import ScopeRegError, did_you_mean
from scopereg.io import records

Options = TypeVar("Options")


def read_yaml(path: Path | str, options: type[Options]) -> dict[str, Any]:
    """Values for `options` from a YAML mapping; unknown keys are refused with a did-you-mean.

    Keys are the option names, with dashes or underscores.
    """
    content = records.read_yaml(path, "check the path after --config, and the line named above if there is one")
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ScopeRegError(
            f"holds a {type(content).__name__}, not a mapping",
            where=str(path),
            fix="write one `option: value` per line",
        )
    names = [field.name for field in fields(options)]  # type: ignore[arg-type]
    values = {str(key).replace("-", "_"): value for key, value in content.items()}
    for key, value in values.items():
        if key not in names:
            raise ScopeRegError(
                f"unknown option {key!r}{did_you_mean(key, names)}",
                where=str(path),
                fix=f"use one of: {', '.join(names)}",
            )
        if isinstance(value, dict):
            raise ScopeRegError(f"{key} holds a mapping", where=str(path), fix=f"write `{key}: value`")
    return values


def as_arguments(values: dict[str, Any], options: type[Any]) -> list[str]:
    """YAML values as command-line words, so that a file and the command line are checked by one parser."""
    words = _positional_words(values, options)
    positional = positional_options(options)
    hints = get_type_hints(options)
    for key, value in values.items():
        if key in positional or (value is None and type(None) not in get_args(hints[key])):
            continue  # `option:` without a value is the default
        flag = "--" + key.replace("_", "-")
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        elif isinstance(value, list | tuple):
            words += [flag, *map(str, value)]
        else:
            words += [flag, str(value)]
    return words


def _positional_words(values: dict[str, Any], options: type[Any]) -> list[str]:
    """Words that go by their place: in the order of the fields, up to the last one given."""
    ordered = [field for field in fields(options) if field.name in positional_options(options)]
    while ordered and values.get(ordered[-1].name) is None:
        ordered.pop()
    words: list[str] = []
    for field in ordered:
        value = field.default if values.get(field.name) is None else values[field.name]
        words += map(str, value if isinstance(value, list | tuple) else [value])
    return words


def positional_options(options: type[Any]) -> set[str]:
    """Names of the options that are typed without a flag."""
    return {field.name for field in fields(options) if "Positional" in str(field.type)}


def field_help(options: type[Any]) -> dict[str, str]:
    """The sentence of each option by its name: that of its type where verbs share it, else the one below the field."""
    found: dict[str, str] = {}
    for cls in reversed(options.__mro__):
        if is_dataclass(cls):
            found |= _own_help(cls)
    for name, hint in get_type_hints(options, include_extras=True).items():
        shared = next((mark.help for mark in _marks(hint) if getattr(mark, "help", None)), None)
        if shared is not None:
            found[name] = shared
    return found


def _marks(hint: Any) -> list[Any]:
    """What `Annotated` says of a type, also within another one."""
    if get_origin(hint) is not Annotated:
        return []
    kind, *marks = get_args(hint)
    return [*marks, *_marks(kind)]


def _own_help(options: type[Any]) -> dict[str, str]:
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(options))).body
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for item, following in pairwise(body.body):
        if not (isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)):
            continue
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            found[item.target.id] = " ".join(str(following.value.value).split())  # on one line, however written
    return found
