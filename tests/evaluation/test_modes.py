"""The ways to run a network: one pose from all of them, what each is called, counted and drawn as."""

from __future__ import annotations

import sys

import pytest
import torch

import scopereg
from scopereg.errors import ScopeRegError
from scopereg.evaluation.speed.modes import NETWORKS, SHIPPED, Mode, Setting, cost_of, make_runnable, modes_of
from scopereg.images import Frame, Volume
from scopereg.report.speed_plot import look_of

CPU = torch.device("cpu")
SCOPE_REG = ["as published", "forward", "whole", "streaming"]
VARIANTS = ["cross-attention-heads", "ssvf-heads", "cwcd-heads", "cwcd-kabsch", "tri-plane"]


def test_all_forms_of_a_network_give_one_pose() -> None:
    setting = Setting(32, CPU, seed=3)
    poses = [make_runnable(Mode("scope-reg", mode), setting).call() for mode in SCOPE_REG]
    for pose in poses:
        assert pose.shape == (1, 12)
        torch.testing.assert_close(pose, poses[0], rtol=0, atol=2e-3)
    assert float((poses[0] - make_runnable(Mode("scope-reg-3", "whole"), setting).call()).abs().max()) > 1e-4


def test_the_published_mode_comes_first_and_nothing_twice() -> None:
    assert modes_of(["eureg", "scope-reg", "eureg"]) == [
        *(Mode("scope-reg", mode) for mode in SCOPE_REG),
        Mode("eureg", "forward"),
    ]
    assert {Mode(name, mode).label for name, method in NETWORKS.items() for mode in method.modes} >= {
        "scope-reg, as published",
        "scope-reg with 3 looks, whole",
        "dreamreg",
    }


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_of_the_ablation_runs_and_is_counted(variant: str) -> None:
    mode, setting = Mode(variant, "forward"), Setting(32, CPU)
    assert make_runnable(mode, setting).call().shape == (1, 12)
    cost = cost_of(mode, setting)
    assert cost is not None
    gflops, with_scans = cost.gflops, cost.total_gflops
    assert 0.1 < gflops < 2
    if variant == "cross-attention-heads":
        assert with_scans == gflops  # it has none
    else:
        assert 1.02 * gflops < with_scans < 1.5 * gflops


def test_rows_that_may_stand_in_one_plot_look_unlike() -> None:
    modes = modes_of(list(NETWORKS))
    looks = [look_of(mode) for mode in modes]
    assert len(set(looks)) == len(modes)
    variants = modes_of(["scope-reg", *VARIANTS])
    assert len({look_of(mode).colour for mode in variants}) == len(variants)


@pytest.mark.parametrize("name", ["universal", "simpleitk-ncc", "universal+refine"])
def test_a_method_is_timed_as_register_runs_it(name: str) -> None:
    """The same pose as by `scopereg.register`, from a volume that is prepared once."""
    (mode,), setting = modes_of([name]), Setting(64, CPU)
    assert mode == Mode(name, SHIPPED)
    assert mode.label == name
    assert cost_of(mode, setting) is None
    runnable = make_runnable(mode, setting)
    assert runnable.prepare is not None
    image, voxels = setting.smooth_images()
    pixel_mm = 77 / 64
    frame, volume = Frame(image, pixel_mm), Volume(voxels, (pixel_mm, pixel_mm, 0.6))
    wanted = scopereg.register(frame, volume, method=name, refine=False, device="cpu").pose.matrix
    found = runnable.call()[0]
    assert found[:9].tolist() == torch.from_numpy(wanted[:3, :3].copy()).float().flatten().tolist()
    assert found[9:].tolist() == torch.from_numpy(wanted[:3, 3].copy()).float().tolist()


def test_unknown_names_are_told_with_networks_and_methods() -> None:
    with pytest.raises(ScopeRegError, match="did you mean 'scope-reg'") as told:
        modes_of(["scope-rge"])
    assert "dreamreg" in told.value.fix
    assert "simpleitk-mi" in told.value.fix


def test_where_a_library_is_missing_methods_are_refused_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scopereg.registration.method", None)  # as where safetensors is not installed
    with pytest.raises(ScopeRegError, match="unknown method 'universal'") as told:
        modes_of(["universal"])
    assert "need scopereg.registration.method, which is not installed" in told.value.fix
    assert modes_of(["eureg"]) == [Mode("eureg", "forward")]
