"""Presets: the settings of a network, `fast` or as its authors published them, and how long it trains."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

from scopereg.training.settings import TrainSettings

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
PRESETS = MappingProxyType({"fast": FAST, "paper": PAPER})  # of scope-reg and the arms of its ablation

FAST_MINUTES = 9.0
_USUAL_EPOCHS = (500, 1500)

# Optimiser, schedule and batch of the baselines as the paper tabulates them; under `fast` too, since they belong to
# the method. CU-Reg looks at frames in fours, see its objective.
_OWN: dict[str, dict[str, Any]] = {
    "fvr-net": {"optimizer": "adam", "learning_rate": 1e-4, "decay": "steps", "batch": 16},
    "cu-reg": {"optimizer": "adam", "learning_rate": 5e-5, "decay": "drop", "batch": 24, "frames_per_volume": 4},
    "eureg": {"optimizer": "adam", "learning_rate": 1e-4, "decay": "polynomial", "batch": 6, "frames_per_volume": 2},
    "dreamreg": {"optimizer": "adamw", "learning_rate": 1e-4, "decay": "plateau", "batch": 64},
}
_OWN_MUREGPRO: dict[str, dict[str, Any]] = {
    "fvr-net": {"learning_rate": 5e-5, "decay": "constant"},
    "cu-reg": {"decay": "constant"},
    "dreamreg": {"learning_rate": 1e-5, "plateau_factor": 0.2, "plateau_patience": 2},
}
_EPOCHS = {"fvr-net": (150, 1500), "eureg": (1000, 30000), "dreamreg": (100, 100)}  # CAMUS, mu-RegPro


def preset(name: str, network: str = "scope-reg", dataset: str = "camus") -> TrainSettings:
    """The settings of a preset for a network; those of `fast` where there is no such preset."""
    settings = replace(PRESETS.get(name, FAST), network=network)
    if settings.preset == "paper" and network == "cross-attention-heads":
        return replace(settings, learning_rate=1e-4)  # twice that of the other arms (supplement)
    if dataset == "worlds":
        settings = replace(settings, **WORLDS)
    if network not in _OWN:
        return settings
    own = {"warmup": 0, "clip": 0.0, **_OWN[network]}
    own["weight_decay"] = 0.01 if own["optimizer"] == "adamw" else 0.0
    if settings.preset == "paper" and network != "cu-reg":
        own["frames_per_volume"] = 1
    if dataset == "muregpro":
        own |= _OWN_MUREGPRO.get(network, {})
    return replace(settings, **own)


def with_length(settings: TrainSettings, dataset: str) -> TrainSettings:
    """The settings with a length, the preset's where none is given."""
    if settings.minutes is not None or settings.epochs is not None:
        return settings
    if settings.preset == "paper":
        return replace(settings, epochs=_EPOCHS.get(settings.network, _USUAL_EPOCHS)[dataset == "muregpro"])
    return replace(settings, minutes=FAST_MINUTES)
