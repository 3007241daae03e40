"""BodyVerdict: what to think of the pose of a body, and of each of its frames there.

The calibration is that of single frames: what it says of quality features holds for frames of a body, of which each is
looked at from where the others put it. The verdict on the whole is that on the mean of their features. The error to
expect is no less than what frames go by themselves from where the body has them: of frames that are no rigid body, or
of a wrong calibration of the probe, each looks well where it lies, and still they do not fit together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from scopereg.geometry import Pose
from scopereg.registration.body_finder import BodyFinder
from scopereg.registration.calibration import NETWORK, Calibration, Stage
from scopereg.registration.confidence import ErrorModel
from scopereg.registration.network import network_of
from scopereg.registration.prepared import Prepared
from scopereg.registration.refine import PreparedRefinement
from scopereg.registration.result import Result

_UNKNOWN = "nobody calibrated this method"
_NEARLY = 0.9  # of the likeness: another place that has so much may be the right one
_LEAST_FRAMES = 2  # that count, of a body that is ok


@dataclass(frozen=True)
class Judge:
    """What a calibration says of poses of one stage, in voxels of a size."""

    calibration: Calibration
    model: ErrorModel
    spacing_mm: float

    @classmethod
    def of(cls, prepared: Prepared, spacing_mm: float) -> Judge | None:
        """None where nobody calibrated poses of this kind."""
        network = network_of(prepared)
        stage: Stage = prepared.stage if isinstance(prepared, PreparedRefinement) else NETWORK
        known = None if network is None else network.model.calibration
        return None if known is None or not known.knows(stage) else cls(known, known.error_models[stage], spacing_mm)

    def judged(self, result: Result, features: Sequence[float], least_mm: float = 0.0) -> Result:
        verdict = self.model.judge(features, self.spacing_mm, least_mm=least_mm)
        return replace(result, **vars(verdict), calibrated_on=self.calibration.words)


def with_features(finder: BodyFinder, row: int, pose: Pose) -> Result | None:
    """A frame where the body has it, with its quality features there; None where no network looked at it."""
    look, network = finder.looks.get(row), finder.network
    if look is None or network is None:
        return None
    frame, prepared = finder.body.frames[row], finder.prepared
    moved = replace(look, pose=pose)
    if isinstance(prepared, PreparedRefinement):
        return prepared.judge_refined(frame, moved, prepared.stage)
    return network.judge_refined(frame, moved, NETWORK)


def judge_frame(judge: Judge | None, result: Result, counts: bool, inside: bool) -> Result:
    """A frame of a body by its own features, wherever in the volume the body lies: others hold it there."""
    if not result.features or judge is None:
        return result.without_verdict("" if inside else "too little of it lies in the volume")
    told = judge.judged(result, [*result.features.values()])
    if not inside:
        return told.without_verdict("too little of it lies in the volume")
    if not counts and told.ok is not False:
        return replace(told, ok=False, reason="it is not like the volume where the other frames put it")
    return told


def mean_features(frames: Sequence[Result]) -> dict[str, float]:
    """Of frames that have them."""
    told = [one.features for one in frames if one.features]
    return {name: fmean(each[name] for each in told) for name in told[0]} if told else {}


def judge_whole(whole: Result, frames: Sequence[Result], finder: BodyFinder, judge: Judge | None) -> Result:
    """The whole with its verdict; `frames` are those that count."""
    doubt = next(doubts(finder), "")
    features = mean_features(frames)
    if judge is None or not features:
        return replace(whole, ok=False, belongs=True, reason=doubt) if doubt else whole.without_verdict(_UNKNOWN)
    freed_mm = finder.usual_freed_mm
    told = judge.judged(replace(whole, features=features), [*features.values()], least_mm=freed_mm)
    if told.ok is False and told.expected_mm == freed_mm:
        doubt = doubt or (
            f"frames fit better {freed_mm:.1f} mm from where the others put them: "
            "they do not lie beside one another as they are said to"
        )
    return replace(told, ok=False, reason=doubt) if told.belongs and doubt else told


def doubts(finder: BodyFinder) -> Iterator[str]:
    """Why the pose of a body cannot be right for all of its frames."""
    inside, used = sum(finder.inside), sum(finder.counts)
    if used < _LEAST_FRAMES:
        yield f"only {used} of {len(finder.body)} frames is like the volume where the body has it"
    elif used * 2 <= inside:
        yield f"only {used} of {len(finder.body)} frames are like the volume where the body has them"
    if finder.mirrored_worth > finder.worth:
        yield "the frames do not lie beside one another as they are said to: their mirror image fits better"
    if finder.rivals and finder.rivals[0][0] > _NEARLY * finder.worth:
        yield "another place in the volume fits the frames nearly as well"


def no_better_than(whole: Result, frame: Result) -> Result:
    """A frame of a body that is not reliable is not reliable, however well it looks."""
    if whole.ok is not False or frame.ok is not True:
        return frame
    return replace(frame, ok=False, reason="the frames together are not reliable")
