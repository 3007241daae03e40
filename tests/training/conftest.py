"""A set of volumes that trains in a second, a folder that takes its checkpoints with it, and a run to compare with."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from scopereg.data.store import VolumeSet

sys.path.append(str(Path(__file__).parent))  # small_runs.py, which is no test
from small_runs import Ended, Maker, ended, run

SHAPE = (16, 24, 24)


@pytest.fixture(scope="session")
def tiny_set() -> Callable[..., VolumeSet]:
    """Smooth random volumes, each of a patient of its own."""

    def make(
        count: int = 10, shape: tuple[int, int, int] = SHAPE, margin: tuple[int, int, int] = (0, 0, 0), seed: int = 0
    ) -> VolumeSet:
        low = torch.rand(count, 1, 4, 6, 6, generator=torch.Generator().manual_seed(seed))
        stored = tuple(n + 2 * m for n, m in zip(shape, margin, strict=True))
        smooth = F.interpolate(low, stored, mode="trilinear", align_corners=True)[:, 0]
        names = tuple(f"patient{row}" for row in range(count))
        return VolumeSet("tiny", (smooth * 255).round().byte(), 0.5, names, names, margin=margin)

    return make


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for a run, removed afterwards: pytest keeps its own, and a checkpoint has a hundred megabytes."""
    yield tmp_path / "run"
    shutil.rmtree(tmp_path / "run", ignore_errors=True)


@pytest.fixture(scope="session")
def uninterrupted(tiny_set: Maker, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """A run from beginning to end, to compare others with; the same one in every file, so nobody changes it."""
    folder = tmp_path_factory.mktemp("whole")
    whole = ended(run(tiny_set(), folder), folder)
    shutil.rmtree(folder)
    return whole
