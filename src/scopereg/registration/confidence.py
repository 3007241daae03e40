"""Confidence: from quality features of a frame to the error to expect, a bound that holds, whether it is reliable.

Quality features tell, without the truth, how well a network located a frame. A ridge regression weighs them into the
logarithm of the error in voxels. How far the truth lies from what it expects is counted on frames of patients that it
was not fitted to, each fold of the patients in turn: conformal prediction, which promises coverage on frames like those
of the calibration, whatever the regression is worth. Of several kinds of data the bound is that of the hardest to
foretell. A second, logistic one tells own frames from strangers. Features are computed without waiting for the GPU or
values on the host: sessions record them.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.geometry import VoxelPoses, target_points
from scopereg.networks.streaming import Located
from scopereg.registration.fine import UNSAID_STRETCH
from scopereg.registration.grey import GreyVolume, Level, RefineOptions
from scopereg.registration.result import NOT_JUDGED

if TYPE_CHECKING:
    from scopereg.networks.fine import FineFrame
    from scopereg.registration.fine import PreparedFine

QUALITY_FEATURES = (
    "residual",  # log voxels of the coordinates from the plane fitted to them
    "entropy",  # of the evidence over the cells, 1 where all say the same amount
    "mass",  # mean logarithm of the evidence
    "coarse",  # correlation of frame and volume at the pose, smoothed and normalised by their surroundings
    "medium",  # the same, less smoothed
)
FINE_FEATURES = (
    "disagreement",  # log mean square distance of the learned features of frame and volume
    "uncertainty",  # log voxels to which these tell the pose
    "telling",  # how alike the frame is to this place of the volume, by features that tell places apart
    "stretch",  # log share by which the frame would fit better with pixels of another size
    "moved",  # log voxels from where the network found the frame to where the fine stage did
)
"""Besides, of networks with a fine stage."""
WORSE = {
    "residual": 1,
    "mass": -1,
    "coarse": -1,
    "medium": -1,
    "disagreement": 1,
    "uncertainty": 1,
    "telling": -1,
    "stretch": 1,
    "moved": 1,
}
"""Which way a feature is bad. Entropy has no such way: few cells may say much of a right place or of a wrong one."""

_FIRST_AT_POSE = 3  # from there on features change with the pose, until "moved"
_LEVELS = (Level(2, 2, 5, 0), Level(1, 2, 3, 0))
_UNSAID = 0.05  # voxels, added before a logarithm: what is less says no more
_NOTHING = 1e-12  # evidence that is none
_MOST_LOG = 20.0  # logarithm that is still a number of voxels
CLOSE_MM = 3.0  # what a confidence is the probability of: an error of at most so much
COVERAGE = 0.95  # of the bound
FALSE_ALARMS = 0.05  # share of a volume's own frames that may be taken for out of distribution
ENOUGH = 0.8  # confidence of a pose that is ok
LEAST_FRAMES = 40  # of a calibration, and of a group with a bound of its own: that takes 19 frames at least
_MOST_SCORES = 200
_RIDGE, _HELD = 1.0, 10.0  # of the regressions of errors and of strangers
_LEAST_VOXELS = 0.02  # error whose logarithm is taken
_MOST_MM = 1000.0  # stated: out of distribution, features lie far beyond what the regression knows
_FEWEST_MM = 1e-6  # stated
_FOLDS = 5  # of the patients
_FARTHEST = 4.0  # in spreads: features beyond say no more
_RIGHT_VOXELS = 5.0  # error of own frames that strangers are told from: others were found wrongly themselves
_STRANGE = 0.5  # probability of being the volume's own, below which a frame is taken for something else
_NEWTON = 25  # steps of the logistic regression
_TAIL = 0.1  # share of frames beyond the usual range of a feature


def features_of(fine: bool = False) -> tuple[str, ...]:
    """The quality features that there are without and with a fine stage."""
    return (*QUALITY_FEATURES, *(FINE_FEATURES if fine else ()))


def at_pose(fine: bool) -> slice:
    """The places of the features that change when the pose is refined."""
    return slice(_FIRST_AT_POSE, len(QUALITY_FEATURES) + (len(FINE_FEATURES) - 1 if fine else 0))


class QualityFeatures:
    """A volume prepared to tell the quality features of frames located in it."""

    def __init__(
        self,
        volume: Float[Tensor, "d h w"],
        fine: PreparedFine | None = None,
        known: Bool[Tensor, "d h w"] | None = None,
    ) -> None:
        """`volume` in [0, 1], on the device of the frames to come, and as the fine stage prepared it.

        `known` is where it has a picture that counts; by default its planes' field of view.
        """
        self.fine = fine
        self._grey = GreyVolume(volume, RefineOptions(levels=_LEVELS), known)
        # Made here, since what is recorded may not copy from the host.
        self._targets = target_points((volume.shape[1], volume.shape[2]), device=volume.device)

    def at_poses(
        self,
        images: Float[Tensor, "b rows columns"],
        poses: VoxelPoses,
        masks: Bool[Tensor, "b rows columns"] | None = None,
        read: FineFrame | None = None,
    ) -> Float[Tensor, "b features"]:
        """The features `at_pose`, of frames at any poses: they depend on nothing else. Masks tell what counts.

        `read` are the frames as the fine stage reads them, where that was done already.
        """
        alike = self._grey.correlations(images, poses, masks)
        if self.fine is None:
            return alike
        return torch.cat([alike, self.fine.features(read or self.fine.read(images), poses)], 1)

    def of(
        self,
        images: Float[Tensor, "b rows columns"],
        found: Located,
        masks: Bool[Tensor, "b rows columns"] | None = None,
        finely: VoxelPoses | None = None,
        read: FineFrame | None = None,
    ) -> Float[Tensor, "b features"]:
        """Of frames as they were found. `finely` is where the fine stage found them, and `read` as it read them."""
        first = VoxelPoses(found.rotation.float(), found.translation.float())
        evidence = found.evidence.float().clamp_min(_NOTHING)
        parts = [_log_voxels(found.residual), _entropy(evidence), evidence.log().mean(1)]
        features = [torch.stack(parts, 1), self.at_poses(images, finely or first, masks, read)]
        if finely is not None:
            features.append(_log_voxels(self._apart(first, finely)).unsqueeze(1))
        return torch.cat(features, 1)

    def _apart(self, first: VoxelPoses, second: VoxelPoses) -> Float[Tensor, "b"]:
        """Mean distance of the targets of frames at two poses, in voxels."""
        turned = (second.rotation - first.rotation) @ self._targets.T  # (B, 3, targets)
        apart = turned + (second.translation - first.translation).unsqueeze(-1)
        return torch.linalg.vector_norm(apart, dim=1).mean(1)


def voxels_of(feature: float) -> float:
    """A feature in log voxels as voxels."""
    return max(math.exp(min(feature, _MOST_LOG)) - _UNSAID, 0.0)


def stretch_of(features: Mapping[str, float]) -> float:
    """The share by which a frame would fit better with pixels of another size; NaN where nothing tells it."""
    return math.exp(min(features.get("stretch", math.nan), _MOST_LOG)) - UNSAID_STRETCH


def _log_voxels(voxels: Float[Tensor, "b"]) -> Float[Tensor, "b"]:
    return (voxels.float() + _UNSAID).log()


def _entropy(evidence: Float[Tensor, "b cells"]) -> Float[Tensor, "b"]:
    share = evidence / evidence.sum(1, keepdim=True)
    return -(share * share.log()).sum(1) / math.log(max(evidence.shape[1], 2))


@dataclass(frozen=True)
class Verdict:
    """What to think of a pose. Its numbers are NaN unless the frame belongs to the volume."""

    expected_mm: float  # error to expect
    bound_mm: float  # 95 % of the errors of such frames are below
    confidence: float  # probability that the error is at most 3 mm
    belongs: bool | None  # to the volume; else it is taken for a frame of something else. None: not judged
    ok: bool | None
    reason: str  # why it is not ok


def refused(reason: str) -> Verdict:
    """The verdict on a frame that does not belong to the volume."""
    return Verdict(math.nan, math.nan, math.nan, False, False, reason)


def not_judged(why: str) -> Verdict:
    """The verdict where nothing was calibrated that comes near: neither right nor wrong."""
    return Verdict(math.nan, math.nan, math.nan, None, None, f"{NOT_JUDGED}{why}")


@dataclass(frozen=True)
class ErrorModel:
    """From quality features to verdicts, as learnt from frames whose pose is known and from strangers. See `fit`."""

    features: tuple[str, ...]
    centre: tuple[float, ...]
    scale: tuple[float, ...]
    weights: tuple[float, ...]  # of the features, centred and scaled, in the logarithm of the error in voxels
    offset: float
    scores: tuple[float, ...]  # sorted: true over expected errors of frames that weights were not fitted to
    bound_score: float  # what 95 % of them are below, in each group of frames
    limits: dict[str, float]  # by feature, what one in twenty of a volume's own frames is beyond in one or more of them
    own_weights: tuple[float, ...]  # in the log odds that a frame is the volume's own, as it is told, and no stranger:
    own_offset: float  # of the features, and of the squares of those that are worse than usual

    def expected_voxels(self, features: Sequence[float]) -> float:
        """The error to expect, NaN where features are none."""
        weighed = sum(value * weight for value, weight in zip(self._unit(features), self.weights, strict=True))
        return math.exp(_within(self.offset + weighed, _MOST_LOG))

    def expected_mm(self, features: Sequence[float], spacing_mm: float) -> float:
        """The error to expect, of voxels of a size."""
        expected = self.expected_voxels(features) * spacing_mm
        return _MOST_MM if math.isnan(expected) else max(_FEWEST_MM, min(expected, _MOST_MM))

    def own(self, features: Sequence[float]) -> float:
        """The probability that a frame is the volume's own, if every second one were; NaN where features are none."""
        odds = self.own_offset + sum(self._told(self._unit(features)))
        return 1 / (1 + math.exp(-_within(odds, _MOST_LOG)))

    def judge(self, features: Sequence[float], spacing_mm: float, *, least_mm: float = 0.0) -> Verdict:
        """The verdict on a frame with these features, in voxels of a size.

        No smaller error than `least_mm` is expected: somebody measured that much otherwise.
        """
        unlike = self._out_of_distribution(features, spacing_mm)
        if unlike:
            return refused(unlike)
        expected = max(self.expected_mm(features, spacing_mm), least_mm)
        bound = expected * self.bound_score
        close = bisect_right(self.scores, CLOSE_MM / expected) / (len(self.scores) + 1)
        sure = close * self.own(features)
        reason = f"an error above {CLOSE_MM:g} mm is too likely: {expected:.1f} mm expected, {sure:.0%} sure"
        if close >= ENOUGH:
            reason = f"the frame may be of another place or size: {sure:.0%} sure"
        return Verdict(expected, bound, sure, True, sure >= ENOUGH, "" if sure >= ENOUGH else reason)

    def _told(self, unit: Sequence[float]) -> list[float]:
        """What each feature says of being the volume's own, in log odds."""
        count = len(self.features)
        bad = [max(value * WORSE.get(name, 0), 0) for name, value in zip(self.features, unit, strict=True)]
        rows = zip(unit, self.own_weights[:count], bad, self.own_weights[count:], strict=True)
        return [value * weight + worse**2 * squared for value, weight, worse, squared in rows]

    def _unit(self, features: Sequence[float]) -> list[float]:
        """Features in their usual spread; what lies farther out says no more."""
        rows = zip(features, self.centre, self.scale, strict=True)
        return [_within((value - centre) / scale, _FARTHEST) for value, centre, scale in rows]

    def _out_of_distribution(self, features: Sequence[float], spacing_mm: float) -> str:
        """Why the frame does not belong to the volume, by the feature that says so loudest; empty where it may."""
        places = {name: place for place, name in enumerate(self.features)}
        beyond = {}
        for name, limit in self.limits.items():
            value = features[places[name]]
            if not (value - limit) * WORSE[name] <= 0:  # so that what is not a number is beyond too
                beyond[name] = abs(value - limit) / self.scale[places[name]]
        if not beyond and self.own(features) < _STRANGE:
            told = zip(self.features, self._told(self._unit(features)), strict=True)
            beyond = {name: -odds for name, odds in told if name in WORSE}
        if not beyond:
            return ""
        worst = max(beyond, key=lambda name: math.inf if math.isnan(beyond[name]) else beyond[name])
        return _reason(worst, features[places[worst]], spacing_mm)


