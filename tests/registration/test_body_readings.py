"""Frames that do not lie as they are said to: which reading of their places explains where they were found."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from scopereg.geometry import Pose
from scopereg.images import Frame
from scopereg.registration.body import Body
from scopereg.registration.body_readings import better_readings, off_mm

WHOLE = Pose.from_euler_deg((20, -30, 75), (40, -12, 7), "Body", "Volume")
COUNT = 6


def sweep(count: int = COUNT, seed: int = 0) -> list[Pose]:
    """A hand's sweep along the normal, tilted a little more from frame to frame."""
    random = np.random.default_rng(seed)
    angles = random.uniform(-6, 6, (count, 3)) + np.linspace(-12, 12, count)[:, None] * (1, 0.4, 0)
    shifts = random.uniform(-2, 2, (count, 3)) + np.linspace(-25, 25, count)[:, None] * (0, 0.1, 1)
    return [Pose.from_euler_deg(a, s, "Image", "Body") for a, s in zip(angles, shifts, strict=True)]


def found(true: Sequence[Pose], seed: int = 1, size: float = 0.2) -> dict[int, Pose]:
    """Where frames are found: in the truth, but for small errors."""
    drawn = size * np.random.default_rng(seed).standard_normal((len(true), 6))
    off = [Pose.from_euler_deg(row[3:], row[:3], "Image", "Image") for row in drawn]
    return {row: WHOLE @ pose @ off[row] for row, pose in enumerate(true)}


def body(told: Sequence[Pose]) -> Body:
    return Body.of([Frame(torch.rand(40, 48), 1.0)] * len(told), list(told))


def on_probe(off: Pose) -> Callable[[list[Pose]], list[Pose]]:
    return lambda true: [pose @ off for pose in true]


def drifting(true: list[Pose]) -> list[Pose]:
    shares = np.linspace(0, 1, len(true))
    return [
        Pose.from_euler_deg((0, 5 * s, 0), (9 * s, 0, 0), "Body", "Body") @ pose
        for s, pose in zip(shares, true, strict=True)
    ]


def mirrored(true: list[Pose]) -> list[Pose]:
    return list(body(true).mirrored().image_to_body)


def in_cm(true: list[Pose]) -> list[Pose]:
    return [Pose(pose.rotation, pose.translation_mm / 10, pose.source, pose.target) for pose in true]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (mirrored, "as its mirror image"),
        (in_cm, "times the distances between frames"),
        (on_probe(Pose.from_euler_deg((0, 7, 0), (0, 0, 0), "Image", "Image")), "turned by 7 degrees"),
        (on_probe(Pose.from_euler_deg((0, 180, 0), (0, 0, 0), "Image", "Image")), "turned by 180 degrees"),
        (on_probe(Pose.from_euler_deg((0, 0, 0), (18, -9, 0), "Image", "Image")), "shifted by 2"),
        (drifting, "poses that drift by 9 mm and "),
    ],
)
def test_what_is_wrong_with_all_places_is_named(spoil: Callable[[list[Pose]], list[Pose]], words: str) -> None:
    true = sweep()
    told = body(spoil(true))
    poses = found(true)
    read_so = better_readings(told, poses)
    assert any(words in one.words for one in read_so)
    best = next(one for one in read_so if words in one.words)
    read = Body.of(told.frames, best.image_to_body)
    assert off_mm(read, poses) == pytest.approx(best.apart_mm, abs=0.1)
    assert best.apart_mm < 0.8 < off_mm(told, poses)


def test_one_wrong_frame_and_one_that_was_not_found_hide_nothing() -> None:
    true = sweep(8)
    poses = found(true)
    poses[3] = Pose.from_euler_deg((40, 0, 0), (90, 0, 0))
    del poses[5]
    (best,) = better_readings(body(mirrored(true)), poses)
    assert "mirror" in best.words


@pytest.mark.parametrize("size", [0.2, 1.0])
def test_places_that_are_right_or_only_noisy_are_left_as_they_are(size: float) -> None:
    for seed in range(4):
        true = sweep(seed=seed)
        assert not better_readings(body(true), found(true, seed=100 + seed, size=size))


def test_few_frames_tell_nothing() -> None:
    true = sweep(3)
    assert not better_readings(body(mirrored(true)), found(true))
