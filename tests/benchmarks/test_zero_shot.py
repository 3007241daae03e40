"""The zero-shot table: rows that are right, and that are not measured twice."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import development_sets
import numpy as np
import pytest
import SimpleITK as sitk
import torch
import zero_shot
from learning_curves import draw_curves, read_curves
from quick_sets import Case, append_curve
from zero_shot_table import markdown

from scopereg.errors import ScopeRegError
from scopereg.geometry import sample_poses, sample_slice
from scopereg.registration.refine import PreparedRefinement
from scopereg.registration.result import RegistrationError

SHARED = Path(__file__).parents[3] / "shared" / "data"
SHAPE = (16, 24, 24)


def small_cases(data: Path, magnitude: float, seed: int) -> Iterator[Case]:
    """Five blurred volumes, two frames each, cut out as they are."""
    generator = torch.Generator().manual_seed(seed)
    for number in range(5):
        grey = torch.nn.functional.interpolate(torch.rand(1, 1, 5, 7, 7, generator=generator), SHAPE, mode="trilinear")
        volume = development_sets.as_bytes(grey[0, 0])
        poses = sample_poses(2, 2.0, SHAPE, generator)
        frames = sample_slice(volume.float() / 255, *poses, padding="reflection")
        yield Case(f"case{number}", f"patient{number}", volume, development_sets.as_bytes(frames), *poses)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that runs the benchmark on one small set and gives the rows of its table."""
    monkeypatch.setitem(development_sets.SETS, "liver", small_cases)
    monkeypatch.setitem(development_sets.SPACING_MM, "liver", 0.5)
    table = tmp_path / "table.csv"
    usual = ["--sets", "liver", "--out", str(tmp_path / "out"), "--table", str(table), "--magnitudes", "2"]

    def work(*words: str) -> list[dict[str, str]]:
        monkeypatch.setattr(sys, "argv", ["zero_shot.py", *usual, *words])
        zero_shot.main()
        with table.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    return work


def test_rows_tell_the_errors_of_a_method(run: Any) -> None:
    nothing, refined = run("--methods", "identity", "identity+refine", "--frames", "6")
    assert (nothing["frames"], nothing["patients"], nothing["magnitude"]) == ("6", "3", "2")
    assert float(nothing["mean_mm"]) == float(nothing["start_mm"]) > 0.5
    assert float(refined["mean_mm"]) < 0.3 * float(refined["start_mm"])
    assert float(refined["mean_low_mm"]) <= float(refined["mean_mm"]) <= float(refined["mean_high_mm"])
    assert float(refined["within_3_mm"]) == 1
    assert refined["weights_sha256"] == ""


