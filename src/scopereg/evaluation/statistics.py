"""Statistics over frames: paired tests, corrections, intervals, rates and the means that tables show.

Rules that hold throughout. An error that is not finite belongs to a frame that was not located: it is a failure in
rates and the largest error of all in the rank test, and it is left out of means, with a count that callers must show.
Differences are other minus reference, so positive ones favour the reference.
"""

from __future__ import annotations

from importlib.util import find_spec
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scopereg.errors import ScopeRegError
from scopereg.geometry import SUCCESS_MM

CONFIDENCE = 0.95
RESAMPLES = 1000
EXACT_PAIRS = 50  # up to here the exact distribution is used, where it exists: no ties, no zeros

Array = NDArray[np.float64]


class Interval(NamedTuple):
    """Interval from low to high; NaN where there is none."""

    low: float
    high: float


class FoldMean(NamedTuple):
    """Mean and standard deviation (ddof 0) of the means of folds; `missing` frames had no value."""

    mean: float
    std: float
    folds: int
    missing: int


class Tail(NamedTuple):
    """The bad end of the errors of all frames that were located."""

    p95: float
    maximum: float


class Rate(NamedTuple):
    """Part of the frames with an error of at most a threshold, and its Wilson interval."""

    successes: int
    frames: int
    interval: Interval

    @property
    def fraction(self) -> float:
        return self.successes / self.frames


class SignedRank(NamedTuple):
    """Wilcoxon's signed-rank test of paired errors."""

    p: float
    z: float  # of the normal approximation, without its sign
    r: float  # z / sqrt(pairs)
    pairs: int
    zeros: int

    @property
    def label(self) -> str:
        return effect_label(self.r)


def fold_mean(values: ArrayLike, folds: ArrayLike) -> FoldMean:
    """Mean over folds of the mean over the frames that have a value; a fold without any is left out."""
    numbers, places = _numbers(values, "fold_mean(values)"), np.asarray(folds)
    good = np.isfinite(numbers)
    means = [float(numbers[good & (places == fold)].mean()) for fold in np.unique(places[good])]
    missing = int((~good).sum())
    if not means:
        return FoldMean(np.nan, np.nan, 0, missing)
    return FoldMean(float(np.mean(means)), float(np.std(means)), len(means), missing)


def tail(errors: ArrayLike) -> Tail:
    """95th percentile (linear between frames) and maximum, pooled over the frames that were located."""
    numbers = _numbers(errors, "tail(errors)")
    numbers = numbers[np.isfinite(numbers)]
    if not len(numbers):
        return Tail(np.nan, np.nan)
    return Tail(float(np.percentile(numbers, 95)), float(numbers.max()))


def success_rate(errors_mm: ArrayLike, threshold_mm: float = SUCCESS_MM) -> Rate:
    """Frames with an error of at most the threshold; a frame that was not located is a failure."""
    numbers = _numbers(errors_mm, "success_rate(errors_mm)")
    successes = int((np.isfinite(numbers) & (numbers <= threshold_mm)).sum())
    return Rate(successes, len(numbers), wilson(successes, len(numbers)))


def wilson(successes: int, count: int, confidence: float = CONFIDENCE) -> Interval:
    """Wilson's score interval of a rate: stays within 0..1 and is right for rates near both."""
    if not 0 <= successes <= count or count < 1:
        raise ScopeRegError(
            f"{successes} of {count} is no rate", where="wilson(successes, count)", fix="pass 0 <= successes <= count"
        )
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    rate, weight = successes / count, z * z / count
    centre = (rate + weight / 2) / (1 + weight)
    half = z / (1 + weight) * (rate * (1 - rate) / count + weight / (4 * count)) ** 0.5
    return Interval(max(0.0, centre - half), min(1.0, centre + half))


def holm(p_values: ArrayLike) -> list[float]:
    """Holm's correction for that many tests at once: adjusted p-values, in the order given."""
    values = _numbers(p_values, "holm(p_values)")
    order = np.argsort(values, kind="stable")
    stepped = values[order] * np.arange(len(values), 0, -1)
    adjusted = np.empty(len(values))
    adjusted[order] = np.minimum(np.maximum.accumulate(stepped), 1)
    return [float(value) for value in adjusted]


