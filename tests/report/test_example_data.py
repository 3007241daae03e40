"""Images of results are found where they were read, and nothing that a results file says leads anywhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from scopereg.cli import main
from scopereg.evaluation.real_protocol import evaluate_sweep, sweep_case
from scopereg.evaluation.results import read_results
from scopereg.evaluation.runner import EvaluateSettings
from scopereg.evaluation.source import Source, source_of, told_facts
from scopereg.io.sweeps import TrackedSweep
from scopereg.registration.method import create
from scopereg.report import example_data


def test_frames_of_a_tracked_sweep_are_cut_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    y, x = torch.meshgrid(torch.arange(40.0), torch.arange(48.0), indexing="ij")
    frames = [0.5 + 0.3 * torch.sin(x / 5 + z / 4) * torch.cos(y / 6 - z / 7) for z in range(20)]
    poses = torch.eye(4, dtype=torch.float64).repeat(20, 1, 1)
    poses[:, 2, 3] = torch.arange(20)
    sweep = TrackedSweep("waves", torch.stack(frames), (1.0, 1.0), poses.numpy())
    file = tmp_path / "waves.npz"
    file.touch()
    case = sweep_case(sweep, 1.0, held_out=(2, 2))
    settings = EvaluateSettings("real", magnitude=3, frames=1)
    source = Source("sweep", str(file), spacing_mm=1.0, held_out=(2, 2))
    evaluate_sweep(case, create("identity"), settings, tmp_path / "results", source=source)
    monkeypatch.setattr(example_data, "read_sweep", lambda *_: sweep)
    assert main(["report", str(tmp_path / "results"), "-o", str(tmp_path / "a.html")]) == 0
    page = (tmp_path / "a.html").read_text()
    assert page.count("data:image/png;base64,") > 4 * 3
    file.unlink()
    assert main(["report", str(tmp_path / "results"), "-o", str(tmp_path / "b.html")]) == 0
    assert "waves.npz is not where the evaluation read it" in (tmp_path / "b.html").read_text()


def test_a_source_is_read_as_it_was_written(tmp_path: Path) -> None:
    source = Source("camus", "/data/camus", "data/camus-1", 96, True)
    assert source_of({"source": source.facts()}) == source
    assert source_of({}) == source_of({"source": {}}) == Source()
    assert source.kept_beside(tmp_path / "results.csv") == tmp_path / "data" / "camus-1"
    assert told_facts({"source": source.facts(), "seed": 1})["source"]["path"] == "camus"


@pytest.mark.parametrize(
    "told",
    [
        *("text", [1], {"path": 3}, {"size": True}, {"shape": [1, 2]}, {"held_out": [5, -1]}, {"spacing_mm": 1e9}),
        *({"path": "\\\\host\\share"}, {"path": "//host/share"}, {"calibration": "\\\\host\\a.xml"}, {"path": "a\x00"}),
    ],
)
def test_a_source_that_is_none_says_nothing(told: object) -> None:
    assert source_of({"source": told}) == Source()


@pytest.mark.parametrize("kept", ["", "../elsewhere", "data/../../x", "/etc", "C:/x", "a\\..\\b"])
def test_a_prepared_set_lies_below_the_results(kept: str, tmp_path: Path) -> None:
    assert Source(kept=kept).kept_beside(tmp_path / "results.csv") is None


def test_evaluations_tell_where_their_images_are(tmp_path: Path) -> None:
    words = ["--methods", "identity", "--protocols", "paper", "--count", "1", "-o", str(tmp_path)]
    assert main(["evaluate", "echo", *words]) == 0
    (path,) = tmp_path.glob("*.csv")
    assert source_of(read_results(path)[1]) == Source()  # phantoms are made again
    assert main(["report", str(path), "-o", str(tmp_path / "report.html")]) == 0
    assert (tmp_path / "report.html").read_text().count("data:image/png;base64,") >= 5
