"""Plans: what they become, what they are called, and what is wrong with them, before any work starts."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scopereg.errors import ScopeRegError
from scopereg.grid.plan import Plan, changes, expand
from scopereg.grid.reading import read_plan, shipped
from scopereg.options import field_help
from scopereg.training.presets import FAST_MINUTES, preset
from scopereg.training.settings import TrainSettings

Write = Callable[..., Path]
ROOT = Path(__file__).parents[2]


# expansion


def test_a_network_is_trained_at_every_point_and_other_methods_are_only_tested(write_plan: Write) -> None:
    path = write_plan(folds=[0, 1], magnitudes=[3, 4.5], protocols=["paper", "honest"], resolutions=[24, 32])
    runs = expand(read_plan(path))
    assert len(runs) == 2 * 2 * 2 * (2 + 1)
    assert len({run.name for run in runs}) == len(runs)
    assert [run.name for run in runs[:4]] == [
        "identity-fold0-pm3-24",
        "scope-reg-paper-fold0-pm3-24",
        "scope-reg-honest-fold0-pm3-24",
        "identity-fold1-pm3-24",
    ]
    assert runs[-1].name == "scope-reg-honest-fold1-pm4.5-32"
    assert all((run.settings is None) == (run.method == "identity") for run in runs)


def test_settings_are_those_of_the_preset_for_the_network_but_for_what_the_plan_says(write_plan: Write) -> None:
    path = write_plan(methods={"eureg": {"batch": 2}}, folds=[3], seed=5, protocols=["honest"])
    (run,) = expand(read_plan(path))
    same = {"fold": 3, "seed": 5, "magnitude": 3.0, "protocol": "honest", "epochs": 1}
    assert run.settings == replace(preset("fast", "eureg", "folder"), batch=2, **same)
    assert run.settings.learning_rate == 1e-4  # of eureg


def test_two_variants_of_one_network_differ(write_plan: Write) -> None:
    path = write_plan(
        methods={"one": {"network": "scope-reg", "looks": 1}, "two": {"network": "scope-reg", "looks": 2}}
    )
    one, two = expand(read_plan(path))
    assert (one.settings.network, two.settings.network) == ("scope-reg", "scope-reg")
    assert (one.settings.looks, two.settings.looks) == (1, 2)
    assert (one.name, two.name) == ("one-paper-fold0-pm3", "two-paper-fold0-pm3")


def test_how_long_the_method_wins_over_the_plan_and_the_plan_over_the_preset(write_plan: Write) -> None:
    methods = {"scope-reg": None, "longer": {"network": "scope-reg", "epochs": 7}}
    plain, longer = expand(read_plan(write_plan(methods=methods, epochs=None, minutes=2)))
    assert (plain.settings.minutes, plain.settings.epochs) == (2.0, None)
    assert (longer.settings.minutes, longer.settings.epochs) == (None, 7)
    (usual, _) = expand(read_plan(write_plan(methods=methods, epochs=None)))
    assert usual.settings.minutes == FAST_MINUTES
    (paper,) = expand(read_plan(write_plan(methods=["fvr-net"], epochs=None, preset="paper", dataset="muregpro")))
    assert paper.settings.epochs == 1500


def test_what_a_run_is_tested_under(write_plan: Write) -> None:
    protocols = ["paper", "honest"]
    identity, paper, honest = expand(read_plan(write_plan(protocols=protocols)))
    assert (identity.tested_under, paper.tested_under) == (("paper", "honest"), ("paper",))
    assert honest.tested_under == ("honest",)
    _, paper, honest = expand(read_plan(write_plan(protocols=protocols, test_protocols=protocols)))
    assert paper.tested_under == honest.tested_under == ("paper", "honest")
    assert paper.named_under("paper") == "scope-reg"
    assert paper.named_under("honest") == "scope-reg (trained for paper)"


def test_phantoms_tell_how_many_there_are(write_plan: Write) -> None:
    identity, _ = expand(read_plan(write_plan(dataset="echo", count=12, frames=4)))
    assert identity.phantoms == {"count": 12, "frames": 4}


# what has changed


def test_a_definition_changes_with_its_settings_but_not_with_what_it_is_tested_under(write_plan: Write) -> None:
    _, run = expand(read_plan(write_plan()))
    assert changes(run.definition(), replace(run, tested_under=("honest",)).definition()) == []
    other = replace(run, settings=replace(run.settings, batch=8), cases=1)
    assert changes(run.definition(), other.definition()) == [
        "cases (None there, 1 here)",
        "batch (4 there, 8 here)",
    ]


def test_a_setting_that_came_later_is_no_change_while_it_has_its_default(write_plan: Write) -> None:
    _, run = expand(read_plan(write_plan()))
    before = run.definition()
    del before["settings"]["passes"]
    assert changes(before, run.definition()) == []
    assert changes(before, replace(run, settings=replace(run.settings, passes=2)).definition())


# reading


def test_words_of_the_command_line_win_over_the_plan(write_plan: Write) -> None:
    plan = read_plan(write_plan(), ["epochs=", "minutes=2.5", "folds=[0, 2]", "test-protocols=honest"])
    assert (plan.epochs, plan.minutes, plan.folds, plan.test_protocols) == (None, 2.5, (0, 2), ("honest",))


def test_a_small_number_in_scientific_notation_is_a_number(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("methods: {scope-reg: {learning-rate: 5e-5}}")
    (run,) = expand(read_plan(path))
    assert run.settings.learning_rate == 5e-5
    assert read_plan(path).name == "plan"


@pytest.mark.parametrize(
    ("values", "where", "said"),
    [
        ({"fold": [0]}, "", "unknown key 'fold', did you mean 'folds'"),
        ({"methods": None}, "methods", "nothing"),
        ({"methods": {}}, "methods", "there are none"),
        ({"methods": [{"identity": None}]}, "methods", "not a name"),
        ({"methods": ["identty"]}, "methods.identty", "did you mean 'identity'"),
        ({"methods": ["identity", "Identity"]}, "methods", "stands twice"),
        ({"methods": {"a": {"network": "scope-rg"}}}, "methods.a", "did you mean 'scope-reg'"),
        ({"methods": {"a": {"method": "simpleitk"}}}, "methods.a", "did you mean 'simpleitk-"),
        ({"methods": {"identity": {"batch": 2}}}, "methods.identity", "unknown key 'batch'"),
        ({"methods": {"scope-reg": {"lokos": 2}}}, "methods.scope-reg", "did you mean 'looks'"),
        ({"methods": {"scope-reg": {"fold": 2}}}, "methods.scope-reg", "unknown key 'fold'"),
        ({"methods": {"scope-reg": {"looks": "two"}}}, "methods.scope-reg.looks", "'two'"),
        ({"methods": {"scope-reg": {"looks": 0}}}, "methods.scope-reg.looks", "looks is 0"),
        ({"methods": {"scope-reg": {"loss": "distanc"}}}, "methods.scope-reg.loss", "did you mean 'distance'"),
        ({"methods": {"a/b": {"network": "eureg"}}}, "methods.a/b", "name"),
        ({"methods": {"scope-reg": None, "scope-reg-paper": {"method": "identity"}}}, "methods", "two runs would be"),
        ({"protocols": ["papr"]}, "protocols", "did you mean 'paper'"),
        ({"protocols": []}, "protocols", "empty"),
        ({"folds": [0, 0]}, "folds", "0 stands twice"),
        ({"folds": [-1]}, "folds", "-1"),
        ({"folds": [True]}, "folds", "True"),
        ({"magnitudes": ["ten"]}, "magnitudes", "'ten'"),
        ({"magnitudes": [0]}, "methods.scope-reg.magnitude", "magnitude is 0"),
        ({"resolutions": [4]}, "resolutions", "4"),
        ({"dataset": "camsu"}, "dataset", "did you mean 'camus'"),
        ({"preset": "slow"}, "preset", "'slow'"),
        ({"minutes": 3}, "", "both minutes and epochs"),
        ({"epochs": 1.5}, "epochs", "1.5"),
    ],
)  # fmt: skip
def test_bad_plans_are_explained(write_plan: Write, values: dict[str, Any], where: str, said: str) -> None:
    path = write_plan(**values)
    with pytest.raises(ScopeRegError, match=re.escape(said)) as caught:
        read_plan(path)
    assert caught.value.where == (f"{path}: {where}" if where else str(path))
    assert caught.value.fix


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds nothing"),
        ("- a", "holds a list"),
        ("a: b: c", "not valid YAML"),
        ("methods: {identity: {}}\nmethods: {eureg: {}}", "'methods' stands twice"),
        ("methods:\n  identity: {}\n  identity: {}", "'identity' stands twice"),
        ("methods: {identity: 3}", "holds a int"),
    ],
)
def test_bad_files_are_explained(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ScopeRegError, match=said) as caught:
        read_plan(path)
    assert caught.value.where.startswith(str(path))


def test_files_and_plans_that_there_are_none_of(tmp_path: Path) -> None:
    with pytest.raises(ScopeRegError, match="cannot be read"):
        read_plan(tmp_path / "none.yaml")
    with pytest.raises(ScopeRegError, match="did you mean 'main-table'"):
        read_plan("main-tabel")
    with pytest.raises(ScopeRegError, match="has no value"):
        read_plan("main-table", ["minutes"])
    with pytest.raises(ScopeRegError, match="did you mean 'minutes'"):
        read_plan("main-table", ["minute=3"])


# the plans of the package

PLANS = {"main-table", "main-table-muregpro", "capture-range", "resolution", "ablation"}


def test_the_plans_of_the_package() -> None:
    assert set(shipped()) == PLANS
    plans = {name: read_plan(name) for name in shipped()}
    assert all(plan.name == name and plan.folds == (0, 1, 2, 3, 4) for name, plan in plans.items())
    main = {"identity", "simpleitk-mi", "simpleitk-ncc", "elastix", "fvr-net", "cu-reg", "eureg", "dreamreg"}
    assert plans["main-table"].methods.keys() == main | {"scope-reg", "scope-reg-3"}
    assert plans["main-table-muregpro"].methods == plans["main-table"].methods
    assert {name for name, plan in plans.items() if plan.dataset == "muregpro"} == {"main-table-muregpro"}
    assert plans["capture-range"].magnitudes == (10, 15, 20, 25)
    assert plans["resolution"].resolutions == (128, 192, 384, 512)
    heads = {"cross-attention-heads", "ssvf-heads", "cwcd-heads", "cwcd-kabsch", "scope-reg"}
    supplement = {"tri-plane", "scope-reg+phy", "scope-reg+flow", "scope-reg+phy+flow"}
    assert plans["ablation"].methods.keys() == heads | supplement | {"identity"}


@pytest.mark.parametrize("name", sorted(PLANS))
def test_scope_reg_stands_there_as_published(name: str) -> None:
    found = [run.settings for run in expand(read_plan(name)) if run.method == "scope-reg"]
    assert found
    assert {(each.looks, each.matching, each.reach, each.depth_stride) for each in found} == {(1, False, 1.0, 8)}
    others = [run.settings for run in expand(read_plan(name)) if run.method == "scope-reg-3"]
    assert {each.looks for each in others} <= {TrainSettings().looks}


def test_the_regularisers_of_the_ablation_are_on() -> None:
    runs = {run.method: run.settings for run in expand(read_plan("ablation"))}
    weights = {name: (runs[name].elasticity, runs[name].flow) for name in runs if name.startswith("scope-reg")}
    assert weights == {
        "scope-reg": (0, 0),
        "scope-reg+phy": (1, 0),
        "scope-reg+flow": (0, 1),
        "scope-reg+phy+flow": (1, 1),
    }


def test_the_page_lists_every_key_of_a_plan() -> None:
    _, _, section = (ROOT / "docs" / "grid.md").read_text().partition("## A plan of your own")
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|$", section, re.MULTILINE)
    assert dict(rows) == field_help(Plan)


def test_the_plan_on_the_page_is_one(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "grid.md").read_text(), re.DOTALL)
    (tmp_path / "page.yaml").write_text(text)
    runs = expand(read_plan(tmp_path / "page.yaml"))
    assert len(runs) == 2 * (2 + 3 * 2)
    assert {run.settings.minutes for run in runs if run.settings is not None} == {5.0}
