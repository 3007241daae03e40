"""Folders of noise laid out as CAMUS is, and their preparation, in one go or interrupted; no tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk

from scopereg.data.builder import build_set
from scopereg.data.camus import plan_camus
from scopereg.data.cases import SetPlan

SIZE, FRAMES = 16, 4
RNG = np.random.default_rng(3)
FLIPPED = np.diag([1, -1, 1])


def write_image(path: Path, array: np.ndarray, spacing: Any, direction: Any = None) -> Path:
    image = sitk.GetImageFromArray(np.ascontiguousarray(array), isVector=False)
    image.SetSpacing(spacing)
    if direction is not None:
        image.SetDirection(np.asarray(direction, float).ravel().tolist())
    path.parent.mkdir(parents=True, exist_ok=True)
    sitk.WriteImage(image, str(path))
    return path


def write_case(root: Path, number: int, view: str = "4CH", *, labels: bool = True, direction: Any = None) -> Path:
    """A sequence of noise, 90 x 120 mm large, with labels of four classes."""
    frames = 5 + number % 3
    folder = root / f"patient{number:04d}"
    pixels = RNG.integers(0, 256, (frames, 60, 80)).astype(np.uint8)
    stem = folder / f"patient{number:04d}_{view}_half_sequence"
    write_image(stem.with_name(stem.name + ".nii.gz"), pixels, (1.5, 1.5, 1.0), direction)
    if labels:
        write_image(stem.with_name(stem.name + "_gt.nii.gz"), pixels // 64, (1.5, 1.5, 1.0), direction)
    (folder / f"Info_{view}.cfg").write_text(f"ED: 1\nES: {frames}\n")
    return stem.with_name(stem.name + ".nii.gz")


def write_tree(root: Path, count: int = 6) -> Path:
    for number in range(1, count + 1):
        write_case(root, number)
    return root


def plan(root: Path, **options: Any) -> SetPlan:
    return plan_camus(root, **{"size": SIZE, "frames": FRAMES, **options})


def stop_after(count: int) -> Callable[[int, int], None]:
    def progress(done: int, total: int) -> None:
        if done == count:
            raise KeyboardInterrupt

    return progress


def interrupt(root: Path, folder: Path, count: int = 3, workers: int = 1) -> Path:
    """A preparation that was interrupted when `count` cases were done."""
    with pytest.raises(KeyboardInterrupt):
        build_set(plan(root), folder, workers=workers, progress=stop_after(count))
    return folder


def content(folder: Path) -> dict[str, Any]:
    """Everything in a prepared folder; .npz by its arrays, since the file tells the time of writing."""
    found: dict[str, Any] = {path.name: path.read_bytes() for path in folder.iterdir()}
    with np.load(folder / "poses.npz") as file:
        found["poses.npz"] = {name: file[name].tobytes() for name in file.files}
    return found
