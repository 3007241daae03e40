"""Reliability: how well confidence and expected error predict the errors of frames."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scopereg.evaluation.statistics import Interval
from scopereg.geometry import SUCCESS_MM

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

PARTS = 5  # of the frames in a calibration curve, with equally many in each
_RESAMPLES = 1000
_LEAST_SHARE, _LEAST_FRAMES = 0.1, 5  # of the frames whose mean error says something


class Judged(NamedTuple):
    """Frames whose error is known, and what was said of each."""

    errors_mm: Array  # (N,)
    doubt: Array  # (N,), larger is less sure, see `doubt_of`
    patients: list[str]
    confidence: Array  # (N,), of a calibrated method the probability of an error of at most 3 mm; else the similarity
    expected_mm: Array  # (N,), this and the next NaN where nothing is calibrated, or the frame is none of the volume's
    bound_mm: Array
    ok: Flags
    lost: int = 0  # frames besides these that were not located
    silent: int = 0  # and those that were not judged

    @property
    def bad(self) -> Flags:
        """Frames that are wrong by more than 3 mm."""
        return self.errors_mm > SUCCESS_MM

    @property
    def is_calibrated(self) -> bool:
        return bool(np.isfinite(self.expected_mm).any())


class Reliability(NamedTuple):
    """Statistics of judged frames; shares are of 1, NaN where there is nothing to count."""

    frames: int
    mean_mm: float
    expected_mm: float
    bad: int  # frames off by more than 3 mm
    auroc: float  # of the doubt, for these
    interval: Interval
    below_bound: float
    bound_mm: float  # median
    ok: float
    ok_good: float  # of the frames that are ok, those within 3 mm
    surest_half_mm: float


def reliability_of(judged: Judged) -> Reliability:
    """Compute everything that a table shows of some frames."""
    errors, ok = judged.errors_mm, judged.ok
    calibrated, bounded = judged.is_calibrated, np.isfinite(judged.bound_mm)
    return Reliability(
        frames=len(errors),
        mean_mm=float(errors.mean()),
        expected_mm=float(np.nanmean(judged.expected_mm)) if calibrated else math.nan,
        bad=int(judged.bad.sum()),
        auroc=auroc(judged.bad, judged.doubt),
        interval=auroc_interval(judged.bad, judged.doubt, judged.patients),
        below_bound=float((errors <= judged.bound_mm)[bounded].mean()) if bounded.any() else math.nan,
        bound_mm=float(np.median(judged.bound_mm[bounded])) if bounded.any() else math.nan,
        ok=float(ok.mean()) if calibrated else math.nan,
        ok_good=float((errors[ok] <= SUCCESS_MM).mean()) if ok.any() else math.nan,
        surest_half_mm=mean_of_surest(errors, judged.doubt, 0.5),
    )


def doubt_of(expected_mm: Array, sure: Array) -> Array:
    """How much each frame (N,) is doubted: by the error to expect; nothing is expected of a frame that is refused.

    Without any expected error, by how sure the method is.
    """
    if not np.isfinite(expected_mm).any():
        return -sure
    return np.where(np.isfinite(expected_mm), expected_mm, np.inf)


def auroc(bad: Flags, doubt: Array) -> float:
    """Probability that a bad frame is doubted more than a good one; NaN where there are none of either."""
    count, others = int(bad.sum()), int((~bad).sum())
    if not count or not others:
        return math.nan
    _, place, ties = np.unique(doubt, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(ties) - (ties - 1) / 2)[place]  # from 1; frames that are doubted alike share their mean rank
    return float((ranks[bad].sum() - count * (count + 1) / 2) / (count * others))


def auroc_interval(bad: Flags, doubt: Array, patients: Sequence[str]) -> Interval:
    """95 % interval by resampling patients; NaN where there is one alone, or nothing to tell apart."""
    names = np.array(patients)
    rows_of = [np.flatnonzero(names == name) for name in dict.fromkeys(patients)]
    if len(rows_of) < 2:
        return Interval(math.nan, math.nan)
    generator = np.random.default_rng(0)
    drawn = [
        np.concatenate([rows_of[k] for k in generator.integers(len(rows_of), size=len(rows_of))])
        for _ in range(_RESAMPLES)
    ]
    found = [value for rows in drawn if not np.isnan(value := auroc(bad[rows], doubt[rows]))]
    low, high = np.quantile(found, (0.025, 0.975)) if found else (math.nan, math.nan)
    return Interval(float(low), float(high))


def mean_of_surest(errors_mm: Array, doubt: Array, share: float) -> float:
    """Mean error of the part of the frames that is doubted least."""
    order = np.argsort(doubt, kind="stable")
    return float(errors_mm[order[: max(1, round(share * len(order)))]].mean())


def kept_curve(errors_mm: Array, doubt: Array) -> tuple[Array, Array]:
    """Shares of the frames, the surest first, and the mean error of each; the very smallest say nothing."""
    ordered = errors_mm[np.argsort(doubt, kind="stable")]
    count = np.arange(1, len(ordered) + 1)
    usable = count >= min(len(ordered), max(_LEAST_SHARE * len(ordered), _LEAST_FRAMES))
    return (count / len(ordered))[usable], (np.cumsum(ordered) / count)[usable]


def calibration_curve(stated: Array, true: Array, parts: int = PARTS) -> tuple[Array, Array]:
    """Means of what was stated and of what is true, for parts of the frames from the least stated to the most."""
    rows = [part for part in np.array_split(np.argsort(stated, kind="stable"), parts) if len(part)]
    return np.array([stated[part].mean() for part in rows]), np.array([true[part].mean() for part in rows])


def rank_correlation(first: ArrayLike, second: ArrayLike) -> float:
    """Spearman's correlation; ties share their mean rank, and NaN where one side is all alike."""
    ranks = []
    for values in (first, second):
        _, place, count = np.unique(np.asarray(values, np.float64), return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(count) - (count - 1) / 2)[place])
    if any(np.ptp(rank) == 0 for rank in ranks):
        return math.nan
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])
