"""Options from YAML and from the command line: one dataclass in, one filled dataclass out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scopereg.errors import ScopeRegError, did_you_mean
from scopereg.io import records
from scopereg.options import named, options_of


def read_yaml(path: Path | str, options: type[Any]) -> dict[str, Any]:
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
    names = [option.name.replace("-", "_") for option in options_of(options)]
    values = {str(key).replace("-", "_"): value for key, value in content.items()}
    for key, value in values.items():
        if named(options, key) is None:
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
    for key, value in values.items():
        option = named(options, key)
        assert option is not None, key
        if option.positional or (value is None and (option.kind is bool or not option.may_be_none)):
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
    ordered = [option for option in options_of(options) if option.positional]
    while ordered and values.get(ordered[-1].field) is None:
        ordered.pop()
    words: list[str] = []
    for option in ordered:
        value = option.default if values.get(option.field) is None else values[option.field]
        words += map(str, value if isinstance(value, list | tuple) else [value])
    return words
