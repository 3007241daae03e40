"""Write docs/cli.md from the option dataclasses: `python docs/make_cli_reference.py`; a test keeps it up to date."""

from __future__ import annotations

import inspect
from pathlib import Path

from scopereg.cli import VERBS
from scopereg.commands.groups import groups_of
from scopereg.commands.help import EVERYWHERE
from scopereg.options import Option

PAGE = Path(__file__).with_name("cli.md")


def page() -> str:
    lines = [
        "# Command line",
        "",
        "Made from `scopereg.commands` by `docs/make_cli_reference.py`. Every option may also stand in a YAML file,",
        "named as here without the dashes, and read with `--config FILE.yaml`; words on the command line win over it.",
        "",
        "## Everywhere",
        "",
        "| option | meaning |",
        "|---|---|",
        *(f"| `{names}` | {meaning} |" for names, meaning in EVERYWHERE.items()),
        "",
        "With `--json` what is said for people goes to the standard error (nowhere with `-q`); an error is `error` in",
        "the JSON, with `what`, `where` and `fix`. The status is 0 when all went well, 1 when frames or runs failed, 2",
        "for an error, 130 after Ctrl-C, 143 after SIGTERM, 141 when nobody reads the output any more.",
        "",
    ]
    for name, verb in VERBS.items():
        lines += section(name, verb.example, verb.options)
    return "\n".join(lines)


def section(name: str, example: str, cls: type) -> list[str]:
    lines = [f"## scopereg {name}", "", inspect.cleandoc(cls.__doc__ or ""), "", "```", example, "```"]
    for title, options in groups_of(name, cls).items():
        lines += ["", f"**{title}**", "", "| option | values | default | meaning |", "|---|---|---|---|"]
        lines += [row(option) for option in options]
    return [*lines, ""]


def row(option: Option) -> str:
    names = option.shown if option.positional else ", ".join(f"`{flag}`" for flag in option.flags)
    return f"| {names} | {values(option)} | {shown(option)} | {option.help} |"


def values(option: Option) -> str:
    """What may follow the option."""
    if "{" in option.metavar:
        kind = option.metavar.strip("{}").replace(",", ", ")
    else:
        kind = {int: "whole number", float: "number", str: "text", Path: "path", bool: "yes or no"}[option.kind]
    return f"one {kind} or more" if option.count is None else " ".join([kind] * option.count)


def shown(option: Option) -> str:
    """What it is where nobody says."""
    value = option.default
    if option.kind is bool:
        return "yes" if value else "no"
    if isinstance(value, tuple) and value:
        return " ".join(map(str, value))
    return "none" if value in (None, ()) else str(value)


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE)
