"""Training on random worlds: batches by step, from easy to hard, in several shapes, interrupted and resumed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from scopereg import networks
from scopereg.data.examples import case_examples
from scopereg.data.phantom.sets import make_phantoms
from scopereg.data.store import save_set
from scopereg.data.worlds import WorldBatch, WorldRanges
from scopereg.errors import ScopeRegError
from scopereg.networks.weights import load_network, read_facts
from scopereg.training import task as tasks
from scopereg.training import worlds
from scopereg.training.fitting import MODEL, Machine, train_worlds
from scopereg.training.presets import preset
from scopereg.training.settings import TrainSettings
from scopereg.training.worlds import STAGES, WorldSource, as_registered, grid_facts, stored_phantoms

SHAPES = (((16, 32, 32), 0.5), ((24, 32, 40), 0.5))
RANGES = WorldRanges(shapes=SHAPES)
SETTINGS = replace(
    preset("fast", dataset="worlds"), epochs=1, batch=4, frames_per_volume=2, curriculum=8, validate_every=4, looks=2
)
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def few_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    few(monkeypatch)


def few(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(worlds, "VALIDATION_WORLDS", 2)
    patch.setattr(tasks, "WORLDS_IN_AN_EPOCH", 24)  # six steps of four frames


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The folder of a run that was never interrupted, which nobody changes, and what it returned."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        few(patch)
        run = train_worlds(SETTINGS, folder, ranges=RANGES, quiet=True)
    yield folder, run
    shutil.rmtree(folder)


def test_the_preset_of_worlds_has_a_curriculum_and_wide_offsets() -> None:
    assert preset("fast", dataset="worlds").curriculum > 0
    assert preset("fast", dataset="worlds").magnitude == 25
    assert preset("fast", dataset="camus").curriculum == 0


def test_a_step_draws_the_same_batch_whenever_it_is_asked_for() -> None:
    source, other = (WorldSource(CPU, SETTINGS, ranges=RANGES) for _ in range(2))
    first = [source.batch(step) for step in (0, 3)]
    assert torch.equal(other.batch(3).slices, first[1].slices)
    assert torch.equal(other.batch(0).volumes, first[0].volumes)
    assert not torch.equal(WorldSource(CPU, SETTINGS, 1, RANGES).batch(0).slices, first[0].slices)


def test_every_shape_occurs_and_processes_agree_on_it() -> None:
    source, other = WorldSource(CPU, SETTINGS, ranges=RANGES), WorldSource(CPU, SETTINGS, 1, RANGES)
    found = [source.shape(index) for index in range(40)]
    assert set(found) == {shape for shape, _ in SHAPES}
    assert found == [other.shape(index) for index in range(40)]


def test_worlds_get_harder_by_stages_until_the_curriculum_ends() -> None:
    source = WorldSource(CPU, replace(SETTINGS, curriculum=800), ranges=RANGES)
    levels = [source.difficulty(step) for step in range(0, 1000, 10)]
    assert levels[0] == 0
    assert levels[-1] == 1
    assert levels == sorted(levels)
    assert len(set(levels)) == STAGES + 1
    assert WorldSource(CPU, replace(SETTINGS, curriculum=0), ranges=RANGES).difficulty(0) == 1


def test_easy_batches_have_small_offsets() -> None:
    wide = WorldRanges(shapes=(((16, 128, 128), 1.0),), offset=(1.0, 1.0))
    settings = replace(SETTINGS, batch=8, frames_per_volume=8, curriculum=100)
    first, last = (WorldSource(CPU, settings, ranges=wide).batch(step) for step in (0, 100))
    assert float(first.translation.abs().max()) <= 0.3 * settings.magnitude
    assert float(last.translation.abs().max()) > 0.5 * settings.magnitude


def test_a_run_ends_with_weights_that_tell_the_sizes_they_know(
    whole: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder, run = whole
    assert run["finished"]
    facts = read_facts(folder / MODEL)
    assert facts["grid"] == grid_facts(RANGES, 25.0)
    assert facts["grid"]["frame_voxels"] == [32, 40]
    assert "spacing_mm" not in facts
    assert facts["step"] == run["progress"]["step"]  # the last weights, whichever were best on a few worlds
    again = replace(SETTINGS, start=folder / MODEL, curriculum=0, epochs=1)
    further = train_worlds(again, tmp_path / "more", ranges=RANGES, quiet=True)
    assert further["minutes_before"] == pytest.approx(facts["minutes"])


def test_an_interrupted_run_goes_on_bit_by_bit(
    whole: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resumed = killed_and_resumed(SETTINGS, tmp_path, monkeypatch)
    assert resumed["progress"]["step"] == whole[1]["progress"]["step"] == 6
    assert_same_weights(whole[0], tmp_path)


def test_the_fine_stage_learns_from_starts_drawn_in_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Resumed, it draws what it would have drawn; it is measured on frames that lie as near as its starts."""
    settings = replace(
        preset("fast", "fine-stage", "worlds"), epochs=1, batch=4, frames_per_volume=2, curriculum=8, validate_every=4
    )
    task = tasks.worlds_task(settings, RANGES)
    assert task.magnitude == networks.recipe("fine-stage").start_within
    measured = task.validation(CPU).frames
    assert measured is not None
    assert 0.5 * task.magnitude < measured.translation.abs().max() <= task.magnitude
    run = train_worlds(settings, tmp_path / "whole", ranges=RANGES, quiet=True)
    resumed = killed_and_resumed(settings, tmp_path / "part", monkeypatch)
    assert resumed["progress"]["step"] == run["progress"]["step"] == 6
    assert_same_weights(tmp_path / "whole", tmp_path / "part")