def _within(value: float, most: float) -> float:
    """A number, cut off where it is large; what is no number stays so."""
    return value if math.isnan(value) else max(-most, min(value, most))


def _reason(feature: str, value: float, spacing_mm: float) -> str:
    if math.isnan(value):
        return "nothing of the frame could be compared with the volume"
    away_mm = voxels_of(value) * spacing_mm
    if feature == "residual":
        return f"what the network found does not lie in a plane: {away_mm:.1f} mm off it"
    if feature == "mass":
        return "the network found little of the frame in this volume"
    if feature == "disagreement":
        return "what the frame shows is not what the volume shows at the pose found"
    if feature == "uncertainty":
        return "too little of the frame tells its pose in this volume"
    if feature == "telling":
        return "the frame does not look like this place of the volume"
    if feature == "stretch":
        return f"the frame would fit better with pixels of another size, by {stretch_of({feature: value}):.0%}"
    if feature == "moved":
        return f"the network found the frame {away_mm:.1f} mm from where its details fit"
    return "the frame does not look like this volume at the pose found"


def fit(
    names: Sequence[str],
    features: Float[np.ndarray, "n s"],
    errors: Float[np.ndarray, "n"],
    patients: Sequence[str],
    strangers: Float[np.ndarray, "m s"] | None = None,
    groups: Sequence[str] | None = None,
) -> ErrorModel:
    """An error model from the quality features of frames, their true errors in voxels and whose they are.

    `strangers` are features of frames that are none of the volume's, or not as they are told. `groups` are kinds of
    data, in each of which the bound is to hold; those of too few frames count with the others.
    """
    good = np.isfinite(features).all(1) & np.isfinite(errors)
    folds = folds_of(patients)
    if good.sum() < LEAST_FRAMES or len(set(folds[good])) < 2:
        raise ScopeRegError(
            f"{good.sum()} frames of {len(set(patients))} patients are too few",
            where="calibration",
            fix=f"use more patients or frames: at least {LEAST_FRAMES} frames of several patients",
        )
    features, errors, folds = features[good], errors[good], folds[good]
    logs = np.log(np.maximum(errors, _LEAST_VOXELS))
    centre, scale = features.mean(0), np.maximum(features.std(0), 1e-6)

    def unit(rows: Float[np.ndarray, "n s"]) -> Float[np.ndarray, "n s"]:
        return ((rows - centre) / scale).clip(-_FARTHEST, _FARTHEST)

    expected = np.empty(len(features))
    for fold in range(_FOLDS):
        weights, offset = _regression(unit(features[folds != fold]), logs[folds != fold])
        expected[folds == fold] = np.exp(unit(features[folds == fold]) @ weights + offset)
    weights, offset = _regression(unit(features), logs)
    scores = errors / expected
    kinds = np.array(groups if groups is not None else [""] * len(good))[good]
    parts = [scores[kinds == kind] for kind in sorted(set(kinds)) if (kinds == kind).sum() >= LEAST_FRAMES]
    own_weights, own_offset = np.zeros(2 * len(names)), _MOST_LOG
    if strangers is not None:
        way = np.array([float(WORSE.get(name, 0)) for name in names])
        right, strange = features[errors <= _RIGHT_VOXELS], strangers[np.isfinite(strangers).all(1)]
        own_weights, own_offset = _told_apart(*(_with_squares(unit(rows), way) for rows in (right, strange)))
    return ErrorModel(
        tuple(names),
        _short(centre),
        _short(scale),
        _short(weights),
        _short([offset])[0],
        _short(_thinned(np.sort(scores))),
        max(conformal_quantile(part.tolist(), COVERAGE) for part in (*parts, scores)),
        _limits(names, features),
        _short(own_weights),
        _short([own_offset])[0],
    )


