"""Other layouts: a folder of volumes, mu-RegPro, and real images laid out as published."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from camus_trees import FLIPPED, RNG, write_image

from scopereg.cli import main
from scopereg.data.builder import build_set
from scopereg.data.camus import load_camus, plan_camus
from scopereg.data.folder import plan_folder
from scopereg.data.muregpro import load_muregpro, plan_muregpro
from scopereg.data.store import open_set
from scopereg.errors import ScopeRegError

SHARED = Path(__file__).parents[3] / "shared" / "data"


def test_a_folder_of_thin_volumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Poses of 25 voxels leave volumes of 8 planes: such magnitudes are left out and told."""
    for name in "abc":
        pixels = RNG.integers(0, 256, (8, 96, 96)).astype(np.uint8)
        write_image(tmp_path / "own" / f"{name}.nii.gz", pixels, (1.0, 1.0, 1.0))
        write_image(tmp_path / "own" / f"{name}_seg.nii.gz", pixels // 128, (1.0, 1.0, 1.0))
    words = ["data", "prepare", "folder", str(tmp_path / "own"), "-o", str(tmp_path / "set"), "--workers", "1"]
    assert main([*words, "--margin", "0", "8", "8"]) == 0
    assert "5 by" not in capsys.readouterr().out
    volumes = open_set(tmp_path / "set")
    assert (volumes.name, volumes.shape, volumes.margin) == ("folder", (8, 80, 80), (0, 8, 8))
    facts = volumes.facts["evaluation_poses"]
    assert set(facts["sha256"]) | set(facts.get("left_out", {})) == {"pm10", "pm15", "pm20", "pm25"}
    write_image(tmp_path / "own/c_seg.nii.gz", np.zeros((8, 96, 96), np.uint8), (1.0, 1.0, 1.0), FLIPPED)
    with pytest.raises(ScopeRegError, match="labels are LAS, their volume is LPS"):
        build_set(plan_folder(tmp_path / "own"), tmp_path / "other")


def test_both_halves_of_muregpro(tmp_path: Path) -> None:
    depth = np.linspace(0, 1, 88)[:, None, None]
    fan = (np.abs(np.linspace(-1, 1, 118))[:, None] < 1 - 0.8 * depth) * RNG.integers(1, 256, (88, 118, 81))
    for number in (1, 2):
        name = f"case00000{number}.nii.gz"
        write_image(tmp_path / "tree/train/us_images" / name, fan.astype(np.uint8), [0.8] * 3)
        write_image(tmp_path / "tree/train/us_labels" / name, np.ones((6, 88, 118, 81), np.uint8), [0.8] * 3 + [1.0])
    volumes = build_set(plan_muregpro(tmp_path / "tree"), tmp_path / "set", workers=2)
    assert volumes.cases == ("case000001a", "case000001b", "case000002a", "case000002b")
    assert volumes.patients == ("case000001", "case000001", "case000002", "case000002")
    assert torch.equal(volumes.images[:2], volumes.images[2:])
    assert volumes.facts["notes"] == {"same image as another case": list(volumes.cases)}


def script_of(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A script beside the repository, with SimpleITK in the place of nibabel."""
    if not (SHARED / name).is_file():
        pytest.skip("the shared data are not beside the repository")

    def save(image: SimpleNamespace, path: Path) -> None:
        direction = np.eye(image.array.ndim)
        direction[:3, :3] = np.diag(np.sign(np.diag(image.affine)[:3])) * [-1, -1, 1]  # RAS to LPS
        spacing = [*np.abs(np.diag(image.affine)[:3]).tolist(), *[1.0] * (image.array.ndim - 3)]
        write_image(path, image.array.T, spacing, direction)

    nibabel = SimpleNamespace(Nifti1Image=lambda array, affine: SimpleNamespace(array=array, affine=affine), save=save)
    monkeypatch.setitem(sys.modules, "nibabel", nibabel)  # type: ignore[arg-type]
    spec = importlib.util.spec_from_file_location(Path(name).stem, SHARED / name)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_real_camus_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = script_of("camus_from_stills.py", monkeypatch)
    with np.load(SHARED / "camus_stills.npz") as file:
        data = {name: file[name][:2] for name in file.files}
    script.write_layout(data, tmp_path / "layout", 2)
    volumes = build_set(plan_camus(tmp_path / "layout"), tmp_path / "set", workers=2)
    assert (len(volumes), volumes.shape) == (2, (32, 128, 128))
    assert volumes.sha256() == load_camus(tmp_path / "layout").sha256()
    assert volumes.facts["orientation"] == {"images": "LPS", "labels": "LPS", "expected": "LPS"}


def test_real_prostates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("scipy")
    script = script_of("muregpro_from_trus.py", monkeypatch)
    monkeypatch.setattr(sys, "argv", ["script", str(tmp_path / "layout"), "--cases", "2"])
    script.main()
    volumes = build_set(plan_muregpro(tmp_path / "layout"), tmp_path / "set", workers=2)
    assert (len(volumes), volumes.facts["probe_end"]) == (4, "high")
    for path in (tmp_path / "layout").rglob("case000001.nii.gz"):
        path.unlink()
    assert volumes.subset([0, 1]).sha256() == load_muregpro(tmp_path / "layout").sha256()
    assert volumes.facts["orientation"] == {"images": "RAS", "labels": "RAS", "expected": "RAS"}
