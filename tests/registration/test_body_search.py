"""Where a body may lie by features of all of its frames at once, and what a network finds from where it lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from scopereg.geometry import Pose, VoxelPoses, compose_poses, rotation_from_euler_deg
from scopereg.images import Volume
from scopereg.networks.anywhere import alike
from scopereg.registration.body import BODY, Body
from scopereg.registration.body_ground import ground_of
from scopereg.registration.body_likeness import BodyOnGround
from scopereg.registration.body_looks import looks_from
from scopereg.registration.body_search import likely_poses, spread_rows
from scopereg.registration.locator import Locator
from scopereg.registration.model import Registrar
from scopereg.registration.network import network_of
from scopereg.registration.result import Result
from scopereg.registration.result import apart_mm as frame_apart_mm
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
    return BodyOnGround(body, ground_of(located.volume, located.prepared, network_of(located.prepared), body))


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


def test_a_body_turned_far_against_the_axes_of_its_volume_is_found_from_a_start(case: Case, narrow: Registrar) -> None:
    """Features know frames that lie along the axes: the volume is seen along the start."""
    turned = Volume(case.volume.array.permute(2, 0, 1).contiguous(), case.volume.spacing_mm)
    axes = np.array([[0.0, 1, 0], [0, 0, 1], [1, 0, 0]])  # of the volume's x, y, z in the turned one's
    to_turned = axes @ case.volume.direction.T
    shift = turned.centre_mm - to_turned @ case.volume.centre_mm
    truth = [Pose(to_turned @ pose.rotation, to_turned @ pose.translation_mm + shift) for pose in case.truth]
    off = Pose.from_euler_deg((6, -7, 5), (4, -3, 3), "Volume", "Volume")
    found = Locator(turned, narrow, refine=True).locate_together(case.frames, truth, off)
    rows = zip(case.frames, found.frames, truth, strict=True)
    assert max(frame_apart_mm(frame, result.pose, true) for frame, result, true in rows) < 0.5


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