def _regression(unit: Float[np.ndarray, "n s"], logs: Float[np.ndarray, "n"]) -> tuple[Float[np.ndarray, "s"], float]:
    """Weights and offset of a ridge regression."""
    offset = float(logs.mean())
    return np.linalg.solve(unit.T @ unit + _RIDGE * np.eye(unit.shape[1]), unit.T @ (logs - offset)), offset


def _with_squares(unit: Float[np.ndarray, "n s"], way: Float[np.ndarray, "s"]) -> Float[np.ndarray, "n t"]:
    """Features, and the squares of those that are worse than usual: a good one never speaks against a frame."""
    return np.concatenate([unit, (unit * way).clip(0, None) ** 2], 1)


def _told_apart(
    own: Float[np.ndarray, "n s"], strange: Float[np.ndarray, "m s"]
) -> tuple[Float[np.ndarray, "s"], float]:
    """Weights and offset of a logistic regression, as if there were as many of both."""
    rows = np.concatenate([own, strange])
    rows = np.concatenate([rows, np.ones((len(rows), 1))], 1)
    truth = np.repeat([1.0, 0.0], [len(own), len(strange)])
    share = np.repeat([0.5 / max(len(own), 1), 0.5 / max(len(strange), 1)], [len(own), len(strange)]) * len(rows)
    held = _HELD * np.eye(rows.shape[1])
    held[-1, -1] = 0
    found = np.zeros(rows.shape[1])
    for _ in range(_NEWTON):
        likely = 1 / (1 + np.exp(-(rows @ found).clip(-_MOST_LOG, _MOST_LOG)))
        slope = rows.T @ (share * (truth - likely)) - held @ found
        curve = (rows * (share * likely * (1 - likely))[:, None]).T @ rows + held + 1e-9 * np.eye(rows.shape[1])
        found = found + np.linalg.solve(curve, slope)
    return found[:-1], float(found[-1])


