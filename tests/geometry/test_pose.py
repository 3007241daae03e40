"""Pose: a rigid transform between named frames, in mm."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose

angle = st.floats(-180, 180)
coordinate = st.floats(-500, 500)


@st.composite
def poses(draw: st.DrawFn, source: str = "Image", target: str = "Volume") -> Pose:
    angles, shift = (draw(st.tuples(s, s, s)) for s in (angle, coordinate))
    return Pose.from_euler_deg(angles, shift, source, target)


def a_pose(source: str = "Image", target: str = "Volume") -> Pose:
    return Pose.from_euler_deg((10, -20, 30), (1, 2, 3), source, target)


many = settings(max_examples=100, deadline=None)


@given(poses())
@many
def test_inverse_undoes(pose: Pose) -> None:
    assert (pose.inverse() @ pose).is_close(Pose.identity("Image", "Image"), mm=1e-9, deg=1e-9)
    assert (pose @ pose.inverse()).is_close(Pose.identity("Volume", "Volume"), mm=1e-9, deg=1e-9)
    assert pose.inverse().inverse().is_close(pose, mm=1e-9, deg=1e-9)
    assert pose.inverse().name == "VolumeToImage"


@given(poses("Image", "Volume"), poses("Volume", "Probe"), poses("Probe", "World"))
@many
def test_composing_is_associative_and_applies_in_order(first: Pose, second: Pose, third: Pose) -> None:
    left, right = (third @ second) @ first, third @ (second @ first)
    assert left.is_close(right, mm=1e-8, deg=1e-8)
    assert left.name == "ImageToWorld"
    points = np.array([[1.0, 2, 3], [-40, 5, 0]])
    np.testing.assert_allclose(left.apply(points), third.apply(second.apply(first.apply(points))), atol=1e-8)
    assert second.compose(first).is_close(second @ first)


@given(poses("Image", "Volume"), poses("Volume", "World"))
@many
def test_inverse_of_a_product_is_the_product_of_inverses(first: Pose, second: Pose) -> None:
    assert (second @ first).inverse().is_close(first.inverse() @ second.inverse(), mm=1e-8, deg=1e-8)


@given(poses())
@many
def test_matrix_and_euler_round_trips(pose: Pose) -> None:
    assert Pose.from_matrix(pose.matrix).is_close(pose, mm=0, deg=1e-9)
    assert Pose.from_euler_deg(pose.euler_deg, pose.translation_mm).is_close(pose, mm=0, deg=1e-9)


@given(poses())
@many
def test_distances_are_kept(pose: Pose) -> None:
    a, b = np.array([10.0, -20, 5]), np.array([0.0, 7, -3])
    assert np.linalg.norm(pose.apply(a) - pose.apply(b)) == pytest.approx(np.linalg.norm(a - b), abs=1e-9)


def test_against_scipy_and_a_plain_matrix() -> None:
    pose = a_pose()
    expected = Rotation.from_euler("xyz", (10, -20, 30), degrees=True)
    np.testing.assert_allclose(pose.rotation, expected.as_matrix(), atol=1e-12)
    points = np.random.default_rng(0).normal(size=(4, 5, 3))
    homogeneous = np.concatenate([points, np.ones((4, 5, 1))], -1)
    np.testing.assert_allclose(pose.apply(points), (homogeneous @ pose.matrix.T)[..., :3], atol=1e-12)
    other = Pose.from_euler_deg((0, 0, 0), (0, 0, 0))
    assert pose.angle_to_deg(other) == pytest.approx(np.rad2deg(expected.magnitude()))


def test_is_close_looks_at_frames_distance_and_angle() -> None:
    pose = a_pose()
    assert pose.is_close(a_pose())
    assert not pose.is_close(a_pose(target="World"))
    moved = Pose(pose.rotation, pose.translation_mm + np.array([0, 0, 0.1]))
    assert not pose.is_close(moved)
    assert pose.is_close(moved, mm=0.11)
    turned = Pose.from_euler_deg((10, -20, 30.5), (1, 2, 3))
    assert not pose.is_close(turned)
    assert pose.is_close(turned, deg=0.51)


def test_text_shows_frames_units_and_convention() -> None:
    assert str(a_pose()) == (
        "ImageToVolume (LPS): translation 1.00 2.00 3.00 mm, rotation about x, y, z 10.00 -20.00 30.00 deg"
    )
    assert repr(a_pose()) == str(a_pose())


def test_arrays_are_copies_and_read_only() -> None:
    rotation = np.eye(3)
    pose = Pose(rotation, [0, 0, 0])
    rotation[0, 0] = 5
    assert pose.rotation[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        pose.rotation[0, 0] = 2
    with pytest.raises(AttributeError):
        pose.source = "Probe"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_tensors_of_a_network_are_taken(dtype: torch.dtype) -> None:
    pose = Pose(torch.eye(3, dtype=dtype, requires_grad=True), torch.tensor([1, 2, 3], dtype=dtype))
    assert pose.rotation.dtype == np.float64
    assert pose.translation_mm.tolist() == [1, 2, 3]


# Bad input


def test_mismatched_frames_do_not_compose() -> None:
    with pytest.raises(ScopeRegError, match="ImageToVolume cannot follow ImageToVolume: Volume is not Image"):
        a_pose() @ a_pose()
    with pytest.raises(ScopeRegError, match="Pose @ Pose"):
        a_pose().compose(a_pose("Probe", "World"))
    with pytest.raises(TypeError):
        a_pose() @ 3


def broken(change: str) -> np.ndarray:
    matrix = a_pose().matrix
    if change == "scaled":
        matrix[:3, :3] *= 0.616
    elif change == "one axis scaled":
        matrix[:3, 0] *= 1.01
    elif change == "skewed":
        matrix[:3, 0] += 0.05 * matrix[:3, 1]
    elif change == "mirrored":
        matrix[:3, 0] *= -1
    elif change == "transposed":
        matrix = matrix.T
    elif change == "NaN":
        matrix[0, 3] = np.nan
    return matrix


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("scaled", r"column lengths \[0.616, 0.616, 0.616\][^\0]*pixel size"),
        ("one axis scaled", r"column lengths \[1.01, 1.0, 1.0\]"),
        ("skewed", r"cosines between columns \[0.0499, 0.0, 0.0\]"),
        ("mirrored", r"reflection[^\0]*flip one axis"),
        ("transposed", r"last row is \[1.0, 2.0, 3.0, 1.0\][^\0]*transpose"),
        ("NaN", "NaN or infinity"),
    ],
)
def test_matrices_that_are_not_rigid_are_refused(change: str, message: str) -> None:
    with pytest.raises(ScopeRegError, match=message):
        Pose.from_matrix(broken(change))


@pytest.mark.parametrize(
    ("make", "where"),
    [
        (lambda: Pose(np.eye(4), np.zeros(3)), "Pose(rotation)"),
        (lambda: Pose(np.eye(3), np.zeros(2)), "Pose(translation_mm)"),
        (lambda: Pose(np.eye(3), [0, np.inf, 0]), "Pose(translation_mm)"),
        (lambda: Pose(np.eye(3), "here"), "Pose(translation_mm)"),
        (lambda: Pose(np.eye(3), [[1, 2], [3]]), "Pose(translation_mm)"),
        (lambda: Pose(np.eye(3), np.zeros(3), source=""), "Pose(source, target)"),
        (lambda: Pose.from_matrix(np.eye(3)), "Pose.from_matrix(matrix)"),
        (lambda: Pose.from_euler_deg([1, 2], [0, 0, 0]), "Pose.from_euler_deg(angles_deg)"),
        (lambda: a_pose().apply([1, 2]), "Pose.apply(points_mm)"),
    ],
)
def test_bad_values_say_where(make, where: str) -> None:
    with pytest.raises(ScopeRegError) as caught:
        make()
    assert caught.value.where == where
    assert caught.value.fix in str(caught.value)


def test_a_rounded_rotation_becomes_a_true_one() -> None:
    """Text files hold four decimals: composing and inverting must not add their error up."""
    exact = Pose.from_euler_deg([10.0, -20.0, 35.0], [1.0, 2.0, 3.0])
    rounded = Pose.from_matrix(exact.matrix.round(4))
    assert np.allclose(rounded.rotation.T @ rounded.rotation, np.eye(3), atol=1e-14)
    assert rounded.angle_to_deg(exact) < 0.01
    chained = Pose.identity("Image", "Image")
    step = Pose(rounded.rotation, rounded.translation_mm, "Image", "Image")
    for _ in range(50):
        chained = step.inverse() @ (step @ chained)
    assert chained.is_close(Pose.identity("Image", "Image"), mm=1e-9, deg=1e-9)


@pytest.mark.parametrize("ending", ["tfm", "h5", "txt", "json"])
@pytest.mark.parametrize("convention", ["slicer", "itk-resample"])
def test_a_pose_comes_back_from_its_file(tmp_path: Path, ending: str, convention: str) -> None:
    pose = Pose.from_euler_deg((10, -20, 30), (1, 2, 3))
    path = pose.save(tmp_path / f"pose.{ending}", convention=convention)
    found = Pose.load(path, convention=convention)
    assert found.name == "ImageToVolume"
    np.testing.assert_allclose(found.matrix, pose.matrix, atol=1e-9)
