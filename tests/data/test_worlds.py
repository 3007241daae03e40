"""Random worlds: frames lie where they are said to, draws repeat, easy worlds are easy, and bad ranges are refused."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch
import torch.nn.functional as F

from scopereg.data.worlds import WorldBatch, WorldRanges, draw_worlds
from scopereg.data.worlds.draws import Draws
from scopereg.data.worlds.fields import MAP_STEP, Box, Fields
from scopereg.data.worlds.motion import draw_motion
from scopereg.data.worlds.probes import draw_probes
from scopereg.data.worlds.ranges import greatest_offset
from scopereg.data.worlds.sets import make_worlds
from scopereg.data.worlds.sweep import draw_sweep
from scopereg.data.worlds.world import draw_deformed_worlds, draw_poses, draw_tissue
from scopereg.errors import ScopeRegError
from scopereg.geometry import VoxelPoses, inside_fraction, plane_points, sample_slice
from scopereg.registration.grey import similarity_at

SHAPE = (24, 48, 64)
EASY = WorldRanges().eased(0.0)


def drawn(seed: int = 0, ranges: WorldRanges = EASY, count: int = 3, frames: int = 2, **options: float) -> WorldBatch:
    return draw_worlds(count, frames, SHAPE, torch.Generator().manual_seed(seed), ranges=ranges, **options)


def likeness(batch: WorldBatch) -> torch.Tensor:
    """Correlation (B,) of the frames with the volumes where they are said to lie."""
    each = len(batch.frames) // len(batch.volumes)
    volumes = batch.volumes.repeat_interleave(each, 0)
    rows = zip(batch.frames, volumes, batch.rotation, batch.translation, strict=True)
    return torch.cat([similarity_at(f[None], v, VoxelPoses(r[None], t[None])) for f, v, r, t in rows])


@pytest.fixture(scope="module")
def easy() -> WorldBatch:
    return drawn()


def test_a_batch_has_the_shapes_and_values_that_networks_take(easy: WorldBatch) -> None:
    assert easy.frames.shape == (6, *SHAPE[1:])
    assert easy.volumes.shape == (3, *SHAPE)
    assert easy.rotation.shape == (6, 3, 3)
    assert easy.translation.shape == (6, 3)
    for images in (easy.frames, easy.volumes):
        assert float(images.min()) >= 0
        assert float(images.max()) <= 1
        assert float(images.std()) > 0.03
    assert easy.belongs.all()


def test_points_of_deformed_worlds_lie_where_the_tissue_went() -> None:
    """Each voxel shows the tissue at its own place: the one that shows a point of a frame is displaced to it."""
    ranges = replace(WorldRanges(), deformed_chance=1.0, deformation=(1.5, 1.5), jitter_chance=0.0)
    made = draw_deformed_worlds(2, 2, SHAPE, torch.Generator().manual_seed(3), ranges=ranges)
    points = plane_points((5, 6)).reshape(-1, 2) * 6
    found = made.where(points)  # (4, N, 3)
    voxels = made.sweep.points.movedim(-1, 1).repeat_interleave(2, 0)  # (4, 3, D, H, W)
    half = torch.tensor([(n - 1) / 2 for n in reversed(SHAPE)])
    grid = (found / half)[:, None, None]
    shown = F.grid_sample(voxels, grid, padding_mode="border", align_corners=True)[:, :, 0, 0].movedim(1, 2)
    within = (found.abs() < half).all(-1)
    true = points @ made.poses.rotation[..., :2].mT + made.poses.translation[:, None]
    assert within.float().mean() > 0.3
    off = (shown - true)[within].norm(dim=-1)
    assert off.median() < 1e-4
    assert off.max() < 0.2  # between voxels of which a node of the displacement lies
    rigid = points @ made.batch.rotation[..., :2].mT + made.batch.translation[:, None]
    assert 0.3 < (rigid - found)[within].norm(dim=-1).mean() < 3


def test_frames_of_easy_worlds_look_like_the_volume_where_they_lie(easy: WorldBatch) -> None:
    right = likeness(easy)
    assert float(right.min()) > 0.6
    elsewhere = likeness(easy._replace(translation=easy.translation + torch.tensor([4.0, -4.0, 3.0])))
    assert bool((elsewhere < right - 0.1).all())


def test_frames_of_full_worlds_still_belong_to_their_volumes() -> None:
    batch = drawn(seed=4, ranges=replace(WorldRanges(), foreign_chance=0.0), count=6)
    others = batch._replace(volumes=batch.volumes.roll(1, 0))
    assert float(likeness(batch).nanmean()) > float(likeness(others).nanmean()) + 0.1


def test_a_seed_gives_the_same_world_again_and_another_seed_another() -> None:
    first, again, other = drawn(7, WorldRanges()), drawn(7, WorldRanges()), drawn(8, WorldRanges())
    assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))
    assert not torch.equal(first.volumes, other.volumes)


def test_negatives_are_frames_of_another_world() -> None:
    mixed = replace(EASY, negative_chance=0.5)
    batch = drawn(3, mixed, count=4)
    found = likeness(batch)
    assert 0 < int(batch.belongs.sum()) < len(found)
    assert float(found[batch.belongs].mean()) > float(found[~batch.belongs].nanmean()) + 0.3


def test_poses_show_enough_of_the_volume_and_stay_within_the_offsets() -> None:
    draws = Draws(200, torch.Generator().manual_seed(1))
    poses = draw_poses(draws, 20.0, (16, 64, 64), WorldRanges())
    share = inside_fraction(*poses, (16, 64, 64))
    assert float((share >= 0.35).float().mean()) > 0.97
    assert float(poses.translation.abs().max()) <= 20
    assert float(poses.translation.abs().max()) > 10


def test_small_volumes_have_small_offsets() -> None:
    assert greatest_offset((40, 64, 64), 20.0, WorldRanges()) == pytest.approx(0.16 * 64)
    assert greatest_offset((32, 128, 128), 20.0, WorldRanges()) == 20.0


def test_a_deformed_volume_moves_the_pose_to_the_best_rigid_one() -> None:
    box, draws = Box(SHAPE), Draws(2, torch.Generator().manual_seed(5))
    still = replace(EASY, deformed_chance=0.0, jitter_chance=0.0)
    poses = draw_poses(Draws(4, torch.Generator().manual_seed(2)), 6.0, SHAPE, EASY)
    same = draw_sweep(box, still, draws).where_frames_lie(poses, box)
    assert torch.allclose(same.translation, poses.translation, atol=1e-3)
    assert torch.allclose(same.rotation, poses.rotation, atol=1e-4)
    shifted = draw_sweep(box, still, draws)
    shifted.control[:, 2] += 1.5  # every voxel shows the tissue 1.5 voxels further along z
    moved = shifted.where_frames_lie(poses, box)
    assert torch.allclose(moved.translation, poses.translation - torch.tensor([0.0, 0.0, 1.5]), atol=1e-3)


def test_moving_worlds_show_one_section_that_moves_within_the_plane() -> None:
    """Planes a few voxels apart are alike in a moving world and not in a still one; half a beat apart they differ."""
    plain = replace(EASY, slow_chance=0.0, moving_chance=0.0, jitter_chance=0.0)
    beating = replace(plain, moving_chance=1.0, motion_period=(30.0, 30.0), motion=(3.0, 3.0), motion_drift=(0.0, 0.0))
    box = Box(SHAPE)

    def echo(ranges: WorldRanges) -> torch.Tensor:
        draws = Draws(4, torch.Generator().manual_seed(6))
        motion = draw_motion(box, ranges, draws)
        assert bool(motion.moving.all()) == (ranges is beating)
        return motion.moved(draw_tissue(box, ranges, draws), box)[:, 0]

    moving, still = echo(beating), echo(plain)
    beat, half = 30 // MAP_STEP, 15 // MAP_STEP

    def change(maps: torch.Tensor, nodes: int) -> float:
        return float((maps[:, nodes:] - maps[:, :-nodes]).abs().mean())

    assert change(moving, beat) < 0.01 * change(still, beat)  # back where it was
    assert change(moving, half) > 20 * change(moving, beat)
    assert torch.equal(echo(plain), still)


def test_speckle_that_lasts_is_alike_in_planes_next_to_each_other() -> None:
    kept = replace(EASY, moving_chance=1.0, motion=(0.0, 0.0), motion_drift=(0.0, 0.0), thick_chance=0.0, smoothing=0.0)
    brief = replace(kept, lasting_speckle_chance=0.0)
    lasting = replace(kept, lasting_speckle_chance=1.0, lasting_speckle_width=(10.0, 10.0))
    new, same = (float(drawn(2, ranges).volumes.diff(dim=1).abs().mean()) for ranges in (brief, lasting))
    assert same < 0.3 * new


def test_fields_have_unit_variance_and_the_width_asked_for() -> None:
    draws = Draws(24, torch.Generator().manual_seed(0))
    fields = Fields(Box((32, 64, 64)), draws, torch.ones(24))
    rough, smooth = fields.draw(2, (1.5, 1.6)), fields.draw(2, (10.0, 11.0))
    assert rough.shape == smooth.shape == (24, 2, *Box((32, 64, 64)).nodes)
    assert float(rough.var()) == pytest.approx(1, abs=0.1)
    assert float(smooth.var()) == pytest.approx(1, abs=0.5)
    step = [float(x.diff(dim=-1).square().mean()) for x in (rough, smooth)]
    assert step[0] > 10 * step[1]


def test_beams_lose_what_lies_on_their_way_and_start_where_the_probe_is() -> None:
    draws = Draws(6, torch.Generator().manual_seed(3))
    upward = torch.tensor([False, True] * 3)
    probes = draw_probes(draws, (48, 64), 1.0, upward)
    rays = probes.rays()
    lost = probes.losses_db(torch.full((6, 1, 48, 64), 0.5), rays)[:, 0]
    near, far = lost[:, 2, 32], lost[:, -3, 32]
    assert bool((far > near)[~upward].all())
    assert bool((far < near)[upward].all())
    middle = lost[~upward][:, 24, 32]
    assert bool(((middle > 6) & (middle < 20)).all())  # half a dB a pixel, some 24 pixels deep


def test_coarse_images_lie_where_fine_ones_do_and_have_half_the_detail() -> None:
    sharp = WorldRanges(coarse_chance=0.0, sparse_chance=0.0, coarse_frame_chance=0.0, coarse_both_chance=0.0)
    coarse = replace(sharp, coarse_chance=1.0, coarse_both_chance=1.0)
    one, other = (drawn(seed=4, ranges=ranges.eased(0.99), count=4) for ranges in (sharp, coarse))
    for fine, blurred in ((one.volumes, other.volumes), (one.frames, other.frames)):
        means = [F.avg_pool2d(images.flatten(0, -3)[:, None], 4) for images in (fine, blurred)]
        assert float((means[0] - means[1]).abs().mean()) < 0.02
        steps = [images.diff(dim=-1).abs().mean() for images in (fine, blurred)]
        assert float(steps[1]) < 0.7 * float(steps[0])
    assert torch.equal(one.translation, other.translation)


@pytest.mark.parametrize("shape", [(16, 32, 32), (20, 31, 45), (64, 40, 24)])
def test_any_shape_can_be_drawn(shape: tuple[int, int, int]) -> None:
    batch = draw_worlds(1, 1, shape, torch.Generator().manual_seed(0), magnitude=4.0)
    assert batch.volumes.shape == (1, *shape)
    cut = sample_slice(batch.volumes, batch.rotation, batch.translation)
    assert bool(torch.isfinite(batch.frames).all())
    assert cut.shape == batch.frames.shape


def test_a_set_keeps_seeds_apart_and_repeats_them() -> None:
    made = make_worlds(2, seed=5, frames=4, shape=(16, 32, 32))
    again = make_worlds(1, seed=6, frames=4, shape=(16, 32, 32))
    assert torch.equal(made.images[1], again.images[0])
    assert made.frames is not None
    assert made.frames.images.shape == (2, 4, 32, 32)
    assert made.facts["seeds"] == [5, 6]


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("label_width", (9.0, 3.0), "least, greatest"),
        ("fan_chance", 1.5, "from 0 to 1"),
        ("tube_radius", (-1.0, 1.0), "least, greatest"),
        ("gain_db", (0.0, float("nan")), "least, greatest"),
        ("bodies", -1, "0 or more"),
        ("shapes", (), "chance"),
        ("shapes", (((4, 128, 128), 1.0),), "whole numbers"),
    ],
)
def test_impossible_ranges_are_refused(name: str, value: object, word: str) -> None:
    assert name in {field.name for field in fields(WorldRanges)}
    with pytest.raises(ScopeRegError, match=name) as error:
        WorldRanges(**{name: value})  # type: ignore[arg-type]
    assert word in str(error.value)


def test_impossible_numbers_are_refused() -> None:
    generator = torch.Generator()
    with pytest.raises(ScopeRegError, match="0 worlds"):
        draw_worlds(0, 1, SHAPE, generator)
    with pytest.raises(ScopeRegError, match="8 x 48 x 64 voxels"):
        draw_worlds(1, 1, (8, 48, 64), generator)
    with pytest.raises(ScopeRegError, match="magnitude"):
        draw_worlds(1, 1, SHAPE, generator, magnitude=-1.0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_recorded_worlds_are_those_of_the_plain_draw() -> None:
    from scopereg.data.worlds.recorded import RecordedWorlds

    device, ranges = torch.device("cuda"), WorldRanges()
    recorded = RecordedWorlds(device)
    for seed, shape in ((1, SHAPE), (2, (32, 64, 64)), (1, SHAPE), (9, SHAPE)):
        found = recorded.draw(seed, 4, 2, shape, magnitude=8.0, ranges=ranges)
        generator = torch.Generator(device).manual_seed(seed)
        wanted = draw_worlds(4, 2, shape, generator, magnitude=8.0, ranges=ranges)
        assert all(torch.equal(one, two) for one, two in zip(found, wanted, strict=True))
