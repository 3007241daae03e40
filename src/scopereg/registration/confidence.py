"""Confidence: from quality features of a frame to the error to expect, a bound that holds, whether it is reliable.

Quality features tell, without the truth, how well a network located a frame. A ridge regression weighs them into the
logarithm of the error. How far the truth lies from what it expects was counted on frames of patients that it was not
fitted to: split conformal prediction, which promises coverage on frames like those of the calibration, whatever the
regression is worth. Features are computed without waiting for the GPU or values on the host: sessions record them.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.geometry import VoxelPoses, target_points
from scopereg.networks.streaming import Located
from scopereg.registration.grey import GreyVolume, Level, RefineOptions
from scopereg.registration.result import NOT_JUDGED

if TYPE_CHECKING:
    from scopereg.networks.fine import FineFrame
    from scopereg.registration.fine import PreparedFine

QUALITY_FEATURES = (
    "residual",  # log mm of the coordinates from the plane fitted to them
    "entropy",  # of the evidence over the cells, 1 where all say the same amount
    "mass",  # mean logarithm of the evidence
    "coarse",  # correlation of frame and volume at the pose, smoothed and normalised by their surroundings
    "medium",  # the same, less smoothed
    "spread",  # log mm that the pose moves under small changes of the frame; only where these are asked for
)
FINE_FEATURES = (
    "disagreement",  # log mean square distance of the learned features of frame and volume
    "uncertainty",  # log mm to which these tell the pose
    "telling",  # how alike the frame is to this place of the volume, by features that tell places apart
    "stretch",  # log share by which the frame would fit better with pixels of another size
    "moved",  # log mm from where the network found the frame to where the fine stage did
)
"""Besides, of networks with a fine stage: between `medium` and `spread`."""
WORSE = {
    "residual": 1,
    "mass": -1,
    "coarse": -1,
    "medium": -1,
    "spread": 1,
    "disagreement": 1,
    "uncertainty": 1,
    "telling": -1,
    "stretch": 1,
    "moved": 1,
}
"""Which way a feature is bad. Entropy has no such way: few cells may say much of a right place or of a wrong one."""

_FIRST_AT_POSE = 3  # from there on features change with the pose, until "moved" or "spread"
_LEVELS = (Level(2, 2, 5, 0), Level(1, 2, 3, 0))
_STRETCH = 0.005  # that says nothing, see `fine`
_UNSAID_MM = 0.05  # added before a logarithm: what is less says no more
_NOTHING = 1e-12  # evidence that is none
_MOST_LOG = 20.0  # logarithm that is still a number of mm
_GAMMAS = ((1.0, 0.8), (1.15, 1.25))  # gain and gamma
_SHIFTS_PX = ((0, 3), (-3, 0))  # x and y
CHANGES = len(_GAMMAS) + len(_SHIFTS_PX)
CLOSE_MM = 3.0  # what a confidence is the probability of: an error of at most so much
COVERAGE = 0.95  # of the bound
FALSE_ALARMS = 0.05  # share of a volume's own frames that may be taken for out of distribution
ENOUGH = 0.8  # confidence of a pose that is ok
LEAST_FRAMES = 40  # of a calibration: a 95 % bound takes 19 frames at least, of half of the patients
_MOST_SCORES = 200
_RIDGE = 1.0
_LEAST_MM = 0.01  # error whose logarithm is taken
_MOST_MM = 1000.0  # stated: out of distribution, features lie far beyond what the regression knows
_FEWEST_MM = 1e-6  # stated
_TAIL = 0.1  # share of frames beyond the usual range of a feature


def features_of(agreement: bool, fine: bool = False) -> tuple[str, ...]:
    """The quality features that there are with and without small changes of the frame, and a fine stage."""
    usual = (*QUALITY_FEATURES[:-1], *(FINE_FEATURES if fine else ()))
    return (*usual, QUALITY_FEATURES[-1]) if agreement else usual


def at_pose(fine: bool) -> slice:
    """The places of the features that change when the pose is refined."""
    return slice(_FIRST_AT_POSE, len(QUALITY_FEATURES) - 1 + (len(FINE_FEATURES) - 1 if fine else 0))


class QualityFeatures:
    """A volume prepared to tell the quality features of frames located in it."""

    def __init__(self, volume: Float[Tensor, "d h w"], spacing_mm: float, fine: PreparedFine | None = None) -> None:
        """`volume` in [0, 1], on the device of the frames to come, and as the fine stage prepared it."""
        self.spacing_mm, self.fine = spacing_mm, fine
        self._grey = GreyVolume(volume, RefineOptions(levels=_LEVELS))
        # Made here, since what is recorded may not copy from the host.
        self._targets = target_points((volume.shape[1], volume.shape[2]), device=volume.device)
        self._shifts = torch.tensor([(float(x), float(y), 0.0) for x, y in _SHIFTS_PX], device=volume.device)

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
        return torch.cat([alike, self.fine.features(read or self.fine.read(images), poses, self.spacing_mm)], 1)

    def of(
        self,
        images: Float[Tensor, "b rows columns"],
        found: Located,
        masks: Bool[Tensor, "b rows columns"] | None = None,
        finely: VoxelPoses | None = None,
        read: FineFrame | None = None,
    ) -> Float[Tensor, "b features"]:
        """Of frames as they were found: with agreement where `found` also has those of `with_changes(images)`.

        `finely` is where the fine stage found all these, and `read` as it read the frames themselves.
        """
        count = len(images)
        first = VoxelPoses(found.rotation.float(), found.translation.float())
        poses = finely or first
        own = VoxelPoses(poses.rotation[:count], poses.translation[:count])
        evidence = found.evidence[:count].float().clamp_min(_NOTHING)
        parts = [self._log_mm(found.residual[:count]), _entropy(evidence), evidence.log().mean(1)]
        features = [torch.stack(parts, 1), self.at_poses(images, own, masks, read)]
        if finely is not None:
            before = VoxelPoses(first.rotation[:count], first.translation[:count])
            features.append(self._log_mm(self._apart(before, own)).unsqueeze(1))
        if len(poses.rotation) > count:
            features.append(self._spread(own, poses).unsqueeze(1))
        return torch.cat(features, 1)

    def _apart(self, first: VoxelPoses, second: VoxelPoses) -> Float[Tensor, "b"]:
        """Mean distance of the targets of frames at two poses, in voxels."""
        turned = (second.rotation - first.rotation) @ self._targets.T  # (B, 3, targets)
        apart = turned + (second.translation - first.translation).unsqueeze(-1)
        return torch.linalg.vector_norm(apart, dim=1).mean(1)

    def _spread(self, own: VoxelPoses, every: VoxelPoses) -> Float[Tensor, "b"]:
        """How far frames move when they are changed, on average over the changes; what a shift does is undone."""
        count = len(own.rotation)
        rotation = every.rotation[count:].unflatten(0, (CHANGES, count))
        translation = every.translation[count:].unflatten(0, (CHANGES, count))
        still = torch.zeros_like(self._shifts[:1]).expand(len(_GAMMAS), -1)
        shifts = torch.cat([still, self._shifts])[:, None, :, None]  # (CHANGES, 1, 3, 1)
        translation = translation + (rotation @ shifts).squeeze(-1)
        turned = (rotation - own.rotation) @ self._targets.T  # (CHANGES, B, 3, targets)
        apart = turned + (translation - own.translation).unsqueeze(-1)
        return self._log_mm(torch.linalg.vector_norm(apart, dim=2).mean((0, 2)))

    def _log_mm(self, voxels: Float[Tensor, "b"]) -> Float[Tensor, "b"]:
        return (voxels.float() * self.spacing_mm + _UNSAID_MM).log()


def with_changes(images: Float[Tensor, "b rows columns"]) -> Float[Tensor, "all rows columns"]:
    """Frames, then all of them under each small change."""
    grey = [(images.clamp_min(0) * gain).clamp(0, 1) ** gamma for gain, gamma in _GAMMAS]
    moved = [F.pad(images, (x, -x, y, -y)) for x, y in _SHIFTS_PX]
    return torch.cat([images, *grey, *moved])


def mm_of(feature: float) -> float:
    """A feature in log mm as mm."""
    return max(math.exp(min(feature, _MOST_LOG)) - _UNSAID_MM, 0.0)


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
    """From quality features to verdicts, as learnt from frames whose pose is known. Made by `fit`."""

    features: tuple[str, ...]
    centre: tuple[float, ...]
    scale: tuple[float, ...]
    weights: tuple[float, ...]  # of the features, centred and scaled, in the logarithm of the error
    offset: float
    scores: tuple[float, ...]  # sorted: true over expected errors of frames that the weights were not fitted to
    limits: dict[str, float]  # by feature, what one in twenty of a volume's own frames is beyond in one or more of them

    def expected_mm(self, features: Sequence[float]) -> float:
        """The error to expect."""
        rows = zip(features, self.centre, self.scale, self.weights, strict=True)
        log_mm = self.offset + sum((value - centre) / scale * weight for value, centre, scale, weight in rows)
        if math.isnan(log_mm):
            return _MOST_MM
        return math.exp(max(math.log(_FEWEST_MM), min(log_mm, math.log(_MOST_MM))))

    def judge(self, features: Sequence[float]) -> Verdict:
        """The verdict on a frame with these features."""
        unlike = self._out_of_distribution(features)
        if unlike:
            return refused(unlike)
        expected = self.expected_mm(features)
        bound = expected * conformal_quantile(self.scores, COVERAGE)
        share = bisect_right(self.scores, CLOSE_MM / expected) / (len(self.scores) + 1)
        likely = f"an error above {CLOSE_MM:g} mm is too likely: {expected:.1f} mm expected, {share:.0%} sure"
        return Verdict(expected, bound, share, True, share >= ENOUGH, "" if share >= ENOUGH else likely)

    def _out_of_distribution(self, features: Sequence[float]) -> str:
        """Why the frame does not belong to the volume, by the feature that is farthest out; empty where it may."""
        places = {name: place for place, name in enumerate(self.features)}
        beyond = {}
        for name, limit in self.limits.items():
            value = features[places[name]]
            if not (value - limit) * WORSE[name] <= 0:  # so that what is not a number is beyond too
                beyond[name] = abs(value - limit) / self.scale[places[name]]
        if not beyond:
            return ""
        worst = max(beyond, key=lambda name: math.inf if math.isnan(beyond[name]) else beyond[name])
        return _reason(worst, features[places[worst]])


def _reason(feature: str, value: float) -> str:
    if math.isnan(value):
        return "nothing of the frame could be compared with the volume"
    if feature == "residual":
        return f"what the network found does not lie in a plane: {mm_of(value):.1f} mm off it"
    if feature == "mass":
        return "the network found little of the frame in this volume"
    if feature == "disagreement":
        return "what the frame shows is not what the volume shows at the pose found"
    if feature == "uncertainty":
        return "too little of the frame tells its pose in this volume"
    if feature == "telling":
        return "the frame does not look like this place of the volume"
    if feature == "stretch":
        return f"the frame would fit better with pixels of another size, by {math.exp(value) - _STRETCH:.0%}"
    if feature == "moved":
        return f"the network found the frame {mm_of(value):.1f} mm from where its details fit"
    if feature == "spread":
        return f"the pose moves by {mm_of(value):.1f} mm when gain or place of the frame change a little"
    return "the frame does not look like this volume at the pose found"


def fit(
    names: Sequence[str],
    features: Float[np.ndarray, "n s"],
    errors_mm: Float[np.ndarray, "n"],
    patients: Sequence[str],
) -> ErrorModel:
    """An error model from the quality features of frames, their true errors and whose they are.

    One half of the patients gives the regression, the other the conformal scores and limits.
    """
    good = np.isfinite(features).all(1) & np.isfinite(errors_mm)
    first = good & in_first_half(patients)
    second = good & ~in_first_half(patients)
    if min(first.sum(), second.sum()) < LEAST_FRAMES // 2:
        raise ScopeRegError(
            f"{first.sum()} and {second.sum()} frames of two halves of the patients are too few",
            where="calibration",
            fix=f"use more patients or frames: at least {LEAST_FRAMES // 2} frames of each half",
        )
    log_mm = np.log(np.maximum(errors_mm, _LEAST_MM))
    centre, scale = features[first].mean(0), np.maximum(features[first].std(0), 1e-6)
    unit = (features - centre) / scale
    offset = float(log_mm[first].mean())
    gram = unit[first].T @ unit[first] + _RIDGE * np.eye(len(names))
    weights = np.linalg.solve(gram, unit[first].T @ (log_mm[first] - offset))
    scores = np.sort(errors_mm[second] / np.exp(unit[second] @ weights + offset))
    return ErrorModel(
        tuple(names),
        _short(centre),
        _short(scale),
        _short(weights),
        _short([offset])[0],
        _short(_thinned(scores)),
        _limits(names, features[first], features[second]),
    )


def in_first_half(patients: Sequence[str]) -> Bool[np.ndarray, "n"]:
    """Which rows belong to one half of the patients: drawn by their names, so that a patient stays in a half."""
    order = sorted(set(patients), key=lambda name: hashlib.sha256(name.encode()).digest())
    chosen = set(order[::2])
    return np.array([patient in chosen for patient in patients], dtype=bool)


def conformal_quantile(scores: Sequence[float], coverage: float) -> float:
    """What the score of one more frame is below with this probability; the largest where there are too few."""
    rank = math.ceil((len(scores) + 1) * coverage)
    return sorted(scores)[min(rank, len(scores)) - 1]


def _limits(
    names: Sequence[str], usual: Float[np.ndarray, "n s"], held_out: Float[np.ndarray, "m s"]
) -> dict[str, float]:
    """Limits of the features, all as far out of their usual range: together they flag one in twenty held-out frames."""
    watched = [place for place, name in enumerate(names) if name in WORSE]
    way = np.array([WORSE[names[place]] for place in watched])
    bad = usual[:, watched] * way
    middle = np.median(bad, 0)
    reach = np.maximum(np.quantile(bad, 1 - _TAIL, axis=0) - middle, 1e-6)  # tails differ, so each its own
    farthest = ((held_out[:, watched] * way - middle) / reach).max(1)
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
