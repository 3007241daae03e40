"""Frames of one body: one pose for all, by what all of them show; a bad one does no harm."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose, VoxelPoses, rotation_from_euler_deg, weighted_kabsch_in_space
from scopereg.geometry.steps import moved
from scopereg.images import Frame
from scopereg.registration.body import BODY, Body
from scopereg.registration.body_diagnosis import with_hints
from scopereg.registration.body_likeness import BodyComparison, carried, chain
from scopereg.registration.body_readings import MIRRORED
from scopereg.registration.grey import Grey
from scopereg.registration.locator import Locator
from scopereg.registration.model import Registrar
from scopereg.registration.result import Result

Case = Any  # of conftest.py


@pytest.fixture(scope="module")
def located(case: Case, narrow: Registrar) -> Locator:
    return Locator(case.volume, narrow, refine=True)


# Any body: the volume's own mm, turned and shifted.
ELSEWHERE = Pose.from_euler_deg((30, -50, 110), (200, -40, 15), "Volume", BODY)


def in_body(case: Case) -> list[Pose]:
    return [ELSEWHERE @ Pose(pose.rotation, pose.translation_mm) for pose in case.truth]


def test_points_in_space_are_brought_onto_others_by_a_rotation_and_no_reflection() -> None:
    generator = torch.Generator().manual_seed(1)
    points = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    rotation = rotation_from_euler_deg(torch.tensor([50.0, -20.0, 120.0], dtype=torch.float64))
    shift = torch.tensor([3.0, -1.0, 7.0], dtype=torch.float64)
    weights = torch.rand(40, generator=generator)
    wrong = points @ rotation.T + shift
    wrong[:5] += 100
    found = weighted_kabsch_in_space(points, wrong, weights * (torch.arange(40) >= 5))
    assert torch.allclose(found.rotation, rotation, atol=1e-9)
    assert torch.allclose(found.translation, shift, atol=1e-9)
    mirrored = weighted_kabsch_in_space(points, points * torch.tensor([1.0, 1.0, -1.0]), weights)
    assert torch.linalg.det(mirrored.rotation) == pytest.approx(1.0)


def test_steps_of_frames_follow_from_a_step_of_their_body() -> None:
    relative = VoxelPoses(
        rotation_from_euler_deg(torch.tensor([[10.0, -70.0, 30.0], [0.0, 15.0, -160.0]])),
        torch.tensor([[20.0, -10.0, 5.0], [-30.0, 4.0, 12.0]]),
    )
    pose = VoxelPoses(rotation_from_euler_deg(torch.tensor([[25.0, 40.0, -5.0]])), torch.tensor([[3.0, 2.0, -8.0]]))
    step = torch.tensor([[0.02, -0.03, 0.01, 0.04, 0.02, -0.03]])
    of_frames = torch.einsum("nkl,l->nk", chain(relative, 20.0, 35.0), step[0])
    by_body = carried(moved(pose, step, 35.0), relative)
    by_frames = moved(carried(pose, relative), of_frames, 20.0)
    assert torch.allclose(by_body.rotation, by_frames.rotation, atol=1e-5)
    assert torch.allclose(by_body.translation, by_frames.translation, atol=1e-4)


def test_the_equations_of_a_body_are_those_of_its_merit() -> None:
    volume = torch.nn.functional.avg_pool3d(
        torch.rand(1, 24, 48, 48, generator=torch.Generator().manual_seed(2)), 5, 1, 2
    )[0]
    frames = volume[[9, 14]].clone()
    relative = VoxelPoses(torch.eye(3).expand(2, 3, 3), torch.tensor([[0.0, 0.0, -2.5], [0.0, 0.0, 2.5]]))
    comparison = list(Grey().prepare(volume).compare(frames, torch.ones_like(frames)))[1]
    body = BodyComparison([(comparison, relative, torch.ones(2))], 20.0)
    there = VoxelPoses(torch.eye(3)[None], torch.tensor([[0.4, -0.3, 0.1]]))
    slope = body.normal(there).slope[0]
    for axis in range(6):
        step = torch.zeros(1, 6)
        step[0, axis] = 0.05
        up, down = (float(body.normal(moved(there, sign * step, 20.0)).merit[0]) for sign in (1, -1))
        assert float(slope[axis]) == pytest.approx(-(up - down) / 0.1, rel=0.25, abs=0.05 * float(slope.norm()))


def test_frames_together_get_one_pose_better_than_alone(case: Case, located: Locator) -> None:
    found = located.locate_together(case.frames, in_body(case))
    assert found.pose.name == "BodyToVolume"
    errors = [case.error_mm(row, result.pose) for row, result in enumerate(found.frames)]
    alone = [case.error_mm(row, one.pose) for row, one in enumerate(found.alone) if isinstance(one, Result)]
    assert max(errors) < 0.5
    assert np.mean(errors) <= np.mean(alone) + 0.05
    for row, result in enumerate(found.frames):
        assert result.pose.is_close(found.pose @ replace_names(in_body(case)[row]), mm=1e-9, deg=1e-6)
        assert result.frame is case.frames[row]
    assert all(found.counts)
    assert found.ok is True
    assert found.whole.confidence > 0.8
    assert found.whole.bound_mm > max(errors)
    assert [one.ok for one in found.frames] == [True] * 4
    assert max(found.freed_mm) < 1.5


def test_a_mirror_image_of_the_body_is_no_green_light_and_is_named(case: Case, located: Locator) -> None:
    mirrored = Body.of(case.frames, in_body(case)).mirrored()
    found = located.locate_together(case.frames, mirrored.image_to_body)
    assert found.ok is False
    assert not any(one.ok for one in found.frames)
    hinted = with_hints(located, found)
    assert hinted.whole.hints == (MIRRORED,)


def replace_names(pose: Pose) -> Pose:
    return Pose(pose.rotation, pose.translation_mm, "Image", BODY)


def test_around_a_start_and_as_matrices(case: Case, located: Locator) -> None:
    start = Pose.from_euler_deg((4, -5, 3), (3, -4, 2), "Volume", "Volume") @ ELSEWHERE.inverse()
    found = located.locate_together(case.frames, [pose.matrix for pose in in_body(case)], start)
    assert max(case.error_mm(row, result.pose) for row, result in enumerate(found.frames)) < 0.5


def test_a_bad_frame_does_not_spoil_the_others(case: Case, located: Locator) -> None:
    noise = torch.rand(case.frames[1].shape, generator=torch.Generator().manual_seed(5)) * 0.3
    empty = torch.zeros(case.frames[2].shape)
    frames = [
        case.frames[0],
        replace(case.frames[1], array=noise),
        replace(case.frames[2], array=empty),
        case.frames[3],
    ]
    found = located.locate_together(frames, in_body(case))
    assert max(case.error_mm(row, result.pose) for row, result in enumerate(found.frames)) < 0.7
    assert found.counts[0]
    assert found.counts[3]
    assert not found.counts[2]
    assert isinstance(found.alone[2], ScopeRegError)
    assert found.frames[2].ok is None  # its pose follows from the others, nothing of it can be judged


def test_frames_may_differ_in_size(case: Case, located: Locator) -> None:
    frames = [case.frames[0].cut(8, 4, 88, 90), *case.frames[1:]]
    found = located.locate_together(frames, in_body(case))
    assert max(case.error_mm(row, result.pose) for row, result in enumerate(found.frames)) < 0.5


def test_without_a_network_grey_values_lead(case: Case) -> None:
    identity = Locator(case.volume, "identity", refine=True)
    off = Pose.from_euler_deg((1, -1, 1), (0.8, -0.8, 0.6), "Volume", "Volume")
    found = identity.locate_together(case.frames, in_body(case), off @ ELSEWHERE.inverse())
    assert max(case.error_mm(row, result.pose) for row, result in enumerate(found.frames)) < 0.5
    assert found.ok is None


SCALED = np.diag([2.0, 2.0, 2.0, 1.0])


@pytest.mark.parametrize(
    ("frames", "poses", "what"),
    [
        (1, [np.eye(4)], "got 1 frame"),
        (2, [np.eye(4)], "1 poses for 2 frames"),
        (2, [np.eye(4), SCALED], "frame 1 is not one of a rigid body: not a rotation"),
        (2, [np.eye(4), np.diag([1.0, 1.0, -1.0, 1.0])], "frame 1 is not one of a rigid body: a reflection"),
        (2, [np.eye(4), np.full((4, 4), np.nan)], "frame 1 is not one of a rigid body: it holds NaN"),
        (2, [np.eye(4), np.eye(3)], "frame 1 is not one of a rigid body: the shape is"),
    ],
)
def test_what_is_no_rigid_body_is_refused(frames: int, poses: list[Any], what: str) -> None:
    with pytest.raises(ScopeRegError, match=what):
        Body.of([Frame(torch.rand(8, 8), 0.5)] * frames, poses)


def test_places_in_other_units_are_refused(case: Case, located: Locator) -> None:
    far = [pose.matrix.copy() for pose in in_body(case)]
    for row, matrix in enumerate(far):
        matrix[:3, 3] += 5000.0 * row
    with pytest.raises(ScopeRegError, match=r"lie up to .* mm apart"):
        located.locate_together(case.frames, far)


def test_places_in_metres_are_refused(case: Case) -> None:
    metres = [pose.matrix.copy() for pose in in_body(case)]
    for matrix in metres:
        matrix[:3, 3] /= 1000
    centred = [replace(frame, origin_mm=None) for frame in case.frames]
    with pytest.raises(ScopeRegError, match="these look like metres"):
        Body.of(centred, metres).check_room(case.volume)


def test_a_wide_search_takes_no_start(case: Case, narrow: Registrar) -> None:
    wide = Locator(case.volume, narrow, wide=True)
    with pytest.raises(ScopeRegError, match="looks all over the volume"):
        wide.locate_together(case.frames, in_body(case), ELSEWHERE.inverse())


def test_frames_without_any_content_are_refused(case: Case, located: Locator) -> None:
    empty = [replace(frame, array=torch.zeros(frame.shape)) for frame in case.frames]
    with pytest.raises(ScopeRegError, match="empty"):
        located.locate_together(empty, in_body(case))