def test_nothing_is_measured_twice(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run("--methods", "identity", "--frames", "4")
    asked: list[str] = []
    measured = zero_shot.located_rows

    def counted(case: Case, *rest: Any) -> Any:
        asked.append(case.name)
        return measured(case, *rest)

    monkeypatch.setattr(zero_shot, "located_rows", counted)
    assert run("--methods", "identity", "--frames", "4") == first
    (tmp_path / "table.csv").unlink()
    assert run("--methods", "identity", "--frames", "4") == first
    assert asked == []
    more = run("--methods", "identity", "--frames", "8")
    assert len(asked) == 2
    assert more[0]["frames"] == "8"
    run("--methods", "identity", "--frames", "8", "--again")
    assert len(asked) == 6


def test_a_frame_that_cannot_be_located_counts_as_it_lies(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(prepared: PreparedRefinement, frames: Any, starts: Any) -> Any:
        return [RegistrationError("lost", where="here", fix="none") for _ in frames]

    monkeypatch.setattr(PreparedRefinement, "locate", refuse)
    (row,) = run("--methods", "identity+refine", "--frames", "4")
    assert row["mean_mm"] == row["start_mm"]


def test_weights_have_names() -> None:
    assert zero_shot.network_of("universal:wide+refine") == "universal"
    assert zero_shot.network_of("simpleitk-mi") == ""
    with pytest.raises(ScopeRegError, match="no weights"):
        zero_shot.weights_of("universal=nowhere.safetensors")


def test_quick_appends_to_the_curve(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zero_shot, "QUICK_MAGNITUDE", 2.0)
    (tmp_path / "table.csv").write_text("set\n")
    curve = tmp_path / "curve.csv"
    run("--quick", "--methods", "universal", "--curve", str(curve))
    points = read_curves(curve)
    assert list(points) == ["liver"]
    assert points["liver"][0][0] == pytest.approx(66.7, abs=0.1)
    assert (tmp_path / "table.csv").read_text() == "set\n"


def test_curves_are_drawn_in_the_order_of_their_minutes(tmp_path: Path) -> None:
    path = tmp_path / "curve.csv"
    for minutes, error in ((20.0, 2.0), (10.0, 4.0)):
        append_curve(path, {"liver": torch.full((3,), error)}, "universal", 100, minutes)
    append_curve(path, {"liver": torch.ones(3)}, "universal", 5, "")
    assert read_curves(path) == {"liver": [(10.0, 4.0), (20.0, 2.0)]}
    assert draw_curves(read_curves(path), tmp_path / "curve.png").stat().st_size > 5000


def test_the_page_shows_the_best_of_each_set_in_bold() -> None:
    numbers = {"start_mm": "8.1", "mean_low_mm": "1", "mean_high_mm": "2", "within_3_low": "0.8", "within_3_high": "1"}
    row = {"set": "liver", "magnitude": "10", "frames": "48", "patients": "5", "within_3_mm": "0.9", **numbers}
    rows = [
        {**row, "method": "echo", "mean_mm": "2.5", "ms": "100"},
        {**row, "method": "simpleitk-mi", "mean_mm": "1.5", "ms": "900"},
        {**row, "method": "echo", "mean_mm": "0.5", "ms": "100", "magnitude": "20"},
    ]
    head, _, liver, times = markdown(rows, "10").splitlines()
    assert head.index("simpleitk-mi") < head.index("echo")
    assert "48, 5 | 8.1 | **1.50** (1.0 to 2.0)<br>90 % (80 to 100) | 2.50 (1.0" in liver
    assert times.endswith("| 900 | 100 |")


def test_references_lie_where_a_volume_shows_something(tmp_path: Path) -> None:
    voxels = np.zeros((70, 90, 100), np.uint8)
    voxels[30:, 20:, 30:] = np.random.default_rng(0).integers(1, 255, (40, 70, 70))
    path = tmp_path / "scan.nii.gz"
    image = sitk.GetImageFromArray(voxels)
    image.SetSpacing([0.6] * 3)
    sitk.WriteImage(image, str(path))
    one, other = development_sets.cut_cases(path, "scan", 0.6, 10.0, 0, places=2)
    assert one.volume.shape == (32, 80, 96)
    assert one.frames.shape == (4, 80, 96)
    assert (one.name, other.name, one.patient, other.patient) == ("scana", "scanb", "scan", "scan")
    for case in (one, other):
        assert (case.volume > 0).float().mean() > 0.93 * (70 / 80) * (70 / 96) * 0.95
    assert list(development_sets.cut_cases(path, "scan", 1.2, 10.0, 0)) == []


def test_frames_of_real_uteri_show_them(tmp_path: Path) -> None:
    path = SHARED / "uterus" / "14_22.nii.gz"
    if not path.is_file():
        pytest.skip("the shared data are not beside the repository")
    (case,) = development_sets.cut_cases(path, "14_22", 0.6, 10.0, 0)
    assert case.volume.shape == (32, 96, 128)
    assert (case.volume > 0).float().mean() > 0.5
    assert ((case.frames > 0).float().mean((1, 2)) > 0.3).all()
