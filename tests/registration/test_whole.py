"""A whole volume of ultrasound is found in another modality, from near and from afar, and never judged."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from drawn_modalities import as_ultrasound, other_modality

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Volume
from scopereg.registration.result import RegistrationError
from scopereg.registration.whole import WholeSettings, check_reach, locate_whole

MM = 0.5
QUICK = WholeSettings(reach_mm=3.0, turn_deg=4.0, places=120, kept=2, near=8, climbs=2)


def volumes() -> tuple[Volume, Volume]:
    """Ultrasound in its true place, and the other modality, with other axes."""
    other = other_modality(34, 44, 48, seed=3)
    noise = torch.rand(22, 30, 34, generator=torch.Generator().manual_seed(1))
    ultrasound = (as_ultrasound(other)[6:-6, 7:-7, 7:-7] + 0.1 * noise).clamp(0.01, 1)
    turned = Pose.from_euler_deg([0.0, 0.0, 90.0], np.zeros(3)).rotation
    whole = Volume(ultrasound, MM, turned @ (np.array([7, 7, 6]) * MM), turned)
    return whole, Volume(other, MM, np.zeros(3), turned, modality="mr")


def start(shift_mm: float) -> Pose:
    """Off the truth, about the middle of the ultrasound."""
    middle = volumes()[0].centre_mm
    turned = Pose.from_euler_deg([1.0, -2.0, 1.5], np.zeros(3)).rotation
    return Pose(turned, middle - turned @ middle + np.array([shift_mm, -shift_mm / 2, shift_mm / 2]))


def off_mm(pose: Pose) -> float:
    ultrasound, _ = volumes()
    signs = np.array([[1, 1, 1], [-1, 1, 1], [1, -1, 1], [1, 1, -1]])
    corners = ultrasound.centre_mm + signs * np.array(ultrasound.extent_mm) / 2 @ ultrasound.direction.T
    return float(np.linalg.norm(pose.apply(corners) - corners, axis=1).mean())


def test_from_near_the_nearest_maximum_is_the_pose_and_nobody_judges_it() -> None:
    found = locate_whole(*volumes(), start(0.5), WholeSettings(reach_mm=0))
    assert off_mm(start(0.5)) > 0.5
    assert off_mm(found.pose) < 0.15
    assert found.pose.name == "UltrasoundToVolume"
    assert found.ok is None
    assert "not judged" in found.reason


def test_from_afar_another_place_is_taken_and_a_seed_gives_the_same_twice() -> None:
    near = locate_whole(*volumes(), start(2.0), WholeSettings(reach_mm=0))
    first, second = (locate_whole(*volumes(), start(2.0), QUICK) for _ in range(2))
    assert off_mm(near.pose) > 1.0, "or this says nothing"
    assert off_mm(first.pose) < 0.3
    assert first.similarity > near.similarity
    assert "off the start" in first.notes[-1]
    np.testing.assert_array_equal(first.pose.matrix, second.pose.matrix)


def test_by_default_both_lie_in_one_world() -> None:
    found = locate_whole(*volumes(), settings=WholeSettings(reach_mm=0))
    assert off_mm(found.pose) < 0.15
    assert "one world" in found.notes[0]


@pytest.mark.parametrize("away_mm", [40.0, 500.0])
def test_volumes_that_do_not_overlap_are_refused(away_mm: float) -> None:
    with pytest.raises(RegistrationError, match=r"ultrasound|overlap"):
        locate_whole(*volumes(), Pose(np.eye(3), np.array([away_mm, 0, 0])), WholeSettings(reach_mm=0))


def test_a_reach_is_a_number_of_mm() -> None:
    assert check_reach(0.0, "--reach-mm") == 0
    for wrong in (-1.0, float("nan"), 1000.0):
        with pytest.raises(ScopeRegError, match="reach"):
            check_reach(wrong, "--reach-mm")


def test_what_stands_out_nowhere_is_left_where_it_was() -> None:
    ultrasound, other = volumes()
    noise = torch.rand(22, 30, 34, generator=torch.Generator().manual_seed(5)) * 0.9 + 0.05
    strange = Volume(noise, MM, ultrasound.origin_mm, ultrasound.direction)
    found = locate_whole(strange, other, start(0.5), QUICK)
    np.testing.assert_allclose(found.pose.matrix, start(0.5).matrix, atol=1e-5)
    assert "left at its start" in found.reason
