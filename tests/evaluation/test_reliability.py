"""What a confidence is worth: figures that agree with counting by hand."""

from __future__ import annotations

import numpy as np
import pytest

from scopereg.evaluation.reliability import (
    Judged,
    auroc,
    auroc_interval,
    calibration_curve,
    kept_curve,
    mean_of_surest,
    reliability_of,
)

ERRORS = np.array([1.0, 2.0, 4.0, 8.0])
DOUBT = np.array([0.5, 3.0, 2.0, 9.0])


def test_auroc_is_the_share_of_pairs_in_the_right_order() -> None:
    generator = np.random.default_rng(0)
    bad, doubt = generator.random(60) < 0.3, generator.integers(0, 9, 60).astype(float)  # many are doubted alike
    apart = doubt[bad][:, None] - doubt[~bad]
    assert auroc(bad, doubt) == pytest.approx((apart > 0).mean() + (apart == 0).mean() / 2)
    assert auroc(ERRORS > 3, DOUBT) == 0.75
    assert np.isnan(auroc(np.zeros(4, bool), DOUBT))
    assert np.isnan(auroc(np.ones(4, bool), DOUBT))


def test_the_interval_is_over_patients() -> None:
    generator = np.random.default_rng(1)
    bad = np.tile([True, False], 40)
    doubt = bad + generator.normal(size=80)
    low, high = auroc_interval(bad, doubt, [f"p{row // 2}" for row in range(80)])
    assert low < auroc(bad, doubt) < high
    of_few = auroc_interval(bad, doubt, [f"p{row // 20}" for row in range(80)])
    assert of_few != (low, high)
    assert np.isnan(auroc_interval(bad, doubt, ["one"] * 80)).all()
    assert np.isnan(auroc_interval(~bad & False, doubt, [f"p{row}" for row in range(80)])).all()


def test_curves_are_means_of_the_surest_and_of_parts() -> None:
    assert mean_of_surest(ERRORS, DOUBT, 0.5) == 2.5  # the first and the third
    shares, means = kept_curve(np.arange(20.0), -np.arange(20.0))
    assert shares[0] == 0.25  # of fewer than five frames nothing is said
    assert means[0] == np.mean([19, 18, 17, 16, 15])
    assert (shares[-1], means[-1]) == (1.0, 9.5)
    assert [len(part) for part in kept_curve(ERRORS, DOUBT)] == [1, 1]
    stated, true = calibration_curve(np.array([0.9, 0.1, 0.8, 0.2]), np.array([1.0, 0.0, 0.0, 1.0]), parts=2)
    assert stated == pytest.approx([0.15, 0.85])
    assert true == pytest.approx([0.5, 0.5])
    assert len(calibration_curve(ERRORS, ERRORS)[0]) == 4  # no empty part


def test_worth_counts_frames() -> None:
    ok = np.array([True, True, True, False])
    patients = ["a", "a", "b", "b"]
    found = reliability_of(Judged(ERRORS, DOUBT, patients, 1 / DOUBT, DOUBT, 1.5 * DOUBT, ok))
    assert (found.frames, found.bad, found.auroc) == (4, 2, 0.75)
    assert found.mean_mm == ERRORS.mean()
    assert found.below_bound == 0.5
    assert found.ok == 0.75
    assert found.ok_good == pytest.approx(2 / 3)
    unknown = np.full(4, np.nan)
    plain = reliability_of(Judged(ERRORS, -DOUBT, patients, DOUBT, unknown, unknown, ~ok & False))
    assert plain.auroc == 0.25
    assert np.isnan([plain.below_bound, plain.ok, plain.ok_good, plain.expected_mm]).all()
