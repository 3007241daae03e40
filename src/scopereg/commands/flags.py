"""Flags: messages of the library name Python arguments (`wide=True`); the command line calls them by its flags."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from scopereg.errors import ScopeRegError
from scopereg.options import named

# `name=`, `name=value` or `name=(several, values)` after a space or a bracket: not in the middle of a path.
_ARGUMENT = re.compile(r"""(?<![^\s(])([a-z][a-z_]*)=(?:\(([^)]*)\)|([\w-]+))?(?![\w({"'])""")
_CALL = re.compile(r"[\w.]+\(([a-z][a-z_]*)\)")  # a function with the argument that is wrong
_OTHERWISE = {"path": "data"}  # an argument that another option becomes


@contextmanager
def naming_flags(options: type[Any]) -> Iterator[None]:
    """Errors from within speak of the flags of these options."""
    try:
        yield
    except ScopeRegError as error:
        error.where = _of_call(error.where, options)
        _reword(error, lambda text: in_flags(text, options))
        raise


@contextmanager
def renaming(names: Mapping[str, str]) -> Iterator[None]:
    """Errors from within call some arguments otherwise, such as those of a reader by the options for a volume."""
    try:
        yield
    except ScopeRegError as error:
        _reword(error, lambda text: _ARGUMENT.sub(lambda found: _renamed(found, names), text))
        raise


def _of_call(where: str, options: type[Any]) -> str:
    """The place of an error: nobody at a prompt called a function, so that its argument is named alone."""
    call = _CALL.fullmatch(where)
    option = named(options, call[1]) if call else None
    return where if option is None else option.shown


def in_flags(text: str, options: type[Any]) -> str:
    """A message with every argument that is an option as its flag, and with its value as words."""

    def flag(found: re.Match[str]) -> str:
        name, several, value = found.groups()
        option = named(options, name) or named(options, _OTHERWISE.get(name, name))
        if option is None:
            return found.group()
        if option.positional:
            return option.shown
        if option.field == "output":
            return "-o"
        if value in ("True", "False"):
            return option.flag if value == "True" else f"--no-{option.name}"
        return " ".join([option.flag, *(several or value or "").replace(",", " ").split()])

    return _ARGUMENT.sub(flag, text)


def _renamed(found: re.Match[str], names: Mapping[str, str]) -> str:
    return found.group().replace(found[1], names.get(found[1], found[1]), 1)


def _reword(error: ScopeRegError, reworded: Callable[[str], str]) -> None:
    error.what, error.where, error.fix = (reworded(text) for text in (error.what, error.where, error.fix))
