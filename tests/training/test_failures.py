"""What goes wrong in a run: no number for a loss, no memory, no disk; what was kept before is whole."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import Ended, Maker, assert_same_run, at_step, ended, press_ctrl_c, run
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.training import step as step_file
from scopereg.training.checkpoint import read_checkpoint
from scopereg.training.fitting import CHECKPOINT, MODEL


def poisoned(monkeypatch: pytest.MonkeyPatch, call: int, where: str) -> None:
    """From some call on the loss is no number, or its gradient alone."""
    original, calls = step_file.total_loss, []

    def total_loss(*arguments: Any) -> Tensor:
        calls.append(1)
        loss = original(*arguments)
        if len(calls) < call:
            return loss
        if where == "loss":
            return loss * float("nan")
        loss.register_hook(lambda gradient: gradient * float("nan"))
        return loss

    monkeypatch.setattr(step_file, "total_loss", total_loss)


@pytest.mark.parametrize(("where", "call"), [("loss", 5), ("loss", 6), ("gradient", 4), ("gradient", 6)])
def test_a_loss_that_is_no_number_ends_the_run_before_anything_is_written(
    tiny_set: Maker, folder: Path, monkeypatch: pytest.MonkeyPatch, where: str, call: int
) -> None:
    poisoned(monkeypatch, call, where)
    with pytest.raises(ScopeRegError):
        run(tiny_set(), folder)
    kept = ended({}, folder)
    assert kept.checkpoint["progress"]["step"] == kept.facts["step"] == 3
    for weights in (kept.model, kept.checkpoint["network"], kept.checkpoint["average"]):
        assert all(torch.isfinite(value).all() for value in weights.values())


def test_a_loss_that_is_no_number_is_told_with_what_helps(
    tiny_set: Maker, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poisoned(monkeypatch, 1, "loss")
    with pytest.raises(ScopeRegError, match="the loss became nan within the 3 steps before step 3") as error:
        run(tiny_set(), folder)
    assert "learning_rate=" in error.value.fix
    assert not (folder / MODEL).exists()
    assert not (folder / CHECKPOINT).exists()


def test_an_interruption_does_not_save_what_is_no_number(
    tiny_set: Maker, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poisoned(monkeypatch, 5, "loss")
    at_step(monkeypatch, 4, press_ctrl_c)
    with pytest.raises(ScopeRegError, match="the loss became nan"):
        run(tiny_set(), folder)
    assert read_checkpoint(folder / CHECKPOINT)["progress"]["step"] == 3


@pytest.mark.parametrize(("step", "kept"), [(1, "nothing was written yet"), (4, "the last checkpoint is whole")])
def test_out_of_memory_names_the_batch(
    tiny_set: Maker, folder: Path, monkeypatch: pytest.MonkeyPatch, step: int, kept: str
) -> None:
    def fail() -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore")

    at_step(monkeypatch, step, fail)
    with pytest.raises(ScopeRegError, match="out of memory") as error:
        run(tiny_set(), folder)
    assert "batch=" in error.value.fix
    assert kept in error.value.what
    assert (folder / CHECKPOINT).exists() is (step == 4)


def test_other_errors_pass_as_they_are(tiny_set: Maker, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("a mistake in the program")

    at_step(monkeypatch, 1, fail)
    with pytest.raises(RuntimeError, match="a mistake in the program"):
        run(tiny_set(), folder)


def test_a_full_disk_leaves_the_earlier_checkpoint_and_the_run_can_go_on(
    tiny_set: Maker, folder: Path, uninterrupted: Ended, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A checkpoint has 104 megabytes, the weights have 26.
    at_step(monkeypatch, 4, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000_000, before[1])))
    try:
        with pytest.raises(ScopeRegError, match="cannot write there") as error:
            run(tiny_set(), folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert error.value.where == str(folder / CHECKPOINT)
    assert {path.name for path in folder.iterdir()} == {MODEL, CHECKPOINT, "log"}
    assert read_checkpoint(folder / CHECKPOINT)["progress"]["step"] == 3
    assert_same_run(ended(run(tiny_set(), folder), folder), uninterrupted)
