"""Killed and interrupted runs: they lose no step, and end as if nothing had happened."""

from __future__ import annotations

import csv
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_runs import SECONDS, SETTINGS, Ended, Maker, assert_same_run, at_step, ended, press_ctrl_c, run

from scopereg.data.store import save_set
from scopereg.training.checkpoint import read_checkpoint
from scopereg.training.fitting import CHECKPOINT, RUN, Machine, train
from scopereg.training.settings import plain


def validated(folder: Path) -> list[int]:
    """The steps that metrics.csv has a line for."""
    with (folder / "log" / "metrics.csv").open(newline="") as file:
        return [int(row["step"]) for row in csv.DictReader(file)]


# killed


_KILLED = """
import os, signal, sys
import torch
from scopereg.data.store import open_set
from scopereg.io import tensors as files
from scopereg.training.fitting import Machine, train
from scopereg.training.settings import TrainSettings, from_plain
from scopereg.training.source import FrameSource

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def killed_in_a_step(step, original=FrameSource.draw):
    FrameSource.draw = lambda self, index: die() if index == step else original(self, index)

def killed_while_writing(path, original=files.save_file):
    def half(tensors, temporary, header):
        original(tensors, temporary, header)
        if path.exists() and temporary.suffix == path.suffix:
            os.truncate(temporary, temporary.stat().st_size // 2)
            die()
    files.save_file = half

import json, pathlib
torch.set_num_threads(1)
data, settings, *folders = sys.argv[1:]
for folder in map(pathlib.Path, folders):
    process = os.fork()  # imports take longer than the run
    if process == 0:
        killed_in_a_step(4) if folder.name == "step" else killed_while_writing(folder / "last.ckpt")
        train(open_set(data), from_plain(json.loads(settings)), folder, Machine(device="cpu"), quiet=True)
        os._exit(0)
    print(folder.name, os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def killed(tiny_set: Maker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folders of two runs, each in a process of its own: `step` killed in the fifth step, `writing` half way
    through its second checkpoint.
    """
    folder = tmp_path_factory.mktemp("killed")
    data = save_set(tiny_set(), folder / "data")
    command = [sys.executable, "-c", _KILLED, data, json.dumps(plain(SETTINGS)), folder / "step", folder / "writing"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.stdout.split() == ["step", str(-signal.SIGKILL), "writing", str(-signal.SIGKILL)], done.stderr
    yield folder
    shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["step", "writing"])
def test_a_killed_run_ends_as_if_it_had_not_been(tiny_set: Maker, killed: Path, uninterrupted: Ended, how: str) -> None:
    """Killed in the fifth step, or half way through its second checkpoint: the first is from the third step."""
    folder = killed / how
    assert read_checkpoint(folder / CHECKPOINT)["progress"]["step"] == 3
    assert not (folder / RUN).exists()
    result = run(tiny_set(), folder)
    assert_same_run(ended(result, folder), uninterrupted)
    assert validated(folder) == [3, 6, 7]


def test_a_run_killed_before_its_report_only_writes_that(tiny_set: Maker, folder: Path, uninterrupted: Ended) -> None:
    run(tiny_set(), folder)
    (folder / RUN).unlink()
    result = run(tiny_set(), folder)
    assert result["finished"]
    assert json.loads((folder / RUN).read_text()) == result
    assert_same_run(ended(result, folder), uninterrupted)


# interrupted


@pytest.mark.parametrize("step", [1, 4, 5])
def test_an_interrupted_run_loses_no_step_and_ends_as_if_it_had_not_been(
    tiny_set: Maker, folder: Path, uninterrupted: Ended, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Before the first validation, between two, and in the step after which one is due."""
    at_step(monkeypatch, step, press_ctrl_c)
    result = run(tiny_set(), folder)
    assert not result["finished"]
    assert result["progress"]["step"] == step + 1
    assert not json.loads((folder / RUN).read_text())["finished"]
    assert read_checkpoint(folder / CHECKPOINT)["progress"]["step"] == step + 1
    again = run(tiny_set(), folder)
    assert again["finished"]
    assert_same_run(ended(again, folder), uninterrupted)
    assert validated(folder) == [3, 6, 7]


def test_after_an_interruption_ctrl_c_means_what_it_meant_before(
    tiny_set: Maker, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGINT)
    at_step(monkeypatch, 1, press_ctrl_c)
    run(tiny_set(), folder)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_ctrl_c_ends_at_once_and_leaves_the_checkpoint(
    tiny_set: Maker, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGINT)
    at_step(monkeypatch, 4, lambda: (press_ctrl_c(), press_ctrl_c()))  # type: ignore[arg-type, return-value]
    with pytest.raises(KeyboardInterrupt):
        run(tiny_set(), folder)
    assert read_checkpoint(folder / CHECKPOINT)["progress"]["step"] == 3
    assert signal.getsignal(signal.SIGINT) is before


# on a GPU


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("capture", [False, True])
def test_a_run_interrupted_on_a_gpu_ends_close_to_one_that_was_not(
    tiny_set: Maker, folder: Path, monkeypatch: pytest.MonkeyPatch, capture: bool
) -> None:
    """The recorded graph must take the rate of each step also after a checkpoint was read."""
    settings = replace(SETTINGS, epochs=16, capture=capture, bfloat16=False, learning_rate=1e-4)
    ends = []
    for name in ("whole", "interrupted"):
        if name == "interrupted":
            at_step(monkeypatch, 13, press_ctrl_c)
        while not train(tiny_set(), settings, folder / name, Machine(device="cuda"), quiet=True)["finished"]:
            pass
        ends.append(read_checkpoint(folder / name / CHECKPOINT))
    one, other = (
        {**end["network"], **{f"average.{key}": value for key, value in end["average"].items()}} for end in ends
    )
    assert ends[0]["progress"]["step"] == ends[1]["progress"]["step"] == 28
    for key, value in one.items():
        torch.testing.assert_close(other[key].float(), value.float(), atol=1e-4, rtol=0.01, msg=str(key))
