"""Write docs/cli.md from the option dataclasses: `python docs/make_cli_reference.py`; a test keeps it up to date."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from pathlib import Path

from scopereg.cli import VERBS
from scopereg.config import field_help, positional_options

PAGE = Path(__file__).with_name("cli.md")


def page() -> str:
    lines = [
        "# Command line",
        "",
        "Made from `scopereg.commands` by `docs/make_cli_reference.py`. Every option may also stand in a YAML file,",
        "named as here without the dashes, and read with `--config FILE.yaml`; words on the command line win over it.",
        "",
    ]
    for name, verb in VERBS.items():
        lines += section(name, verb.example, verb.options)
    return "\n".join(lines)


def section(name: str, example: str, cls: type) -> list[str]:
    hints = typing.get_type_hints(cls, include_extras=True)
    lines = [f"## scopereg {name}", "", inspect.cleandoc(cls.__doc__ or ""), "", "```", example, "```", ""]
    lines += ["| option | values | default | meaning |", "|---|---|---|---|"]
    helps, positional = field_help(cls), positional_options(cls)
    for field in dataclasses.fields(cls):
        flag = field.name.upper() if field.name in positional else f"`--{field.name.replace('_', '-')}`"
        values = describe(hints[field.name])
        lines.append(f"| {flag} | {values} | {shown(field.default)} | {helps[field.name]} |")
    return [*lines, ""]


def describe(hint: object) -> str:
    if typing.get_origin(hint) is typing.Annotated:
        kind, *marks = typing.get_args(hint)
        choices = [mark.metavar for mark in marks if getattr(mark, "metavar", None)]
        return choices[0].strip("{}").replace(",", ", ") if choices else describe(kind)
    if typing.get_origin(hint) is typing.Literal:
        return ", ".join(map(str, typing.get_args(hint)))
    if typing.get_origin(hint) is tuple and typing.get_args(hint)[-1] is Ellipsis:
        return f"one {describe(typing.get_args(hint)[0])} or more"
    if typing.get_origin(hint) is tuple:
        return " ".join(describe(part) for part in typing.get_args(hint))
    parts = [part for part in typing.get_args(hint) if part is not type(None)]
    if parts:
        return " or ".join(describe(part) for part in parts)
    names = {"int": "whole number", "float": "number", "str": "text", "Path": "path", "bool": "yes or no"}
    return names[getattr(hint, "__name__", "")]


def shown(value: object) -> str:
    if isinstance(value, tuple) and value:
        return " ".join(map(str, value))
    return "none" if value in (None, ()) else str(value)


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE)
