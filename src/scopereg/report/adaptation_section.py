"""Section of a report: frames before and after a network was adapted to their volume, pair by pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from scopereg.evaluation.results import Group, ResultsFile
from scopereg.evaluation.statistics import Array, mean_interval, signed_rank, success_rate, tail
from scopereg.evaluation.tables import NOTHING, number
from scopereg.geometry import SUCCESS_MM
from scopereg.report.charts import pair_chart
from scopereg.report.drawing import Curve
from scopereg.report.page import Report

_COLUMNS = (
    *("method", "frames", "mean", "median", "95 %", "largest", f"within {SUCCESS_MM:g} mm"),
    *("better", "change of the mean", "p", "learned"),
)


class Pair(NamedTuple):
    """A method with an adapted network, and the same with the network that it was adapted from."""

    group: Group
    before: str
    after: str
    learned: str  # in words, from what its file tells


def find_pairs(groups: Sequence[Group], files: Sequence[ResultsFile]) -> list[Pair]:
    """Adapted methods of each group whose base has results too, which the headers of the files tell."""
    told = {row.method: file.facts.get("method_facts", {}) for file in files for row in file.rows[:1]}
    pairs = []
    for group in groups:
        for after in group.methods:
            base = next((name for name in _bases(after, told.get(after, {})) if name in group.methods), None)
            if base is not None:
                pairs.append(Pair(group, base, after, _learned(told.get(after, {}))))
    return pairs


def _bases(method: str, facts: Mapping[str, Any]) -> list[str]:
    """Names of the same method with what its network was adapted from; empty where it was not."""
    adapted = _network_facts(facts).get("adapted")
    if not adapted or not method.startswith(adapted["model"]):
        return []
    return [base + method.removeprefix(adapted["model"]) for base in adapted["from"]]


def _network_facts(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Facts of the network that a method begins with."""
    while "start" in facts:
        facts = facts["start"]
    return facts


def _learned(facts: Mapping[str, Any]) -> str:
    weights = _network_facts(facts).get("weights", {})
    if "steps" not in weights or "minutes" not in weights:
        return NOTHING
    return f"{weights['settings']['parts']}, {weights['steps']} steps, {weights['minutes']:.1f} minutes"


def add_adaptation(report: Report, pairs: Sequence[Pair]) -> None:
    """Table and chart of each pair; nothing where there are none."""
    if not pairs:
        return
    report.heading(
        "Before and after adaptation",
        "The same frames, located by a network and by what became of it on a volume of its own (scopereg adapt). Dots "
        "below the line got better. The interval is of the mean change, from resampling patients, or the frames of a "
        "single one; p is of Wilcoxon's test.",
    )
    for pair in pairs:
        report.subheading(f"{pair.group.label}: {pair.before} to {pair.after}")
        before, after = (pair.group.column(name, "mtre_mm") for name in (pair.before, pair.after))
        both = np.isfinite(before) & np.isfinite(after)
        if not both.any():
            report.text("No frame was located by both.")
            continue
        report.table(_COLUMNS, _rows(pair, before, after), style="tight")
        report.chart(_chart(pair, before[both], after[both]))


def _rows(pair: Pair, before: Array, after: Array) -> list[list[str]]:
    both = np.isfinite(before) & np.isfinite(after)
    change = (after - before)[both]
    patients = np.array(pair.group.patients)[both]
    interval = mean_interval(change, patients if len(set(patients)) > 1 else None)
    compared = [
        f"{100 * float((change < 0).mean()):.0f} %",
        f"{change.mean():+.2f} mm [{number(interval.low, '+.2f')}, {number(interval.high, '+.2f')}]",
        number(signed_rank(after, before).p, "p"),
        pair.learned,
    ]
    return [[pair.before, *_numbers(before), *[""] * 4], [pair.after, *_numbers(after), *compared]]


def _numbers(errors: Array) -> list[str]:
    good = errors[np.isfinite(errors)]
    ends = tail(errors)
    lengths = [f"{value:.2f} mm" for value in (good.mean(), np.median(good), ends.p95, ends.maximum)]
    lost = len(errors) - len(good)
    return [
        f"{len(errors)} ({lost} lost)" if lost else str(len(errors)),
        *lengths,
        f"{100 * success_rate(errors).fraction:.1f} %",
    ]


def _chart(pair: Pair, before: Array, after: Array) -> str:
    better = int((after < before).sum())
    cloud = Curve(f"{better} of {len(before)} frames are better", before.tolist(), after.tolist(), "var(--c0)")
    return pair_chart(
        cloud,
        x_label=f"{pair.before}: mTRE, mm (logarithmic)",
        y_label=f"{pair.after}: mTRE, mm",
        mark=(SUCCESS_MM, f"{SUCCESS_MM:g} mm"),
    )
