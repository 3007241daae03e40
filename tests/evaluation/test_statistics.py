"""Statistics against hand-made numbers, printed tables and scipy, and their rules for frames without a number."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy import stats

from scopereg.errors import ScopeRegError
from scopereg.evaluation import statistics

NAN = float("nan")

# Darwin's maize: heights of cross-fertilised less self-fertilised plants, in eighths of an inch; p is in textbooks.
MAIZE = np.array([49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48], float)


def test_signed_rank_on_a_textbook_example() -> None:
    found = statistics.signed_rank(np.zeros(15), MAIZE)
    assert found.p == pytest.approx(0.041259765625)  # exact: W = 24 of 15 pairs
    assert found.z == pytest.approx(36 / np.sqrt(310))  # (60 - 24) / sqrt(15 * 16 * 31 / 24)
    assert found.r == pytest.approx(36 / np.sqrt(310) / np.sqrt(15))
    assert (found.pairs, found.zeros, found.label) == (15, 0, "large")


def test_signed_rank_equals_scipy_on_many_frames_with_ties_and_zeros() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.gamma(2, 1, 300).round(1), rng.gamma(2, 1.1, 300).round(1)
    wanted = stats.wilcoxon(second - first, zero_method="pratt", method="asymptotic")
    found = statistics.signed_rank(first, second)
    assert found.zeros > 0
    assert found.p == pytest.approx(wanted.pvalue, rel=1e-12)
    assert 2 * stats.norm.sf(found.z) == pytest.approx(found.p, rel=1e-9)


def test_pratts_rule_by_hand() -> None:
    # |d| 0 1 2 3 4 rank 1..5, the zero has no sign: R+ = 2 + 4 + 5 = 11, R- = 3, mean (15 - 1) / 2 = 7,
    # variance (5 * 6 * 11 - 1 * 2 * 3) / 24 = 13.5.
    found = statistics.signed_rank(np.zeros(5), [0, 1, -2, 3, 4])
    assert found.z == pytest.approx(4 / np.sqrt(13.5))
    assert found.r == pytest.approx(4 / np.sqrt(13.5 * 5))
    assert (found.pairs, found.zeros) == (5, 1)


def test_the_paper_s_largest_effect() -> None:
    """Better in all 4000 frames: z = 54.8 and r = 0.87, the ceiling that the published table reaches."""
    found = statistics.signed_rank(np.zeros(4000), np.arange(1, 4001))
    assert found.z == pytest.approx(54.8, abs=0.05)
    assert found.r == pytest.approx(0.87, abs=0.005)
    assert found.p == pytest.approx(0, abs=1e-100)


def test_alike_methods_do_not_differ() -> None:
    assert statistics.signed_rank([1, 2, NAN], [1, 2, NAN]) == (1, 0, 0, 3, 3)


def test_a_frame_that_one_method_did_not_locate_is_its_largest_error() -> None:
    first, second = np.array([1.0, 2, 3, 4, 5, 6]), np.array([1.5, 1.2, 3.9, 4.1, 5.3, 99])
    lost = second.copy()
    for value in (NAN, np.inf):
        lost[-1] = value
        assert statistics.signed_rank(first, lost) == statistics.signed_rank(first, second)
        assert statistics.signed_rank(lost, first) == statistics.signed_rank(second, first)


def test_order_of_methods_does_not_change_the_test() -> None:
    assert statistics.signed_rank(np.zeros(15), MAIZE) == statistics.signed_rank(MAIZE, np.zeros(15))


@pytest.mark.parametrize(
    ("r", "label"),
    [(0, "negligible"), (0.099, "negligible"), (0.1, "small"), (0.3, "medium"), (0.499, "medium"), (0.5, "large")],
)
def test_words_of_cohen(r: float, label: str) -> None:
    assert statistics.effect_label(r) == label


def test_holm_by_hand() -> None:
    assert statistics.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert statistics.holm([0.02, 0.02]) == pytest.approx([0.04, 0.04])
    assert statistics.holm([0.6, 0.9]) == [1, 1]
    assert statistics.holm([0.2]) == [0.2]


@pytest.mark.parametrize(
    ("successes", "count", "low", "high"),
    [  # Newcombe 1998, table I, method 3; then 8 of 10 from the formula, worked out apart from the code
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (20, 20, 0.8389, 1.0),
        (8, 10, 0.4902, 0.9433),
    ],
)
def test_wilson_intervals(successes: int, count: int, low: float, high: float) -> None:
    assert statistics.wilson(successes, count) == pytest.approx((low, high), abs=5e-5)
    wanted = stats.binomtest(successes, count).proportion_ci(method="wilson")
    assert statistics.wilson(successes, count) == pytest.approx((wanted.low, wanted.high), abs=1e-9)


def test_rates_take_what_was_not_located_as_failed() -> None:
    rate = statistics.success_rate([1, 3, 3.001, NAN, np.inf])
    assert (rate.successes, rate.frames, rate.fraction) == (2, 5, 0.4)
    assert rate.interval == statistics.wilson(2, 5)


def test_means_of_folds_weigh_folds_alike_and_count_what_is_missing() -> None:
    found = statistics.fold_mean([1, 1, 1, 4, NAN, 7], [0, 0, 0, 1, 1, 2])
    assert found == pytest.approx((4, np.sqrt(6), 3, 1))
    assert statistics.fold_mean([2, NAN], [0, 1]) == (2, 0, 1, 1)
    empty = statistics.fold_mean([NAN, NAN], [0, 1])
    assert np.isnan(empty.mean)
    assert (empty.folds, empty.missing) == (0, 2)


def test_tails_are_pooled_over_located_frames() -> None:
    assert statistics.tail([*range(101), NAN]) == (95, 100)
    assert statistics.tail([0, 10]) == pytest.approx((9.5, 10))
    assert np.isnan(statistics.tail([NAN]).p95)


def test_the_bootstrap_agrees_with_scipy_and_repeats_itself() -> None:
    values = np.random.default_rng(1).gamma(1.5, 1, 80)
    many = statistics.mean_interval(values, resamples=20_000)
    scipy_s = stats.bootstrap((values,), np.mean, n_resamples=20_000, method="percentile", rng=2).confidence_interval
    assert many == pytest.approx((scipy_s.low, scipy_s.high), abs=0.015)
    assert statistics.mean_interval(values) == statistics.mean_interval(values)
    assert statistics.mean_interval(values) != statistics.mean_interval(values, seed=1)
    assert statistics.mean_interval(values) == pytest.approx(many, abs=0.05)


def test_patients_are_drawn_with_all_their_frames() -> None:
    """20 patients whose four frames are alike hold 20 pieces of news, not 80: the interval is twice as wide."""
    level = np.random.default_rng(3).normal(0, 1, 20)
    values, patients = np.repeat(level, 4), np.repeat([f"p{k:02}" for k in range(20)], 4)
    wide = statistics.mean_interval(values, patients, resamples=4000)
    narrow = statistics.mean_interval(values, resamples=4000)
    assert (wide.high - wide.low) / (narrow.high - narrow.low) == pytest.approx(2, rel=0.06)
    assert wide == pytest.approx(statistics.mean_interval(level, resamples=4000), abs=1e-9)


def test_patients_with_more_frames_weigh_more() -> None:
    # Two patients, drawn twice: both times the first (mean 0), both times the second (3), or one each (9 / 4).
    found = statistics.mean_interval([0, 3, 3, 3], ["a", "b", "b", "b"], resamples=500)
    assert found == (0, 3)
    means = {9 / 4, 0.0, 3.0}
    middle = statistics.mean_interval([0, 3, 3, 3], ["a", "b", "b", "b"], resamples=500, confidence=0.01)
    assert set(middle) <= means


def test_one_patient_has_no_interval_and_nan_is_refused() -> None:
    assert np.isnan(statistics.mean_interval([1, 2, 3], ["a"] * 3)).all()
    with pytest.raises(ScopeRegError, match="not finite"):
        statistics.mean_interval([1, NAN])


def test_bad_input_is_explained() -> None:
    with pytest.raises(ScopeRegError, match="3 and 2 frames"):
        statistics.signed_rank([1, 2, 3], [1, 2])
    with pytest.raises(ScopeRegError, match="no rate"):
        statistics.wilson(3, 2)
    for function in (statistics.tail, statistics.success_rate, statistics.holm):
        with pytest.raises(ScopeRegError, match=r"shape is \(0,\)"):
            function([])


def test_without_scipy_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    with pytest.raises(ScopeRegError, match=r"scopereg\[eval\]"):
        statistics.signed_rank([1, 2], [3, 5])
