"""Sweeps that meet fit where they lie, or tell how far off they do; those that do not meet tell nothing."""

from __future__ import annotations

import json

import numpy as np
import pytest
from swept import moved, poses_of, sweep_of

from scopereg.compounding.agreement import Agreement
from scopereg.compounding.compound import compound_sweeps
from scopereg.compounding.settings import CompoundSettings
from scopereg.errors import ScopeRegError


def agreement_of(shift_mm: tuple[float, float, float], mode: str = "mean", **other: bool) -> Agreement:
    poses = poses_of(**other)
    across = sweep_of(poses, moved(poses, np.tile(shift_mm, (len(poses), 1))), name="other")
    made = compound_sweeps([sweep_of(), across], CompoundSettings(mode=mode))  # type: ignore[arg-type]
    (agreement,) = made.agreements
    assert made.facts["agreements"] == json.loads(json.dumps([agreement.facts]))
    assert bool(made.doubts) is (agreement.fits is False)
    return agreement


@pytest.mark.parametrize("mode", ["mean", "max"])
def test_sweeps_that_cross_fit_where_they_lie(mode: str) -> None:
    agreement = agreement_of((0.0, 0.0, 0.0), mode, turned=True)
    assert agreement.fits
    assert agreement.usual_mm < 0.4
    assert agreement.verdict.endswith("it fits")
    assert agreement.of == 12


def test_what_moved_between_them_is_told() -> None:
    shift_mm = (3.0, -4.0, 2.0)
    agreement = agreement_of(shift_mm, turned=True)
    assert agreement.fits is False
    assert agreement.usual_mm == pytest.approx(np.linalg.norm(shift_mm), abs=0.5)
    assert agreement.verdict.endswith("it does not fit")
    # Each frame is drawn back by the very motion, in its own axes.
    for frame in agreement.frames[3:8]:
        back = poses_of(turned=True)[frame.row].rotation @ np.array(frame.shift_mm)
        assert back == pytest.approx(-np.array(shift_mm), abs=0.7)


def test_sweeps_that_do_not_meet_tell_nothing() -> None:
    agreement = agreement_of((150.0, 0.0, 0.0))
    assert agreement.fits is None
    assert agreement.frames == ()
    assert "nothing tells" in agreement.verdict
    assert agreement.facts["shift_mm"] is None


def test_other_things_tell_nothing() -> None:
    """Noise where the other sweep has blobs."""
    sweep = sweep_of(name="noise")
    noise = np.random.default_rng(0).integers(0, 255, sweep.images.shape, dtype=np.uint8)
    sweep.images.copy_(sweep.images.new_tensor(noise))
    (agreement,) = compound_sweeps([sweep_of(), sweep]).agreements
    assert agreement.fits is None
    assert "not like them" in agreement.verdict


def test_three_sweeps_are_each_compared_with_the_others() -> None:
    poses = poses_of()
    off = sweep_of(poses, moved(poses, np.tile((0.0, 6.0, 0.0), (30, 1))), name="off")
    made = compound_sweeps([sweep_of(), sweep_of(poses_of(turned=True), name="across"), off])
    across, wrong = made.agreements
    assert (across.sweep, wrong.sweep) == ("across", "off")
    assert wrong.usual_mm > across.usual_mm
    assert made.facts["agreements"][1]["sweep"] == "off"


def test_worlds_that_files_name_differently_are_refused() -> None:
    one, other = sweep_of(), sweep_of(name="other")
    one.facts["world"], other.facts["world"] = "Reference", "Tracker"
    with pytest.raises(ScopeRegError, match="they lie in different worlds: Reference, Tracker"):
        compound_sweeps([one, other])
