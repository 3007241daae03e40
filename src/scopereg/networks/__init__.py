"""Networks by name: `create("scope-reg")`, `names()`; `register_network` adds one of your own."""

from __future__ import annotations

import inspect
import re
from functools import partial
from typing import Any, NamedTuple

from torch import nn

from scopereg.errors import ScopeRegError, did_you_mean
from scopereg.networks import fine
from scopereg.networks.ablations import CrossAttentionHeads, DecoderHeads, FusionHeads, TriPlane
from scopereg.networks.baselines import cu_reg, dreamreg, eureg, fvr_net
from scopereg.networks.recipe import Batch, Recipe
from scopereg.networks.scope_reg import NetworkResult, ScopeReg

__all__ = [
    "Batch",
    "NetworkResult",
    "Recipe",
    "ScopeReg",
    "create",
    "is_network",
    "names",
    "options",
    "recipe",
    "register_network",
    "usual_options",
]


_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class _Known(NamedTuple):
    """A class with the settings that make it this network and no other, and how it is trained."""

    maker: partial[Any]
    recipe: Recipe = Recipe()


_NETWORKS: dict[str, _Known] = {
    "scope-reg": _Known(partial(ScopeReg, weighted=True)),
    # Published with twice the learning rate of the other variants (supplement).
    "cross-attention-heads": _Known(partial(CrossAttentionHeads), Recipe(paper={"learning_rate": 1e-4})),
    "ssvf-heads": _Known(partial(FusionHeads)),
    "cwcd-heads": _Known(partial(DecoderHeads)),
    "cwcd-kabsch": _Known(partial(ScopeReg, weighted=False)),
    "tri-plane": _Known(partial(TriPlane)),
    "fine-stage": _Known(partial(fine.FineStage), fine.RECIPE),
    "fvr-net": _Known(partial(fvr_net.FvrNet), fvr_net.RECIPE),
    "cu-reg": _Known(partial(cu_reg.CuReg), cu_reg.RECIPE),
    "eureg": _Known(partial(eureg.EuReg), eureg.RECIPE),
    "dreamreg": _Known(partial(dreamreg.DreamReg), dreamreg.RECIPE),
}


def register_network(name: str, network: type[nn.Module], recipe: Recipe | None = None, **settings: Any) -> None:
    """Add a network of one's own, to be trained, kept, loaded and evaluated as those here are.

    `network(**settings)` makes one; its `forward(slice (B, H, W), volume (V, D, H, W))` gives a `NetworkResult`. Other
    arguments of its `__init__` are options of `create`: `shape` is given that of the volumes, `norm` that of the run.
    `recipe` holds its loss and its settings. Weights load where the network was registered before.
    """
    if name in _NETWORKS or not _PLAIN_NAME.fullmatch(name):
        raise ScopeRegError(
            f"{name!r} is taken" if name in _NETWORKS else f"{name!r} cannot be a name",
            where="register_network(name)",
            fix="choose another: letters, digits and . _ - alone",
        )
    _NETWORKS[name] = _Known(partial(network, **settings), recipe or Recipe())


def recipe(name: str) -> Recipe:
    """How a network is trained; the usual way for one that nobody knows."""
    return _NETWORKS[name].recipe if name in _NETWORKS else Recipe()


def names() -> tuple[str, ...]:
    """Networks that `create` knows."""
    return tuple(_NETWORKS)


def options(name: str) -> tuple[str, ...]:
    """Options that `create` takes for a network."""
    return _free(_maker(name, {}))


def usual_options(name: str) -> dict[str, Any]:
    """The same with what each is where it is not given."""
    parameters = inspect.signature(_maker(name, {})).parameters
    return {key: parameters[key].default for key in options(name)}


def create(name: str, **options: Any) -> nn.Module:
    """A network with fresh weights; `forward(slice (B, H, W), volume (B, D, H, W))` gives a `NetworkResult`."""
    return _maker(name, options)(**options)


def is_network(network: nn.Module, name: str, options: dict[str, Any]) -> bool:
    """Whether `network` is what `create(name, **options)` makes, without making one: that would draw random numbers."""
    maker = _maker(name, options)
    usual = {key: parameter.default for key, parameter in inspect.signature(maker).parameters.items()}
    wanted = usual | options | maker.keywords
    # Those without a trace in the network show in its weights: a file with the wrong norm does not load.
    told = {key: value for key, value in wanted.items() if value is not None}  # None: the network chooses itself
    same = (_plain(getattr(network, key, value)) == _plain(value) for key, value in told.items())
    return type(network) is maker.func and all(same)


def _plain(value: Any) -> Any:
    """A shape as JSON gives it back."""
    return list(value) if isinstance(value, tuple) else value


def _maker(name: str, given: dict[str, Any]) -> partial[Any]:
    if name not in _NETWORKS:
        raise ScopeRegError(
            f"unknown network {name!r}{did_you_mean(name, names())}",
            where="networks.create(name)",
            fix=f"use one of: {', '.join(names())}",
        )
    maker = _NETWORKS[name].maker
    known = _free(maker)
    for key in given:
        if key not in known:
            raise ScopeRegError(
                f"{name} has no option {key!r}{did_you_mean(key, known)}",
                where="networks.create(**options)",
                fix=f"use {', '.join(known)}" if known else "pass none",
            )
    return maker


def _free(maker: partial[Any]) -> tuple[str, ...]:
    """Options that do not make the network another one."""
    return tuple(key for key in inspect.signature(maker).parameters if key not in maker.keywords)