def killed_and_resumed(settings: TrainSettings, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a run returns that is gone on with after it died at its sixth draw."""
    original = WorldSource.draw

    def killed(self: WorldSource, index: int):  # type: ignore[no-untyped-def]
        if index == 5:
            raise RuntimeError("killed")
        return original(self, index)

    monkeypatch.setattr(WorldSource, "draw", killed)
    with pytest.raises(RuntimeError, match="killed"):
        train_worlds(settings, folder, ranges=RANGES, quiet=True)
    monkeypatch.setattr(WorldSource, "draw", original)
    return train_worlds(settings, folder, ranges=RANGES, quiet=True)


def assert_same_weights(first: Path, second: Path) -> None:
    one, two = (load_network(folder / MODEL).state_dict() for folder in (first, second))
    assert all(torch.equal(one[key], two[key]) for key in one)


def test_phantoms_of_odd_sizes_stay_as_they_are() -> None:
    phantoms = make_phantoms("prostate", 1, frames=4, shape=(16, 32, 96))
    assert as_registered(phantoms) == [phantoms]


def test_phantoms_come_in_when_worlds_are_at_their_hardest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    phantoms = make_phantoms("prostate", 2, frames=4, shape=(16, 32, 96))
    save_set(phantoms, tmp_path / "prostate")
    (stored,) = stored_phantoms(tmp_path)
    assert torch.equal(stored.images, phantoms.images)
    source = WorldSource(CPU, SETTINGS, ranges=RANGES, phantoms=[stored])
    blank = WorldBatch(*(torch.zeros(1) for _ in WorldBatch._fields))
    monkeypatch.setattr(worlds, "draw_worlds", lambda *sizes, **how: blank)  # what is no phantom is quickly drawn
    mixed = [index for index in range(80) if source.draw(index).volumes.shape[1:] == (16, 32, 96)]
    assert SETTINGS.curriculum <= min(mixed)
    assert 8 <= len(mixed) <= 24
    with pytest.raises(ScopeRegError, match="no sets of phantoms"):
        stored_phantoms(tmp_path / "prostate")


@pytest.mark.parametrize(("shape", "factor"), [((16, 32, 32), 2), ((16, 64, 128), 1.25)])
def test_phantoms_are_interpolated_as_registration_does_it(shape: tuple[int, int, int], factor: float) -> None:
    phantoms = make_phantoms("prostate", 1, frames=4, shape=shape)
    *as_made, finer = as_registered(phantoms)
    assert len(as_made) == (factor < 2)  # planes of 32 voxels are only ever seen interpolated
    assert finer.shape == tuple(factor * n for n in shape)
    assert finer.spacing_mm == phantoms.spacing_mm / factor
    case, more = (case_examples(volumes, 0, "honest", 10.0) for volumes in (phantoms, finer))
    # The same place of the same body: the finer images with as few voxels again are the coarse ones, nearly.
    for coarse, fine in ((case.volume, more.volume), (case.frames, more.frames)):
        blocks = F.interpolate(fine[None, None], coarse.shape, mode="trilinear")[0, 0]
        assert float((blocks - coarse).abs().mean()) < 0.5 * float((blocks.roll(1, -1) - coarse).abs().mean())
    assert torch.allclose(more.poses.translation, factor * case.poses.translation)
    assert torch.equal(more.poses.rotation, case.poses.rotation)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_step_is_recorded_for_every_shape_and_two_runs_agree(tmp_path: Path) -> None:
    longer = replace(SETTINGS, epochs=10, capture=True)
    for name in ("one", "two"):
        run = train_worlds(longer, tmp_path / name, Machine("cuda"), ranges=RANGES, quiet=True)
        assert run["progress"]["step"] == 60
    one, two = (load_network(tmp_path / name / MODEL).state_dict() for name in ("one", "two"))
    assert all(torch.equal(one[key], two[key]) for key in one)


def test_other_ranges_are_other_data(whole: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = whole
    with pytest.raises(ScopeRegError, match="other data"):
        train_worlds(SETTINGS, folder, ranges=replace(RANGES, fan_chance=0.1), quiet=True)
    with pytest.raises(ScopeRegError, match="curriculum"):
        train_worlds(replace(SETTINGS, curriculum=3), folder, ranges=RANGES, quiet=True)
