"""Settings: wrong values are named, and JSON keeps them."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from scopereg.errors import ScopeRegError
from scopereg.training.presets import PRESETS
from scopereg.training.settings import TrainSettings, differences, from_plain, plain

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
        ("looks", 0),
        ("optimizer", "sgd"),
        ("decay", "linear"),
        ("plateau_factor", 0.0),
        ("plateau_patience", -1),
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
