"""A tracked sweep holds what it says, names what is wrong, and gives frames and poses in the stated millimetres."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.io.sweeps import TrackedSweep, seen_pixels

COUNT, HEIGHT, WIDTH = 4, 6, 8
SPACING = (0.5, 0.25)
IMAGES = torch.arange(COUNT * HEIGHT * WIDTH, dtype=torch.uint8).reshape(COUNT, HEIGHT, WIDTH)
POSES = [Pose.from_euler_deg((5.0 * k, -3, 10), (k, 2, -k), "Image", "World") for k in range(COUNT)]


def make(**changes: Any) -> TrackedSweep:
    matrices = np.stack([pose.matrix for pose in POSES])
    given = {"name": "s", "images": IMAGES, "spacing_mm": SPACING, "image_to_world": matrices} | changes
    return TrackedSweep(**given)


def test_frames_and_poses_come_back() -> None:
    sweep = make()
    assert len(sweep) == COUNT
    assert repr(sweep) == "TrackedSweep(s, 4 frames 6 x 8, 0.5 x 0.25 mm)"
    frame = sweep.frame(2)
    assert torch.allclose(frame.array * 255, IMAGES[2].float())
    assert (frame.spacing_mm, frame.origin_mm) == (SPACING, (0.0, 0.0))
    assert sweep.pose(3).is_close(POSES[3])
    assert bool(sweep.seen.all())


def test_a_subset_keeps_images_and_poses_together() -> None:
    part = make().subset([3, 1])
    assert len(part) == 2
    assert torch.equal(part.images, IMAGES[[3, 1]])
    assert part.pose(1).is_close(POSES[1])


def test_float_images_stay_as_they_are() -> None:
    values = torch.rand(COUNT, HEIGHT, WIDTH)
    assert torch.equal(make(images=values).values([1, 2]), values[1:3])


def scaled(row: int) -> np.ndarray:
    matrices = np.stack([pose.matrix for pose in POSES])
    matrices[row, :3, 0] *= 0.3
    return matrices


def with_nan(row: int) -> np.ndarray:
    matrices = np.stack([pose.matrix for pose in POSES])
    matrices[row, 0, 3] = np.nan
    return matrices


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"image_to_world": scaled(2)}, r"image_to_world\[2\]: not a rotation"),
        ({"image_to_world": with_nan(1)}, r"image_to_world\[1\]: it holds NaN"),
        ({"image_to_world": np.eye(4)[None]}, "poses of shape .* for 4 images"),
        ({"images": IMAGES[0]}, "the images have shape"),
        ({"images": IMAGES[:0]}, "the images have shape"),
        ({"images": IMAGES.long()}, "the images are torch.int64"),
        ({"images": IMAGES.float()}, "grey values run from 0 to 191"),
        ({"images": torch.full((COUNT, 2, 2), torch.nan)}, "grey values run from nan"),
        ({"spacing_mm": (0.5, 0)}, "the spacing is"),
        ({"mask": torch.ones(3, 3, dtype=torch.bool)}, "the mask is"),
        ({"mask": torch.zeros(HEIGHT, WIDTH, dtype=torch.bool)}, "with 0 pixels"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ScopeRegError, match=words):
        make(**changes)


@pytest.mark.parametrize("rows", [[], [4], [-1]])
def test_rows_that_are_not_there_are_refused(rows: list[int]) -> None:
    with pytest.raises(ScopeRegError, match="rows from 0 to 3"):
        make().subset(rows)


def test_what_the_transducer_sees_is_what_changes() -> None:
    y, x = torch.meshgrid(torch.arange(200), torch.arange(240), indexing="ij")
    fan = ((x - 120).abs() < 20 + y / 3) & (y > 10) & (y < 190)
    images = (torch.rand(5, 200, 240, generator=torch.Generator().manual_seed(0)) * 200 * fan).to(torch.uint8)
    images[:, 20:30, 5:40] = 180  # a logo
    images[:, :, 230] += torch.arange(0, 20, 4, dtype=torch.uint8)[:, None]  # a line that wavers
    images[1::2] += (images[1::2] == 0).to(torch.uint8)  # compression
    seen = seen_pixels(images)
    assert float((seen != fan).float().mean()) < 0.005
