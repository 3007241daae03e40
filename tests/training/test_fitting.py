"""Runs: what they leave and say, repeated, with another seed, and by the clock."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from small_runs import (
    MACHINE,
    SETTINGS,
    Ended,
    Maker,
    assert_same_run,
    assert_same_state,
    at_step,
    contents,
    ended,
    press_ctrl_c,
    run,
)

from scopereg.networks import create
from scopereg.networks.weights import load_network, read_facts, save_network
from scopereg.training import loop as loop_file
from scopereg.training.fitting import CHECKPOINT, MODEL, RUN, fit, train
from scopereg.training.network import create_network, network_options
from scopereg.training.step import Weights
from scopereg.training.task import volumes_task

STEPS = 7  # of SETTINGS


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


@pytest.mark.parametrize("settings", [(False, True), (True, False)])
def test_a_run_leaves_settings_and_random_numbers_as_they_were(
    tiny_set: Maker, folder: Path, monkeypatch: pytest.MonkeyPatch, settings: tuple[bool, bool]
) -> None:
    cudnn = torch.backends.cudnn
    monkeypatch.setattr(cudnn, "deterministic", settings[0])
    monkeypatch.setattr(cudnn, "benchmark", settings[1])
    during: list[tuple[bool, bool]] = []
    draws = torch.get_rng_state()
    task = volumes_task(tiny_set(), SETTINGS)
    fit(
        task,
        SETTINGS,
        folder,
        MACHINE,
        watch=lambda _: during.append((cudnn.deterministic, cudnn.benchmark)),
        quiet=True,
    )
    assert set(during) == {(True, False)}
    assert (cudnn.deterministic, cudnn.benchmark) == settings
    assert torch.get_rng_state().equal(draws)


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


def test_weights_of_batch_norms_serve_instance_norms_without_their_statistics(folder: Path) -> None:
    given = create("scope-reg")
    path = save_network(given, folder / "start.safetensors", name="scope-reg", options={})
    made = create_network(replace(SETTINGS, norm="instance", depth_stride=4, start=path)).state_dict()
    assert_same_state(dict(made), {key: value for key, value in given.state_dict().items() if key in made})
    assert len(made) < len(given.state_dict())


# by the clock


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """A clock on which every step takes a second, and the learning rates of the steps."""
    seen: list[float] = []
    now = iter(range(10**6))
    monkeypatch.setattr(loop_file, "time", SimpleNamespace(monotonic=lambda: float(next(now))))
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
