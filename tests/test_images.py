"""Volume and Frame: where their voxels lie in mm, resampling, and poses between mm and voxels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose, sample_slice
from scopereg.images import (
    Frame,
    Volume,
    check_content,
    field_of_view,
    largest_section,
    pose_from_voxels,
    pose_to_voxels,
    seen_from,
)

OBLIQUE = Pose.from_euler_deg((20, -35, 50), (0, 0, 0)).rotation


def world_positions(volume: Volume) -> np.ndarray:
    """LPS mm (D, H, W, 3) of all voxels, from origin, spacing and direction alone."""
    z, y, x = np.meshgrid(*(np.arange(n) for n in volume.shape), indexing="ij")
    steps = np.stack([x, y, z], -1) * np.array(volume.spacing_mm)
    return steps @ volume.direction.T + np.array(volume.origin_mm)


def ramp(shape: tuple[int, int, int], **place: Any) -> Volume:
    """A volume whose grey value is a linear function of the world position."""
    empty = Volume(np.zeros(shape), **place)
    return Volume(world_positions(empty) @ np.array([0.3, -0.2, 0.5]) + 7, **place)


def plain_floats(numbers: tuple) -> bool:
    return all(type(n) is float for n in numbers)


# Place


def test_default_volume_is_centred() -> None:
    volume = Volume(np.zeros((4, 6, 8)), 0.5)
    assert volume.spacing_mm == (0.5, 0.5, 0.5)
    assert volume.origin_mm == (-1.75, -1.25, -0.75)
    assert volume.size == (8, 6, 4)
    assert volume.extent_mm == (3.5, 2.5, 1.5)
    np.testing.assert_allclose(volume.centre_mm, 0, atol=1e-12)
    np.testing.assert_allclose(world_positions(volume).mean((0, 1, 2)), 0, atol=1e-12)
    assert volume.frame_of_reference == "Volume"


def test_default_frame_is_centred() -> None:
    frame = Frame(np.zeros((3, 5)), (0.5, 0.25))
    assert frame.origin_mm == (-1.0, -0.25)
    assert frame.centre_mm.tolist() == [0, 0, 0]
    assert frame.frame_of_reference == "Image"
    assert Frame(np.zeros((3, 5)), 1, origin_mm=(10, 20)).centre_mm.tolist() == [12, 21, 0]


def test_direction_and_origin() -> None:
    volume = Volume(np.zeros((4, 6, 8)), (1, 2, 3), origin_mm=(10, 20, 30), direction=OBLIQUE)
    np.testing.assert_allclose(volume.centre_mm, world_positions(volume).mean((0, 1, 2)), atol=1e-12)
    centred = Volume(np.zeros((4, 6, 8)), (1, 2, 3), direction=OBLIQUE)
    np.testing.assert_allclose(world_positions(centred).mean((0, 1, 2)), 0, atol=1e-12)


@pytest.mark.parametrize("place", [{}, {"origin_mm": np.float64([1, 2, 3])}, {"direction": OBLIQUE}])
def test_numbers_are_plain_python(place: dict) -> None:
    volume = Volume(np.zeros((4, 6, 8)), np.float32(0.5), **place)
    finer = volume.resampled(0.25)
    frame = Frame(np.zeros((6, 8)), np.float64(0.5))
    for image in (volume, finer, frame, frame.resampled(1)):
        assert plain_floats(image.origin_mm)
        assert plain_floats(image.spacing_mm)


@pytest.mark.parametrize("dtype", ["uint8", "int16", ">i2", "uint16", "bool", "float64", ">f4"])
def test_any_numbers_become_float32(dtype: str) -> None:
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    volume = Volume(array[:, ::-1], 1)
    assert volume.array.dtype == torch.float32
    np.testing.assert_array_equal(volume.numpy(), array[:, ::-1].astype(np.float32))


# Resampling


@pytest.mark.parametrize("spacing", [(0.5, 0.7, 1.3), (1.0, 1.0, 1.0)])
@pytest.mark.parametrize("direction", [np.eye(3), OBLIQUE])
@pytest.mark.parametrize("step", [0.3, None])
def test_a_ramp_stays_the_ramp_in_the_world(spacing: tuple, direction: np.ndarray, step: float | None) -> None:
    volume = ramp((9, 12, 15), spacing_mm=spacing, origin_mm=(5, -7, 11), direction=direction)
    found = volume.resampled(step)
    assert found.isotropic_spacing_mm == pytest.approx(step or min(spacing))
    expected = world_positions(found) @ np.array([0.3, -0.2, 0.5]) + 7
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-4)
    np.testing.assert_allclose(found.centre_mm, volume.centre_mm, atol=1e-9)
    np.testing.assert_array_equal(found.direction, volume.direction)
    for before, after in zip(volume.extent_mm, found.extent_mm, strict=True):
        assert before - found.spacing_mm[0] < after <= before + 1e-5


def test_coarser_ramp_stays_the_ramp_away_from_the_border() -> None:
    # The smoothing repeats the border values, which bends a ramp there.
    volume = ramp((32, 36, 40), spacing_mm=(0.5, 0.5, 0.6), direction=OBLIQUE)
    found = volume.resampled(1.0)
    expected = world_positions(found) @ np.array([0.3, -0.2, 0.5]) + 7
    np.testing.assert_allclose(found.numpy()[3:-3, 3:-3, 3:-3], expected[3:-3, 3:-3, 3:-3], atol=1e-4)


def test_a_coarser_grid_does_not_alias() -> None:
    stripes = np.zeros((5, 64, 64))
    stripes[:, :, ::2] = 1
    found = Volume(stripes, 1.0).resampled(3.0)
    assert found.numpy()[:, 3:-3, 3:-3] == pytest.approx(0.5, abs=0.1)


def test_frames_resample_too() -> None:
    y, x = np.mgrid[:20, :30]
    frame = Frame(0.4 * x + 0.8 * y, (0.4, 0.8), origin_mm=(3, 4))
    found = frame.resampled()
    assert found.shape == (39, 30)
    y, x = np.mgrid[:39, :30]
    expected = (found.origin_mm[0] - 3 + 0.4 * x) + (found.origin_mm[1] - 4 + 0.4 * y)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-4)


@pytest.mark.parametrize("spacing", [0.6000000238418579, 0.3, 1 / 3])
def test_an_image_of_that_spacing_stays_as_it_is(spacing: float) -> None:
    """Interpolation would leave a trace in black pixels, which tells them from what was not seen."""
    disc = torch.zeros(63, 80)
    disc[20:40, 10 + torch.arange(20)] = torch.rand(20, 20) + 0.1
    frame = Frame(disc, spacing_mm=spacing)
    again = frame.resampled(frame.isotropic_spacing_mm)
    assert torch.equal(again.array, frame.array)
    assert again.origin_mm == frame.origin_mm
    assert torch.equal(field_of_view(frame.resampled(spacing * (1 + 1e-9)).array), field_of_view(disc))
    assert frame.resampled(spacing, (90, 70)).size == (90, 70)


def test_labels_follow_by_the_nearest() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 300, (6, 8, 10)).astype(np.int16)
    volume = Volume(rng.random((6, 8, 10)), (0.9, 1.0, 2.0), labels=labels, direction=OBLIQUE, origin_mm=(1, 2, 3))
    found = volume.resampled(0.31)
    assert found.labels.dtype == torch.int16
    assert found.labels.shape == found.array.shape
    index = (world_positions(found) - np.array(volume.origin_mm)) @ volume.direction / np.array(volume.spacing_mm)
    off_tie = (np.abs(index % 1 - 0.5) > 1e-3).all(-1)
    x, y, z = np.moveaxis(np.rint(index).astype(int), -1, 0)
    np.testing.assert_array_equal(found.labels.numpy()[off_tie], labels[z, y, x][off_tie])
    assert off_tie.mean() > 0.85


def test_a_single_plane_resamples() -> None:
    found = Volume(np.ones((1, 8, 8)), 1.0).resampled(0.5)
    assert found.shape == (1, 15, 15)
    assert found.numpy() == pytest.approx(1)


def test_to_keeps_everything() -> None:
    volume = Volume(
        np.ones((2, 3, 4)), 0.5, labels=np.ones((2, 3, 4), np.uint8), direction=OBLIQUE, origin_mm=(1, 2, 3)
    )
    moved = volume.to("cpu")
    assert moved.origin_mm == volume.origin_mm
    assert moved.labels.dtype == torch.uint8
    np.testing.assert_array_equal(moved.direction, OBLIQUE)


# Masks: what does not count


def masked_frame(values: float) -> Frame:
    """A ramp with a box of one value in it that does not count."""
    y, x = np.mgrid[:40, :50]
    array, mask = 0.1 + 0.01 * x + 0.005 * y, np.ones((40, 50), bool)
    array[10:20, 15:35] = values
    mask[10:20, 15:35] = False
    return Frame(array, 0.5, origin_mm=(3, 4), mask=mask)


def test_what_does_not_count_is_black_and_part_of_nothing() -> None:
    frame = masked_frame(0.9)
    assert not frame.tissue[10:20, 15:35].any()
    assert frame.array[12, 20] == pytest.approx(0.9)  # still there to be looked at
    assert not frame.seen[10:20, 15:35].any()
    assert int(frame.seen.sum()) == 40 * 50 - 200
    assert frame.masked_share == pytest.approx(0.1)
    assert Frame(frame.array, 0.5).masked_share == 0


@pytest.mark.parametrize("step", [0.3, 0.5, 0.85])
def test_a_mask_is_resampled_and_what_it_hides_does_not_leak(step: float) -> None:
    dark, bright = (masked_frame(value).resampled(step) for value in (0.0, 100.0))
    assert torch.equal(dark.mask, bright.mask)
    torch.testing.assert_close(dark.tissue, bright.tissue)
    y, x = np.mgrid[: dark.shape[0], : dark.shape[1]]
    ramp = 0.1 + 0.01 * ((dark.origin_mm[0] - 3 + step * x) / 0.5) + 0.005 * ((dark.origin_mm[1] - 4 + step * y) / 0.5)
    inner = dark.mask.numpy() & (x > 3) & (y > 3) & (x < dark.shape[1] - 4) & (y < dark.shape[0] - 4)
    np.testing.assert_allclose(dark.numpy()[inner], ramp[inner], atol=0.02)
    hidden_mm2 = float((~dark.mask).sum()) * step**2
    assert hidden_mm2 == pytest.approx(10 * 5, abs=30 * step / 2)  # half a pixel all along its border


def test_masks_go_with_flips_and_cuts() -> None:
    frame = masked_frame(0.9)
    mirrored, upset = frame.flipped(0), frame.flipped(1)
    assert torch.equal(mirrored.array, frame.array.flip(1))
    assert torch.equal(mirrored.mask, frame.mask.flip(1))
    assert torch.equal(upset.mask, frame.mask.flip(0))
    part = frame.cut(10, 5, 30, 25)
    assert part.origin_mm == (3 + 5, 4 + 2.5)
    assert torch.equal(part.mask, frame.mask[5:25, 10:30])
    assert part.to("cpu").mask is not None
    with pytest.raises(ScopeRegError, match="is not one of a frame of 50 x 40 pixels"):
        frame.cut(10, 5, 51, 25)


def test_thin_gaps_are_filled_for_a_network_and_wide_ones_are_black() -> None:
    """From what counts around them: a network takes black for what no probe saw."""
    y, x = np.mgrid[:96, :128]
    array = 0.2 + 0.004 * x + 0.001 * y
    mask = np.ones(array.shape, bool)
    mask[20:22, 10:110] = False  # thin
    mask[40:80, 30:90] = False  # wide
    hidden = np.where(mask, array, 1.0)
    frame = Frame(hidden, 0.5, mask=mask)
    ready = frame.for_network()
    np.testing.assert_allclose(ready.numpy()[20:22, 20:100], array[20:22, 20:100], atol=0.02)
    assert bool(ready.mask[20:22, 10:110].all())
    assert not ready.array[45:75, 35:85].any()
    assert not ready.mask[45:75, 35:85].any()
    assert torch.equal(ready.array[torch.from_numpy(mask)], frame.array[torch.from_numpy(mask)])
    assert not frame.for_registration().array[20:22, 10:110].any()  # to a likeness it is a gap
    plain = Frame(array, 0.5)
    assert torch.equal(plain.for_network().array, plain.array)


def masked_volume(hidden: float) -> Volume:
    """A ramp with a box of one value in it that does not count."""
    z, y, x = np.mgrid[:10, :16, :20]
    array, mask = 0.1 + 0.01 * x + 0.005 * y + 0.02 * z, np.ones((10, 16, 20), bool)
    array[3:7, 4:9, 5:15] = hidden
    mask[3:7, 4:9, 5:15] = False
    return Volume(array, 0.5, direction=OBLIQUE, origin_mm=(1, 2, 3), mask=mask)


def test_what_does_not_count_of_a_volume_does_not_leak() -> None:
    """Neither when it is resampled nor when it is seen from elsewhere."""
    turned = torch.tensor(OBLIQUE.tolist()), torch.tensor([0.7, -0.4, 0.2])
    made = [
        [volume, volume.resampled(0.7), seen_from(volume, *turned, (8, 12, 14)), volume.to("cpu")]
        for volume in map(masked_volume, (0.0, 100.0))
    ]
    for dark, bright in zip(*made, strict=True):
        assert torch.equal(dark.mask, bright.mask)
        torch.testing.assert_close(dark.tissue, bright.tissue)
        assert 0 < float(dark.mask.float().mean()) < 1
        assert not dark.known[~dark.mask].any()
    assert "masked" in repr(made[0][0])
    assert masked_volume(0.3).section_voxels == 16 * 20  # its first plane counts as a whole
    plain = replace(made[0][0], mask=None)
    assert plain.known is None
    assert plain.section_voxels == np.inf


def test_grey_values_of_what_counts_are_spread_from_black_to_white() -> None:
    """Not those of all: what is left out may be as bright as metal."""
    bright = masked_volume(100.0)
    ready = replace(bright, array=1000 * bright.array).for_registration()
    assert not ready.array[~ready.mask].any()
    assert float(ready.array[ready.mask].quantile(0.5)) == pytest.approx(0.5, abs=0.1)
    within = masked_volume(100.0).for_registration()  # what counts lies in [0, 1] already
    assert torch.equal(within.array, masked_volume(0.5).tissue)


def test_the_largest_section() -> None:
    mask = torch.zeros(4, 5, 6, dtype=torch.bool)
    mask[1:3, 1:5, 2:4] = True  # 2 x 4 x 2 voxels
    assert largest_section(mask) == 8
    assert largest_section(mask, (0.5, 1.0, 3.0)) == max(4 * 2 * 0.5, 2 * 2 * 1.5, 2 * 4 * 3.0)


def test_grey_values_of_any_range_leave_what_does_not_count_black() -> None:
    frame = masked_frame(0.9)
    wide = Frame(1000 * frame.array - 400, 0.5, mask=frame.mask)
    ready = wide.for_registration()
    assert not ready.array[~ready.mask].any()
    assert 0 <= float(ready.array.min()) < float(ready.array.max()) <= 1


# Poses between mm and voxels


def placed_pair() -> tuple[Frame, Volume]:
    volume = Volume(np.zeros((12, 16, 20)), 0.8, origin_mm=(30, -20, 10), direction=OBLIQUE)
    return Frame(np.zeros((14, 18)), 0.8, origin_mm=(2, 5)), volume


number = st.floats(-50, 50)


@given(st.tuples(number, number, number), st.tuples(number, number, number))
@settings(max_examples=60, deadline=None)
def test_poses_round_trip(angles: tuple, shift: tuple) -> None:
    frame, volume = placed_pair()
    pose = Pose.from_euler_deg(angles, shift)
    again = pose_from_voxels(*pose_to_voxels(pose, frame, volume), frame, volume)
    assert again.is_close(pose, mm=1e-4, deg=1e-4)


def test_voxels_agree_with_world_coordinates() -> None:
    frame, volume = placed_pair()
    pose = Pose.from_euler_deg((12, -7, 33), (28, -15, 9))
    rotation, translation = pose_to_voxels(pose, frame, volume)
    for column, row in ((0, 0), (17, 0), (0, 13), (6, 9)):
        # Directly: pixel to frame mm, to world mm, to voxel index, to centred voxels.
        in_frame = np.array([column * 0.8 + 2, row * 0.8 + 5, 0])
        index = (pose.apply(in_frame) - np.array(volume.origin_mm)) @ OBLIQUE / 0.8
        expected = index - (np.array(volume.size) - 1) / 2
        p = np.array([column - 17 / 2, row - 13 / 2, 0])
        np.testing.assert_allclose(rotation.numpy() @ p + translation.numpy(), expected, atol=1e-4)


def test_sampling_by_a_pose_in_mm_meets_the_world() -> None:
    _, place = placed_pair()
    volume = ramp((12, 16, 20), spacing_mm=0.8, origin_mm=place.origin_mm, direction=OBLIQUE)
    frame = Frame(np.zeros((5, 7)), 0.8, origin_mm=(-1, -2))
    pose = Pose.from_euler_deg((5, 9, -14), volume.centre_mm)
    found = sample_slice(volume.array, *pose_to_voxels(pose, frame, volume), slice_shape=(5, 7))
    rows, columns = np.mgrid[:5, :7]
    world = pose.apply(np.stack([columns * 0.8 - 1, rows * 0.8 - 2, 0 * rows], -1))
    np.testing.assert_allclose(found.numpy(), world @ np.array([0.3, -0.2, 0.5]) + 7, atol=1e-4)


def test_identity_lays_a_centred_frame_on_the_middle() -> None:
    rotation, translation = pose_to_voxels(
        Pose.identity(), Frame(np.zeros((6, 8)), 0.5), Volume(np.zeros((4, 6, 8)), 0.5)
    )
    assert torch.equal(rotation, torch.eye(3))
    assert translation.abs().max() == 0


def test_single_precision_rotations_become_rigid() -> None:
    frame, volume = placed_pair()
    rotation = torch.from_numpy(OBLIQUE.copy()).float() * (1 + 1e-6)
    pose = pose_from_voxels(rotation, torch.zeros(3), frame, volume)
    np.testing.assert_allclose(pose.rotation.T @ pose.rotation, np.eye(3), atol=1e-12)
    assert pose.name == "ImageToVolume"


# Bad input


def test_spacings_and_frames_must_match() -> None:
    frame, volume = placed_pair()
    with pytest.raises(ScopeRegError, match=r"0\.5 mm pixels, the volume 0\.8 mm voxels"):
        pose_to_voxels(Pose.identity(), Frame(np.zeros((4, 4)), 0.5), volume)
    with pytest.raises(ScopeRegError, match="anisotropic: 1 x 1 x 2 mm") as caught:
        pose_to_voxels(Pose.identity(), frame, Volume(np.zeros((4, 4, 4)), (1, 1, 2)))
    assert ".resampled(1)" in caught.value.fix
    with pytest.raises(ScopeRegError, match="anisotropic"):
        pose_from_voxels(torch.eye(3), torch.zeros(3), Frame(np.zeros((4, 4)), (0.8, 0.9)), volume)
    with pytest.raises(ScopeRegError, match="pose is VolumeToImage, the images need ImageToVolume"):
        pose_to_voxels(Pose.identity().inverse(), frame, volume)
    named = Volume(np.zeros((4, 4, 4)), 0.8, frame_of_reference="CT")
    with pytest.raises(ScopeRegError, match="need ImageToCT"):
        pose_to_voxels(Pose.identity(), frame, named)
    assert pose_from_voxels(torch.eye(3), torch.zeros(3), frame, named).name == "ImageToCT"


@pytest.mark.parametrize(
    ("rotation", "translation", "message"),
    [
        (torch.full((3, 3), float("nan")), torch.zeros(3), "NaN"),
        (torch.eye(3), torch.tensor([0, float("inf"), 0]), "NaN or infinity"),
        (2 * torch.eye(3), torch.zeros(3), "not a rotation"),
        (torch.diag(torch.tensor([1.0, 1, -1])), torch.zeros(3), "reflection"),
        (torch.eye(3)[None], torch.zeros(1, 3), "shape"),
    ],
)
def test_bad_voxel_poses_are_errors(rotation: torch.Tensor, translation: torch.Tensor, message: str) -> None:
    with pytest.raises(ScopeRegError, match=message):
        pose_from_voxels(rotation, translation, *placed_pair())


CUBE = np.zeros((3, 3, 3))


@pytest.mark.parametrize(
    ("make", "where", "message"),
    [
        (lambda: Volume(np.zeros((3, 3)), 1), "Volume(array)", "shape"),
        (lambda: Frame(np.zeros((3, 3, 3)), 1), "Frame(array)", "shape"),
        (lambda: Volume(np.zeros((0, 3, 3)), 1), "Volume(array)", "empty"),
        (lambda: Volume(CUBE + np.nan, 1), "Volume(array)", "27 of 27 values"),
        (lambda: Volume(CUBE * 1j, 1), "Volume(array)", "complex"),
        (lambda: Volume([["a"]], 1), "Volume(array)", "not an array"),
        (lambda: Volume(CUBE, 0), "Volume(spacing_mm)", "the spacing is 0"),
        (lambda: Volume(CUBE, -1), "Volume(spacing_mm)", "the spacing is -1"),
        (lambda: Volume(CUBE, None), "Volume(spacing_mm)", "the spacing is"),
        (lambda: Volume(CUBE, (1, 1)), "Volume(spacing_mm)", "the spacing is"),
        (lambda: Volume(CUBE, (1, 1, np.nan)), "Volume(spacing_mm)", "the spacing is"),
        (lambda: Volume(CUBE, 1, origin_mm=(1, 2)), "Volume(origin_mm)", "got"),
        (lambda: Volume(CUBE, 1, origin_mm=(1, 2, np.inf)), "Volume(origin_mm)", "got"),
        (lambda: Volume(CUBE, 1, direction=np.diag([1, 1, -1])), "Volume(direction)", "reflection"),
        (lambda: Volume(CUBE, 1, direction=2 * np.eye(3)), "Volume(direction)", "column lengths"),
        (lambda: Volume(CUBE, 1, direction=np.eye(2)), "Volume(direction)", "shape"),
        (lambda: Volume(CUBE, 1, labels=CUBE), "Volume(labels)", "float64"),
        (lambda: Volume(CUBE, 1, labels=np.zeros((3, 3), int)), "Volume(labels)", "shape"),
        (lambda: Volume(CUBE, 1, labels=[["a"]]), "Volume(labels)", "not an array"),
        (lambda: Volume(CUBE, 1).resampled(0), "Volume.resampled(spacing_mm)", "spacing is 0"),
        (lambda: Volume(CUBE, 1).resampled(float("nan")), "Volume.resampled(spacing_mm)", "nan"),
        (lambda: Volume(CUBE, 1).resampled(1e-4), "Volume.resampled(spacing_mm)", "would give 20001 x"),
        (lambda: Frame(np.zeros((3, 3)), (1, 2)).isotropic_spacing_mm, "Frame.spacing_mm", "anisotropic: 1 x 2"),
        (lambda: Frame(np.ones((3, 3)), 1, mask=np.ones((3, 2), bool)), "Frame(mask)", r"torch.bool of shape \(3, 2\)"),
        (lambda: Frame(np.ones((3, 3)), 1, mask=np.ones((3, 3))), "Frame(mask)", "torch.float64 of shape"),
        (lambda: Frame(np.ones((3, 3)), 1, mask=[["a"]]), "Frame(mask)", "not an array"),
        (
            lambda: check_content(Frame(np.eye(3), 1, mask=np.zeros((3, 3), bool))),
            "Frame.mask",
            "leaves out every pixel",
        ),
        (lambda: check_content(Frame(np.eye(3), 1, mask=np.eye(3) > 0)), "Frame.array", "every value is 1"),
    ],
)
def test_bad_images_say_what_where_and_how(make, where: str, message: str) -> None:
    with pytest.raises(ScopeRegError, match=message) as caught:
        make()
    assert caught.value.where == where
    assert caught.value.fix in str(caught.value)


def test_a_volume_keeps_its_own_copy_of_an_array() -> None:
    array = np.ones((2, 3, 4), np.float32)
    volume = Volume(array, spacing_mm=1.0)
    array[0, 0, 0] = np.nan
    assert bool(torch.isfinite(volume.array).all())
