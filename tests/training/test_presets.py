"""Presets: whole, as published, one for every network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scopereg import networks
from scopereg.cli import parse
from scopereg.training.presets import FAST_MINUTES, PRESETS, preset, with_length
from scopereg.training.settings import TrainSettings

# As the paper tabulates them: optimiser, weight decay, learning rate, decay, batch, epochs.
TABLE = {
    ("fvr-net", "camus"): ("adam", 0.0, 1e-4, "steps", 16, 150),
    ("fvr-net", "muregpro"): ("adam", 0.0, 5e-5, "constant", 16, 1500),
    ("cu-reg", "camus"): ("adam", 0.0, 5e-5, "drop", 24, 500),
    ("cu-reg", "muregpro"): ("adam", 0.0, 5e-5, "constant", 24, 1500),
    ("eureg", "camus"): ("adam", 0.0, 1e-4, "polynomial", 6, 1000),
    ("eureg", "muregpro"): ("adam", 0.0, 1e-4, "polynomial", 6, 30000),
    ("dreamreg", "camus"): ("adamw", 0.01, 1e-4, "plateau", 64, 100),
    ("dreamreg", "muregpro"): ("adamw", 0.01, 1e-5, "plateau", 64, 100),
    ("scope-reg", "camus"): ("adamw", 0.01, 5e-5, "polynomial", 6, 500),
    ("cross-attention-heads", "camus"): ("adamw", 0.01, 1e-4, "polynomial", 6, 500),
    ("scope-reg", "muregpro"): ("adamw", 0.01, 5e-5, "polynomial", 6, 1500),
}


def test_the_paper_preset_is_as_published() -> None:
    paper = PRESETS["paper"]
    assert (paper.reach, paper.matching, paper.looks, paper.depth_stride) == (1.0, False, 1, 8)
    assert (paper.protocol, paper.batch, paper.learning_rate, paper.decay_power) == ("paper", 6, 5e-5, 0.9)
    assert (paper.loss, paper.augment, paper.average, paper.clip, paper.warmup) == ("squared", False, 0.0, 0.0, 0)


def test_each_preset_knows_its_name() -> None:
    assert {name: settings.preset for name, settings in PRESETS.items()} == {"fast": "fast", "paper": "paper"}


def test_the_fast_preset_is_what_nothing_asked_for_gives() -> None:
    assert PRESETS["fast"] == TrainSettings()


@pytest.mark.parametrize(("dataset", "epochs"), [("camus", 500), ("muregpro", 1500), ("folder", 500)])
def test_the_paper_preset_is_as_long_as_published(dataset: str, epochs: int) -> None:
    settings = with_length(PRESETS["paper"], dataset)
    assert (settings.epochs, settings.minutes) == (epochs, None)


def test_the_fast_preset_goes_by_the_clock() -> None:
    settings = with_length(TrainSettings(), "camus")
    assert (settings.epochs, settings.minutes) == (None, FAST_MINUTES)


@pytest.mark.parametrize("length", [{"minutes": 3.0}, {"epochs": 7}])
@pytest.mark.parametrize("preset", ["fast", "paper"])
def test_a_length_that_was_given_stays(preset: str, length: dict[str, Any]) -> None:
    settings = replace(PRESETS[preset], **length)
    assert with_length(settings, "camus") == settings


@pytest.mark.parametrize(("network", "dataset"), TABLE)
def test_every_method_of_the_tables_is_trained_as_published(network: str, dataset: str) -> None:
    found = with_length(preset("paper", network, dataset), dataset)
    row = (found.optimizer, found.weight_decay, found.learning_rate, found.decay, found.batch, found.epochs)
    assert row == TABLE[network, dataset]
    assert (found.network, found.augment, found.average, found.bfloat16) == (network, False, 0.0, False)


def test_dreamreg_gives_up_sooner_or_later_as_published() -> None:
    camus, prostate = (preset("paper", "dreamreg", name) for name in ("camus", "muregpro"))
    assert (camus.plateau_factor, camus.plateau_patience) == (0.5, 1)
    assert (prostate.plateau_factor, prostate.plateau_patience) == (0.2, 2)


@pytest.mark.parametrize("network", networks.names())
@pytest.mark.parametrize("name", PRESETS)
def test_every_network_has_both_presets(name: str, network: str) -> None:
    found = preset(name, network)
    assert (found.preset, found.network) == (name, network)
    assert found.batch % found.frames_per_volume == 0


BASELINES = ("fvr-net", "cu-reg", "eureg", "dreamreg")  # whose loss and schedule are published


def test_cu_reg_always_sees_the_neighbours_that_it_needs() -> None:
    assert {preset(name, "cu-reg").frames_per_volume for name in PRESETS} == {4}


def test_the_fast_preset_keeps_what_belongs_to_a_method_and_shares_the_rest() -> None:
    with_a_loss_of_their_own = [name for name in networks.names() if networks.recipe(name).objective is not None]
    assert with_a_loss_of_their_own == ["fine-stage", *BASELINES]
    for network in BASELINES:
        fast, paper = preset("fast", network), preset("paper", network)
        own = ("optimizer", "learning_rate", "decay", "batch", "weight_decay", "warmup", "clip")
        assert [getattr(fast, key) for key in own] == [getattr(paper, key) for key in own]
        shared = ("protocol", "augment", "average", "bfloat16", "capture")
        assert [getattr(fast, key) for key in shared] == [getattr(TrainSettings(), key) for key in shared]


def test_the_command_line_takes_the_preset_of_the_network() -> None:
    assert parse("train", ["camus", "--network", "eureg", "--preset", "paper"]).settings() == preset("paper", "eureg")
    assert parse("train", ["muregpro", "--network", "fvr-net"]).settings() == preset("fast", "fvr-net", "muregpro")
    assert parse("train", ["echo", "--network", "eureg", "--batch", "4"]).settings() == replace(
        preset("fast", "eureg"), batch=4
    )


@pytest.mark.parametrize("words", [["--data", "muregpro"], ["--data=muregpro"], ["-o", "muregpro"]])
def test_a_folder_may_be_called_like_a_dataset(words: list[str]) -> None:
    """The network has a learning rate of its own for the dataset muregpro, not for folders of that name."""
    options = parse("train", ["folder", *words, "--network", "fvr-net"])
    assert options.dataset == "folder"
    assert options.settings() == preset("fast", "fvr-net", "folder")


def test_a_file_of_options_chooses_the_preset_too(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("dataset: muregpro\nnetwork: fvr-net\n")
    words = ["--config", str(tmp_path / "run.yaml")]
    assert parse("train", words).settings() == preset("fast", "fvr-net", "muregpro")
    assert parse("train", [*words, "--network", "dreamreg"]).settings() == preset("fast", "dreamreg", "muregpro")
    (tmp_path / "run.yaml").write_text("data: muregpro\nnetwork: fvr-net\n")
    assert parse("train", words).settings() == preset("fast", "fvr-net", "echo")


def test_worlds_have_a_preset_of_their_own() -> None:
    assert parse("train", ["worlds"]).settings() == preset("fast", dataset="worlds")
    assert parse("train", ["worlds", "--magnitude", "10"]).settings().norm == "instance"
