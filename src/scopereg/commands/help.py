"""Help: what `scopereg VERB --help` shows, in groups and as wide as the terminal."""

from __future__ import annotations

import inspect
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from scopereg.commands.groups import groups_of
from scopereg.options import Option, options_of

_WIDEST, _NARROWEST = 100, 40
_COLUMN = 26  # where sentences begin, on terminals that are wide enough
_ENOUGH = 72
EVERYWHERE = {
    "--config FILE.yaml": "Read options from a file; words here win over it.",
    "--json": "Print the result as JSON, and nothing else, on the standard output.",
    "-v, --verbose": "Say more: what is read, made and used, and how long it takes.",
    "-q, --quiet": "Say less: neither progress nor notes.",
    "--log FILE": "Also write all that is said, with times, to a file.",
    "-h, --help": "Show this.",
}


def help_of(verb: str, cls: type[Any], example: str, defaults: Any) -> str:
    """Usage, what the verb does, an example, and the options in groups."""
    width = max(min(shutil.get_terminal_size((80, 24)).columns, _WIDEST), _NARROWEST)
    lines = [_usage(f"scopereg {verb}", cls, width), "", *_paragraphs(inspect.getdoc(cls) or "", width)]
    lines += ["", "example:", *_folded(f"  {example}", width, "      ")]
    for title, options in groups_of(verb, cls).items():
        lines += ["", f"{title}:"]
        for option in options:
            lines += _entry(_left(option), _sentence(option, getattr(defaults, option.field)), width)
    lines += ["", "everywhere:"]
    for left, sentence in EVERYWHERE.items():
        lines += _entry(left, sentence, width)
    return "\n".join(lines)


def _usage(verb: str, cls: type[Any], width: int) -> str:
    places = [
        option.shown + (" ..." if option.count is None else "") for option in options_of(cls) if option.positional
    ]
    words = " ".join([*places, "[options]"])
    return "\n".join(_folded(f"usage: {verb} {words}", width, "    "))


def _paragraphs(text: str, width: int) -> Iterator[str]:
    for number, paragraph in enumerate(text.split("\n\n")):
        if number:
            yield ""
        yield from _folded(" ".join(paragraph.split()), width, "")


def _left(option: Option) -> str:
    if option.positional:
        return option.shown
    if option.kind is bool and not option.one_way and option.default in (True, None):
        return f"--[no-]{option.name}"
    return f"{', '.join(option.flags)} {option.placeholder}".strip()


def _sentence(option: Option, default: Any) -> str:
    """What it means, and what it is where nobody says."""
    words = option.help
    if option.kind is bool:
        return f"{words} [yes]" if default is True else words
    choices = option.metavar.strip("{}").replace(",", ", ") if option.positional and "{" in option.metavar else ""
    words += f" One of {choices}." if choices else ""
    known = default if not isinstance(default, tuple) else " ".join(map(str, default))
    return words if known in (None, "") else f"{words} [{known}]"


def _entry(left: str, sentence: str, width: int) -> list[str]:
    """An option and its sentence: beside each other, or below where the option is long or the terminal narrow."""
    column = _COLUMN if width >= _ENOUGH else 8
    indent = " " * column
    folded = _folded(indent + sentence, width, indent)
    if width >= _ENOUGH and len(left) + 4 <= column:
        return [f"  {left}".ljust(column) + folded[0][column:], *folded[1:]]
    return [*_folded(f"  {left}", width, "      "), *folded]


def _folded(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def overview(rows: Sequence[tuple[str, str]], examples: Sequence[str]) -> str:
    """All verbs, each in a line, and how they are called."""
    width = max(min(shutil.get_terminal_size((80, 24)).columns, _WIDEST), _NARROWEST)
    column = max(len(name) for name, _ in rows) + 4
    lines = ["scopereg: find an untracked 2D ultrasound frame in a 3D volume.", ""]
    lines += ["usage: scopereg VERB [options]", "       scopereg VERB --help", "", "verbs:"]
    for name, summary in rows:
        lines += _folded(f"  {name:<{column - 4}}  {summary}", width, " " * column)
    lines += ["", "examples:"]
    for example in examples:
        lines += _folded(f"  {example}", width, "      ")
    return "\n".join(lines)
