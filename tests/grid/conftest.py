"""A set of volumes that trains in seconds, stored as `scopereg data prepare` would, and plans for it."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import yaml

from scopereg.data.store import VolumeSet, save_set

sys.path.append(str(Path(__file__).parent))  # small_grids.py, which is no test
from small_grids import SECONDS

# 10 volumes, 7 of which train: an epoch of batches of 4 has 2 steps or so.
TRAINED: dict[str, Any] = {"looks": 1, "matching": False, "batch": 4, "frames_per_volume": 2, "validate_every": 2}
PLAN: dict[str, Any] = {
    "dataset": "folder",
    "epochs": 1,
    "magnitudes": [3],
    "methods": {"identity": None, "scope-reg": TRAINED},
}


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the set at 24 pixels; tiny-32 beside it holds the same at 32."""
    folder = tmp_path_factory.mktemp("data")
    low = torch.rand(10, 1, 4, 6, 6, generator=torch.Generator().manual_seed(0))
    names = tuple(f"patient{row}" for row in range(len(low)))
    for size in (24, 32):
        smooth = F.interpolate(low, (16, size, size), mode="trilinear", align_corners=True)[:, 0]
        volumes = VolumeSet("tiny", (smooth * 255).round().byte(), 12 / size, names, names)
        save_set(volumes, folder / f"tiny-{size}")
    return folder / "tiny-24"


@pytest.fixture
def write_plan(tmp_path: Path) -> Callable[..., Path]:
    """Writes PLAN with other values for some of its keys; None takes a key out."""

    def write(name: str = "small", **values: Any) -> Path:
        content = {key: value for key, value in {**PLAN, **values}.items() if value is not None}
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        return path

    return write


@pytest.fixture
def output(tmp_path: Path) -> Iterator[Path]:
    """A folder for a grid, removed afterwards: pytest keeps its own, and weights have megabytes."""
    yield tmp_path / "grid"
    shutil.rmtree(tmp_path / "grid", ignore_errors=True)


@pytest.fixture(scope="session")
def wait_for() -> Callable[..., Any]:
    """Gives what a function gives, once that is anything."""

    def wait(ready: Callable[[], Any]) -> Any:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            found = ready()
            if found:
                return found
            time.sleep(0.02)
        raise AssertionError(f"nothing came within {SECONDS} s")

    return wait
