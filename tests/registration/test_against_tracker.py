"""Poses found beside a tracker's: a sweep tells mirrored volumes and frames, swapped axes and wrong sizes."""

from __future__ import annotations

import numpy as np
import pytest

from scopereg.geometry import Pose
from scopereg.registration.against_tracker import LEAST_POSES, check_motion

CENTRE = (40.0, 30.0, 0.0)  # of the frames, in their own mm
WORLD = Pose.from_euler_deg((20, -40, 75), (100, -50, 30), "World", "Volume")


def sweep(count: int = 25, seed: int = 0) -> list[Pose]:
    """ImageToWorld of a probe that moves through the plane, wobbles, turns and slides a little."""
    t = np.linspace(0, 1, count)
    random = np.random.default_rng(seed)
    wave = [
        random.uniform(3, 8) * np.sin(2 * np.pi * (t * random.uniform(0.5, 1.5) + random.uniform())) for _ in range(5)
    ]
    return [
        Pose.from_euler_deg((wave[0][k], wave[1][k], wave[2][k]), (wave[3][k], wave[4][k], 40 * t[k]), "Image", "World")
        for k in range(count)
    ]


def found_from(
    poses: list[Pose], axes: np.ndarray, scale: float = 1.0, noise_mm: float = 1.0, spoiled: float = 0.0
) -> list[Pose]:
    """What a registration finds: the same motion read in other axes, with noise, and some frames anywhere."""
    random = np.random.default_rng(1)
    found = []
    first = poses[0]
    for pose in poses:
        relative = first.inverse() @ pose
        about = axes @ relative.rotation @ np.linalg.inv(axes)
        centre = np.array(CENTRE)
        shift = scale * axes @ (relative.apply(centre) - centre)
        turned = Pose(about, centre + shift - about @ centre, "Image", "Image")
        jitter = Pose.from_euler_deg(random.normal(0, 0.7, 3), random.normal(0, noise_mm, 3), "Image", "Image")
        if random.uniform() < spoiled:
            jitter = Pose.from_euler_deg(random.normal(0, 15, 3), random.normal(0, 15, 3), "Image", "Image")
        anywhere = Pose.from_euler_deg((5, 60, -20), (1, 2, 3), "Image", "Volume")
        found.append(anywhere @ turned @ jitter)
    return found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("spoiled", [0.0, 0.25])
def test_poses_that_move_as_the_tracker_says_agree(seed: int, spoiled: float) -> None:
    poses = sweep(seed=seed)
    check = check_motion(found_from(poses, np.eye(3), spoiled=spoiled), poses, CENTRE)
    assert check is not None
    assert check.agrees
    assert check.scale == pytest.approx(1, abs=0.05)
    assert check.motion_mm > 10 > check.apart_mm


@pytest.mark.parametrize("spoiled", [0.0, 0.2])
@pytest.mark.parametrize(
    ("signs", "words"),
    [
        ((1, 1, -1), "mirrored through the plane"),
        ((-1, 1, -1), "as if frames were mirrored left to right"),
        ((1, -1, -1), "as if frames were mirrored top to bottom"),
        ((-1, -1, 1), "turned by 180 degrees"),
        ((-1, 1, 1), "the calibration takes the image for its mirror image"),
    ],
)
def test_mirrored_motion_is_named(signs: tuple[int, int, int], words: str, spoiled: float) -> None:
    poses = sweep(seed=3)
    check = check_motion(found_from(poses, np.diag(signs).astype(float), spoiled=spoiled), poses, CENTRE)
    assert check is not None
    assert words in check.words
    assert np.array_equal(np.diag(check.signs), signs)
    assert check.best_mm < 0.5 * check.apart_mm


def test_swapped_axes_and_scales_are_named() -> None:
    poses = sweep(seed=2)
    axes = np.array([[0.0, 1, 0], [1, 0, 0], [0, 0, -1]])
    swapped = check_motion(found_from(poses, axes), poses, CENTRE)
    assert swapped is not None
    assert "x is y, y is x, z is -z" in swapped.words
    far = check_motion(found_from(poses, np.eye(3), scale=1.3), poses, CENTRE)
    assert far is not None
    assert "1.3" in far.words
    assert "times as far as the tracker says" in far.words
    assert far.scale == pytest.approx(1.3, abs=0.06)


def test_a_volume_mirrored_through_the_plane_gives_the_words() -> None:
    """Not by construction of the motion, but of the volume: its third axis runs the other way."""
    poses = sweep(seed=5)
    # What lies at z of the world lies at -z of the volume; a frame is found where it looks the same.
    mirror = np.diag([1.0, 1.0, -1.0])
    found = [
        Pose(mirror @ p.rotation @ np.diag([1.0, 1, -1]), mirror @ p.translation_mm, "Image", "Volume") for p in poses
    ]
    check = check_motion(found, poses, CENTRE)
    assert check is not None
    assert check.best_mm == pytest.approx(0, abs=1e-4)
    assert "mirrored through the plane" in check.words


def test_poses_of_another_volume_do_not_move_along() -> None:
    poses, random = sweep(), np.random.default_rng(7)
    anywhere = [Pose.from_euler_deg(random.normal(0, 10, 3), random.normal(0, 12, 3), "Image", "Volume") for _ in poses]
    check = check_motion(anywhere, poses, CENTRE)
    assert check is not None
    assert "do not move as the tracker says" in check.words


def test_few_poses_and_a_probe_at_rest_tell_nothing() -> None:
    poses = sweep()
    few = poses[: LEAST_POSES - 1]
    assert check_motion(few, few, CENTRE) is None
    rest = [poses[0]] * 20
    assert check_motion(rest, rest, CENTRE) is None
