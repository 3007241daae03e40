"""Runs: repeated, killed, interrupted, resumed, out of memory or disk, in folders of others, and on two processes."""

from __future__ import annotations

import csv
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from scopereg.data.splits import split_set
from scopereg.data.store import VolumeSet, save_set
from scopereg.errors import ScopeRegError
from scopereg.networks import create
from scopereg.networks.weights import load_network, read_facts, save_network
from scopereg.training import module as module_file
from scopereg.training import step as step_file
from scopereg.training.checkpoint import SafetensorsIO, read_checkpoint
from scopereg.training.fitting import CHECKPOINT, MODEL, RUN, Machine, train
from scopereg.training.module import create_network, network_options
from scopereg.training.settings import TrainSettings, plain
from scopereg.training.source import Batch, FrameSource
from scopereg.training.step import PlainStep, Weights

Maker = Callable[..., VolumeSet]

# 10 volumes, 7 of which train: 4 epochs of batches of 4 are 7 steps, validated after 3, 6 and 7.
SETTINGS = TrainSettings(
    epochs=4, batch=4, frames_per_volume=2, magnitude=3.0, warmup=2, validate_every=3, learning_rate=1e-3, average=0.5
)
STEPS = 7
MACHINE = Machine(device="cpu")
SECONDS = 180  # after which another process counts as hung


@dataclass(frozen=True)
class Ended:
    """A run that has ended: what it returned and what its folder holds."""

    result: dict[str, Any]
    checkpoint: dict[str, Any]
    model: dict[str, Tensor]
    facts: dict[str, Any]


def run(volumes: VolumeSet, folder: Path, settings: TrainSettings = SETTINGS) -> dict[str, Any]:
    return train(volumes, settings, folder, MACHINE, quiet=True)


def ended(result: dict[str, Any], folder: Path) -> Ended:
    model = folder / MODEL
    return Ended(result, read_checkpoint(folder / CHECKPOINT), load_file(model), read_facts(model))


