"""Pose errors against plain numpy and by hand, and poses that are none."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scopereg.errors import ScopeRegError
from scopereg.geometry import VoxelPoses, pose_errors, rotation_from_euler_deg, sample_poses

SHAPE = (32, 128, 128)


def poses(count: int = 4, magnitude: float = 10, seed: int = 0) -> VoxelPoses:
    return sample_poses(count, magnitude, SHAPE, torch.Generator().manual_seed(seed))


def identity(count: int) -> VoxelPoses:
    return VoxelPoses(torch.eye(3).expand(count, 3, 3), torch.zeros(count, 3))


@pytest.mark.parametrize(("size", "corner"), [(128, 57), (64, 28), (192, 85.5), (384, 172), (512, 229.5)])
def test_corners_follow_the_published_rule(size: int, corner: float) -> None:
    points = pose_errors.target_points((size, 64))
    assert points.shape == (5, 3)
    assert points[0].tolist() == [0, 0, 0]
    assert sorted(map(tuple, points[1:].tolist())) == sorted((x, y, 0) for x in (-28, 28) for y in (-corner, corner))


def test_mtre_of_a_shift_is_its_length_in_mm() -> None:
    moved = VoxelPoses(torch.eye(3)[None], torch.tensor([[3.0, 4.0, 12.0]]))
    assert pose_errors.mtre_mm(moved, identity(1), (128, 128), 0.5).item() == pytest.approx(6.5)
    assert pose_errors.translation_error_mm(moved, identity(1), 0.5).item() == pytest.approx(6.5)


def test_mtre_of_a_turn_about_x_by_hand() -> None:
    # About x by 60 degrees a point at height y moves by 2 |y| sin(30) = |y|: four corners at 57, the centre rests.
    turned = VoxelPoses(rotation_from_euler_deg(torch.tensor([[60.0, 0, 0]])), torch.zeros(1, 3))
    assert pose_errors.mtre_mm(turned, identity(1), (128, 64), 0.616).item() == pytest.approx(
        4 * 57 * 0.616 / 5, rel=1e-6
    )
    assert pose_errors.translation_error_mm(turned, identity(1), 0.616).item() == 0


def test_mtre_equals_a_plain_numpy_computation() -> None:
    predicted, true, spacing = poses(seed=1), poses(seed=2), torch.tensor([0.5, 0.6, 0.7, 0.8])
    points = pose_errors.target_points((128, 96)).numpy()
    for row in range(4):
        a = points @ predicted.rotation[row].numpy().T + predicted.translation[row].numpy()
        b = points @ true.rotation[row].numpy().T + true.translation[row].numpy()
        expected = np.linalg.norm(a - b, axis=1).mean() * spacing[row].item()
        found = pose_errors.mtre_mm(predicted, true, (128, 96), spacing)[row].item()
        assert found == pytest.approx(expected, rel=1e-4)


def test_rotation_errors() -> None:
    angles = torch.tensor([[3.0, 4.0, 12.0], [0.0, 0.0, 179.0]])
    others = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, -179.0]])
    a, b = (VoxelPoses(rotation_from_euler_deg(v), torch.zeros(2, 3)) for v in (angles, others))
    assert pose_errors.rotation_error_deg(a, b).tolist() == pytest.approx([13, 2], rel=1e-4)
    one_turn = VoxelPoses(rotation_from_euler_deg(torch.tensor([[0.0, 37.0, 0.0]])), torch.zeros(1, 3))
    assert pose_errors.geodesic_error_deg(one_turn, identity(1)).item() == pytest.approx(37, rel=1e-5)
    assert (pose_errors.geodesic_error_deg(a, b) <= pose_errors.rotation_error_deg(a, b) * 1.01).all()


def test_pose_errors_vanish_for_equal_poses() -> None:
    same = poses(50)
    assert pose_errors.mtre_mm(same, same, (128, 128), 0.6).abs().max() == 0
    assert pose_errors.rotation_error_deg(same, same).abs().max() == 0
    assert pose_errors.geodesic_error_deg(same, same).abs().max() < 1e-4


POSE_METRICS = [
    lambda p, t: pose_errors.mtre_mm(p, t, (128, 128), 0.6),
    lambda p, t: pose_errors.translation_error_mm(p, t, 0.6),
    pose_errors.rotation_error_deg,
    pose_errors.geodesic_error_deg,
]


@pytest.mark.parametrize("metric", POSE_METRICS)
def test_bad_poses_are_errors_that_name_their_rows(metric) -> None:
    good = poses()
    nan_shift, nan_turn = good.translation.clone(), good.rotation.clone()
    nan_shift[2, 1] = float("nan")
    nan_turn[0, 0, 0] = float("inf")
    scaled, mirrored, skewed = (good.rotation.clone() for _ in range(3))
    scaled[1] *= 1.01
    mirrored[3, :, 2] *= -1
    skewed[1, :, 0] = skewed[1, :, 1]
    cases = [
        (VoxelPoses(good.rotation, nan_shift), "NaN or infinity: batch row 2"),
        (VoxelPoses(nan_turn, good.translation), "NaN or infinity: batch row 0"),
        (VoxelPoses(scaled, good.translation), "not a rotation.*: batch row 1"),
        (VoxelPoses(mirrored, good.translation), "not a rotation.*: batch row 3"),
        (VoxelPoses(skewed, good.translation), "not a rotation.*: batch row 1"),
        (VoxelPoses(good.rotation[:3], good.translation[:3]), r"shape \(3, 3, 3\)"),
        (VoxelPoses(good.rotation, good.translation[:, :2]), r"translations \(4, 2\)"),
    ]
    for bad, message in cases:
        with pytest.raises(ScopeRegError, match=message):
            metric(bad, good)
    with pytest.raises(ScopeRegError, match=r"\(true\).*NaN or infinity: batch row 2"):
        metric(good, cases[0][0])


def test_many_bad_rows_are_counted() -> None:
    bad = VoxelPoses(torch.full((20, 3, 3), float("nan")), torch.zeros(20, 3))
    with pytest.raises(ScopeRegError, match="0, 1, 2, 3, 4, 5, 6, 7 and 12 more"):
        pose_errors.rotation_error_deg(bad, identity(20))


@pytest.mark.parametrize("spacing", [0.0, -1.0, float("nan"), torch.ones(3), torch.tensor([1.0, 0, 1, 1])])
@pytest.mark.unchecked_shapes
def test_bad_spacing_is_an_error(spacing) -> None:
    with pytest.raises(ScopeRegError, match="spacing_mm"):
        pose_errors.mtre_mm(poses(), poses(), (128, 128), spacing)
