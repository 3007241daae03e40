"""Sweeps of trackers that do not know one another are registered onto the first, or left out and named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from swept import sweep_of

from scopereg.compounding.compound import compound_sweeps
from scopereg.compounding.joining import Joined
from scopereg.compounding.settings import CompoundSettings, JoinSettings
from scopereg.data import phantom
from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose, sample_slice
from scopereg.images import Frame, Volume, pose_to_voxels
from scopereg.io.sweeps import TrackedSweep

OTHER = Pose.from_euler_deg((3, -4, 5), (5, -4, 3), "World", "Other")


def elsewhere(sweep: TrackedSweep, name: str, world: Pose = OTHER) -> TrackedSweep:
    """The same sweep by another tracker."""
    return replace(sweep, image_to_world=world.matrix @ sweep.image_to_world, name=name)


def through(volume: Volume, turn_deg: tuple[float, float, float], count: int) -> TrackedSweep:
    """Parallel frames cut out of a volume, tilted to it."""
    side, step_mm = 80, volume.isotropic_spacing_mm
    blank = Frame(np.zeros((side, side)), step_mm, (0, 0))
    turn = volume.direction @ Pose.from_euler_deg(turn_deg, (0, 0, 0)).rotation
    middle = volume.centre_mm - turn @ blank.centre_mm
    poses = [Pose(turn, middle + turn[:, 2] * 0.6 * (row - (count - 1) / 2)) for row in range(count)]
    cuts = [
        sample_slice(volume.array, *pose_to_voxels(pose, blank, volume), slice_shape=(side, side)) for pose in poses
    ]
    images = (torch.stack(cuts).clamp(0, 1) * 255).round().to(torch.uint8)
    return TrackedSweep("first", images, (step_mm, step_mm), np.stack([pose.matrix for pose in poses]))


@pytest.mark.slow
def test_a_sweep_is_joined_and_another_is_left_out(narrow_file: Path) -> None:
    patient = phantom.create("echo", seed=200_001, shape=(32, 96, 96))
    tilt = Pose.from_euler_deg((5, -3, 20), (0, 0, 0)).rotation
    volume = Volume(patient.volume.array, patient.spacing_mm, (12.0, -34.0, 56.0), tilt)
    first, other = through(volume, (0, 0, 0), 28), through(volume, (6, -5, 8), 22)
    stranger = elsewhere(replace(other, images=other.images.flip(1, 2)), "stranger")
    join = JoinSettings("near", f"{narrow_file}+refine", "cpu")
    made = compound_sweeps([first, elsewhere(other, "same"), stranger], CompoundSettings(), join=join)
    joined, left = made.joined
    assert (joined.sweep, joined.ok, left.sweep, left.ok) == ("same", True, "stranger", False)
    assert joined.pose is not None
    assert np.allclose(joined.pose.matrix @ OTHER.matrix, np.eye(4), atol=0.5)
    assert joined.verdict.startswith("same is joined, moved by ")
    assert "stranger is not joined: " in left.verdict
    assert [sweep.name for sweep in made.sweeps] == ["first", "same"]
    assert made.frames == 50
    (agreement,) = made.agreements
    assert agreement.fits
    facts = json.loads(json.dumps(made.facts["joined"]))
    assert facts[0]["world_to_first"] == joined.pose.matrix.tolist()
    assert (facts[0]["ok"], facts[1]["ok"]) == (True, False)


def test_what_lies_nowhere_near_is_told_before_it_is_sought(narrow_file: Path) -> None:
    far = elsewhere(sweep_of(), "far", Pose.from_euler_deg((0, 0, 0), (500, 0, 0)))
    with pytest.raises(ScopeRegError, match="far is not joined: it lies nowhere near the first"):
        compound_sweeps([sweep_of(), far], join=JoinSettings("near", str(narrow_file), "cpu"))


def test_one_sweep_alone_has_nothing_to_join() -> None:
    made = compound_sweeps(sweep_of(), join=JoinSettings("near", "no-such-method"), left_out=False)
    assert made.joined == ()


def test_verdicts() -> None:
    assert Joined("a", "because").verdict == "a is not joined: because"
    assert not Joined("a", "because").ok
    found = Joined("a", "", OTHER, 12.34, 5.6, 3, 4)
    assert found.verdict == "a is joined, moved by 12.3 mm and 5.6 degrees: 3 of 4 frames are reliable there"
    assert found.ok
    assert replace(found, reason="it does not fit").verdict == "a is not joined: it does not fit"
