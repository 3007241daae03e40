"""Planes through volumes: analytic volumes, the half-voxel rule, pose sampling and the published identity rows."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.geometry import (
    VoxelPoses,
    centred_axis,
    inside_fraction,
    mtre_mm,
    place_plane,
    plane_points,
    rotation_error_deg,
    rotation_from_euler_deg,
    sample_points,
    sample_poses,
    sample_slice,
    translation_error_mm,
)

CAMUS, PROSTATE = (32, 128, 128), (40, 64, 64)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def one_pose(angles: tuple[float, float, float], shift: tuple[float, float, float]) -> VoxelPoses:
    return VoxelPoses(rotation_from_euler_deg(torch.tensor([angles])), torch.tensor([shift]))


def grid(shape: tuple[int, int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """x, y, z of all voxels (D, H, W), centred."""
    z, y, x = torch.meshgrid(*(centred_axis(n, dtype=torch.float64) for n in shape), indexing="ij")
    return x, y, z


# Coordinates


@pytest.mark.parametrize("size", [1, 2, 5, 128])
def test_axis_is_centred(size: int) -> None:
    expected = torch.linspace(-(size - 1) / 2, (size - 1) / 2, size) if size > 1 else torch.zeros(1)
    torch.testing.assert_close(centred_axis(size), expected)


def test_plane_points_are_x_then_y() -> None:
    points = plane_points((3, 4))
    assert points.shape == (3, 4, 2)
    assert points[0, 0].tolist() == [-1.5, -1]
    assert points[0, 3].tolist() == [1.5, -1]
    assert points[2, 0].tolist() == [-1.5, 1]


def test_place_plane_is_r_p_plus_t() -> None:
    poses = sample_poses(6, 30, PROSTATE, seeded(), min_inside=0)
    placed = place_plane(*poses, (5, 7))
    p = torch.cat([plane_points((5, 7)), torch.zeros(5, 7, 1)], -1)
    for row in range(6):
        expected = p @ poses.rotation[row].T + poses.translation[row]
        torch.testing.assert_close(placed[row], expected)


def test_autocast_does_not_move_the_plane() -> None:
    poses = sample_poses(4, 10, CAMUS, seeded())
    exact = place_plane(*poses, (128, 128))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(place_plane(*poses, (128, 128)), exact)


# Sampling


@pytest.mark.parametrize("shape", [(16, 24, 32), (15, 23, 31)])
def test_slice_of_an_analytic_volume_is_the_formula(shape: tuple[int, int, int]) -> None:
    # Linear along each axis while the others rest: trilinear interpolation is exact.
    def field(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return 0.3 + 0.01 * x - 0.02 * y + 0.03 * z + 1e-3 * x * y - 2e-3 * y * z + 1e-4 * x * y * z

    volume = field(*grid(shape))
    poses = VoxelPoses(*(v.double() for v in sample_poses(20, 8, shape, seeded())))
    slices = sample_slice(volume, *poses)
    p = torch.cat([plane_points(shape[1:], dtype=torch.float64), torch.zeros(*shape[1:], 1, dtype=torch.float64)], -1)
    q = torch.einsum("bij,hwj->bhwi", poses.rotation, p) + poses.translation[:, None, None]
    half = (torch.tensor(shape[::-1], dtype=torch.float64) - 1) / 2
    # grid_sample blends with zeros for up to a voxel outside of the volume.
    inside, outside = (q.abs() <= half).all(-1), (q.abs() >= half + 1).any(-1)
    torch.testing.assert_close(slices[inside], field(*q.unbind(-1))[inside], rtol=0, atol=1e-5)
    assert (slices[outside] == 0).all()
    assert 0.35 < inside.double().mean() < 1
    assert outside.any()


def test_identity_in_an_even_depth_lies_between_the_middle_planes() -> None:
    volume = torch.rand(6, 8, 10, generator=seeded())
    found = sample_slice(volume, torch.eye(3), torch.zeros(3))
    torch.testing.assert_close(found, (volume[2] + volume[3]) / 2, rtol=0, atol=1e-6)
    # Half a voxel up or down lies on a plane; plane D // 2 is not the identity.
    torch.testing.assert_close(sample_slice(volume, torch.eye(3), torch.tensor([0, 0, 0.5])), volume[3])
    torch.testing.assert_close(sample_slice(volume, torch.eye(3), torch.tensor([0, 0, -0.5])), volume[2])


def test_identity_in_an_odd_depth_is_the_middle_plane() -> None:
    volume = torch.rand(7, 8, 10, generator=seeded())
    torch.testing.assert_close(sample_slice(volume, torch.eye(3), torch.zeros(3)), volume[3])


def test_axes_and_signs() -> None:
    x, y, z = grid((9, 11, 13))
    middle = (5, 6)
    for volume, shift in ((x, (2.0, 0, 0)), (y, (0, 3.0, 0)), (z, (0, 0, -1.0))):
        pose = one_pose((0, 0, 0), shift)
        assert sample_slice(volume.float(), *pose)[0][middle].item() == pytest.approx(sum(shift))
    # A turn about x by 90 degrees takes the slice's y to the volume's z.
    turned = sample_slice(z.float(), *one_pose((90, 0, 0), (0, 0, 0)))[0]
    torch.testing.assert_close(turned[1:10, 6], centred_axis(9), rtol=0, atol=1e-5)


def test_one_volume_serves_many_poses() -> None:
    volume = torch.rand(12, 20, 24, generator=seeded())
    poses = sample_poses(5, 6, (12, 20, 24), seeded(1))
    together = sample_slice(volume, *poses)
    assert together.shape == (5, 20, 24)
    batched = sample_slice(volume.expand(5, -1, -1, -1), *poses)
    torch.testing.assert_close(together, batched, rtol=0, atol=1e-6)
    for row in range(5):
        alone = sample_slice(volume, poses.rotation[row], poses.translation[row])
        assert alone.shape == (20, 24)
        torch.testing.assert_close(together[row], alone, rtol=0, atol=1e-6)


def test_each_volume_meets_its_own_pose() -> None:
    volumes = torch.arange(3.0)[:, None, None, None].expand(3, 8, 8, 8)
    slices = sample_slice(volumes, torch.eye(3).expand(3, 3, 3), torch.zeros(3, 3))
    assert slices.mean((1, 2)).tolist() == pytest.approx([0, 1, 2])


def test_slice_shape_keeps_the_centre() -> None:
    volume = torch.rand(9, 16, 20, generator=seeded())
    pose = one_pose((5, -4, 8), (1, 2, -1))
    whole, part = sample_slice(volume, *pose), sample_slice(volume, *pose, slice_shape=(8, 12))
    torch.testing.assert_close(part, whole[:, 4:12, 4:16], rtol=0, atol=1e-5)


def test_labels_by_the_nearest_stay_labels() -> None:
    labels = torch.randint(0, 6, (12, 20, 24), generator=seeded())
    poses = sample_poses(4, 6, (12, 20, 24), seeded(1))
    found = sample_slice(labels, *poses, mode="nearest")
    q = place_plane(*poses, (20, 24)) + torch.tensor([23, 19, 11]) / 2
    index = q.round().long()
    inside = ((index >= 0) & (index < torch.tensor([24, 20, 12]))).all(-1)
    x, y, z = index[inside].unbind(-1)
    off_tie = ((q[inside] % 1 - 0.5).abs() > 1e-3).all(-1)  # on a tie either neighbour is right
    assert torch.equal(found[inside][off_tie].long(), labels[z, y, x][off_tie])
    assert (found[~inside] == 0).all()


def test_padding() -> None:
    volume = grid((9, 9, 9))[2].float() + 10  # 6..14 along z
    above = one_pose((0, 0, 0), (0, 0, 6.0))  # two voxels over the top plane
    assert sample_slice(volume, *above)[0, 4, 4] == 0
    assert sample_slice(volume, *above, padding="border")[0, 4, 4].item() == pytest.approx(14)
    assert sample_slice(volume, *above, padding="reflection")[0, 4, 4].item() == pytest.approx(12)


def test_gradients_reach_the_pose() -> None:
    volume = torch.rand(6, 8, 8, generator=seeded(), dtype=torch.float64)
    angles = torch.tensor([[3.1, -2.2, 4.3]], dtype=torch.float64, requires_grad=True)
    shift = torch.tensor([[0.31, -0.22, 0.13]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, t: sample_slice(volume, rotation_from_euler_deg(a), t), (angles, shift))


# Poses


def test_inside_fraction_counts_pixels() -> None:
    poses = sample_poses(50, 25, PROSTATE, seeded(), min_inside=0)
    half = (torch.tensor(PROSTATE[::-1]) - 1) / 2
    expected = (place_plane(*poses, (64, 64)).abs() <= half).all(-1).float().mean((1, 2))
    torch.testing.assert_close(inside_fraction(*poses, PROSTATE), expected, rtol=0, atol=2 / 64**2)
    assert inside_fraction(torch.eye(3)[None], torch.zeros(1, 3), PROSTATE).item() == 1
    shifted = one_pose((0, 0, 0), (16, 0, 0))
    assert inside_fraction(*shifted, PROSTATE).item() == pytest.approx(48 / 64)
    assert inside_fraction(*shifted, PROSTATE, (64, 32)).item() == 1
    beyond = one_pose((0, 0, 0), (0, 0, 20))
    assert inside_fraction(*beyond, PROSTATE).item() == 0
    # A quarter turn about x: 40 of the 64 rows cross the depth, whatever rounding does at the faces.
    assert inside_fraction(*one_pose((90, 0, 0), (0, 0, 0)), PROSTATE).item() == pytest.approx(40 / 64)
    assert inside_fraction(*one_pose((0, 90, 0), (0, 0, 0)), PROSTATE).item() == pytest.approx(40 / 64)
    assert inside_fraction(*one_pose((0, 0, 90), (0, 0, 19.5)), PROSTATE).item() == 1


def test_sampled_poses_obey_the_rules() -> None:
    poses = sample_poses(3000, 25, PROSTATE, seeded())
    assert poses.rotation.shape == (3000, 3, 3)
    assert poses.translation.shape == (3000, 3)
    assert inside_fraction(*poses, PROSTATE).min() >= 0.35
    assert 24 < poses.translation[:, :2].abs().max() <= 25
    free = sample_poses(3000, 25, PROSTATE, seeded(), min_inside=0)
    assert inside_fraction(*free, PROSTATE).min() < 0.35
    assert free.translation.abs().mean(0).tolist() == pytest.approx([12.5] * 3, rel=0.05)


def test_magnitude_zero_is_the_identity() -> None:
    poses = sample_poses(3, 0, PROSTATE, seeded())
    assert torch.equal(poses.rotation, torch.eye(3).expand(3, 3, 3))
    assert poses.translation.abs().max() == 0


def test_the_generator_decides() -> None:
    first, again, other = (sample_poses(20, 10, PROSTATE, seeded(s)) for s in (1, 1, 2))
    assert torch.equal(first.rotation, again.rotation)
    assert torch.equal(first.translation, again.translation)
    assert not torch.equal(first.translation, other.translation)
    generator = seeded(1)
    sample_poses(20, 10, PROSTATE, generator)
    assert not torch.equal(sample_poses(20, 10, PROSTATE, generator).translation, first.translation)


# The rows of method.md, section 1: geometry, spacing, magnitude, then mTRE, TransErr, RotErr, p95 where published.
IDENTITY_ROWS = [
    (CAMUS, 0.616, 10, 8.17, 5.93, 9.64, 10.71),
    (CAMUS, 0.616, 15, 12.21, None, None, None),
    (CAMUS, 0.616, 20, 15.93, None, None, None),
    (CAMUS, 0.616, 25, 19.28, None, None, None),
    (PROSTATE, 0.8, 10, 8.44, 7.67, None, 11.53),
]


@pytest.mark.parametrize(("shape", "spacing", "magnitude", "mtre", "trans", "rot", "p95"), IDENTITY_ROWS)
def test_identity_rows_of_the_paper(shape, spacing, magnitude, mtre, trans, rot, p95) -> None:
    true = sample_poses(20_000, magnitude, shape, seeded(2026))
    identity = VoxelPoses(torch.eye(3).expand(20_000, 3, 3), torch.zeros(20_000, 3))
    errors = mtre_mm(identity, true, shape[1:], spacing)
    found = [
        (errors.mean(), mtre),
        (translation_error_mm(identity, true, spacing).mean(), trans),
        (rotation_error_deg(identity, true).mean(), rot),
        (errors.quantile(0.95), p95),
    ]
    for value, published in found:
        assert published is None or value.item() == pytest.approx(published, rel=0.01)


# Bad input

EYE, ZERO = torch.eye(3)[None], torch.zeros(1, 3)


@pytest.mark.parametrize(
    ("volume", "rotation", "translation", "message"),
    [
        (torch.zeros(8, 8), EYE, ZERO, "do not fit together"),
        (torch.zeros(2, 8, 8, 8), EYE.expand(3, 3, 3), ZERO.expand(3, 3), "do not fit together"),
        (torch.zeros(8, 8, 8), EYE, ZERO.expand(2, 3), "do not fit together"),
        (torch.zeros(8, 8, 8), EYE[:, :2], ZERO, "do not fit together"),
        (torch.zeros(0, 8, 8), EYE, ZERO, "volume is empty"),
    ],
)
@pytest.mark.unchecked_shapes
def test_wrong_shapes_are_errors(volume: Tensor, rotation: Tensor, translation: Tensor, message: str) -> None:
    with pytest.raises(ScopeRegError, match=message) as caught:
        sample_slice(volume, rotation, translation)
    assert "sample_slice" in caught.value.where
    assert caught.value.fix


@pytest.mark.unchecked_shapes
def test_wrong_slice_shapes_and_points_are_errors() -> None:
    with pytest.raises(ScopeRegError, match="slice_shape"):
        sample_slice(torch.zeros(8, 8, 8), EYE, ZERO, slice_shape=(0, 4))
    with pytest.raises(ScopeRegError, match="slice_shape"):
        sample_poses(2, 5, (8, 8, 8), slice_shape=(4, 0))
    with pytest.raises(ScopeRegError, match="inside_fraction"):
        inside_fraction(torch.eye(3), torch.zeros(3), (8, 8, 8))
    for points in (torch.zeros(1, 4, 3), torch.zeros(2, 4, 2), torch.zeros(3)):
        with pytest.raises(ScopeRegError, match="sample_points"):
            sample_points(torch.zeros(2, 8, 8, 8), points)


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        ((0, 10, CAMUS), "count"),
        ((5, -1, CAMUS), "magnitude"),
        ((5, float("nan"), CAMUS), "magnitude"),
        ((5, float("inf"), CAMUS), "magnitude"),
        ((5, 10, (128, 128)), "shape"),
        ((5, 10, (0, 128, 128)), "shape"),
    ],
)
@pytest.mark.unchecked_shapes
def test_bad_sampling_is_an_error(arguments: tuple, where: str) -> None:
    with pytest.raises(ScopeRegError) as caught:
        sample_poses(*arguments)
    assert caught.value.where == f"sample_poses({where})"


def test_a_share_beyond_one_is_an_error() -> None:
    with pytest.raises(ScopeRegError, match="min_inside"):
        sample_poses(5, 10, PROSTATE, min_inside=35)


def test_an_impossible_magnitude_is_an_error_not_a_hang() -> None:
    with pytest.raises(ScopeRegError, match=r"only 0 of .* keep 35%.*\n.*smaller magnitude") as caught:
        sample_poses(5, 1e6, (8, 16, 16), seeded())
    assert caught.value.where == "sample_poses(magnitude)"


def test_a_pose_that_is_nowhere_gives_nan_and_never_a_black_slice() -> None:
    volume = torch.rand(8, 12, 12)
    rotation, translation = torch.eye(3).repeat(2, 1, 1), torch.zeros(2, 3)
    translation[1, 0] = float("nan")
    slices = sample_slice(volume, rotation, translation)
    assert torch.isfinite(slices[0]).all()
    assert torch.isnan(slices[1]).all()
