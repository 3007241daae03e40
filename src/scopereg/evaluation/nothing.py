"""Nothing: every method against no registration at all, frame by frame, with a test; a method can be worse than that.

Each row of results tells the error that its frame has before registration, so that this needs no run of `identity`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from scopereg.evaluation.results import START, Group
from scopereg.evaluation.statistics import Interval, can_test, holm, mean_interval, signed_rank
from scopereg.evaluation.tables import Cell, Column, Table, TableBlock, number

LEVEL = 0.05  # of significance, after Holm's correction
COLUMNS = [
    Column("method", "Method", brief=True),
    Column("start_mm", "before (mm)", ".2f", brief=True),
    Column("mtre_mm", "after (mm)", ".2f", brief=True),
    Column("difference_mm", "Δ (mm)", "+.2f", brief=True),
    Column("by_patients_mm", "95 % over patients", "+.2f"),
    Column("worse_percent", "frames made worse (%)", ".0f"),
    Column("p", "p", "p"),
    Column("p_holm", "p (Holm)", "p"),
    Column("frames", "frames", "d"),
    Column("not_located", "not located", "d"),
    Column("verdict", "against nothing", brief=True),
]
NOTE = (
    "Δ: mTRE of the method minus that before registration, per frame; positive is worse than nothing. p: two-sided "
    "Wilcoxon signed-rank test; Holm over the rows. A frame that was not located is left out of the means and is the "
    "largest error of all in the test."
)


class AgainstNothing(NamedTuple):
    """A method against no registration; p is NaN where it was not tested."""

    method: str
    start_mm: float  # mean over the frames that were located, as is the next
    mtre_mm: float
    by_patients: Interval
    worse: float  # share of all frames whose error grew, or that were not located
    p: float
    p_holm: float
    frames: int
    not_located: int

    @property
    def difference_mm(self) -> float:
        return self.mtre_mm - self.start_mm

    @property
    def is_worse(self) -> bool:
        """Worse on average, or for most frames beyond chance."""
        return self.difference_mm > 0 or self.not_located == self.frames or (self._is_proven and self.worse > 0.5)

    @property
    def verdict(self) -> str:
        """In a few words."""
        if self.is_worse:
            if self._is_proven and self.worse > 0.5:
                return "worse than nothing"
            return "worse on average" if self.difference_mm > 0 else "worse than nothing"
        return "better" if self._is_proven else "no proven gain"

    @property
    def sentence(self) -> str:
        """In words, for whom it is not to be overlooked."""
        if self.not_located == self.frames:
            return f"{self.method} located none of {self.frames} frames."
        tested = "not tested" if np.isnan(self.p_holm) else f"p {_equals(self.p_holm)} (Wilcoxon, Holm)"
        return (
            f"{self.method} is {self.verdict}: {self.mtre_mm:.2f} mm after registration, {self.start_mm:.2f} mm before "
            f"({self.difference_mm:+.2f} mm; {100 * self.worse:.0f} % of the frames made worse; {tested})."
        )

    @property
    def _is_proven(self) -> bool:
        return self.p_holm < LEVEL


def against_nothing(group: Group) -> list[AgainstNothing]:
    """Every method of a group but `identity`, which is nothing; empty where the errors before are not known."""
    methods = [method for method in group.methods if method != START]
    if not np.isfinite(group.start_mm).all() or not methods:
        return []
    tests = [_p(group, method) for method in methods]
    adjusted = holm(tests) if not np.isnan(tests).any() else tests
    return [_against(group, *each) for each in zip(methods, tests, adjusted, strict=True)]


def nothing_table(group: Group, found: Iterable[AgainstNothing]) -> Table:
    """A row for each method, what is worse than nothing in words."""
    rows = [
        [
            *(Cell(value) for value in (each.method, each.start_mm, each.mtre_mm, each.difference_mm)),
            Cell(interval=each.by_patients),
            Cell(100 * each.worse),
            *(Cell(value) for value in (each.p, each.p_holm, each.frames, each.not_located, each.verdict)),
        ]
        for each in found
    ]
    blocks = [TableBlock(group.label, group.facts, rows)]
    return Table("against_nothing", f"Against no registration: {group.label}", COLUMNS, blocks, [NOTE, *group.notes])


def _p(group: Group, method: str) -> float:
    return signed_rank(group.start_mm, group.column(method, "mtre_mm")).p if can_test() else np.nan


def _against(group: Group, method: str, p: float, p_holm: float) -> AgainstNothing:
    start, errors = group.start_mm, group.column(method, "mtre_mm")
    good = np.isfinite(errors)
    lost = int((~good).sum())
    worse = float((~good | (errors > start)).mean())
    if not good.any():
        return AgainstNothing(method, np.nan, np.nan, Interval(np.nan, np.nan), 1.0, p, p_holm, len(errors), lost)
    interval = mean_interval((errors - start)[good], np.array(group.patients)[good])
    means = float(start[good].mean()), float(errors[good].mean())
    return AgainstNothing(method, *means, interval, worse, p, p_holm, len(errors), lost)


def _equals(p: float) -> str:
    said = number(p, "p")
    return said if said.startswith("<") else f"= {said}"
