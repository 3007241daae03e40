"""`scopereg train` as a user meets it: from a folder of files to a weights file, and what is said on the way."""

from __future__ import annotations

import json
import signal
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk
import torch

from scopereg.cli import main
from scopereg.networks.weights import load_network, read_facts
from scopereg.training import fitting
from scopereg.training.presets import PRESETS
from scopereg.training.settings import TrainSettings, from_plain

SHAPE = (8, 32, 32)
QUICK = ["--epochs", "2", "--batch", "2", "--frames-per-volume", "2", "--validate-every", "2", "--device", "cpu"]
QUICK += ["--warmup", "1"]


def write_volume(path: Path, seed: int, shape: tuple[int, int, int] = SHAPE) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    array = np.random.default_rng(seed).integers(0, 255, shape).astype(np.uint8)
    sitk.WriteImage(sitk.GetImageFromArray(array), str(path))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder for each of five patients."""
    for patient in range(5):
        write_volume(tmp_path / "tree" / f"patient{patient}" / "volume.nii.gz", patient)
    return tmp_path / "tree"


def train(tree: Path, output: Path, *words: str) -> int:
    return main(["train", "folder", "--data", str(tree), "-o", str(output), *QUICK, *words])


def test_from_files_to_weights(tree: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "out"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert train(tree, output, "--test") == 0
    assert [str(w.message) for w in caught if "lightning" in w.filename] == []
    said = capfd.readouterr()
    lines = said.err.splitlines()
    assert all(line.startswith(("reading volumes: 5 of 5", "step ", "forecast: ")) for line in lines), lines
    assert f'load_network("{output / "model.safetensors"}")' in said.out
    for part in ("validation", "test"):
        assert said.out.count(f"  {part} ") == 2, said.out
    content = json.loads((output / "run.json").read_text())
    assert content["finished"]
    assert content["volumes"] == {"train": 3, "validation": 1, "test": 1}
    assert from_plain(content["settings"]) == replace(
        TrainSettings(), epochs=2, batch=2, frames_per_volume=2, validate_every=2, warmup=1, test=True
    )
    found = load_network(output / "model.safetensors")(torch.rand(1, *SHAPE[1:]), torch.rand(1, *SHAPE))
    assert found.rotation.shape == (1, 3, 3)
    assert {path.name for path in output.iterdir()} == {"model.safetensors", "last.ckpt", "run.json", "log", "data"}
    (tmp_path / "usual").touch()
    modes = {path.stat().st_mode for path in (output / "model.safetensors", output / "last.ckpt", tmp_path / "usual")}
    assert len(modes) == 1

    assert train(tree, output, "--test") == 0
    assert "finished before" in capfd.readouterr().out
    assert train(tree, output, "--test", "--seed", "1") == 2
    assert "seed (0 there)" in capfd.readouterr().err


def test_an_interrupted_run_says_how_to_go_on_and_does(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from scopereg.training.loop import Loop

    output, step = tmp_path / "out", Loop._step

    def asked_to_stop(loop: Loop) -> None:
        step(loop)
        if loop.state.step == 3:
            loop.stop.signal = signal.SIGINT

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_step", asked_to_stop)
        patch.setattr("sys.argv", ["/somewhere/scopereg", "train", "folder"])
        assert train(tree, output, "--epochs", "4") == 130
    said = capsys.readouterr().out
    assert "the last checkpoint is kept" in said
    assert "scopereg train folder" in said
    assert train(tree, output, "--epochs", "4") == 0
    rows = (output / "log" / "metrics.csv").read_text().splitlines()
    assert [row.split(",")[-1] for row in rows] == ["step", "2", "4", "6"]


def test_an_interruption_before_the_first_checkpoint(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fitting, "train", interrupt)
    assert train(tree, tmp_path / "out") == 130
    assert "no checkpoint yet" in capsys.readouterr().out


def test_phantoms_under_the_preset_of_the_paper(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "train.yaml"
    config.write_text("preset: paper\ncount: 5\nframes: 4\nshape: [8, 32, 32]\nepochs: 2\n")
    output = tmp_path / "out"
    assert main(["train", "echo", f"--config={config}", "-o", str(output), "--device", "cpu"]) == 0
    assert (output / "data" / "manifest.json").exists()
    settings = read_facts(output / "model.safetensors")["settings"]
    assert from_plain(settings) == replace(PRESETS["paper"], epochs=2)
    words = ["train", "echo", f"--config={config}", "-o", str(output), "--count", "6"]
    assert main(words) == 2
    assert "count (5 there)" in capsys.readouterr().err


def test_mixed_shapes_are_named_and_can_be_mended(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_volume(tree / "odd" / "volume.nii.gz", 9, (8, 48, 32))
    assert train(tree, tmp_path / "out") == 2
    said = capsys.readouterr().err
    assert "odd/volume (8 x 48 x 32)" in said
    assert "--shape 8 32 32" in said
    assert train(tree, tmp_path / "out", "--shape", "8", "32", "32") == 0


def test_a_corrupt_file_is_named_or_left_out(tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tree / "patient3" / "volume.nii.gz"
    bad.write_bytes(bad.read_bytes()[:200])
    assert train(tree, tmp_path / "out") == 2
    assert str(bad) in capsys.readouterr().err
    assert train(tree, tmp_path / "out", "--skip-bad") == 0
    assert "left out 1: patient3/volume" in capsys.readouterr().err
    assert "patient3/volume" in json.loads((tmp_path / "out" / "run.json").read_text())["data"]["skipped"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["folder", "--data", "nowhere"], "there is no such folder"),
        (["camus"], "creatis.insa-lyon.fr"),
        (["muregpro"], "muregpro.github.io"),
        (["--count", "0"], "--count"),
        (["--frames", "2"], "ask for 4 or more"),
        (["--passes", "2"], "add --frames 0"),
        (["--devices", "0"], "--devices"),
        (["--nodes", "-1"], "--nodes"),
    ],
)
def test_what_cannot_work_is_refused_at_once(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *words, "-o", str(tmp_path), "--device", "cpu"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "To fix it" in error
