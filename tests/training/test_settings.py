"""Settings: wrong values are named, presets are whole, and JSON keeps them."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from scopereg.errors import ScopeRegError
from scopereg.training.settings import (
    FAST_MINUTES,
    PRESETS,
    TrainSettings,
    differences,
    from_plain,
    plain,
    with_length,
)

NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch", 0),
        ("frames_per_volume", 0),
        ("frames_per_volume", 3),
        ("validate_every", 0),
        ("learning_rate", 0.0),
        ("learning_rate", NAN),
        ("magnitude", -1.0),
        ("magnitude", INFINITE),
        ("lever_voxels", 0.0),
        ("reach", 0.0),
        ("warmup", -1),
        ("clip", -1.0),
        ("clip", NAN),
        ("weight_decay", -0.1),
        ("decay_power", -1.0),
        ("coordinates", -1.0),
        ("flow", INFINITE),
        ("elasticity", NAN),
        ("average", 1.0),
        ("average", -0.1),
        ("passes", 3),
        ("passes", 0),
        ("minutes", 0.0),
        ("minutes", INFINITE),
        ("epochs", 0),
        ("preset", "slow"),
        ("norm", "group"),
        ("depth_stride", 2),
        ("protocol", "hones"),
        ("loss", "absolute"),
    ],
)
def test_a_wrong_value_is_named_with_its_option(name: str, value: Any) -> None:
    with pytest.raises(ScopeRegError) as error:
        TrainSettings(**{name: value})
    assert f"{name} is {value}" in error.value.what
    assert error.value.where == f"train({name})"


def test_minutes_and_epochs_exclude_each_other() -> None:
    with pytest.raises(ScopeRegError, match="both minutes and epochs"):
        TrainSettings(minutes=1.0, epochs=1)


def test_the_paper_preset_is_as_published() -> None:
    paper = PRESETS["paper"]
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


@pytest.mark.parametrize(
    "settings", [TrainSettings(), PRESETS["paper"], TrainSettings(start=Path("a/b.safetensors"), epochs=3, seed=7)]
)
def test_settings_come_back_from_json_as_they_were(settings: TrainSettings) -> None:
    assert from_plain(json.loads(json.dumps(plain(settings)))) == settings


def test_settings_of_a_version_that_knew_others_are_refused_in_words() -> None:
    with pytest.raises(ScopeRegError, match="momentum"):
        from_plain({**plain(TrainSettings()), "momentum": 0.9})


def test_differences_are_the_names_of_what_differs() -> None:
    one = TrainSettings(seed=1, epochs=2)
    assert differences(one, one) == []
    assert differences(one, replace(one, seed=2, batch=8)) == ["batch", "seed"]


def test_every_setting_tells_what_it_is_for() -> None:
    """The command line shows these texts: a setting without one would be a riddle."""
    source = Path(__import__(TrainSettings.__module__, fromlist=["x"]).__file__).read_text(encoding="utf-8")
    for field in fields(TrainSettings):
        line = next(k for k, text in enumerate(source.splitlines()) if text.startswith(f"    {field.name}: "))
        assert source.splitlines()[line + 1].strip().startswith('"""'), field.name
