"""The one exception that users meet: what is wrong, where, and how to fix it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self


class ScopeRegError(Exception):
    """Bad input or an environment that cannot do what was asked.

    `what` states the problem with the offending value, `where` names the argument, file or option,
    `fix` tells how to fix it. All three appear in the message.
    """

    def __init__(self, what: str, *, where: str, fix: str) -> None:
        super().__init__(what, where, fix)
        self.what = what
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.where}: {self.what}\n  To fix it: {self.fix}"

    def kept(self) -> Self:
        """The same, to be kept as a result: without its traceback, whose frames hold volumes as long as it lives."""
        each: BaseException | None = self
        while each is not None:
            each.__traceback__ = None
            each = each.__cause__ or each.__context__
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are remade by a call with their `args`, which names and the classes derived from this one forbid;
        # a pool of processes whose worker raised one would hang or tell of a broken pool instead.
        return _remade, (type(self), self.args), self.__dict__


def _remade(kind: type[ScopeRegError], args: tuple[str, ...]) -> ScopeRegError:
    return kind.__new__(kind, *args)


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """`, did you mean 'x'?` for the nearest choice, or nothing."""
    near = difflib.get_close_matches(word, list(choices), n=1, cutoff=0.5)
    return f", did you mean {near[0]!r}?" if near else ""


def listed(names: Sequence[str], most: int = 8) -> str:
    """Names for a message, the first few of many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
