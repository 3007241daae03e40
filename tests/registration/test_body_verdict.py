"""What is thought of a body: by the mean of what frames show, by what they do without the others, by doubts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pytest

from scopereg.geometry import Pose
from scopereg.registration.body_verdict import Judge, doubts, judge_frame, judge_whole, mean_features, no_better_than
from scopereg.registration.calibration import REFINED
from scopereg.registration.model import load
from scopereg.registration.result import Result


@dataclass
class Found:
    """What a verdict asks of a finder."""

    counts: list[bool] = field(default_factory=lambda: [True] * 5)
    inside: list[bool] = field(default_factory=lambda: [True] * 5)
    worth: float = 0.3
    mirrored_worth: float = 0.1
    rivals: list[tuple[float, Pose]] = field(default_factory=list)
    usual_freed_mm: float = 0.5

    @property
    def body(self) -> list[bool]:
        return self.counts


@pytest.fixture(scope="module")
def judge() -> Judge:
    known = load("universal", device="cpu").calibration
    assert known is not None
    return Judge(known, known.error_models[REFINED], 1.0)


def result(judge: Judge, off: float = 0.0) -> Result:
    """A frame whose features are the usual ones, or so many spreads worse."""
    model = judge.model
    rows = zip(model.features, model.centre, model.scale, model.weights, strict=True)
    features = {name: centre + off * scale * math.copysign(1.0, weight) for name, centre, scale, weight in rows}
    return Result(Pose.identity(), "together", 0.0, 0.5, features=features)


def whole(judge: Judge, found: Any, *frames: Result) -> Result:
    return judge_whole(Result(Pose.identity(), "together", 0.0, 0.5), frames, found, judge)


def test_usual_frames_that_stay_are_ok_and_their_mean_counts(judge: Judge) -> None:
    better = result(judge, -0.8)
    told = whole(judge, Found(), better, better)
    assert told.ok is True
    assert told.features == pytest.approx(better.features)
    assert mean_features([result(judge, -1), result(judge, 1)]) == pytest.approx(result(judge).features)
    assert told.calibrated_on


def test_frames_that_go_elsewhere_by_themselves_are_expected_to_be_off_by_that(judge: Judge) -> None:
    told = whole(judge, Found(usual_freed_mm=3.0), result(judge, -0.8))
    assert told.ok is False
    assert told.expected_mm == pytest.approx(3.0)
    assert told.reason.startswith("frames fit better 3.0 mm from where the others put them")


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (Found(counts=[True, True, False, False, False]), "only 2 of 5 frames are like the volume"),
        (Found(counts=[True, False, False, False, False]), "only 1 of 5 frames is like the volume"),
        (Found(mirrored_worth=0.31), "their mirror image fits better"),
        (Found(rivals=[(0.28, Pose.identity())]), "another place in the volume fits the frames nearly as well"),
    ],
)
def test_whatever_speaks_against_a_body_keeps_it_from_being_ok(judge: Judge, found: Found, why: str) -> None:
    told = whole(judge, found, result(judge, -0.8))
    assert told.ok is False
    assert told.belongs is True
    assert why in told.reason


def test_frames_outside_of_the_volume_do_not_speak_against_those_inside() -> None:
    found: Any = Found(counts=[True, True, False, False, False], inside=[True, True, False, False, False])
    assert not list(doubts(found))


def test_without_a_calibration_nothing_is_judged_but_doubts(judge: Judge) -> None:
    nobody: Any = None
    frames = [result(judge)]
    start = Result(Pose.identity(), "together", 0.0, 0.5)
    fine, doubted = (judge_whole(start, frames, found, nobody) for found in (Found(), Found(mirrored_worth=0.5)))  # type: ignore[arg-type]
    assert fine.ok is None
    assert doubted.ok is False


def test_a_frame_is_no_better_than_its_body_nor_where_it_is_left_out(judge: Judge) -> None:
    good = judge_frame(judge, result(judge, -0.8), counts=True, inside=True)
    assert good.ok is True
    left = judge_frame(judge, result(judge, -0.8), counts=False, inside=True)
    assert (left.ok, left.reason) == (False, "it is not like the volume where the other frames put it")
    outside = judge_frame(judge, result(judge, -0.8), counts=False, inside=False)
    assert outside.ok is None
    bad = whole(judge, Found(usual_freed_mm=4.0), result(judge))
    assert no_better_than(bad, good).ok is False
    assert no_better_than(good, good).ok is True
