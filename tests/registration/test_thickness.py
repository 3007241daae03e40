"""Thick frames: compared with the volume averaged across their plane, and found better so where they are thick."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose, VoxelPoses, sample_poses, sample_slice
from scopereg.geometry.beam import FWHM, TAPS, WEIGHTS, Thickness
from scopereg.geometry.steps import moved
from scopereg.images import Frame, Volume, pose_from_voxels
from scopereg.registration.grey import GreyVolume, Level, RefineOptions, blur
from scopereg.registration.locator import Locator
from scopereg.registration.model import Registrar
from scopereg.registration.refine import refine_pose
from scopereg.registration.result import apart_mm
from scopereg.registration.thickness import averaged, note_of, spread_voxels, widths_mm

MM = 0.8
THICK_MM = 6.0


class Scene(NamedTuple):
    volume: Volume
    poses: VoxelPoses
    frames: list[Frame]  # that average the volume across their plane
    truth: list[Pose]


@cache
def scene() -> Scene:
    generator = torch.Generator().manual_seed(2)
    values = blur(torch.rand(1, 40, 56, 64, generator=generator), 1.6)[0]
    volume = Volume(0.1 + 0.9 * (values - values.min()) / (values.max() - values.min()), MM)
    poses = sample_poses(2, 4, volume.shape, generator)
    images = torch.stack([weight * cut(volume, poses, tap) for tap, weight in zip(TAPS, WEIGHTS, strict=True)]).sum(0)
    frames = [Frame(image.clamp(0.01, 1), MM) for image in images]
    truth = [pose_from_voxels(*(part[row] for part in poses), frame, volume) for row, frame in enumerate(frames)]
    return Scene(volume, poses, frames, truth)


def cut(volume: Volume, poses: VoxelPoses, tap: float) -> Tensor:
    off = tap * THICK_MM / (FWHM * MM) * poses.rotation[:, :, 2]
    return sample_slice(volume.array, poses.rotation, poses.translation + off, slice_shape=(48, 56))


def test_thick_frames_are_more_alike_and_better_refined_as_thick() -> None:
    """Frames are made as they are compared: the likeness at the truth is nearly whole, and the pose right."""
    made, off = scene(), dict[str, float]()
    for frame, truth in zip(made.frames, made.truth, strict=True):
        start = truth @ Pose.from_euler_deg((1.5, -1.0, 1.0), (0.8, -0.6, 0.9), "Image", "Image")
        thin, thick = (refine_pose(frame, made.volume, start, thickness_mm=mm) for mm in (None, THICK_MM))
        assert thick.similarity > thin.similarity + 0.05
        for name, found in (("thin", thin), ("thick", thick)):
            off[name] = off.get(name, 0.0) + apart_mm(frame, found.pose, truth)
    assert off["thick"] < min(0.8 * off["thin"], 0.3)


def test_the_equations_of_a_thick_frame_are_those_of_its_similarity() -> None:
    """Against finite differences, in all six steps; and no thickness is the plain comparison."""
    made = scene()
    images = torch.stack([frame.array for frame in made.frames])
    seen = torch.ones_like(images)
    across = torch.linspace(1.0, 3.0, images.shape[1])[:, None].expand_as(images)
    grey = GreyVolume(made.volume.array, RefineOptions(levels=(Level(2.5, 1, 6, 3),)))
    (comparison,) = grey.compare(images, seen, across)
    poses = moved(made.poses, torch.tensor([[0.6, -0.4, 0.5, 0.3, -0.5, 0.4]]).expand(2, 6), comparison.lever)
    step, slopes = 0.02, []
    for number in range(6):
        unit = torch.eye(6)[number].expand(2, 6)
        there = [comparison.similarity(moved(poses, sign * step * unit, comparison.lever)) for sign in (1, -1)]
        slopes.append((there[0] - there[1]) / (2 * step))
    numeric, told = torch.stack(slopes, 1), -comparison.normal(poses).slope
    assert torch.cosine_similarity(numeric, told).min() > 0.995
    (plain,), (thin,) = grey.compare(images, seen), grey.of_thick(torch.zeros_like(images)).compare(images, seen)
    torch.testing.assert_close(plain.similarity(poses), thin.similarity(poses))


def test_a_network_is_given_the_volume_averaged_along_its_third_axis() -> None:
    made = scene().volume
    thick = averaged(made, Thickness(3.0), 60.0)
    wanted = blurred_along_z(made.array, 3.0 / (FWHM * MM))
    torch.testing.assert_close(thick.array[8:-8], wanted[8:-8], atol=0.01, rtol=0)
    hole = Volume(made.array * (torch.arange(64) > 9), MM)
    assert torch.equal(averaged(hole, Thickness(3.0), 60.0).array > 0, hole.array > 0)  # black stays black


def blurred_along_z(values: Tensor, sigma: float) -> Tensor:
    padded = torch.nn.functional.pad(values[None], (0, 0, 0, 0, 12, 12), mode="replicate")[0]
    places = torch.arange(-12, 13)
    weights = torch.exp(-(places**2) / (2 * sigma**2)) / torch.exp(-(places**2) / (2 * sigma**2)).sum()
    return sum(weight * padded[shift : shift + len(values)] for shift, weight in enumerate(weights.tolist()))


def test_the_depth_is_counted_from_the_narrow_end_of_a_fan() -> None:
    rows = torch.arange(60)[:, None]
    fan = (torch.arange(80) - 40).abs() <= 6 + rows / 2
    frame = Frame(fan * 0.5 * (rows >= 10), 0.5)
    upset = Frame(frame.array.flip(0), 0.5)
    widths = widths_mm(Thickness(None), frame)[:, 40]
    assert float(widths[10]) == pytest.approx(0.05 * 49 * 0.5)
    torch.testing.assert_close(widths_mm(Thickness(None), upset)[:, 40].flip(0)[10:], widths[10:])
    assert note_of(Thickness(None), frame) == (
        "by its depth of 24 mm the frame is compared as 0.5 to 1.6 mm thicker than the volume"
    )
    assert note_of(None, frame) == (
        "by its depth of 24 mm the frame shows slices 0.5 to 1.6 mm thick, and the volume is taken to be as thick"
    )
    assert note_of(Thickness(2.0), frame) == "the frame is compared as 2 mm thicker than the volume"
    assert float(spread_voxels(Thickness(2.0), frame, 0.5).mean()) == pytest.approx(2 / (FWHM * 0.5))


def test_locators_are_told_and_tell(narrow: Registrar) -> None:
    made = scene()
    located = Locator(made.volume, "identity", refine=True, thickness_mm=THICK_MM, device="cpu")
    found = located.locate(made.frames[0], made.truth[0])
    assert "the frame is compared as 6 mm thicker than the volume" in found.notes
    assert located.method.facts["thickness"] == "6 mm"
    thin, thick = (Locator(made.volume, narrow, thickness_mm=mm) for mm in (None, "estimated"))
    windows = [one.prepared.volume_for(made.frames[0]).window for one in (thin, thick)]  # type: ignore[attr-defined]
    assert not torch.equal(windows[0].array, windows[1].array)
    for method in ("identity", "simpleitk-mi"):
        with pytest.raises(ScopeRegError, match="does not know of thick frames"):
            Locator(made.volume, method, thickness_mm=2.0)
    with pytest.raises(ScopeRegError, match="learned does not average over the thickness"):
        Locator(made.volume, "identity+refine=learned", thickness_mm=2.0, device="cpu")
