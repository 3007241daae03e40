"""LC2: it explains what it should, agrees with its readable twin, has the right slopes, and leads to the pose."""

from __future__ import annotations

import pytest
import torch
from drawn_modalities import as_ultrasound, other_modality, seen_of
from torch import Tensor

from scopereg.geometry import VoxelPoses, sample_slice
from scopereg.geometry.steps import moved
from scopereg.images import Frame, Volume
from scopereg.registration.grey import blur
from scopereg.registration.lc2 import (
    LC2Comparison,
    LC2Likeness,
    LC2Options,
    PatchLevel,
    cut_frames,
    cut_slices,
    lc2_of,
    value_and_edges,
)
from scopereg.registration.likeness import NOTHING_SHARED, Comparison, Likeness, PreparedLikeness
from scopereg.registration.method import create, likenesses, parse
from scopereg.registration.refine import Refiner

LEVEL = PatchLevel(0.0, 0.0, 2, 3, 8)
OPTIONS = LC2Options(levels=(LEVEL,))


def poses(count: int, shift: float = 0.0, seed: int = 3) -> VoxelPoses:
    steps = (torch.rand(count, 6, generator=torch.Generator().manual_seed(seed)) * 2 - 1) * shift
    return moved(VoxelPoses(torch.eye(3).expand(count, 3, 3), torch.zeros(count, 3)), steps, 12.0)


def comparison(frames: Tensor, volume: Tensor, level: PatchLevel = LEVEL) -> LC2Comparison:
    channels = value_and_edges(volume, seen_of(volume), level.smooth)
    return LC2Comparison(channels, cut_frames(frames, torch.ones_like(frames), level), level, OPTIONS)


def test_it_keeps_the_protocol_and_is_known_by_name() -> None:
    likeness = LC2Likeness()
    prepared = likeness.prepare(other_modality(12, 20, 24), None)
    assert isinstance(likeness, Likeness)
    assert isinstance(prepared, PreparedLikeness)
    (first, *_) = prepared.compare(torch.rand(1, 16, 16), torch.ones(1, 16, 16))
    assert isinstance(first, Comparison)
    assert "lc2" in likenesses()
    assert str(parse("identity+refine=lc2")) == "identity+refine=lc2"


def test_what_is_such_a_combination_is_explained_wholly_and_noise_is_not() -> None:
    volume = other_modality(15, 31, 33)
    image = as_ultrasound(volume)[7][None]
    found = float(comparison(image, volume).similarity(poses(1)))
    other = torch.rand(1, 31, 33, generator=torch.Generator().manual_seed(9))
    assert found > 0.95
    assert float(comparison(other, volume).similarity(poses(1))) < 0.5


@pytest.mark.parametrize(("height", "width", "size"), [(31, 33, 3), (24, 27, 4)])
def test_it_agrees_with_its_readable_twin_also_at_the_border(height: int, width: int, size: int) -> None:
    volume = other_modality(21, 25, 29)
    level = PatchLevel(0.0, 0.0, 1, size, 5)
    frames = torch.rand(2, height, width, generator=torch.Generator().manual_seed(1))
    at = poses(2, 3.0)
    fast = comparison(frames, volume, level)
    channels = value_and_edges(volume, seen_of(volume), 0.0)
    for row in range(2):
        pose = [part[row : row + 1] for part in at]
        value, edge, inside = (sample_slice(each, *pose, slice_shape=(height, width))[0] for each in channels[:3])
        patches = fast.patches
        told = lc2_of(
            frames[row].flatten()[patches],
            value.flatten()[patches],
            edge.flatten()[patches],
            (inside.flatten()[patches] > 0.99).float(),
            ridge=OPTIONS.ridge,
            floor=float(fast.usual[row]),
        )
        assert float(fast.similarity(at)[row]) == pytest.approx(told, abs=2e-4)


