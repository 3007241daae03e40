"""Preparing a dataset: the same set however it is made, left alone when finished, and options that are explained."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from camus_trees import FRAMES, SIZE, content, plan

from scopereg.cli import main
from scopereg.data.builder import build_set
from scopereg.data.camus import load_camus
from scopereg.data.datasets import load_dataset
from scopereg.data.poses import MAGNITUDES, evaluation_poses, read_poses
from scopereg.data.splits import split_patients, split_set
from scopereg.data.store import open_set
from scopereg.errors import ScopeRegError


def test_it_is_the_set_that_the_loader_gives(tree: Path, whole: Path) -> None:
    volumes, loaded = open_set(whole), load_camus(tree, size=SIZE, frames=FRAMES)
    assert volumes.sha256() == loaded.sha256()
    assert (volumes.cases, volumes.patients, volumes.margin) == (loaded.cases, loaded.patients, loaded.margin)
    assert volumes.labels is not None
    assert set(volumes.labels.unique().tolist()) == {0, 1, 2, 3}
    assert volumes.facts["sources_sha256"] == loaded.facts["sources_sha256"]
    assert volumes.facts["parameters"]["size"] == SIZE
    assert sorted(path.name for path in whole.iterdir()) == [
        "images.npy",
        "labels.npy",
        "manifest.json",
        "poses.npz",
        "splits.json",
    ]
    assert str(tree) not in (whole / "manifest.json").read_text()


def test_folds_and_poses_are_those_of_the_protocol(whole: Path) -> None:
    volumes = open_set(whole)
    folds = json.loads((whole / "splits.json").read_text())["folds"]
    assert len(folds) == 5
    for number, fold in enumerate(folds):
        split = split_set(volumes, number, seed=number)  # stored folds are those of any seed
        assert split == split_patients(volumes.patients, fold=number)
        assert (fold["sha256"], fold["rule"]) == (split.sha256(volumes.patients), split.rule)
        assert sorted(fold["train"] + fold["validation"] + fold["test"]) == sorted(volumes.patients)
    facts = volumes.facts["evaluation_poses"]
    for magnitude in MAGNITUDES[:1]:
        expected = evaluation_poses(volumes.cases, volumes.shape, magnitude)
        stored = read_poses(whole / facts["file"], facts, magnitude, len(volumes))
        assert torch.equal(stored.rotation, expected.rotation)
        assert torch.equal(stored.translation, expected.translation)


def test_a_set_goes_by_the_name_it_is_given_and_opens_as_what_it_is(tree: Path, tmp_path: Path) -> None:
    words = ["data", "prepare", "camus", str(tree), "-o", str(tmp_path / "set"), "--size", str(SIZE)]
    assert main([*words, "--frames", str(FRAMES), "--name", "CAMUS-M", "--workers", "1"]) == 0
    assert open_set(tmp_path / "set").name == "CAMUS-M"
    assert load_dataset("camus", tmp_path / "set").name == "CAMUS-M"
    with pytest.raises(ScopeRegError, match="name the dataset camus"):
        load_dataset("muregpro", tmp_path / "set")


def test_several_processes_make_the_same_bytes(tree: Path, whole: Path, tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    build_set(plan(tree), tmp_path, workers=2, progress=lambda *at: steps.append(at))
    assert content(tmp_path) == content(whole)
    assert steps == [(k, 6) for k in range(1, 7)]


def test_a_finished_set_is_left_alone(tree: Path, whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    times = {path.name: path.stat().st_mtime_ns for path in whole.iterdir()}
    words = ["data", "prepare", "camus", str(tree), "-o", str(whole), "--size", str(SIZE), "--frames", str(FRAMES)]
    assert main([*words, "--workers", "1"]) == 0
    assert "was prepared before" in capsys.readouterr().out
    assert {path.name: path.stat().st_mtime_ns for path in whole.iterdir()} == times


def test_a_full_disk_is_told_before_any_work(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scopereg.data.rows.shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(ScopeRegError, match="GiB are free"):
        build_set(plan(tree), tmp_path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["camus"], "https://www.creatis.insa-lyon.fr/Challenge/camus/"),
        (["folder"], "pass the folder with your volumes: PATH"),
        (["camus", "{tree}", "--probe", "low"], "camus has no use for it"),
        (["muregpro", "{tree}", "--size", "64"], "muregpro has no use for it"),
        (["camus", "{tree}", "--workers", "0"], "--workers: 0"),
        (["camus", "{tree}", "--size", "100"], "multiple of 8"),
        (["camus", "{tree}", "--splits", "none.json"], "none.json: cannot be read"),
        (["muregpro", "{tree}"], "us_images"),
    ],
)
def test_wrong_words_are_explained(
    tree: Path, tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "prepare", *(word.format(tree=tree) for word in words), "-o", str(tmp_path / "set")]) == 2
    assert said in capsys.readouterr().err


def test_options_may_stand_in_a_file_in_any_order(tree: Path, tmp_path: Path) -> None:
    config = tmp_path / "prepare.yaml"
    config.write_text(f"output: {tmp_path / 'set'}\npath: {tree}\nsize: 16\nframes: 4\nworkers: 1\nlabels: false\n")
    assert main(["data", "prepare", "--config", str(config)]) == 0
    assert open_set(tmp_path / "set").labels is None
