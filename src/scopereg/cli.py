"""The `scopereg` command: parse the words of a verb into its options, call one function.

Modules of a verb are imported only when it runs: `scopereg --help` loads neither torch nor rich.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from scopereg import __version__, interruption
from scopereg.commands.verbs import VERBS, Verb
from scopereg.environment import let_threads_sleep
from scopereg.errors import ScopeRegError, did_you_mean
from scopereg.options import options_of
from scopereg.progress import say

_HELP = ("-h", "--help")
_CLOSED_PIPE = 128 + 13  # what a shell reports of a process that SIGPIPE ended


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    return _piped(lambda: status_of(lambda: _begin(words)))


def _begin(words: list[str]) -> int:
    from scopereg.commands.output import carried_out, manner_of

    manner, rest = manner_of(words)
    return carried_out(manner, rest, lambda: status_of(lambda: _dispatch(rest)))


def status_of(work: Callable[[], int]) -> int:
    """The exit status of some work; what went wrong is said in words."""
    try:
        with interruption.termination():
            return work()
    except ScopeRegError as error:
        from scopereg.commands.output import tell

        tell(error={"what": error.what, "where": error.where, "fix": error.fix})
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        name = interruption.name_of(stop)
        print("interrupted" if name == "SIGINT" else f"ended by {name}", file=sys.stderr)
        return interruption.status_of(name)


def _piped(work: Callable[[], int]) -> int:
    """The status of some work; when nobody reads what it writes any more, as after `| head`, it ends without a word."""
    try:
        status = work()
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # What is left in the buffer goes nowhere when the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _CLOSED_PIPE
    except SystemExit as stop:
        if stop.code == 1 and _goes_nowhere(sys.stdout):  # rich does the same, with another status
            return _CLOSED_PIPE
        raise


def _goes_nowhere(stream: TextIO) -> bool:
    with suppress(OSError, ValueError):
        return os.path.samestat(os.fstat(stream.fileno()), os.stat(os.devnull))
    return False


def _dispatch(words: list[str]) -> int:
    if words[:1] in (["--version"], ["-V"]):
        print(f"scopereg {__version__}")
        return 0
    if words[:1] == ["help"] and len(words) > 1:
        words = [*words[1:], "--help"]
    if not words or words[0] in (*_HELP, "help"):
        print(_overview())
        return 0
    name, rest = _find_verb(words)
    if name is None:
        print(_overview(words[0] + " "))
        return 0
    return _run(VERBS[name], name, rest)


def _run(verb: Verb, name: str, words: list[str]) -> int:
    from scopereg.commands.flags import naming_flags

    if _asks_for_help(words):
        from scopereg.commands.help import help_of

        wanted = [word for word in words if word not in _HELP]
        print(help_of(name, verb.options, verb.example, _defaults(verb.options, wanted)))
        return 0
    let_threads_sleep()
    with naming_flags(verb.options):
        return int(verb.module.run(parse(name, words)))


def _asks_for_help(words: list[str]) -> bool:
    return any(word in _HELP for word in words[: words.index("--") if "--" in words else len(words)])


def _find_verb(words: list[str]) -> tuple[str | None, list[str]]:
    """The verb and the words after it; None for a group of verbs (such as `data`) without one of its own."""
    for count in (2, 1):
        name = " ".join(words[:count])
        if name in VERBS:
            return name, words[count:]
    group = [name.split()[1] for name in VERBS if name.startswith(words[0] + " ")]
    if group and (len(words) == 1 or words[1] in ("-h", "--help")):
        return None, []
    if not group and Path(words[0]).exists():
        raise ScopeRegError(
            "a file, where a verb stands",
            where=f"scopereg {words[0]}",
            fix=f"write scopereg register {' '.join(words)}",
        )
    choices = group or sorted({name.split()[0] for name in VERBS})
    wrong = words[1] if group else words[0]
    raise ScopeRegError(
        f"unknown verb {wrong!r}{did_you_mean(wrong, choices)}",
        where=" ".join(["scopereg", *words[: 1 if group else 0]]),
        fix=f"use one of: {', '.join(choices)}",
    )


def parse(name: str, words: list[str]) -> Any:
    """The options of a verb from `--config FILE.yaml` and the words, which win over the file."""
    options = VERBS[name].options
    path, words = _take("--config", words)
    from_file = [] if path is None else _words_in(path, options)
    default = _defaults(options, from_file, words)
    if path is not None:
        try:
            default = _fill(options, from_file, default, f"scopereg {name}")
        except ScopeRegError as error:
            raise ScopeRegError(f"{error.where}: {error.what}", where=path, fix=error.fix) from None
    return _fill(options, words, default, f"scopereg {name}")


def _words_in(path: str, options: type[Any]) -> list[str]:
    from scopereg.config import as_arguments, read_yaml

    return as_arguments(read_yaml(path, options), options)


def _fill(options: type[Any], words: list[str], default: Any, verb: str) -> Any:
    """The default with what the words say; a name of before is told."""
    from scopereg.commands.parsing import parse_words

    found = parse_words(options, words, verb)
    for old, new in found.renamed:
        say(f"note    {old} is called {new} now; the old name still works")
    return replace(default, **found.values)


def _defaults(options: Any, *lists: list[str]) -> Any:
    """What options are where nobody says otherwise: a verb with presets has them in `preset_defaults`.

    A preset depends on options, and defaults on the preset. Whatever is wrong is told when the words are parsed with
    the right defaults.
    """
    if not hasattr(options, "preset_defaults"):
        return options()
    from scopereg.commands.parsing import parse_words

    asked = {option.field: option.default for option in options_of(options)}
    for words in lists:
        asked |= parse_words(options, words, "scopereg", lenient=True).values
    return options.preset_defaults(asked["preset"], asked["network"], asked["dataset"])


def _take(flag: str, words: list[str]) -> tuple[str | None, list[str]]:
    """The value of the last `flag`, None where there is none, and the words without both."""
    for position in reversed(range(len(words))):
        word, *following = words[position:]
        if word.startswith(f"{flag}="):
            return word.split("=", 1)[1], words[:position] + following
        if word == flag:
            if not following:
                raise ScopeRegError("no value follows", where=flag, fix=f"write {flag} and its value")
            return following[0], words[:position] + following[1:]
    return None, words


def _overview(prefix: str = "") -> str:
    from scopereg.commands.help import overview

    shown = {name: verb for name, verb in VERBS.items() if name.startswith(prefix)}
    return overview([(name, verb.summary) for name, verb in shown.items()], [verb.example for verb in shown.values()])


if __name__ == "__main__":
    sys.exit(main())
