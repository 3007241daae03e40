"""Presets: the settings of a network, `fast` or as its authors published them, and how long it trains."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from scopereg.data.registry import DATASETS
from scopereg.training.settings import TrainSettings

if TYPE_CHECKING:
    from scopereg.networks.recipe import Recipe

FAST = TrainSettings()
PAPER = TrainSettings(
    preset="paper",
    reach=1.0,
    matching=False,
    looks=1,
    protocol="paper",
    batch=6,
    frames_per_volume=1,
    learning_rate=5e-5,
    warmup=0,
    clip=0.0,
    loss="squared",
    augment=False,
    average=0.0,
    bfloat16=False,
)
# Random worlds: norms that know no contrast, twice the planes, six of them about the frame once it was found roughly,
# offsets up to 25, a curriculum for fresh weights, a longer average for a longer run.
WORLDS: dict[str, Any] = {
    "norm": "instance",
    "depth_stride": 4,
    "later_planes": 6,
    "magnitude": 25.0,
    "curriculum": 6000,
    "average": 0.9995,
    "validate_every": 2000,
}
PRESETS = MappingProxyType({"fast": FAST, "paper": PAPER})  # of scope-reg and the variants of its ablation

FAST_MINUTES = 9.0


def preset(name: str, network: str = "scope-reg", dataset: str = "camus") -> TrainSettings:
    """The settings of a preset for a network; those of `fast` where there is no such preset."""
    settings = replace(PRESETS.get(name, FAST), network=network)
    if dataset == "worlds":
        settings = replace(settings, **WORLDS)
    words = _of_dataset(dataset, network)
    if network == TrainSettings.network:  # whose recipe the presets are; asking for it would bring torch
        return replace(settings, **words)
    recipe = _recipe(network)
    own = dict(recipe.settings)
    own |= recipe.paper if settings.preset == "paper" else {}
    own |= recipe.muregpro if dataset == "muregpro" else {}
    return replace(settings, **own | words)


def with_length(settings: TrainSettings, dataset: str) -> TrainSettings:
    """The settings with a length, the preset's where none is given."""
    if settings.minutes is not None or settings.epochs is not None:
        return settings
    if settings.preset == "paper":
        added = DATASETS.added(dataset)
        if added is not None and settings.network in added.epochs:
            return replace(settings, epochs=added.epochs[settings.network])
        return replace(settings, epochs=_recipe(settings.network).epochs[dataset == "muregpro"])
    return replace(settings, minutes=FAST_MINUTES)


def _of_dataset(dataset: str, network: str) -> dict[str, Any]:
    """Settings that a dataset from outside of the package was published with for a network."""
    added = DATASETS.added(dataset)
    return {} if added is None else dict(added.presets.get(network, {}))


def _recipe(network: str) -> Recipe:
    """What belongs to the network itself."""
    from scopereg import networks  # brings torch, which the options of a command line do without

    return networks.recipe(network)
