"""A network with its loss, added from outside of the package: trained, kept, loaded and evaluated as any other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scopereg import networks
from scopereg.data.splits import split_set
from scopereg.data.store import VolumeSet
from scopereg.errors import ScopeRegError
from scopereg.evaluation.results import read_results
from scopereg.evaluation.runner import EvaluateSettings, evaluate
from scopereg.geometry import rotation_from_euler_deg
from scopereg.grid.reading import read_plan
from scopereg.networks import Batch, NetworkResult, Recipe, register_network
from scopereg.networks.weights import load_network
from scopereg.registration.method import create
from scopereg.training.fitting import MODEL, Machine, train
from scopereg.training.presets import preset
from scopereg.training.settings import TrainSettings

SHAPE = (16, 24, 24)


class Six(nn.Module):
    """Six numbers from the means of a few rows and planes; of the shape that it was made for."""

    def __init__(self, *, shape: Sequence[int] = SHAPE, hidden: int = 8) -> None:
        super().__init__()
        self.shape, self.hidden = tuple(shape), hidden
        self.layers = nn.Sequential(nn.Linear(shape[1] + shape[0], hidden), nn.Tanh(), nn.Dropout(0.2))
        self.last = nn.Linear(hidden, 6)

    def forward(self, slice: Tensor, volume: Tensor) -> NetworkResult:
        planes = volume.mean((2, 3)).repeat_interleave(len(slice) // len(volume), 0)
        six = self.last(self.layers(torch.cat([slice.mean(2), planes], 1)))
        return NetworkResult(rotation_from_euler_deg(six[:, 3:]), six[:, :3])


def objective(network: Six, batch: Batch) -> Tensor:
    """Smooth-L1 of the translation alone."""
    found = network(batch.slices, batch.volumes)
    return F.smooth_l1_loss(found.translation, batch.translation, reduction="none").mean(1)


RECIPE = Recipe(
    objective,
    settings={"optimizer": "adam", "learning_rate": 0.05, "weight_decay": 0.0, "warmup": 0, "batch": 4},
    paper={"learning_rate": 0.01},
    epochs=(7, 9),
    draws=True,
)


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    register_network("six", Six, RECIPE)
    yield
    del networks._NETWORKS["six"]


def volumes(count: int = 10) -> VolumeSet:
    low = torch.rand(count, 1, 4, 6, 6, generator=torch.Generator().manual_seed(0))
    images = (F.interpolate(low, SHAPE, mode="trilinear")[:, 0] * 255).round().byte()
    names = tuple(f"patient{row}" for row in range(count))
    return VolumeSet("tiny", images, 0.5, names, names)


def settings() -> TrainSettings:
    fast = vars(preset("fast", "six"))
    return TrainSettings(**{**fast, "epochs": 60, "magnitude": 3.0, "frames_per_volume": 2, "validate_every": 50})


def test_its_recipe_is_its_preset() -> None:
    fast, paper = preset("fast", "six"), preset("paper", "six")
    assert (fast.network, fast.optimizer, fast.learning_rate, fast.batch) == ("six", "adam", 0.05, 4)
    assert (paper.learning_rate, paper.protocol) == (0.01, "paper")
    assert networks.options("six") == ("shape", "hidden")


def test_it_is_trained_with_its_loss_kept_loaded_and_evaluated(tmp_path: Path) -> None:
    data = volumes()
    result = train(data, settings(), tmp_path / "run", Machine("cpu"), quiet=True)
    assert result["finished"]
    assert result["progress"]["loss"] < 1.4  # of three voxels at most; about 1.0 in the end, 3.8 without its loss
    network = load_network(tmp_path / "run" / MODEL)
    assert type(network) is Six
    assert network.shape == SHAPE
    method = create(tmp_path / "run" / MODEL, "cpu")
    split = split_set(data, 0, 0)
    path = evaluate(data, split, method, EvaluateSettings("honest", 3.0, 0, "test", 4, 0, None), tmp_path / "results")
    rows, facts = read_results(path)
    assert len(rows) == 8
    assert all(row.mtre_mm >= 0 for row in rows)
    assert facts["method"] == method.name


def test_plans_of_grids_know_it(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text("methods: {six: {batch: 8}}\ndataset: echo\nepochs: 2\n")
    assert read_plan(tmp_path / "plan.yaml").methods == {"six": {"batch": 8}}


@pytest.mark.parametrize(("name", "said"), [("six", "is taken"), ("eureg", "is taken"), ("a b", "cannot be a name")])
def test_names_are_given_once(name: str, said: str) -> None:
    with pytest.raises(ScopeRegError, match=said):
        register_network(name, Six)


def test_weights_of_a_network_that_nobody_registered_are_explained(tmp_path: Path) -> None:
    train(volumes(), TrainSettings(**{**vars(settings()), "epochs": 1}), tmp_path, Machine("cpu"), quiet=True)
    entry = networks._NETWORKS.pop("six")
    with pytest.raises(ScopeRegError, match="it holds a 'six', which is no network here"):
        load_network(tmp_path / MODEL)
    networks._NETWORKS["six"] = entry