def folds_of(patients: Sequence[str]) -> Int64[np.ndarray, "n"]:
    """A fold for each row, drawn by the names of patients, so that a patient stays in a fold."""
    order = sorted(set(patients), key=lambda name: hashlib.sha256(name.encode()).digest())
    fold = {name: place % _FOLDS for place, name in enumerate(order)}
    return np.array([fold[patient] for patient in patients], dtype=np.int64)


def conformal_quantile(scores: Sequence[float], coverage: float) -> float:
    """What the score of one more frame is below with this probability; the largest where there are too few."""
    rank = math.ceil((len(scores) + 1) * coverage)
    return sorted(scores)[min(rank, len(scores)) - 1]


def _limits(names: Sequence[str], features: Float[np.ndarray, "n s"]) -> dict[str, float]:
    """Limits of the features, all as far out of their usual range: together they flag one in twenty frames."""
    watched = [place for place, name in enumerate(names) if name in WORSE]
    way = np.array([WORSE[names[place]] for place in watched])
    bad = features[:, watched] * way
    middle = np.median(bad, 0)
    reach = np.maximum(np.quantile(bad, 1 - _TAIL, axis=0) - middle, 1e-6)  # tails differ, so each its own
    farthest = ((bad - middle) / reach).max(1)
    limit = conformal_quantile([float(far) for far in farthest], 1 - FALSE_ALARMS)
    return dict(zip((names[place] for place in watched), _short((middle + limit * reach) * way), strict=True))


def _thinned(scores: Float[np.ndarray, "n"]) -> Float[np.ndarray, "m"]:
    """At most so many of sorted scores, evenly, each rounded up: what is left is no less cautious."""
    if len(scores) <= _MOST_SCORES:
        return scores
    ranks = np.ceil(np.arange(1, _MOST_SCORES + 1) * len(scores) / _MOST_SCORES).astype(int)
    return scores[ranks - 1]


def _short(values: Sequence[float] | Float[np.ndarray, "n"]) -> tuple[float, ...]:
    """Six digits: files stay small and readable."""
    return tuple(float(f"{value:.6g}") for value in values)
