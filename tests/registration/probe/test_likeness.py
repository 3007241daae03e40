"""X, Z and the size of pixels by the likeness of all frames together."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from probe_scene import PROBE, WORLDS, error_of

from scopereg.geometry import Pose, VoxelPoses, rotation_from_euler_deg, sample_slice
from scopereg.images import Frame, Volume, pose_from_voxels
from scopereg.registration.body_likeness import Ground
from scopereg.registration.grey import Grey, blur
from scopereg.registration.probe.chain import OF_X, STRETCHES, Grid, chain_of, pivots_of
from scopereg.registration.probe.likeness import Holds, ProbeOnGround

COUNT, STEP = 10, 1.0
Seen = tuple[Volume, list[Frame], np.ndarray]


@pytest.fixture(scope="module")
def seen() -> Seen:
    """A volume of blobs, frames cut out of it, and where the tracker saw their probe."""
    noise = blur(torch.rand(1, 40, 56, 64, generator=torch.Generator().manual_seed(1)), 1.5)[0]
    volume = Volume((noise - noise.min()) / (noise.max() - noise.min()), STEP, (5.0, -8.0, 12.0))
    random = np.random.default_rng(2)
    turns, shifts = (torch.from_numpy(random.uniform(-1, 1, (COUNT, 3)) * most).float() for most in (18, 4))
    poses = VoxelPoses(rotation_from_euler_deg(turns), shifts)
    images = sample_slice(volume.array, *poses, slice_shape=(36, 40))
    frames = [Frame(image, STEP, origin_mm=(0, 0)) for image in images]
    truth = [pose_from_voxels(*each, frames[0], volume).matrix for each in zip(*poses, strict=True)]
    return volume, frames, np.linalg.inv(WORLDS[0]) @ np.stack(truth) @ np.linalg.inv(PROBE)


def on_ground(seen: Seen, holds: Holds) -> ProbeOnGround:
    volume, frames, tracked = seen
    ground = Ground(volume, Grey().prepare(volume.array), 0.0, torch.device("cpu"))
    return ProbeOnGround(frames, tracked, np.zeros(COUNT, np.intp), ground, holds)


def test_all_of_it_is_found_from_nearby(seen: Seen) -> None:
    on, true = on_ground(seen, Holds()), chain_of(PROBE, WORLDS[:1], Grid((36, 40), (STEP, STEP)))
    off = Pose.from_euler_deg((1.5, -1, 1), (0.6, -0.8, 0.5)).matrix
    begin = chain_of(PROBE @ off, WORLDS[:1], true.grid).with_pixels((1.03 * STEP, 1.03 * STEP))
    found = on.descend(on.descend(begin, np.ones(COUNT)), np.ones(COUNT))
    offset, turn = error_of(found, true)
    assert offset < 0.15 < error_of(begin, true)[0]
    assert turn < 0.5
    assert found.grid.spacing_mm == pytest.approx(
        (STEP, STEP), rel=0.015
    )  # windows of frames are flat, those of volumes are not
    assert on.similarity(found).min() > 0.85 > on.similarity(begin).mean()


def test_what_is_held_stays(seen: Seen) -> None:
    on = on_ground(seen, Holds(world=True, pixels=True))
    off = Pose.from_euler_deg((1, -1, 1), (0.5, -0.6, 0.4)).matrix
    begin = chain_of(PROBE @ off, WORLDS[:1], Grid((36, 40), (STEP, STEP)))
    found = on.descend(begin, np.ones(COUNT))
    assert np.allclose(found.z, begin.z, atol=1e-9)
    assert found.grid.spacing_mm == begin.grid.spacing_mm
    assert error_of(found, chain_of(PROBE, WORLDS[:1], begin.grid))[0] < 0.1


def test_equations_are_those_of_the_merit(seen: Seen) -> None:
    on, weights = on_ground(seen, Holds()), np.ones(COUNT)
    off = Pose.from_euler_deg((0.5, 0, 0.3), (0.2, 0.1, 0.2)).matrix
    chain = chain_of(PROBE @ off, WORLDS[:1], Grid((36, 40), (STEP, STEP)))
    on.similarity(chain)  # reads the frames
    _, matrix, slope = on.equations(chain, 1).total(weights)
    assert np.linalg.eigvalsh(matrix).min() > -1e-3 * matrix.max()
    pivots = pivots_of(chain, on.tracked, on.worlds)
    for axis in (0, 2, 4, OF_X + 1, OF_X + 5, -STRETCHES, -1):
        step = np.zeros(len(slope))
        step[axis] = 0.02
        up, down = (on.equations(chain.moved(sign * step, pivots), 1).total(weights)[0] for sign in (1, -1))
        assert slope[axis] == pytest.approx(-(up - down) / 0.04, rel=0.3, abs=0.06 * np.abs(slope).max())
