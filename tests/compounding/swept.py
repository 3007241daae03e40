"""Sweeps over an object of blobs, anywhere in the world: parallel frames, a rocking probe, from another side."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from scopereg.geometry import Pose, sample_points
from scopereg.io.files import write_sheet
from scopereg.io.pictures import png_bytes
from scopereg.io.sweeps import TrackedSweep

SIDE_MM, PIXEL_MM, STEP_MM = 44.0, 0.8, 0.7
HEIGHT, WIDTH = 36, 44
PLACED = Pose.from_euler_deg((20, -35, 70), (120, -40, 300), "Sweep", "World")


def _object() -> torch.Tensor:
    """Blobs of some mm on a grid of 1 mm, 0 to 1."""
    noise = torch.rand(1, 1, 64, 64, 64, generator=torch.Generator().manual_seed(7))
    for _ in range(3):
        noise = F.avg_pool3d(F.pad(noise, [1] * 6, mode="replicate"), 3, 1)
    grey = noise[0, 0] - noise.min()
    return grey / grey.max()


OBJECT = _object()


def grey_at(points_mm: np.ndarray) -> np.ndarray:
    """What the object shows at points (..., 3) of the world."""
    own = torch.from_numpy((points_mm - PLACED.translation_mm) @ PLACED.rotation)
    return (
        sample_points(OBJECT[None].double(), own.reshape(1, -1, 3), padding="border")[0].reshape(own.shape[:-1]).numpy()
    )


def poses_of(
    count: int = 30, *, step_mm: float = STEP_MM, rocking_deg: float = 0.2, turned: bool = False
) -> list[Pose]:
    """`ImageToWorld` of frames whose middles pass through that of the object; `turned` by a right angle about depth."""
    middle = Pose(np.eye(3), -np.array([(WIDTH - 1) / 2, (HEIGHT - 1) / 2, 0.0]) * PIXEL_MM, "Image", "Middle")
    turn = Pose.from_euler_deg((0, 90 * turned, 0), (0, 0, 0), "Turned", "Sweep")
    poses = []
    for row in range(count):
        s = row - (count - 1) / 2
        moved = Pose.from_euler_deg(
            (rocking_deg * s, 0.05 * s, 0.0), (0.03 * s, 0.01 * s, step_mm * s), "Middle", "Turned"
        )
        poses.append(PLACED @ turn @ moved @ middle)
    return poses


def images_at(poses: list[Pose]) -> torch.Tensor:
    """What frames at these poses show, as bytes."""
    y, x = np.meshgrid(np.arange(HEIGHT) * PIXEL_MM, np.arange(WIDTH) * PIXEL_MM, indexing="ij")
    pixels_mm = np.stack([x, y, 0 * x], -1)
    grey = np.stack([grey_at(pose.apply(pixels_mm)) for pose in poses])
    return torch.from_numpy((grey * 255).round().astype(np.uint8))


def sweep_of(poses: list[Pose] | None = None, told: list[Pose] | None = None, name: str = "blobs") -> TrackedSweep:
    """Frames at some poses, which the tracker may tell otherwise."""
    poses = poses_of() if poses is None else poses
    matrices = np.stack([pose.matrix for pose in told or poses])
    return TrackedSweep(name, images_at(poses), (PIXEL_MM, PIXEL_MM), matrices)


def moved(poses: list[Pose], shifts_mm: np.ndarray) -> list[Pose]:
    """Poses shifted in the world."""
    return [
        Pose(pose.rotation, pose.translation_mm + shift, pose.source, pose.target)
        for pose, shift in zip(poses, shifts_mm, strict=True)
    ]


def write_npz(sweep: TrackedSweep, path: Path) -> Path:
    np.savez(
        path,
        frames=sweep.images.numpy(),
        image_mm_to_world=sweep.image_to_world,
        spacing_xy_mm=np.array(sweep.spacing_mm),
    )
    return path


def write_pictures(sweep: TrackedSweep, folder: Path) -> Path:
    """view1.png, view2.png, ... beside poses.csv as `register` writes it."""
    folder.mkdir()
    rows = []
    for row in range(len(sweep)):
        name = f"view{row + 1}.png"
        (folder / name).write_bytes(png_bytes(sweep.images[row].numpy()))
        pose = sweep.pose(row)
        place = zip(
            ("tx_mm", "ty_mm", "tz_mm", "rx_deg", "ry_deg", "rz_deg"),
            (*pose.translation_mm, *pose.euler_deg),
            strict=True,
        )
        rows.append({"file": name, "index": 0, **dict(place)})
    write_sheet(folder / "poses.csv", rows)
    return folder
