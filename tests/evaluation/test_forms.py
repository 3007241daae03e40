"""The ways to run a network: one pose from all of them, what each is called, counted and drawn as."""

from __future__ import annotations

import pytest
import torch

from scopereg.evaluation.forms import METHODS, Form, Setting, forms_of, gflops_of, make_runner
from scopereg.evaluation.speed_plot import look_of

CPU = torch.device("cpu")
SCOPE_REG = ["as published", "forward", "whole", "streaming"]
ARMS = ["cross-attention-heads", "ssvf-heads", "cwcd-heads", "cwcd-kabsch", "tri-plane"]


def test_all_forms_of_a_network_give_one_pose() -> None:
    setting = Setting(32, CPU, seed=3)
    poses = [make_runner(Form("scope-reg", form), setting).call() for form in SCOPE_REG]
    for pose in poses:
        assert pose.shape == (1, 12)
        torch.testing.assert_close(pose, poses[0], rtol=0, atol=2e-3)
    assert float((poses[0] - make_runner(Form("scope-reg-3", "whole"), setting).call()).abs().max()) > 1e-4


def test_the_published_form_comes_first_and_nothing_twice() -> None:
    assert forms_of(["eureg", "scope-reg", "eureg"]) == [
        *(Form("scope-reg", form) for form in SCOPE_REG),
        Form("eureg", "forward"),
    ]
    assert {Form(name, form).label for name, method in METHODS.items() for form in method.forms} >= {
        "scope-reg, as published",
        "scope-reg with 3 looks, whole",
        "dreamreg",
    }


@pytest.mark.parametrize("arm", ARMS)
def test_an_arm_of_the_ablation_runs_and_is_counted(arm: str) -> None:
    form, setting = Form(arm, "forward"), Setting(32, CPU)
    runner = make_runner(form, setting)
    assert runner.call().shape == (1, 12)
    gflops, with_scans = gflops_of(form, setting, runner.network)
    assert 0.1 < gflops < 2
    if arm == "cross-attention-heads":
        assert with_scans == gflops  # it has none
    else:
        assert 1.02 * gflops < with_scans < 1.5 * gflops


def test_rows_that_may_stand_in_one_plot_look_unlike() -> None:
    forms = forms_of(list(METHODS))
    looks = [look_of(form) for form in forms]
    assert len(set(looks)) == len(forms)
    arms = forms_of(["scope-reg", *ARMS])
    assert len({look_of(form).colour for form in arms}) == len(arms)
