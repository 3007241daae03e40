"""A method that leaves frames farther off than they were is told so, in the table and in words, with the test."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import wilcoxon

from scopereg.evaluation import nothing
from scopereg.evaluation.compare import compare
from scopereg.evaluation.nothing import against_nothing
from scopereg.evaluation.results import FrameResult, group_results

NAN = math.nan
START = np.linspace(4.0, 9.7, 20)
POSE = ("tx", "ty", "tz", "rx", "ry", "rz")
OTHERS = ("translation_mm", "rotation_deg", "geodesic_deg", "dice", "hd95_mm", "ncc", "ssim", "confidence", "time_ms")


def rows(method: str, errors: np.ndarray) -> list[FrameResult]:
    """Two frames of each of ten patients."""
    same = {**dict.fromkeys(OTHERS, 0.5), **{f"{kind}_{name}": 1.0 for kind in ("true", "found") for name in POSE}}
    labels = {"dataset": "liver", "protocol": "real", "magnitude": 10.0, "fold": 0, "method": method}
    return [
        FrameResult(
            **labels, **same, case=f"c{k // 2}", patient=f"p{k // 2}", frame=k % 2, start_mm=float(start), mtre_mm=error
        )  # type: ignore[arg-type]
        for k, (start, error) in enumerate(zip(START, errors.tolist(), strict=True))
    ]


GOOD, POOR = START - np.linspace(2.0, 3.9, 20), START + np.linspace(0.5, 2.4, 20)


def test_worse_and_better_are_told_with_the_paired_test() -> None:
    (group,) = group_results([*rows("identity", START), *rows("good", GOOD), *rows("poor", POOR)])
    good, poor = against_nothing(group)
    assert (good.method, good.verdict, good.is_worse) == ("good", "better", False)
    assert (poor.method, poor.verdict, poor.is_worse) == ("poor", "worse than nothing", True)
    assert poor.difference_mm == pytest.approx(float((POOR - START).mean()))
    assert poor.p == pytest.approx(wilcoxon(POOR - START, method="exact").pvalue)
    assert poor.p_holm == pytest.approx(2 * poor.p)
    assert poor.by_patients.low > 0 > good.by_patients.high
    assert "poor is worse than nothing" in poor.sentence
    assert f"{POOR.mean():.2f} mm after registration, {START.mean():.2f} mm before" in poor.sentence
    assert "100 % of the frames made worse; p < 0.0001 (Wilcoxon, Holm)" in poor.sentence


def test_it_needs_no_run_of_identity_and_stands_among_the_tables() -> None:
    (table,) = [table for table in compare(rows("poor", POOR)) if table.name == "against_nothing"]
    (row,) = table.blocks[0].rows
    assert row[0].value == "poor"
    assert row[-1].value == "worse than nothing"


def test_few_large_errors_are_worse_on_average_and_none_is_no_gain() -> None:
    rare = np.where(np.arange(20) == 3, 90.0, GOOD)
    (group,) = group_results([*rows("rare", rare), *rows("none", START)])
    found = {each.method: each for each in against_nothing(group)}
    assert found["rare"].verdict == "worse on average"
    assert found["rare"].is_worse
    assert found["rare"].worse == pytest.approx(0.05)
    assert found["none"].verdict == "no proven gain"
    assert not found["none"].is_worse


def test_frames_that_were_not_located_count_against_a_method() -> None:
    lost = np.where(np.arange(20) < 15, NAN, GOOD)
    (group,) = group_results([*rows("lost", lost), *rows("all", np.full(20, NAN))])
    most, every = against_nothing(group)
    assert most.is_worse
    assert most.not_located == 15
    assert "all located none of 20 frames." in every.sentence


def test_without_scipy_the_means_are_still_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nothing, "can_test", lambda: False)
    (group,) = group_results(rows("poor", POOR))
    (poor,) = against_nothing(group)
    assert math.isnan(poor.p)
    assert poor.verdict == "worse on average"
    assert "not tested" in poor.sentence