def effect_label(r: float) -> str:
    """Cohen's word for an effect size r."""
    words = ((0.5, "large"), (0.3, "medium"), (0.1, "small"), (0.0, "negligible"))
    return next(word for limit, word in words if r >= limit)


def signed_rank(reference: ArrayLike, other: ArrayLike) -> SignedRank:
    """Two-sided Wilcoxon test of paired errors, one pair per frame.

    Pairs without a difference keep their rank but have no sign (Pratt), so that no frame is dropped. A frame that only
    one method located is the largest difference of all; one that neither located is no difference. p is exact up to
    50 pairs where no two differences are alike and none is zero, else from the normal approximation without continuity
    correction; z and r are always from that approximation, with all pairs in r.
    """
    differences = _rankable(reference, other)
    pairs, zeros = len(differences), int((differences == 0).sum())
    if zeros == pairs:
        return SignedRank(1.0, 0.0, 0.0, pairs, zeros)
    wilcoxon = _scipy_wilcoxon()
    ties = len(np.unique(np.abs(differences))) < pairs
    approximate = wilcoxon(differences, zero_method="pratt", correction=False, method="approx")
    exact = pairs <= EXACT_PAIRS and not ties and not zeros
    p = wilcoxon(differences, method="exact").pvalue if exact else approximate.pvalue
    z = abs(float(approximate.zstatistic))
    return SignedRank(float(p), z, z / pairs**0.5, pairs, zeros)


def mean_interval(
    differences: ArrayLike,
    clusters: ArrayLike | None = None,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    confidence: float = CONFIDENCE,
) -> Interval:
    """Percentile bootstrap interval of the mean, over frames or over whole clusters of them.

    With `clusters` (a patient per frame) patients are drawn with all their frames: frames of a patient are not
    independent, and an interval that takes them so is too narrow. Less than two frames or clusters have no interval.
    """
    values = _numbers(differences, "mean_interval(differences)")
    if not np.isfinite(values).all():
        raise ScopeRegError(
            "a difference is not finite",
            where="mean_interval(differences)",
            fix="pass frames that both methods located",
        )
    names = np.arange(len(values)) if clusters is None else np.asarray(clusters)
    _, member = np.unique(names, return_inverse=True)
    counts = np.bincount(member).astype(np.float64)
    sums = np.bincount(member, weights=values)
    if len(sums) < 2:
        return Interval(np.nan, np.nan)
    generator = np.random.default_rng(seed)
    # One resample at a time: all at once would need resamples x frames numbers.
    draws = (generator.integers(len(sums), size=len(sums)) for _ in range(resamples))
    means = [sums[drawn].sum() / counts[drawn].sum() for drawn in draws]
    low, high = np.percentile(means, [50 * (1 - confidence), 50 * (1 + confidence)])
    return Interval(float(low), float(high))


def _rankable(reference: ArrayLike, other: ArrayLike) -> Array:
    """Differences whose ranks are right: a frame that one method did not locate outranks every other."""
    first, second = _numbers(reference, "signed_rank(reference)"), _numbers(other, "signed_rank(other)")
    if len(first) != len(second):
        raise ScopeRegError(
            f"{len(first)} and {len(second)} frames", where="signed_rank(reference, other)", fix="pass paired errors"
        )
    lost_first, lost_second = ~np.isfinite(first), ~np.isfinite(second)
    differences = np.where(lost_first | lost_second, 0.0, np.nan_to_num(second) - np.nan_to_num(first))
    beyond = np.abs(differences).max() + 1
    return differences + beyond * (lost_second.astype(float) - lost_first.astype(float))


def _numbers(values: ArrayLike, where: str) -> Array:
    numbers = np.asarray(values, np.float64)
    if numbers.ndim != 1 or not len(numbers):
        raise ScopeRegError(f"the shape is {numbers.shape}", where=where, fix="pass one number per frame, at least one")
    return numbers


def can_test() -> bool:
    """Whether what the tests need is installed."""
    return find_spec("scipy") is not None


def _scipy_wilcoxon() -> Any:
    try:
        from scipy.stats import wilcoxon
    except ImportError:
        raise ScopeRegError(
            "scipy is not installed", where="paired tests", fix="pip install 'scopereg[eval]'"
        ) from None
    return wilcoxon
