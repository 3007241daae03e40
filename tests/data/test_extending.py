"""A dataset and an anatomy from outside of the package: every verb knows them once they are registered."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
import SimpleITK as sitk
import torch
from torch import Tensor

from scopereg.cli import main
from scopereg.data import phantom
from scopereg.data.cases import CaseFiles, LoadedVolume
from scopereg.data.dataset import Dataset
from scopereg.data.datasets import load_dataset
from scopereg.data.phantom.anatomy.base import Anatomy, Tissue, paint_labels
from scopereg.data.phantom.anatomy.draws import Draws
from scopereg.data.phantom.anatomy.shapes import cover, sphere
from scopereg.data.phantom.fan import Fan
from scopereg.data.phantom.scanner import Scanner
from scopereg.data.registry import ANATOMIES, DATASETS, register_anatomy, register_dataset
from scopereg.data.splits import Split, split_set
from scopereg.data.store import open_set
from scopereg.errors import ScopeRegError
from scopereg.geometry import sample_poses
from scopereg.io.read_image import read_image
from scopereg.training.presets import preset


class Ovaries(Dataset):
    """Files scan_NN.nii.gz, all of one grid; even numbers are tested."""

    name = "ovaries"
    title = "Ovaries"
    address = "https://example.org/ovaries"
    presets = MappingProxyType({"scope-reg": {"learning_rate": 1e-3}})
    shape, spacing_mm, margin = (8, 16, 16), 1.0, (0, 2, 2)

    def found(self, root: Path) -> bool:
        return next(root.glob("scan_*.nii.gz"), None) is not None

    def find(self, root: Path, labels: bool = True) -> list[CaseFiles]:
        return [CaseFiles(path.name[:7], path.name[:7], path) for path in sorted(root.glob("scan_*.nii.gz"))]

    def read(self, case: CaseFiles) -> list[LoadedVolume]:
        return [LoadedVolume(case.name, np.ascontiguousarray(read_image(case.image).array), None)]

    def split(self, patients: object, fold: int) -> Split:
        rows = {part: tuple(row for row in range(8) if row % 4 in which) for part, which in PARTS.items()}
        return Split(**rows, rule=f"the publishers' fold {fold}")


PARTS = {"train": (1,), "validation": (3,), "test": (0, 2)}


class Ball(Anatomy):
    """A bright ball in dark tissue."""

    name = "ball"
    label_names = MappingProxyType({1: "ball"})
    usual_shape = (8, 32, 32)
    usual_spacing_mm = 1.0
    elevation_planes = 1.0
    detail_mm = 1.0

    def __init__(self, draws: Draws, sweep_mm: float, device: torch.device) -> None:
        self._radius_mm = draws.uniform(6, 9)

    def tissue(self, x: Tensor, y: Tensor, z: Tensor, depth_mm: Tensor) -> Tissue:
        made = Tissue.background(torch.full_like(x + y + z, -40.0))
        made.paint(cover(sphere(x, y, z, (0.0, 0.0, 0.0), self._radius_mm)), -12.0)
        return made

    def labels(self, x: Tensor, y: Tensor, z: Tensor, depth_mm: Tensor) -> Tensor:
        inside = sphere(x, y, z, (0.0, 0.0, 0.0), self._radius_mm) < 0
        return paint_labels(x + y + z, [(1, inside)])

    def fan(self, draws: Draws, device: torch.device) -> Fan:
        return Fan.single(0.0, -40.0, 0.0, 35.0, 20.0, 60.0, device=device)

    def scanner(self, draws: Draws, device: torch.device) -> Scanner:
        noise = {"haze_db": -40.0, "haze_reach_mm": 5.0, "clutter_db": -60.0, "noise_db": -60.0}
        beam = {"axial_mm": 0.4, "lateral_deg": 1.0, "tgc_db": 0.0, "edge_db": 0.0}
        return Scanner.single(gain_db=0.0, dynamic_range_db=50.0, **noise, **beam, device=device)


@pytest.fixture
def ovaries(tmp_path: Path) -> Iterator[Path]:
    """Eight files of the dataset, which is registered while the test runs."""
    folder = tmp_path / "ovaries"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(8):
        image = sitk.GetImageFromArray(rng.integers(0, 255, (8, 20, 20), np.uint8))
        sitk.WriteImage(image, folder / f"scan_{number:02d}.nii.gz")
    register_dataset(Ovaries())
    yield folder
    DATASETS.remove("ovaries")


@pytest.fixture
def ball() -> Iterator[None]:
    register_anatomy(Ball)
    yield
    ANATOMIES.remove("ball")


def test_a_dataset_from_outside_is_checked_and_prepared(
    ovaries: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "check", str(ovaries), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["layout"], report["cases"], report["proposal"]["shape"]) == ("ovaries", 8, [8, 16, 16])
    assert report["commands"][0] == f"scopereg data prepare ovaries {ovaries} -o PREPARED"
    assert main(["data", "prepare", "ovaries", str(ovaries), "-o", str(tmp_path / "set"), "--workers", "1"]) == 0
    volumes = open_set(tmp_path / "set")
    assert (volumes.name, len(volumes), volumes.shape, volumes.margin) == ("ovaries", 8, (8, 16, 16), (0, 2, 2))
    assert split_set(volumes, 1).rule == "the publishers' fold 1"
    assert load_dataset("ovaries", tmp_path / "set").sha256() == load_dataset("ovaries", ovaries).sha256()
    with pytest.raises(ScopeRegError, match=r"https://example\.org/ovaries"):
        load_dataset("ovaries")


def test_it_is_trained_on_and_evaluated(ovaries: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["train", "ovaries", "--data", str(ovaries), "-o", str(run), "--epochs", "4", "--batch", "4"]
    assert main([*words, "--warmup", "1", "--looks", "1", "--device", "cpu", "--no-bfloat16"]) == 0
    facts = json.loads((run / "run.json").read_text())
    assert facts["settings"]["learning_rate"] == preset("fast", dataset="ovaries").learning_rate == 1e-3
    assert facts["volumes"] == {"train": 2, "validation": 2, "test": 4}
    assert open_set(run / "data").sha256() == load_dataset("ovaries", ovaries).sha256()
    out = tmp_path / "evaluate"
    words = ["evaluate", "ovaries", "--data", str(ovaries), "-o", str(out), "--magnitudes", "2"]
    assert main([*words, "--methods", "identity", str(run / "model.safetensors"), "--device", "cpu"]) == 0
    assert len(list(out.glob("*.csv"))) == 4  # two methods, two protocols
    assert len(list((out / "data").iterdir())) == 1


def test_what_it_reads_is_checked(ovaries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Ovaries, "read", lambda _, case: [LoadedVolume(case.name, np.zeros((8, 16, 16), np.uint8), None)]
    )
    with pytest.raises(ScopeRegError, match=r"uint8 of shape \(8, 16, 16\), not uint8 of \(8, 20, 20\)"):
        load_dataset("ovaries", ovaries)
    monkeypatch.setattr(Ovaries, "read", lambda *_: [])
    with pytest.raises(ScopeRegError, match="0 volumes were read of it, not 1"):
        load_dataset("ovaries", ovaries)


def test_an_anatomy_from_outside_makes_volumes_and_frames(ball: None, tmp_path: Path) -> None:
    patient = phantom.create("ball", seed=3)
    centre, corner = patient.volume.array[4, 16, 16], patient.volume.array[4, 4, 16]
    assert "ball" in phantom.names()
    assert patient.volume.array.shape == (8, 32, 32)
    assert float(centre) > float(corner) + 0.2
    assert patient.volume.labels is not None
    assert 0.7 < float((patient.volume.labels[4] == 1).float().sum()) / (math.pi * 7.5**2) < 1.5
    poses = sample_poses(2, 3, patient.shape, torch.Generator().manual_seed(0))
    assert patient.acquire(*poses).images.std(0).mean() > 0
    assert len(load_dataset("ball", count=2, frames=4)) == 2
    assert main(["data", "phantom", "ball", "-o", str(tmp_path), "--frames", "1", "--device", "cpu"]) == 0
    assert (tmp_path / "ball0000" / "volume.nii.gz").is_file()


def test_names_that_are_taken_or_no_words_are_refused() -> None:
    for name in ("camus", "echo", "worlds", "sweep", "two words", ""):
        wrong = type("Wrong", (Ovaries,), {"name": name})
        with pytest.raises(ScopeRegError, match="the name is"):
            register_dataset(wrong())