def test_the_slope_is_that_of_the_merit() -> None:
    # Smooth, as slopes are central differences between voxels.
    volume = blur(other_modality(25, 40, 44, seed=4)[None], 3.0)[0]
    noise = torch.rand(2, 28, 32, generator=torch.Generator().manual_seed(2))
    frames = as_ultrasound(volume)[[11, 13], 6:-6, 6:-6] + 0.3 * blur(noise, 1.0)
    one, at = comparison(frames, volume), poses(2, 1.5)
    normal = one.normal(at)
    numeric = torch.zeros(2, 6)
    for axis in range(6):
        step = torch.zeros(2, 6)
        step[:, axis] = 0.05
        ahead, back = (one.normal(moved(at, sign * step, one.lever)).merit for sign in (1, -1))
        numeric[:, axis] = (ahead - back) / 0.1
    scale = numeric.abs().max()
    assert float((-normal.slope - numeric).abs().max()) < 0.12 * scale
    assert bool((torch.linalg.eigvalsh(normal.matrix.double()) > -1e-4 * scale).all())


def test_frames_are_led_back_to_where_they_were_cut() -> None:
    volume = other_modality(33, 48, 48, seed=5)
    cut = as_ultrasound(volume)
    frames = cut[[14, 16, 18], 6:-6, 6:-6].contiguous()
    offset = torch.tensor([[0.0, 0, -2], [0, 0, 0], [0, 0, 2]])
    truth = VoxelPoses(torch.eye(3).expand(3, 3, 3), offset)
    start = moved(truth, poses_step(3), 12.0)
    found = Refiner(volume, LC2Likeness(), known=torch.ones_like(volume, dtype=torch.bool)).refine(frames, start)
    before, after = ((p.translation - truth.translation).norm(dim=1) for p in (start, found.poses))
    assert bool((found.similarity >= found.similarity_before).all())
    assert float(after.mean()) < 0.3 * float(before.mean())


def poses_step(count: int) -> Tensor:
    return (torch.rand(count, 6, generator=torch.Generator().manual_seed(8)) * 2 - 1) * 1.5


def test_a_frame_outside_of_the_volume_shares_nothing() -> None:
    volume = other_modality(15, 31, 33)
    one = comparison(as_ultrasound(volume)[7][None], volume)
    away = VoxelPoses(torch.eye(3)[None], torch.tensor([[0.0, 0.0, 100.0]]))
    assert float(one.similarity(away)) == NOTHING_SHARED
    assert float(one.normal(away).merit) == -torch.inf


def test_all_slices_of_a_volume_are_compared_as_one_body() -> None:
    volume = blur(other_modality(19, 30, 34, seed=6)[None], 2.0)[0]
    ultrasound, seen = as_ultrasound(volume)[3:-3, 4:-4, 5:-5], torch.ones(13, 22, 24)
    seen[:, :, :7] = 0
    channels = value_and_edges(volume, seen_of(volume), 0.0)
    whole = LC2Comparison(channels, cut_slices(ultrasound, seen, LEVEL), LEVEL, OPTIONS)
    assert float(whole.points[:, 0].min()) > -7.5, "what was not seen is left out"
    at = moved(VoxelPoses(torch.eye(3)[None], torch.zeros(1, 3)), torch.full((1, 6), 0.4), whole.lever)
    assert float(whole.similarity(poses(1))) > 0.95 > float(whole.similarity(at))
    normal = whole.normal(at)
    numeric = torch.zeros(6)
    for axis in range(6):
        step = torch.zeros(1, 6)
        step[:, axis] = 0.05
        ahead, back = (whole.normal(moved(at, sign * step, whole.lever)).merit for sign in (1, -1))
        numeric[axis] = float(ahead - back) / 0.1
    assert float((-normal.slope[0] - numeric).abs().max()) < 0.15 * float(numeric.abs().max())


def test_a_method_refines_by_it_and_gives_no_verdict() -> None:
    volume = other_modality(24, 40, 40, seed=7)
    frame = Frame(as_ultrasound(volume)[12, 4:-4, 4:-4], 1.0)
    prepared = create("identity+refine=lc2", "cpu").prepare(Volume(volume, 1.0))
    (result,) = prepared.locate([frame], [None])
    assert result.ok is None
    assert "refined by lc2" in result.method
