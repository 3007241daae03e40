"""The demo does its job end to end: it registers, says how well, and leaves a report that stands alone."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from scopereg.cli import main
from scopereg.commands.demo import DemoOptions, make_sweep, score
from scopereg.geometry import Pose
from scopereg.images import pose_from_voxels
from scopereg.registration.classical import centre_pose
from scopereg.registration.result import Result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo")
    assert main(["demo", "--frames", "4", "-o", str(path)]) == 0
    return path


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "frames.csv").open() as file:
        return list(csv.DictReader(file))


def test_registration_improves_every_file_agrees(folder: Path) -> None:
    table = rows(folder)
    result = json.loads((folder / "result.json").read_text())
    assert len(table) == len(result["frames"]) == 2 * 4
    for method in ("network", "SimpleITK"):
        own = [row for row in table if row["method"] == method]
        start, error = (np.mean([float(row[key]) for row in own]) for key in ("start_mm", "error_mm"))
        assert len(own) == 4
        assert error < 0.6 * start
    assert [f["error_mm"] for f in result["frames"]] == [float(row["error_mm"]) for row in table]
    for frame in result["frames"]:
        Pose.from_matrix(frame["image_to_volume"])  # rigid, or this raises


def test_outputs_say_how_they_were_made(folder: Path) -> None:
    facts = json.loads((folder / "result.json").read_text())["made_with"]
    assert facts["seed"] == 100_000
    assert len(facts["data_sha256"]) == 64
    assert facts["versions"]["torch"]


def test_the_report_stands_alone(folder: Path) -> None:
    page = (folder / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 4 * (5 + 1) + 3  # and each in the volume; its walls once
    assert page.count("<use href='#walls'/>") == 4
    assert "<svg" in page
    assert "src='http" not in page
    assert not [p.name for p in folder.iterdir() if p.name.startswith(".")]


def test_the_score_is_zero_at_the_truth_and_the_start_at_the_centre() -> None:
    sweep = make_sweep(DemoOptions(frames=2))
    frame, volume = sweep.frames[1], sweep.volume
    truth = pose_from_voxels(sweep.truth.rotation[1], sweep.truth.translation[1], frame, volume)
    exact = score(sweep, 1, Result(truth, "truth", 1.0, 0.0), "truth")
    assert exact.error_mm < 1e-3
    assert exact.error_deg < 1e-3
    assert exact.ok
    still = score(sweep, 1, Result(centre_pose(frame, volume), "none", 1.0, 0.0), "none")
    assert still.error_mm == pytest.approx(still.start_mm)


def test_one_seed_gives_one_sweep_and_another_gives_another() -> None:
    first, second, other = (make_sweep(DemoOptions(frames=2, seed=seed)) for seed in (1, 1, 2))
    assert first.frames[1].array.equal(second.frames[1].array)
    assert not first.frames[1].array.equal(other.frames[1].array)


def test_bad_options_are_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--frames", "0", "-o", str(tmp_path)]) == 2
    assert main(["demo", "--magnitude", "1e6", "-o", str(tmp_path)]) == 2
    assert main(["demo", "--seed", "-1", "-o", str(tmp_path)]) == 2
    assert main(["demo", "--model", "heart", "-o", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.count("To fix it") == 4
    assert not list(tmp_path.iterdir())
