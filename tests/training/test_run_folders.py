"""Folders and weights of other runs: continued only where everything fits, and else left as they are."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import SETTINGS, Ended, Maker, assert_same_run, at_step, contents, ended, press_ctrl_c, run

from scopereg.errors import ScopeRegError
from scopereg.networks import create
from scopereg.networks.weights import save_network
from scopereg.training.checkpoint import read_checkpoint, write_checkpoint
from scopereg.training.fitting import CHECKPOINT, MODEL, RUN


@pytest.fixture(scope="module")
def begun_once(tiny_set: Maker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("begun")
    with pytest.MonkeyPatch.context() as monkeypatch:
        at_step(monkeypatch, 2, press_ctrl_c)
        run(tiny_set(), folder)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def begun(begun_once: Path, folder: Path) -> Path:
    """The folder of a run that was interrupted after its third step."""
    return shutil.copytree(begun_once, folder)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"network": "cwcd-heads"}, r"network \(scope-reg there\)"),
        ({"learning_rate": 1e-4, "seed": 1}, r"learning_rate \(0.001 there\), seed \(0 there\)"),
    ],
)
def test_a_run_of_other_settings_is_not_continued(
    tiny_set: Maker, begun: Path, change: dict[str, Any], named: str
) -> None:
    before = contents(begun)
    with pytest.raises(ScopeRegError, match=f"other settings: {named}"):
        run(tiny_set(), begun, replace(SETTINGS, **change))
    assert contents(begun) == before


@pytest.mark.parametrize("report", [True, False])
def test_a_run_on_other_data_is_not_continued(tiny_set: Maker, begun: Path, report: bool) -> None:
    """Also where it was killed, and has left no report."""
    if not report:
        (begun / RUN).unlink()
    before = contents(begun)
    with pytest.raises(ScopeRegError, match="trained on other data"):
        run(tiny_set(seed=1), begun)
    assert contents(begun) == before


@pytest.mark.parametrize("kind", ["truncated", "empty", "pickle", "weights"])
def test_a_checkpoint_that_is_none_is_refused_and_kept(tiny_set: Maker, begun: Path, kind: str) -> None:
    path = begun / CHECKPOINT
    if kind == "truncated":
        os.truncate(path, path.stat().st_size - 1)
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "pickle":
        torch.save({"state_dict": {}}, path)
    else:
        shutil.copy(begun / MODEL, path)
    before = contents(begun)
    with pytest.raises(ScopeRegError, match=r"not a whole safetensors file|header says"):
        run(tiny_set(), begun)
    assert contents(begun) == before


def test_a_checkpoint_of_another_version_is_refused(tiny_set: Maker, begun: Path) -> None:
    content = read_checkpoint(begun / CHECKPOINT)
    content["settings"]["momentum"] = 0.9
    write_checkpoint(content, begun / CHECKPOINT)
    with pytest.raises(ScopeRegError, match="momentum"):
        run(tiny_set(), begun)


def test_a_run_that_was_begun_on_a_gpu_goes_on_on_a_cpu(tiny_set: Maker, begun: Path, uninterrupted: Ended) -> None:
    content = read_checkpoint(begun / CHECKPOINT)
    content["optimizer"]["param_groups"][0].update(lr=torch.tensor(0.5), capturable=True, fused=True)
    write_checkpoint(content, begun / CHECKPOINT)
    assert_same_run(ended(run(tiny_set(), begun), begun), uninterrupted)


@pytest.mark.parametrize("norm", ["batch", "instance"])
def test_weights_of_another_network_are_no_start(tiny_set: Maker, folder: Path, norm: str) -> None:
    path = folder.parent / f"{norm}.safetensors"
    save_network(create("ssvf-heads", norm=norm), path, name="ssvf-heads", options={"norm": norm})
    with pytest.raises(ScopeRegError, match="do not fit a ScopeReg"):
        run(tiny_set(), folder, replace(SETTINGS, start=path))
    assert not list(folder.iterdir())
    path.unlink()


def test_a_start_that_does_not_exist_is_named(tiny_set: Maker, folder: Path) -> None:
    with pytest.raises(ScopeRegError, match=r"nowhere\.safetensors: there is no such file"):
        run(tiny_set(), folder, replace(SETTINGS, start=Path("nowhere.safetensors")))