@pytest.fixture(scope="module")
def uninterrupted(tiny_set: Maker, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """A run from beginning to end, to compare others with."""
    folder = tmp_path_factory.mktemp("whole")
    whole = ended(run(tiny_set(), folder), folder)
    shutil.rmtree(folder)
    return whole


def assert_same_state(one: Any, other: Any, path: str = "") -> None:
    """Two checkpoints bit by bit, but for the seconds that they took."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), path
        for key in one.keys() - {"seconds", "loss"}:
            assert_same_state(one[key], other[key], f"{path}/{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), path
        for k, pair in enumerate(zip(one, other, strict=True)):
            assert_same_state(*pair, f"{path}/{k}")
    elif isinstance(one, Tensor):
        assert torch.equal(one, other), path
    else:
        assert one == other, path


def assert_same_run(one: Ended, other: Ended) -> None:
    for part in ("state_dict", "optimizer_states", "progress", "settings", "data_sha256"):
        assert_same_state(one.checkpoint[part], other.checkpoint[part], part)
    assert_same_state(one.model, other.model, "model")
    assert one.facts["step"] == other.facts["step"]


def at_step(monkeypatch: pytest.MonkeyPatch, number: int, action: Callable[[], None]) -> None:
    """Something happens once, while the frames of a step are drawn."""
    original, done = FrameSource.batch, []

    def batch(self: FrameSource, step: int) -> Batch:
        if step == number and not done:
            done.append(step)
            action()
        return original(self, step)

    monkeypatch.setattr(FrameSource, "batch", batch)


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def validated(folder: Path) -> list[int]:
    """The steps that metrics.csv has a line for."""
    with (folder / "log" / "metrics.csv").open(newline="") as file:
        return [int(row["step"]) for row in csv.DictReader(file)]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# a run


def test_a_run_leaves_weights_a_checkpoint_and_a_report(tiny_set: Maker, folder: Path) -> None:
    result = run(tiny_set(), folder, replace(SETTINGS, epochs=1, norm="instance", test=True))
    assert result["finished"]
    assert result["volumes"] == {"train": 7, "validation": 1, "test": 2}
    assert json.loads((folder / RUN).read_text()) == result
    assert {path.name for path in folder.iterdir()} == {MODEL, CHECKPOINT, RUN, "log"}
    assert load_network(folder / MODEL).encoder is not None
    assert read_facts(folder / MODEL)["data_sha256"] == tiny_set().sha256()
    for protocol in ("paper", "honest"):
        assert result["test"][protocol]["frames"] == 8
        assert result["test"][protocol]["identity_mm"] > 0
        assert result["test"][protocol]["mean_mm"] > 0


def test_a_run_takes_the_steps_of_its_epochs(uninterrupted: Ended) -> None:
    assert uninterrupted.result["progress"]["step"] == uninterrupted.checkpoint["progress"]["step"] == STEPS


def test_the_kept_weights_are_those_of_the_best_validation(uninterrupted: Ended) -> None:
    progress = uninterrupted.checkpoint["progress"]
    assert uninterrupted.facts["step"] == progress["best_step"]
    assert uninterrupted.facts["validation"]["honest_mean_mm"] == progress["best_mm"]


def test_a_finished_run_is_left_alone(tiny_set: Maker, folder: Path) -> None:
    settings = replace(SETTINGS, epochs=1)
    first = run(tiny_set(), folder, settings)
    before = contents(folder)
    assert run(tiny_set(), folder, settings) == first
    assert contents(folder) == before


def test_a_quiet_run_says_nothing(tiny_set: Maker, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(tiny_set(), folder, replace(SETTINGS, epochs=1))
    assert capfd.readouterr() == ("", "")


def test_a_run_that_may_speak_says_a_line_for_each_validation(
    tiny_set: Maker, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    train(tiny_set(), replace(SETTINGS, epochs=2), folder, MACHINE)
    said = capfd.readouterr()
    assert said.out == ""
    assert [line.split()[:2] for line in said.err.splitlines()] == [["step", "3"], ["step", "4"]]


def test_a_second_pass_is_validated_beside_the_first(tiny_set: Maker, folder: Path) -> None:
    metrics = run(tiny_set(), folder, replace(SETTINGS, epochs=1, passes=2))["progress"]["metrics"]
    assert {"honest_mean_mm", "honest_2_passes_mean_mm", "paper_2_passes_within_3_mm"} <= metrics.keys()


# again, and with another seed


def test_two_runs_of_one_seed_agree_bit_by_bit(tiny_set: Maker, folder: Path, uninterrupted: Ended) -> None:
    torch.manual_seed(12345)  # what happened in this process before must not matter
    assert_same_run(ended(run(tiny_set(), folder), folder), uninterrupted)


def test_another_seed_starts_with_other_weights() -> None:
    one, other = (create_network(replace(SETTINGS, seed=seed)).encoder.slice_encoder[0].weight for seed in (0, 1))
    assert not torch.equal(one, other)


def test_another_seed_trains_the_same_weights_otherwise(tiny_set: Maker, folder: Path) -> None:
    start, ends = folder / "start.safetensors", []
    save_network(create_network(SETTINGS), start, name="scope-reg", options=network_options(SETTINGS))
    for seed in (0, 1):
        settings = replace(SETTINGS, seed=seed, epochs=1, start=start)
        run(tiny_set(), folder / str(seed), settings)
        ends.append(load_file(folder / str(seed) / MODEL))
    assert not torch.equal(*(end["encoder.slice_encoder.0.weight"] for end in ends))


def test_a_run_starts_from_the_weights_of_a_file(tiny_set: Maker, folder: Path) -> None:
    torch.manual_seed(7)
    given = create("scope-reg", norm="instance")
    path = save_network(given, folder / "start.safetensors", name="scope-reg", options={"norm": "instance"})
    made = create_network(replace(SETTINGS, norm="instance", start=path))
    assert_same_state(dict(made.state_dict()), dict(given.state_dict()))


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
data, settings, folder, how = sys.argv[1:]
folder = pathlib.Path(folder)
killed_in_a_step(4) if how == "step" else killed_while_writing(folder / "last.ckpt")
train(open_set(data), from_plain(json.loads(settings)), folder, Machine(device="cpu"), quiet=True)
"""


@pytest.mark.parametrize("how", ["step", "writing"])
def test_a_killed_run_ends_as_if_it_had_not_been(tiny_set: Maker, folder: Path, uninterrupted: Ended, how: str) -> None:
    """Killed in the fifth step, or half way through its second checkpoint: the first is from the third step."""
    data = save_set(tiny_set(), folder / "data")
    command = [sys.executable, "-c", _KILLED, str(data), json.dumps(plain(SETTINGS)), str(folder / "run"), how]
    killed = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert read_checkpoint(folder / "run" / CHECKPOINT)["progress"]["step"] == 3
    assert not (folder / "run" / RUN).exists()
    result = run(tiny_set(), folder / "run")
    assert_same_run(ended(result, folder / "run"), uninterrupted)
    assert validated(folder / "run") == [3, 6, 7]


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


# by the clock


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """A clock on which every step takes a second, and the learning rates of the steps."""
    seen: list[float] = []
    now = iter(range(10**6))
    monkeypatch.setattr(module_file, "time", SimpleNamespace(monotonic=lambda: float(next(now))))
    original = Weights.set_rate

    def set_rate(self: Weights, rate: float, step: int) -> None:
        seen.append(rate)
        original(self, rate, step)

    monkeypatch.setattr(Weights, "set_rate", set_rate)
    return seen


BY_CLOCK = replace(SETTINGS, epochs=None, minutes=8 / 60, warmup=0, validate_every=100)


def test_a_run_by_the_clock_ends_with_its_time_and_a_rate_near_zero(
    tiny_set: Maker, folder: Path, rates: list[float]
) -> None:
    result = run(tiny_set(), folder, BY_CLOCK)
    assert result["finished"]
    assert (result["progress"]["step"], result["progress"]["seconds"]) == (8, 8.0)
    assert rates == pytest.approx([1e-3 * (1 - second / 8) ** 0.9 for second in range(8)])


def test_a_resumed_run_by_the_clock_goes_on_with_its_seconds(
    tiny_set: Maker, folder: Path, rates: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time between the two calls does not count."""
    at_step(monkeypatch, 2, press_ctrl_c)
    first = run(tiny_set(), folder, BY_CLOCK)
    assert (first["finished"], first["progress"]["seconds"]) == (False, 3.0)
    again = run(tiny_set(), folder, BY_CLOCK)
    assert (again["finished"], again["progress"]["step"], again["progress"]["seconds"]) == (True, 8, 8.0)
    assert rates == pytest.approx([1e-3 * (1 - second / 8) ** 0.9 for second in range(8)])


# what goes wrong


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
    for weights in (kept.model, kept.checkpoint["state_dict"]):
        assert all(torch.isfinite(value).all() for value in weights.values())


def test_a_loss_that_is_no_number_is_told_with_what_helps(
    tiny_set: Maker, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poisoned(monkeypatch, 1, "loss")
    with pytest.raises(ScopeRegError, match="the loss became nan within the 3 steps before step 3") as error:
        run(tiny_set(), folder)
    assert "--learning-rate" in error.value.fix
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
    assert "--batch" in error.value.fix
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


# folders of others


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
    SafetensorsIO().save_checkpoint(content, begun / CHECKPOINT)
    with pytest.raises(ScopeRegError, match="momentum"):
        run(tiny_set(), begun)


def test_a_run_that_was_begun_on_a_gpu_goes_on_on_a_cpu(tiny_set: Maker, begun: Path, uninterrupted: Ended) -> None:
    content = read_checkpoint(begun / CHECKPOINT)
    content["optimizer_states"][0]["param_groups"][0].update(lr=torch.tensor(0.5), capturable=True, fused=True)
    SafetensorsIO().save_checkpoint(content, begun / CHECKPOINT)
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


# on two processes


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

def made(*arguments, original=fitting.PoseTraining, **named):
    modules.append(original(*arguments, **named))
    return modules[-1]

if __name__ == "__main__":
    Weights.update, fitting.PoseTraining = update, made
    machine = fitting.Machine(device="cpu", devices=2)
    fitting.train(open_set(data), from_plain(json.loads(settings)), folder, machine)
    rank = modules[0].global_rank
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
    final = read_checkpoint(on_two.run / CHECKPOINT)["state_dict"]
    average = {key.removeprefix("average."): value for key, value in final.items() if key.startswith("average.")}
    assert_same_state(average, on_two.of_each("average")[0])


@pytest.mark.slow
def test_one_of_two_processes_speaks(on_two: OnTwo) -> None:
    assert [line.split()[:2] for line in on_two.said.splitlines()] == [["step", "4"], ["step", "7"]], on_two.said


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
    one, other = (end["state_dict"] for end in ends)
    assert ends[0]["progress"]["step"] == ends[1]["progress"]["step"] == 28
    for key, value in one.items():
        torch.testing.assert_close(other[key].float(), value.float(), atol=1e-4, rtol=0.01, msg=key)
