"""Parsing: the words of a command line become the values of its options. No library is needed for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from scopereg.errors import ScopeRegError, did_you_mean, listed
from scopereg.options import Option, named, options_of

_NUMBER = re.compile(r"[-+]?(\d|\.\d|inf|nan)", re.IGNORECASE)
_UNIT = re.compile(r"([-+]?[\d.]+(?:e[-+]?\d+)?)\s*(mm|cm|m|px|deg|s|ms|hz|fps|x|°|%)", re.IGNORECASE)
_KINDS = {int: "whole number", float: "number"}


class Words(NamedTuple):
    """What a command line says."""

    values: dict[str, Any]  # by field
    renamed: tuple[tuple[str, str], ...]  # names that were typed, and those that they have now


def parse_words(cls: type[Any], words: Sequence[str], verb: str, *, lenient: bool = False) -> Words:
    """The values that words give to the options of a verb; with `lenient` what is wrong is left out, else an error."""
    reader = _Reader(cls, list(words), verb, lenient)
    reader.read()
    return Words(reader.values, tuple(reader.renamed))


class _Reader:
    """Goes through the words once."""

    def __init__(self, cls: type[Any], words: list[str], verb: str, lenient: bool) -> None:
        self.cls, self.words, self.verb, self.lenient = cls, words, verb, lenient
        self.values: dict[str, Any] = {}
        self.renamed: list[tuple[str, str]] = []
        self.loose: list[str] = []  # what belongs to no flag

    def read(self) -> None:
        while self.words:
            word = self.words.pop(0)
            if word == "--":
                self.loose += self.words
                self.words = []
            elif not _is_flag(word):
                self.loose.append(word)
            else:
                self._try(self._flag, word)
        self._try(self._place)

    def _try(self, step: Any, *arguments: Any) -> None:
        try:
            step(*arguments)
        except ScopeRegError:
            if not self.lenient:
                raise

    def _flag(self, word: str) -> None:
        typed, equals, value = word.partition("=")
        option, negative = self._option(typed)
        if option.kind is bool:
            if equals:
                raise ScopeRegError(f"it takes no value, got {value!r}", where=typed, fix=_switch(option))
            self.values[option.field] = not negative
            return
        given = [value] if equals else []
        while self.words and self._wants(option, given):
            given.append(self.words.pop(0))
        self._set(option, given, typed)

    def _option(self, typed: str) -> tuple[Option, bool]:
        """The option that a flag belongs to, and whether the flag says no."""
        every = [option for option in options_of(self.cls) if not option.positional]
        for option in every:
            if typed.replace("_", "-") in option.flags:
                return option, False
            if option.kind is bool and not option.one_way and typed.replace("_", "-") == f"--no-{option.name}":
                return option, True
        name = typed.removeprefix("--")
        old = named(self.cls, name) if typed.startswith("--") else None
        if old is not None and not old.positional:
            self.renamed.append((typed, old.flag))
            return old, False
        raise self._unknown(typed, every, old)

    def _unknown(self, typed: str, every: Sequence[Option], placed: Option | None) -> ScopeRegError:
        if placed is not None:
            fix = f"write it without a flag: {self.verb} {self._usage()}"
            return ScopeRegError(f"{placed.shown} goes by its place", where=typed, fix=fix)
        flags = [flag for option in every for flag in option.flags]
        flags += [f"--no-{option.name}" for option in every if option.kind is bool and not option.one_way]
        short = next((flag for flag in flags if len(flag) == 2 and typed.startswith(flag)), None)
        if short is not None:
            return ScopeRegError(f"{short} and its value are one word", where=typed, fix=f"write {short} {typed[2:]}")
        hint = did_you_mean(typed, flags)
        return ScopeRegError(f"{self.verb} has no such option{hint}", where=typed, fix=f"see {self.verb} --help")

    def _usage(self) -> str:
        return " ".join(option.shown for option in options_of(self.cls) if option.positional)

    def _wants(self, option: Option, given: Sequence[str]) -> bool:
        """Whether the next word is a value of the option."""
        word = self.words[0]
        if _is_flag(word) and not (option.kind in _KINDS and _NUMBER.match(word)):
            return False
        if option.count is not None:
            return len(given) < option.count
        # Several numbers end where something else comes, such as the name of a file.
        return not given or option.kind not in _KINDS or _is_number(word)

    def _place(self) -> None:
        """Words without a flag, by their places."""
        rest = self.loose
        for option in (option for option in options_of(self.cls) if option.positional):
            count = len(rest) if option.count is None else option.count
            given, rest = rest[:count], rest[count:]
            if given:
                self._try(self._set, option, given, option.shown)
        if rest:
            usage = f"write {self.verb} {self._usage()}".strip()
            if len(rest) == 1 and "output" not in self.values and named(self.cls, "output") is not None:
                usage += f"; what is written is named by -o {rest[0]}"
            raise ScopeRegError(
                f"got {listed([repr(word) for word in rest])}, which belongs to no option",
                where=self.verb,
                fix=usage if self._usage() else f"leave it out; {self.verb} takes options alone",
            )

    def _set(self, option: Option, given: Sequence[str], where: str) -> None:
        if given == ["None"] and option.may_be_none:
            self.values[option.field] = None
            return
        if option.count is not None and len(given) < option.count:
            wanted = "no value follows" if option.count == 1 else f"{option.count} values are needed, got {len(given)}"
            raise ScopeRegError(wanted, where=where, fix=f"write {option.flag} {option.placeholder}")
        values = [_value(option, word, where) for word in given]
        self.values[option.field] = values[0] if option.count == 1 else tuple(values)


def _is_flag(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and not _NUMBER.match(word)


def _is_number(word: str) -> bool:
    """Whether a word is meant as a number, also with a unit or a comma."""
    return bool(_UNIT.fullmatch(word)) or re.fullmatch(r"[-+]?[\d.,]+(e[-+]?\d+)?|[-+]?(inf|nan)", word) is not None


def _switch(option: Option) -> str:
    return f"write {option.flag}" + ("" if option.one_way else f" or --no-{option.name}")


def _value(option: Option, word: str, where: str) -> Any:
    """One value of an option."""
    if option.kind is Path:
        return Path(word)
    try:
        value = option.kind(word)
    except ValueError:
        raise _no_number(option, word, where) from None
    if option.choices and value not in option.choices:
        words = [str(choice) for choice in option.choices]
        raise ScopeRegError(
            f"{word!r} is no choice{did_you_mean(word, words)}", where=where, fix=f"use {' or '.join(words)}"
        )
    return value


def _no_number(option: Option, word: str, where: str) -> ScopeRegError:
    united = _UNIT.fullmatch(word)
    fix = f"pass a {_KINDS[option.kind]}"
    if united:
        fix = f"leave the unit out: {option.flag} {united[1]}"
    elif "," in word and _NUMBER.match(word):
        fix = f"write {option.flag} {_with_points(option, word)}"
    elif option.kind is int and _NUMBER.match(word):
        fix = "pass a whole number, without a point"
    return ScopeRegError(f"{word!r} is no {_KINDS[option.kind]}", where=where, fix=fix)


def _with_points(option: Option, word: str) -> str:
    """A number with a comma in it, which is one with a decimal comma, or several."""
    one, several = word.replace(",", ".", 1), " ".join(word.replace(",", " ").split())
    if option.count == 1:
        return one
    return f"{one}; or {several}, for two numbers" if re.fullmatch(r"[-+]?\d+,\d+", word) else several
