"""Where a body may lie by features of all of its frames at once, and what a network finds from where it lies."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from scopereg.geometry import Pose, VoxelPoses, compose_poses, rotation_from_euler_deg
from scopereg.networks.anywhere import alike
from scopereg.registration.body import BODY, Body
from scopereg.registration.body_finder import ground_of
from scopereg.registration.body_likeness import BodyOnGround
from scopereg.registration.body_looks import looks_from
from scopereg.registration.body_search import likely_poses, spread_rows
from scopereg.registration.locator import Locator
from scopereg.registration.model import Registrar
from scopereg.registration.network import network_of
from scopereg.registration.result import Result
from scopereg.registration.settings import SearchSettings

Case = Any  # of conftest.py
TRUTH = Pose.from_euler_deg((0, 0, 0), (0, 0, 0), BODY, "Volume")  # the body is told in mm of the volume


@pytest.fixture(scope="module")
def located(case: Case, narrow: Registrar) -> Locator:
    return Locator(case.volume, narrow)


@pytest.fixture(scope="module")
def body(case: Case) -> Body:
    made = Body.of(case.frames, case.truth)
    return Body(tuple(frame.for_registration() for frame in made.frames), made.image_to_body)


@pytest.fixture(scope="module")
def on_ground(located: Locator, body: Body) -> BodyOnGround:
    return BodyOnGround(body, ground_of(located, located.prepared, network_of(located.prepared), body))


def apart_mm(body: Body, one: Pose, other: Pose) -> float:
    return max(body.apart_mm(row, one, other) for row in range(len(body)))


@pytest.mark.parametrize("off", [None, ((8, -9, 7), (8, -6, 5))])
def test_the_best_place_is_near_the_truth_with_a_start_and_without(
    on_ground: BodyOnGround, body: Body, off: tuple[tuple[float, ...], tuple[float, ...]] | None
) -> None:
    start = None if off is None else Pose.from_euler_deg(*off, "Volume", "Volume") @ TRUTH
    found = likely_poses(on_ground, start, SearchSettings())
    before = apart_mm(body, start or found[-1], TRUTH)
    assert apart_mm(body, found[0], TRUTH) < min(5.0, before)


def test_places_are_compared_as_each_frame_is_by_itself(on_ground: BodyOnGround) -> None:
    turned = rotation_from_euler_deg(torch.tensor([[0.0, 0.0, 0.0], [4.0, -3.0, 9.0]]))
    poses = VoxelPoses(turned, torch.tensor([[0.0, 0.0, 0.0], [5.0, -2.0, 1.0]]))
    expected = torch.zeros(2)
    for row in (0, 2):
        read, relative, encoded = on_ground.sought(row)
        placed = compose_poses(poses, VoxelPoses(*(part.expand(2, *part.shape[1:]) for part in relative)))
        expected += alike(read.far, encoded.far, placed)[0] / 2
    assert torch.allclose(on_ground.place_likeness(poses, [0, 2]), expected, atol=1e-5)


def test_frames_near_one_another_are_looked_at_in_one_window_as_by_themselves(located: Locator, body: Body) -> None:
    network = network_of(located.prepared)
    assert network is not None
    poses = [body.pose_of(row, TRUTH) for row in range(len(body))]
    found = looks_from(network, body, poses)
    assert list(found) == [0, 1, 2, 3]
    middles = {id(one.seen_from) for one in found.values() if isinstance(one, Result)}
    assert len(middles) < len(body)
    alone = network.volume_for(body.frames[3]).windows.register(body.frames[3], poses[3])
    together = found[3]
    assert isinstance(together, Result)
    assert body.apart_mm(3, together.pose @ body.image_to_body[3].inverse(), TRUTH) < 1.5
    assert (
        apart_mm(body, together.pose @ body.image_to_body[3].inverse(), alone.pose @ body.image_to_body[3].inverse())
        < 1
    )


def test_rows_are_spread_evenly() -> None:
    assert spread_rows(9, 3) == [0, 4, 8]
    assert spread_rows(2, 5) == [0, 1]
