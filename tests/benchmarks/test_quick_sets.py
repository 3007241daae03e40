"""Development sets survive their files, and a network's errors on them are those of its poses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from quick_sets import Case, DevelopmentSet, load_quick_sets, quick_errors, quick_summary, read_set, stacked, write_set
from torch import Tensor, nn

from scopereg.errors import ScopeRegError
from scopereg.geometry import VoxelPoses, mtre_mm, sample_poses

SHAPES = ((9, 17, 20), (9, 17, 20), (11, 20, 13))


class Reads(nn.Module):
    """Answers with the translation that stands in the first pixels of a frame, if the volume is the frame's own."""

    def forward(self, slices: Tensor, volumes: Tensor) -> Any:
        own = volumes.repeat_interleave(len(slices) // len(volumes), 0)
        assert torch.equal(own[:, 0, 0, 0], slices[:, 0, 3])
        still = torch.eye(3).repeat(len(slices), 1, 1)
        return SimpleNamespace(rotation=still, translation=slices[:, 0, :3] * 255 - 10)


def made(frames: int = 3) -> DevelopmentSet:
    generator = torch.Generator().manual_seed(0)
    cases = []
    for number, shape in enumerate(SHAPES):
        rotation, translation = sample_poses(frames, 5, shape, generator)
        volume = torch.randint(256, shape, generator=generator, dtype=torch.uint8)
        images = torch.randint(256, (frames, *shape[1:]), generator=generator, dtype=torch.uint8)
        images[:, 0, :3] = (translation.round() + 10).to(torch.uint8)
        images[:, 0, 3] = volume[0, 0, 0]
        cases.append(Case(f"case{number}", f"patient{number // 2}", volume, images, rotation, translation))
    return DevelopmentSet("small", 5.0, 0.7, tuple(cases), {"seed": 0})


def test_a_set_comes_back_from_its_file(tmp_path: Path) -> None:
    before = made()
    write_set(tmp_path / "small.npz", before)
    after = read_set(tmp_path / "small.npz")
    assert (after.name, after.magnitude, after.spacing_mm, after.facts) == ("small", 5.0, 0.7, {"seed": 0})
    for one, other in zip(before.cases, after.cases, strict=True):
        assert (one.name, one.patient) == (other.name, other.patient)
        for part in ("volume", "frames", "rotation", "translation"):
            assert torch.equal(getattr(one, part), getattr(other, part))


def test_errors_are_those_of_the_poses_found(tmp_path: Path) -> None:
    kept = made()
    write_set(tmp_path / "small.npz", kept)
    network = Reads().train()
    found = quick_errors(network, load_quick_sets(tmp_path), "cpu", volumes_at_once=1)["small"]
    assert network.training
    expected = []
    for case in kept.cases:
        guess = VoxelPoses(torch.eye(3).repeat(3, 1, 1), case.translation.round())
        true = VoxelPoses(case.rotation, case.translation)
        expected.append(mtre_mm(guess, true, tuple(case.frames.shape[1:]), 0.7))  # type: ignore[arg-type]
    assert torch.allclose(found, torch.cat(expected), atol=1e-4)
    assert torch.allclose(found, quick_errors(network, stacked(kept), "cpu")["small"])
    assert quick_summary({"small": found})["small"]["mean_mm"] == pytest.approx(float(found.mean()))


def test_the_first_frames_are_whole_cases() -> None:
    assert [case.name for case in made().first(4).cases] == ["case0", "case1"]
    assert made().first(3).frame_count == 3
    assert made().first(1000).frame_count == 9


def test_damaged_and_missing_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(ScopeRegError, match="no development set"):
        load_quick_sets(tmp_path)
    write_set(tmp_path / "small.npz", made())
    content = (tmp_path / "small.npz").read_bytes()
    (tmp_path / "small.npz").write_bytes(content[: len(content) // 2])
    with pytest.raises(ScopeRegError, match="cannot be read"):
        load_quick_sets(tmp_path)


def test_it_needs_torch_and_numpy_alone() -> None:
    absent = ["SimpleITK", "rich", "yaml", "scipy", "matplotlib", "pytorch_lightning", "numba", "pydicom"]
    folder = Path(__file__).parents[2] / "benchmarks"
    code = (
        f"import sys\nsys.modules.update(dict.fromkeys({absent!r}))\nsys.path.append({str(folder)!r})\n"
        "import quick_sets\nprint(quick_sets.FORMAT)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
