"""A run on two processes: gradients as on one, the same weights on both, one model and one voice."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from small_runs import SECONDS, SETTINGS, Maker, assert_same_state
from torch import Tensor

from scopereg.data.splits import split_set
from scopereg.data.store import save_set
from scopereg.networks.recipe import Batch
from scopereg.training.checkpoint import read_checkpoint
from scopereg.training.fitting import CHECKPOINT, MODEL, RUN
from scopereg.training.network import create_network
from scopereg.training.settings import plain
from scopereg.training.source import FrameSource
from scopereg.training.step import PlainStep, Weights

_TWO = """
import json, pathlib, sys
import torch
from safetensors.torch import save_file
from scopereg.data.store import open_set
from scopereg.training import fitting
from scopereg.training.settings import from_plain
from scopereg.training.step import Weights

torch.set_num_threads(1)
data, settings, folder, out = sys.argv[1:]
modules, first = [], []

def update(self, original=Weights.update):
    if not first:
        first.append({name: value.grad.clone() for name, value in self.network.named_parameters()})
    original(self)

def made(*arguments, original=fitting.Training, **named):
    modules.append(original(*arguments, **named))
    return modules[-1]

if __name__ == "__main__":
    Weights.update, fitting.Training = update, made
    machine = fitting.Machine(device="cpu", devices=2)
    fitting.train(open_set(data), from_plain(json.loads(settings)), folder, machine)
    rank = modules[0].rank
    save_file(first[0], f"{out}/gradients{rank}.safetensors")
    for name in ("network", "average"):
        save_file(getattr(modules[0], name).state_dict(), f"{out}/{name}{rank}.safetensors")
"""
TWO = replace(SETTINGS, norm="instance", clip=0.0, epochs=8, validate_every=4)


@dataclass(frozen=True)
class OnTwo:
    """What a run on two processes has left."""

    out: Path
    run: Path
    said: str

    def of_each(self, name: str) -> list[dict[str, Tensor]]:
        return [load_file(self.out / f"{name}{rank}.safetensors") for rank in range(2)]


@pytest.fixture(scope="module")
def on_two(tiny_set: Maker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnTwo]:
    out = tmp_path_factory.mktemp("two")
    (out / "two.py").write_text(_TWO)
    data = save_set(tiny_set(), out / "data")
    command = [sys.executable, str(out / "two.py"), str(data), json.dumps(plain(TWO)), str(out / "run"), str(out)]
    # A session of their own: should the two wait for each other, both are ended.
    both = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        said, _ = both.communicate(timeout=SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(both.pid, signal.SIGKILL)
    assert both.returncode == 0, said
    yield OnTwo(out, out / "run", said)
    shutil.rmtree(out)


@pytest.mark.slow
def test_two_processes_have_the_gradients_of_one_with_both_batches(tiny_set: Maker, on_two: OnTwo) -> None:
    volumes = tiny_set()
    part = volumes.subset(split_set(volumes, TWO.fold, TWO.seed).train)
    batches = [FrameSource(part, TWO, rank).batch(0) for rank in range(2)]
    joined = Batch(*(torch.cat(pair) for pair in zip(*(batch.tensors() for batch in batches), strict=True)))
    network = create_network(TWO).train()
    PlainStep(Weights(network, create_network(TWO), TWO, torch.device("cpu"))).gradients(joined)
    for found in on_two.of_each("gradients"):
        for name, parameter in network.named_parameters():
            assert parameter.grad is not None
            scale = float(parameter.grad.abs().max())
            torch.testing.assert_close(found[name], parameter.grad, rtol=1e-3, atol=1e-4 * scale, msg=name)


@pytest.mark.slow
def test_two_processes_end_with_the_same_weights(on_two: OnTwo) -> None:
    for name in ("network", "average"):
        assert_same_state(*on_two.of_each(name), name)


@pytest.mark.slow
def test_two_processes_write_one_model_and_one_report(on_two: OnTwo) -> None:
    assert {path.name for path in on_two.run.iterdir()} == {MODEL, CHECKPOINT, RUN, "log"}
    result = json.loads((on_two.run / RUN).read_text())
    assert result["finished"]
    assert result["progress"]["step"] == 7  # 8 epochs of 7 volumes in batches of 4 on each of two
    final = read_checkpoint(on_two.run / CHECKPOINT)["average"]
    assert_same_state(final, on_two.of_each("average")[0])


@pytest.mark.slow
def test_one_of_two_processes_speaks(on_two: OnTwo) -> None:
    assert [line.split()[:2] for line in on_two.said.splitlines()] == [["step", "4"], ["step", "7"]], on_two.said
