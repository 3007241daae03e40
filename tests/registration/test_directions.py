"""Directions: edges that run along one another are told from others, whatever both images show of them."""

from __future__ import annotations

import torch
from drawn_modalities import as_ultrasound, other_modality

from scopereg.geometry import VoxelPoses
from scopereg.geometry.steps import moved
from scopereg.registration.directions import Directions, climbed
from scopereg.registration.grey import gradients
from scopereg.registration.likeness import NOTHING_SHARED

LEVER = 12.0


def both() -> Directions:
    volume = other_modality(30, 40, 44, seed=2)
    ultrasound = as_ultrasound(volume)[6:-6, 6:-6, 6:-6]
    return Directions(volume, torch.ones(30, 40, 44), ultrasound, torch.ones(18, 28, 32), smooth=1.0, margin=1.0)


def at(*shifts: float) -> VoxelPoses:
    steps = torch.zeros(len(shifts), 6)
    steps[:, 0] = torch.tensor(shifts)
    count = len(shifts)
    return moved(VoxelPoses(torch.eye(3).expand(count, 3, 3), torch.zeros(count, 3)), steps, LEVER)


def test_it_is_the_mean_square_of_the_cosine() -> None:
    directions = both()
    slopes = gradients(torch.zeros(3, 3, 3))
    assert slopes.shape == (3, 3, 3, 3)
    middle = (torch.tensor([43.0, 39.0, 29.0]) - 1) / 2  # x, y, z; odd sizes less one are whole numbers from the middle
    places = (directions.points + middle + 0.5).long()
    there = directions.volume[:3, places[:, 2], places[:, 1], places[:, 0]].T
    along = (there * directions.directions).sum(1).square() / (there.square().sum(1) + directions.quiet**2)
    torch.testing.assert_close(directions.similarity(at(0.0)), along.mean()[None], atol=1e-4, rtol=0)


def test_the_right_place_is_more_alike_than_others_and_outside_there_is_nothing() -> None:
    there, near, off, outside = both().similarity(at(0.0, 1.5, 6.0, 200.0))
    assert there > near > off
    assert outside == NOTHING_SHARED


def test_random_steps_climb_and_are_the_same_for_a_seed() -> None:
    directions, start = both(), at(2.0, -2.0)
    runs = [
        climbed(directions, start, LEVER, step=1.0, rounds=12, generator=torch.Generator().manual_seed(1))
        for _ in range(2)
    ]
    assert torch.equal(runs[0][0].translation, runs[1][0].translation)
    poses, found = runs[0]
    assert bool((found > directions.similarity(start)).all())
    assert float(poses.translation.norm(dim=1).max()) < 1.2
